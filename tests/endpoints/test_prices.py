"""Dollars of an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild.endpoints.prices import (
    Price,
    Usage,
    UsageMeter,
    asked_answers,
    asked_tokens,
    estimate_tokens,
    most_tokens,
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
    ],
)
def test_the_length_of_an_answer_is_put_aside_however_it_is_written(document, tokens):
    assert asked_tokens(document) == tokens


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


@pytest.mark.parametrize(
    "said", [None, 5, {}, {"prompt_tokens": -1}, {"prompt_tokens": "5"}, {"completion_tokens": 5}]
)
def test_a_usage_that_makes_no_sense_is_estimated(said):
    usage = UsageMeter(300, pieces_out=4)
    usage.read({"usage": said})
    assert (usage.tokens_in, usage.tokens_out) == (None, None)
    assert usage.dollars(Price(1.0, 1.0)) == pytest.approx(104e-6)


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
    usage = UsageMeter(0)
    usage.read({"usage": {"prompt_tokens": 1000, "prompt_tokens_details": details}})
    assert (usage.tokens_in, usage.cached_in) == (1000, cached)
    price = Price(2.0, 8.0, per_million_cached_in=0.5)
    assert usage.dollars(price) == pytest.approx((1000 - cached) * 2e-6 + cached * 0.5e-6)
    assert usage.dollars(Price(2.0, 8.0)) == pytest.approx(2e-3)
