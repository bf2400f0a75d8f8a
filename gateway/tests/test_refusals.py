"""Refusals have OpenAI's shape, whatever they are made of."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild.errors import MildError
from mild_gateway.refusals import Refusal


@given(st.text(), st.none() | st.text(), st.none() | st.text())
def test_the_body_is_ascii_json_in_openais_shape(message, code, param):
    body = Refusal(400, message, code=code, param=param).body()
    assert body.isascii()
    assert json.loads(body) == {
        "error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "authentication_error"),
        (402, "insufficient_quota"),
        (404, "invalid_request_error"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (502, "server_error"),
    ],
)
def test_the_kind_goes_with_the_status(status, kind):
    assert Refusal(status, "No.").kind == kind


@pytest.mark.parametrize(("seconds", "said"), [(0.0, "1"), (0.2, "1"), (1.0, "1"), (59.01, "60")])
def test_retry_after_is_whole_seconds_rounded_up(seconds, said):
    refusal = Refusal(429, "No.", retry_after=seconds, headers={"x-a": "b"})
    assert refusal.headers == {"x-a": "b", "Retry-After": said}


def test_it_is_an_error_of_ours():
    assert issubclass(Refusal, MildError)
    assert str(Refusal(404, "No such model.")) == "No such model."
