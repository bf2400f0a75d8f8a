"""Columns that go together by name."""

from __future__ import annotations

import pytest

from mild.data.formats.base import Layout, named_columns, seconds_per


@pytest.mark.parametrize(
    ("experts", "columns"),
    [
        (["llama-8b", "llama-70b"], ["llama-70b_usd", "llama-8b_usd"]),
        (["acc_a", "acc_b"], ["usd_b", "usd_a"]),
    ],
)
def test_columns_are_paired_by_what_differs_in_their_names(experts, columns):
    paired = named_columns("prices", columns, columns, experts)
    assert paired == dict(zip(experts, columns[::-1], strict=True))


def test_one_expert_needs_no_matching_name():
    assert named_columns("prices", "usd", ["acc", "usd"], ["acc"]) == {"acc": "usd"}


def test_a_unit_is_a_part_of_a_name():
    assert seconds_per("wall-ms") == 1e-3
    assert seconds_per("LATENCY_MS") == 1e-3
    assert seconds_per("items") == 1.0


def test_some_experts_of_a_layout_keep_their_columns():
    layout = Layout("wide", {"a": "s_a", "b": "s_b"}, {"a": "p_a"}, {"b": "l_b"})
    part = layout.select_experts(["b"])
    assert (part.scores, part.prices, part.latencies) == ({"b": "s_b"}, {}, {"b": "l_b"})
    assert layout.outcome_columns == {"s_a", "s_b", "p_a", "l_b"}
