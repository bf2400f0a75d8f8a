"""An expert of either API: where it is asked, with which headers and which body."""

from __future__ import annotations

import json

import pytest

from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import Usage
from mild_gateway.experts.replies import Reply, read_reply
from mild_gateway.experts.secrets import Secret

URL = "http://127.0.0.1:1/v1"


def expert(**more):
    secret = Secret("sk-1", "a test")
    return Expert("small", URL, "claude", secret=secret, **{"api": "anthropic", **more})


def test_an_anthropic_expert_is_asked_for_messages():
    small = expert(system="Be kind.", max_tokens=9, extra={"temperature": 0.5, "top_k": 3})
    assert small.request("Hi") == {
        "url": f"{URL}/messages",
        "body": {
            "model": "claude",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            "system": "Be kind.",
            "temperature": 0.5,
            "top_k": 3,
        },
    }


@pytest.mark.parametrize(
    ("more", "headers"),
    [
        ({}, {"anthropic-version": "2023-06-01", "x-api-key": "sk-1"}),
        (
            {"headers": {"Anthropic-Version": "2030-01-01"}, "api_key_header": "Authorization"},
            {"Anthropic-Version": "2030-01-01", "Authorization": "Bearer sk-1"},
        ),
        ({"api": "openai"}, {"Authorization": "Bearer sk-1"}),
    ],
)
def test_the_key_is_sent_as_the_api_wants_it(more, headers):
    assert expert(**more).sent_headers() == headers


def test_a_message_is_a_reply():
    message = {
        "type": "message",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 3},
    }
    found = read_reply(200, {}, json.dumps(message).encode())
    assert found == Reply("Hello", Usage(7, 3, cached_in=2), "length")


@pytest.mark.parametrize("content", [{"type": "message"}, {"type": "message", "content": [7]}, {}])
def test_what_is_no_message_is_no_reply(content):
    with pytest.raises(ExpertError):
        read_reply(200, {}, json.dumps(content).encode())
