from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from mild.evaluation.sections import find_group_column, groups
from mild.metrics import joint_intervals
from report_cases import routed_rows


def gathered(costs, chosen):
    return routed_rows(["a", "b"], costs, chosen, None, None)


def two_groups(n=30):
    """In x the router gains one per row, in y it loses a half."""
    costs = np.array([[1.0, 0.0]] * n + [[0.5, 1.0]] * n)
    # The constant is a (0.75 on average; b costs 0.5 and is better): yardstick 0 all the same.
    return gathered(costs, [1] * (2 * n)), ["x"] * n + ["y"] * n


def test_differences_by_hand_from_gain_to_loss():
    evidence, labels = two_groups()
    found = groups(evidence, "source", labels[::-1], 0, 0.95)
    assert [row["name"] for row in found["rows"]] == ["y", "x"]
    found = groups(evidence, "source", labels, 0, 0.95)
    assert [(r["name"], r["estimate"], r["rows"]) for r in found["rows"]] == [
        ("x", -1.0, 30),
        ("y", 0.5, 30),
    ]
    first = found["rows"][0]
    assert (first["router"], first["constant"], first["expert"]) == (0, 1, "b")
    assert (first["asked"], first["share"]) == ("b", 1)


def test_little_groups_are_merged_and_one_alone_keeps_its_name():
    evidence, labels = two_groups()
    labels = [f"tiny {i}" if i < 10 else label for i, label in enumerate(labels)]
    found = groups(evidence, "source", labels, 0, 0.95)
    assert {row["name"]: row["rows"] for row in found["rows"]} == {
        "10 smaller groups": 10, "x": 20, "y": 30,
    }  # fmt: skip
    assert found["merged"] == 10
    alone = ["tiny" if i < 10 else label for i, label in enumerate(labels)]
    found = groups(evidence, "source", alone, 0, 0.95)
    assert {row["name"] for row in found["rows"]} == {"tiny", "x", "y"}
    assert found["merged"] == 0


def test_many_groups_leave_room_for_a_page():
    rng = np.random.default_rng(0)
    evidence = gathered(rng.random((2000, 2)), rng.integers(0, 2, 2000))
    found = groups(evidence, "subject", [f"g{i % 50}" for i in range(2000)], 0, 0.95)
    assert len(found["rows"]) == 25
    assert found["merged"] == 26
    assert sum(row["rows"] for row in found["rows"]) == 2000


def test_intervals_hold_for_all_groups_at_once():
    rng = np.random.default_rng(0)
    evidence = gathered(rng.random((400, 2)), rng.integers(0, 2, 400))
    found = groups(evidence, "subject", [f"g{i % 8}" for i in range(400)], 0, 0.95)
    row = next(row for row in found["rows"] if row["name"] == "g0")
    index = np.arange(0, 400, 8)
    difference = evidence.costs[index, evidence.chosen[index]] - evidence.costs[index, 0]
    alone = joint_intervals(difference[:, None], 0.95)
    ratio = (row["high"] - row["low"]) / float(alone.high[0] - alone.low[0])
    # 2.86 standard errors instead of 2.01, by the t distribution with 49 degrees of freedom.
    assert ratio == pytest.approx(2.86 / 2.01, abs=0.08)


def test_equal_queries_of_a_group_count_once():
    rng = np.random.default_rng(0)
    costs, chosen = np.tile(rng.random((40, 2)), (4, 1)), np.tile(rng.integers(0, 2, 40), 4)
    apart = gathered(costs, chosen)
    together = replace(apart, queries=[f"q{i % 40}" for i in range(160)])
    alone, copies = (
        groups(one, "source", ["x"] * 160, 0, 0.95)["rows"][0] for one in (apart, together)
    )
    assert copies["estimate"] == pytest.approx(alone["estimate"])
    # Four copies of each tell nothing new: the interval is about twice as wide.
    ratio = (copies["high"] - copies["low"]) / (alone["high"] - alone["low"])
    assert ratio == pytest.approx(2, abs=0.15)


def test_missing_names_and_costs_are_borne():
    costs = np.array([[1.0, 0.0], [0.0, np.nan]] * 60)
    found = groups(gathered(costs, [1, 1] * 60), "source", [None, 3] * 60, 0, 0.95)
    assert [row["name"] for row in found["rows"]] == ["unknown"]


def test_the_column_is_found_by_its_usual_name():
    n = 40
    table = pa.table({"id": range(n), "subject": ["a", "b"] * 20, "source": ["one"] * n})
    assert find_group_column(table) == "subject"
    assert find_group_column(pa.table({"source": [str(i) for i in range(n)]})) is None
    assert find_group_column(pa.table({"other": ["a", "b"] * 20})) is None
