"""Figures of a table, against counting by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mild.data import read_outcomes
from mild.metrics import best_constant, oracle_loss


def make(scores, prices=None):
    scores = np.asarray(scores, float)
    columns = {"prompt": [f"q{i}" for i in range(len(scores))]}
    for k in range(scores.shape[1]):
        columns[f"score__{k}"] = pa.array(scores[:, k], from_pandas=True)
        if prices is not None:
            columns[f"cost__{k}"] = pa.array(np.asarray(prices, float)[:, k], from_pandas=True)
    return read_outcomes(pa.table(columns))


def column(report, key):
    """One figure of every expert, by name."""
    return {expert["name"]: expert[key] for expert in report["experts"]}


cell = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 0.25]), st.just(math.nan))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cell, cell, cell), min_size=1, max_size=6), st.data())
def test_every_share_is_that_of_counting_row_by_row(rows, data):
    rows = [(*row[:2], row[2] if not all(map(math.isnan, row)) else 1.0) for row in rows]
    if any(all(math.isnan(row[k]) for row in rows) for k in range(3)):
        rows.append((0.0, 1.0, 0.0))
    betas = data.draw(st.lists(st.sampled_from([0.0, 0.1, 0.6]), min_size=3, max_size=3))
    table = make(rows)
    beta = {str(k): value for k, value in enumerate(betas)}
    report = table.describe(beta=beta).as_dict()
    means = [np.nanmean([row[k] for row in rows]).round(12) for k in range(3)]
    first, only, everyone, nobody = [0] * 3, [0] * 3, 0, 0
    for row in rows:
        asked = [k for k in range(3) if not math.isnan(row[k])]
        right = [k for k in asked if row[k] >= 0.5]
        everyone += len(right) == len(asked)
        nobody += not right
        if len(right) == 1 and len(asked) > 1:
            only[right[0]] += 1
        if right:
            first[min(right, key=lambda k: (betas[k], -means[k], k))] += 1
    n = len(rows)
    assert report["all_right"] == pytest.approx(everyone / n)
    assert report["all_wrong"] == pytest.approx(nobody / n)
    assert report["some_right"] == pytest.approx(1 - (everyone + nobody) / n, abs=1e-12)
    accuracies = [expert["accuracy"] for expert in report["experts"]]
    assert accuracies == sorted(accuracies, reverse=True)
    for expert in report["experts"]:
        k = int(expert["name"])
        assert expert["only_right"] == pytest.approx(only[k] / n)
        known = [row[k] for row in rows if not math.isnan(row[k])]
        assert expert["asked"] == len(known)
        assert expert["accuracy"] == pytest.approx(sum(known) / len(known))
        if any(betas[j] for j in range(3) if any(not math.isnan(row[j]) for row in rows)):
            assert expert["cheapest_and_right"] == pytest.approx(first[k] / n)
        else:
            assert expert["cheapest_and_right"] is None
    assert sum(expert["oracle_share"] for expert in report["experts"]) == pytest.approx(1)


def test_yardsticks_are_those_of_the_metrics():
    table = make([[1, 0], [0, 1], [1, 1], [1, 0]])
    costs = table.costs(beta={"0": 0.5})
    report = table.describe(beta={"0": 0.5}).as_dict()
    constant = best_constant(costs)
    assert report["best_constant"] == {"expert": "1", "cost": 0.5, "accuracy": 0.5}
    assert report["best_constant"]["cost"] == constant.cost
    assert report["oracle"] == {"cost": oracle_loss(costs), "accuracy": 1.0}
    assert report["headroom"] == constant.cost - oracle_loss(costs)
    shares = [expert["oracle_share"] for expert in report["experts"]]
    assert report["imbalance"] == {"largest": max(shares), "smallest": min(shares)}


def test_prices_decide_who_is_cheapest_where_asking_costs_nothing():
    table = make([[1, 1], [1, 1], [0, 1]], prices=[[0.2, 0.1], [0.1, 0.2], [0.1, 0.2]])
    report = table.describe().as_dict()
    assert column(report, "cheapest_and_right") == {"0": 1 / 3, "1": 2 / 3}
    assert column(report, "mean_price")["0"] == pytest.approx(0.4 / 3)
    table = make([[1, 1], [0, 1]], prices=[[np.nan, 0.5], [np.nan, 0.25]])
    report = table.describe().as_dict()
    assert column(report, "mean_price") == {"0": None, "1": 0.375}
    assert report["experts"][0]["mean_latency"] is None


def test_ties_of_the_oracle_go_to_the_lower_price_then_to_the_higher_score():
    tied = make([[1, 1], [0, 0], [1, 0]], prices=[[0.2, 0.1], [0.2, 0.1], [0.2, 0.1]])
    report = tied.describe().as_dict()
    assert column(report, "oracle_share") == {"0": 1 / 3, "1": 2 / 3}
    # A right answer for 0.5 and half of one for nothing have the same loss.
    soft = make([[0.5, 1.0], [0.5, 1.0]])
    report = soft.describe(beta={"1": 0.5}).as_dict()
    assert column(report, "oracle_share") == {"0": 0, "1": 1}
    assert report["oracle"] == {"cost": 0.5, "accuracy": 1.0}


def test_the_report_is_json():
    table = make([[1, 0.5], [0, 0.5], [1, np.nan]])
    report = table.describe().as_dict()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["soft_scores"] is True
    assert [finding["kind"] for finding in report["findings"]] == [
        "missing",
        "constant",
        "compared",
    ]


def test_the_gain_is_taken_over_rows_that_have_every_expert():
    whole = [[1, 0], [0, 1], [1, 0], [1, 1], [1, 0], [0, 0]]
    table = make([*whole, [0, np.nan], [0, np.nan], [np.nan, 1]])
    report = table.describe().as_dict()
    alone = make(whole).describe().as_dict()
    for key in ("oracle", "best_constant", "headroom"):
        assert report[key] == alone[key]
    assert report["compared"]["rows"] == 6
    assert (
        "over the 6 rows of 9 in which every expert was asked" in report["findings"][-1]["sentence"]
    )
    assert all(finding["kind"] != "compared" for finding in alone["findings"])


def test_no_headroom_is_shown_for_few_complete_rows():
    table = make([[1, 0], [0, 1], [np.nan, 1]])
    report = table.describe().as_dict()
    assert report["headroom"] is None
    assert report["oracle"]["cost"] is None
    assert "is not shown: there are only 2 rows" in report["findings"][-1]["sentence"]
