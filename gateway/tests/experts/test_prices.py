"""Dollars of an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild_gateway.experts.prices import (
    Price,
    TokenBounds,
    Usage,
    UsageMeter,
    asked_answers,
    asked_tokens,
    estimate_tokens,
    most_tokens,
    read_usage,
    written_bytes,
)


def test_tokens_and_queries_add_up():
    price = Price(per_million_in=2.0, per_million_out=10.0, per_query=0.5)
    assert price.of(Usage(1_000_000, 100_000)) == pytest.approx(3.5)
    assert price.of(None) == 0.5


def test_an_unknown_price_is_not_a_price_of_nothing():
    assert not Price().known
    assert Price(per_query=0.0).known
    assert Price(per_million_in=0.0).known


@given(st.text())
def test_the_estimate_is_never_above_the_most(text):
    assert 0 <= estimate_tokens(text) <= most_tokens(text)


@pytest.mark.parametrize(
    ("document", "tokens"),
    [
        ({}, 0),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 1, "max_tokens": 5000}, 5000),
        ({"max_completion_tokens": 5000, "max_tokens": 1}, 5000),
        ({"max_output_tokens": 5000, "max_tokens": 1}, 5000),
        ({"max_tokens": "5000"}, 5000),
        ({"max_tokens": 5000.0}, 5000),
        ({"max_tokens": None}, 0),
        ({"max_tokens": True}, 0),
        ({"max_tokens": "many"}, 0),
        ({"max_tokens": float("inf")}, 0),
        ({"max_tokens": float("nan")}, 0),
        ({"max_tokens": -5}, 0),
        ({"max_tokens": [5]}, 0),
        ({"max_tokens": 10**13}, 10**7),
    ],
)
def test_the_length_of_an_answer_is_put_aside_however_it_is_written(document, tokens):
    assert asked_tokens(document) == tokens


@pytest.mark.parametrize("endpoint", ["/chat/completions", "/completions", "/messages"])
def test_a_limit_that_an_endpoint_ignores_does_not_count(endpoint):
    document = {"max_output_tokens": 1, "input": "x"}
    assert asked_tokens(document, endpoint) == 0
    assert asked_tokens(document, "/responses") == 1


@pytest.mark.parametrize(
    ("document", "answers"),
    [
        ({"n": "3"}, 3),
        ({"n": 2, "best_of": 4}, 4),
        ({"prompt": ["a", "b"]}, 2),
        ({"prompt": ["a", "b"], "n": 3}, 6),
        ({"prompt": [1, 2, 3]}, 1),
    ],
)
def test_every_answer_that_is_asked_for_is_put_aside(document, answers):
    assert asked_answers(document) == answers


IMPOSSIBLE = [
    None,
    5,
    [],
    {},
    {"prompt_tokens": -1, "completion_tokens": 9},
    {"prompt_tokens": "5", "completion_tokens": 9},
    {"completion_tokens": 9},
    {"prompt_tokens": 5},
    {"prompt_tokens": 5, "completion_tokens": 0},
    {"prompt_tokens": 5, "completion_tokens": -9},
    {"prompt_tokens": 5, "completion_tokens": True},
    {"prompt_tokens": 5, "completion_tokens": float("nan")},
    {"prompt_tokens": 5, "completion_tokens": 10**12},
    {"prompt_tokens": 10**12, "completion_tokens": 9},
    {"prompt_tokens": 5000, "completion_tokens": 3001},
    {"prompt_tokens": 8001, "completion_tokens": 1},
    {"input_tokens": 5, "output_tokens": 0},
    {"input_tokens": 10**12, "output_tokens": 9},
]


@pytest.mark.parametrize("said", IMPOSSIBLE, ids=str)
def test_a_usage_that_makes_no_sense_is_estimated(said):
    meter = UsageMeter()
    meter.add({"choices": [{"message": {"content": "x" * 1200}}], "usage": said}, True)
    found = meter.charged(TokenBounds(300, 3000, 300, context=5000))
    assert (found.tokens_out, found.estimated) == (400, True)
    assert found.tokens_in in (5, 100)


@pytest.mark.parametrize(("context", "whole"), [(5000, True), (4999, False), (None, True)])
def test_the_final_usage_is_charged_up_to_the_context_and_max_tokens(context, whole):
    meter = UsageMeter(Usage(5000, 3000), final=True, events=9, bytes_out=60_000)
    found = meter.charged(TokenBounds(300, 3000, 300, context))
    assert found == (Usage(5000, 3000) if whole else Usage(100, 3000, True))


def test_a_list_of_texts_may_have_more_tokens_than_the_context():
    meter = UsageMeter(Usage(9000, 0), final=True)
    assert meter.charged(TokenBounds(10_000, 0, 10_000, context=512)) == Usage(9000, 0)


@given(
    st.integers(0, 10**7),
    st.integers(0, 10**7),
    st.booleans(),
    st.integers(0, 10**6),
    st.integers(0, 10**7),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_input_is_charged_as_reported_and_output_at_most_as_reserved(
    tokens_in, tokens_out, final, events, bytes_out, bytes_in, max_tokens
):
    usage = Usage(tokens_in, tokens_out, cached_in=tokens_in)
    found = UsageMeter(usage, final, events, bytes_out).charged(
        TokenBounds(bytes_in, max_tokens, bytes_in, context=10**6)
    )
    assert found.cached_in <= found.tokens_in
    if found.estimated:
        assert found.tokens_in in (tokens_in, -(-bytes_in // 3))
        assert min(max_tokens, max(events, bytes_out // 3)) <= found.tokens_out <= max_tokens
    else:
        assert found == usage


def test_usage_that_is_followed_by_content_is_not_final():
    meter = UsageMeter()
    content = {"choices": [{"delta": {"content": "x" * 900}}]}
    meter.add(content, False)
    meter.add({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 300}}, False)
    meter.add(content, False)
    assert meter.charged(TokenBounds(300, 3000, 300)) == Usage(7, 600, True)


@pytest.mark.parametrize(("tokens", "charged"), [(28, 300), (29, 29)])
def test_a_final_usage_of_few_tokens_for_much_content_is_estimated(tokens, charged):
    meter = UsageMeter()
    usage = {"prompt_tokens": 7, "completion_tokens": tokens}
    meter.add({"choices": [{"message": {"content": "x" * 900}}], "usage": usage}, True)
    assert meter.charged(TokenBounds(300, 3000, 300))[:2] == (7, charged)


def test_partial_usage_counts_where_it_is_the_largest():
    meter = UsageMeter()
    for tokens in (10, 50):
        usage = {"prompt_tokens": 7, "completion_tokens": tokens}
        meter.add({"choices": [{"delta": {"content": "x"}}], "usage": usage}, False)
    assert meter.charged(TokenBounds(300, 3000, 300)) == Usage(7, 50, True)
    meter.add({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 60}}, False)
    assert meter.charged(TokenBounds(300, 3000, 300)) == Usage(7, 60)


@pytest.mark.parametrize(
    ("document", "size"),
    [
        ({"choices": [{"text": "abc"}, {"text": "de"}]}, 5),
        ({"choices": [{"delta": {"content": None, "role": "assistant"}}]}, 0),
        ({"choices": [{"message": {"content": [{"type": "text", "text": "üü"}]}}]}, 4),
        ({"choices": [{"message": {"refusal": "no"}, "logprobs": {"content": [{"token": "n"}]}}]}, 2),
        ({"choices": [{"delta": {"reasoning": "abc", "reasoning_content": "abc"}}]}, 3),
        ({"choices": [{"delta": {"reasoning": None, "reasoning_content": "abc"}}]}, 3),
        ({"choices": [{"delta": {"tool_calls": [{"id": "c", "function": {"arguments": "{}"}}]}}]}, 2),
        ({"choices": [{"message": {"function_call": {"arguments": "{}"}}}]}, 2),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "abc"}}, 3),
        ({"delta": {"type": "thinking_delta", "thinking": "abc", "signature": "xyz"}}, 3),
        ({"delta": {"type": "input_json_delta", "partial_json": "{}"}}, 2),
        ({"content": [{"type": "tool_use", "name": "f", "input": {"a": "ü"}}]}, len('{"a": "ü"}') + 1),
        ({"content": [{"type": "thinking", "thinking": "abc"}, {"type": "text", "text": "d"}]}, 4),
        ({"data": [{"embedding": [1.0]}], "object": "list"}, 0),
        ({"choices": "x", "content": 5, "delta": [[None]]}, 1),
        ({"choices": [{"delta": {"content": "\ud800"}}]}, 1),
    ],
)  # fmt: skip
def test_bytes_of_content_reasoning_and_arguments_are_counted(document, size):
    assert written_bytes(document) == size


@pytest.mark.parametrize(
    ("details", "cached"),
    [
        ({"cached_tokens": 600}, 600),
        ({"cached_tokens": 5000}, 1000),
        ({"cached_tokens": -1}, 0),
        ({"cached_tokens": "600"}, 0),
        ({"cached_tokens": None}, 0),
        ({}, 0),
        (None, 0),
        ([600], 0),
    ],
)
def test_cached_tokens_are_charged_at_their_price_and_never_paid_back(details, cached):
    meter = UsageMeter()
    meter.read({"prompt_tokens": 1000, "prompt_tokens_details": details}, True)
    usage = meter.charged(TokenBounds(3000, 100, 3000))
    assert (usage.tokens_in, usage.cached_in) == (1000, cached)
    price = Price(2.0, 8.0, per_million_cached_in=0.5)
    assert price.of(usage) == pytest.approx((1000 - cached) * 2e-6 + cached * 0.5e-6)
    assert Price(2.0, 8.0).of(usage) == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("more", "tokens_out"),
    [
        ({}, 5),
        ({"total_tokens": 15}, 5),
        ({"total_tokens": 3015}, 3005),
        ({"total_tokens": 3}, 5),
        ({"total_tokens": 10**9}, 5),
        ({"total_tokens": "3015"}, 5),
        ({"completion_tokens_details": {"reasoning_tokens": 3000}}, 3005),
        ({"completion_tokens_details": {"reasoning_tokens": 4}}, 5),
        ({"completion_tokens_details": None, "total_tokens": None}, 5),
    ],
)
def test_reasoning_is_output_wherever_it_is_counted(more, tokens_out):
    usage = read_usage({"prompt_tokens": 10, "completion_tokens": 5, **more})
    assert (usage.tokens_in, usage.tokens_out) == (10, tokens_out)


def test_an_answer_that_is_broken_off_is_charged_as_reserved_unless_its_usage_came():
    bounds = TokenBounds(tokens_in=300, tokens_out=8000, bytes_in=300)
    meter = UsageMeter(events=2, bytes_out=30)
    assert meter.charged(bounds, broken_off=True) == Usage(100, 8000, estimated=True)
    meter.read({"prompt_tokens": 50, "completion_tokens": 20}, False)
    assert meter.charged(bounds, broken_off=True) == Usage(50, 8000, estimated=True)
    meter.read({"prompt_tokens": 50, "completion_tokens": 20}, True)
    assert meter.charged(bounds, broken_off=True) == Usage(50, 20)


def test_cached_input_that_is_counted_apart_is_no_output():
    reported = {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "total_tokens": 905,
        "prompt_tokens_details": {"cached_tokens": 800},
    }
    assert read_usage(reported).tokens_out == 5
