"""Replies of endpoints, good and bad."""

from __future__ import annotations

import json
import time

import pytest

from mild.endpoints.prices import Usage
from mild.endpoints.replies import NoAnswerError, Reply, read_reply, retry_after


def completion(content, **more):
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]} | more).encode()


def failure(status, body=b"{}", headers=None):
    with pytest.raises(NoAnswerError) as caught:
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
    assert found.again
    assert found.paid
    assert not found.closed


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405, 301, 302])
def test_a_closed_endpoint_is_not_asked_again(status):
    found = failure(status, b'{"error": {"message": "no\\nway"}}')
    assert found.closed
    assert not found.again
    assert found.reason == f"HTTP {status}: no way"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
def test_a_busy_endpoint_is_asked_again_and_costs_nothing(status):
    found = failure(status, b"busy", {"Retry-After": "7"})
    assert found.again
    assert not found.paid
    assert found.wait == 7
    assert found.reason == f"HTTP {status}: busy"


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_wrong_question_is_given_up_and_others_go_on(status):
    found = failure(status)
    assert not found.again
    assert not found.closed


def test_an_empty_purse_closes_the_endpoint_although_it_looks_busy():
    body = json.dumps({"error": {"message": "pay", "code": "insufficient_quota"}}).encode()
    assert failure(429, body).closed


def test_errors_inside_a_good_status_count_by_their_code():
    assert failure(200, b'{"error": {"code": 429, "message": "busy"}}').again
    assert failure(200, b'{"error": {"code": 401, "message": "no"}}').closed
    assert failure(200, b'{"error": "strange"}').reason == "error in the reply: strange"


def test_long_reasons_are_cut():
    assert len(failure(400, b"x" * 10_000).reason) < 400


def test_retry_after_takes_seconds_and_dates():
    assert retry_after(None) is None
    assert retry_after("0") == 0
    assert retry_after("-3") == 0
    assert retry_after("nan") is None
    assert retry_after("never") is None
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    assert 27 < retry_after(date) <= 30
    assert retry_after("Thu, 01 Jan 1970 00:00:00 GMT") == 0
