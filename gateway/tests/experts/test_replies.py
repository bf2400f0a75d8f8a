"""Replies of endpoints, good and bad."""

from __future__ import annotations

import json
import time

import pytest

from mild_gateway.experts.errors import ExpertError, retry_after
from mild_gateway.experts.prices import Usage
from mild_gateway.experts.replies import Reply, read_reply


def completion(content, **more):
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]} | more).encode()


def failure(status, body=b"{}", headers=None):
    with pytest.raises(ExpertError) as caught:
        read_reply(status, headers or {}, body)
    return caught.value


def test_a_completion_is_read():
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    assert read_reply(200, {}, completion("Bern", usage=usage)) == Reply(
        "Bern", Usage(3, 1), "stop"
    )
    usage["prompt_tokens_details"] = {"cached_tokens": 2}
    assert read_reply(200, {}, completion("Bern", usage=usage)).usage == Usage(3, 1, cached_in=2)


def test_parts_are_joined_and_a_refusal_is_an_answer_without_words():
    parts = [{"type": "text", "text": "Be"}, {"type": "text", "text": "rn"}]
    assert read_reply(200, {}, completion(parts)).text == "Bern"
    assert read_reply(200, {}, completion(None)).text == ""


def test_half_a_surrogate_pair_is_left_out():
    """A model that is cut off within an emoji ends in one; no database takes it."""
    assert read_reply(200, {}, completion("Bern \ud83d")) == Reply("Bern ?", None, "stop")
    whole = "Bern \N{GRINNING FACE}"
    assert read_reply(200, {}, completion(whole)).text == whole


@pytest.mark.parametrize(
    "usage",
    [None, {}, [], {"prompt_tokens": -1, "completion_tokens": 1}, {"prompt_tokens": "3"},
     {"prompt_tokens": True, "completion_tokens": 1}, {"prompt_tokens": 3}],
)  # fmt: skip
def test_usage_that_makes_no_sense_is_none(usage):
    assert read_reply(200, {}, completion("x", usage=usage)).usage is None


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b"\xff\xfe",
     b'{"choices": [{"message": {"content": 3}}]}', b'{"choices": [{"message": []}]}', b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_completion_may_be_paid_for_and_is_asked_again(body):
    found = failure(200, body)
    assert found.kind == "garbled"
    assert found.may_cost
    assert not found.permanent


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405, 301, 302])
def test_a_closed_endpoint_is_not_asked_again(status):
    found = failure(status, b'{"error": {"message": "no\\nway"}}')
    assert found.permanent
    assert found.detail == f"HTTP {status}: no way"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
def test_a_busy_endpoint_is_asked_again_and_costs_nothing(status):
    found = failure(status, b"busy", {"Retry-After": "7"})
    assert found.kind == ("rate" if status == 429 else "server")
    assert not found.may_cost
    assert not found.permanent
    assert found.retry_after == 7
    assert found.detail == f"HTTP {status}: busy"


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_wrong_question_is_given_up_and_others_go_on(status):
    found = failure(status)
    assert found.kind == "client_error"
    assert not found.permanent


def test_an_empty_purse_closes_the_endpoint_although_it_looks_busy():
    body = json.dumps({"error": {"message": "pay", "code": "insufficient_quota"}}).encode()
    assert failure(429, body).permanent


def test_errors_inside_a_good_status_count_by_their_code():
    assert failure(200, b'{"error": {"code": 429, "message": "busy"}}').kind == "rate"
    assert failure(200, b'{"error": {"code": 401, "message": "no"}}').permanent
    assert failure(200, b'{"error": "strange"}').detail == "error in the reply: strange"


def test_long_reasons_are_cut():
    assert len(failure(400, b"x" * 10_000).detail) < 400


def test_retry_after_takes_seconds_and_dates():
    def wait(said):
        return retry_after({"Retry-After": said})

    assert retry_after({}) is None
    assert wait("0") == 0
    assert wait("-3") == 0
    assert wait("nan") is None
    assert wait("never") is None
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    assert 27 < wait(date) <= 30
    assert wait("Thu, 01 Jan 1970 00:00:00 GMT") == 0
    assert retry_after({"retry-after-ms": "x", "Retry-After": "4"}) == 4
