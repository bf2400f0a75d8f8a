"""Dollars of an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild.endpoints.prices import Price, Usage, estimate_tokens, most_tokens


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
