"""What ``tune`` says beside its promise: who is named, what would do without a router, who is asked."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import mild
from journeys import adapter
from journeys.commands import mild_here
from journeys.world import DOLLARS, EXPERTS, log, matrix, without

pytestmark = pytest.mark.slow

N = 400


def at_par(seed):
    """Two experts of the same quality that know different topics, one at a tenth of the other's price."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 2, N)
    right = {"dear": np.where(topic == 0, 0.9, 0.6), "fair": np.where(topic == 0, 0.6, 0.9)}
    columns = {"query": [f"{('sum', 'poem')[t]} number {row}" for row, t in enumerate(topic)]}
    for (name, shares), dollars in zip(right.items(), (0.01, 0.001), strict=True):
        columns[f"correct__{name}"] = (rng.random(N) < shares).astype(int)
        columns[f"cost__{name}"] = np.full(N, dollars)
    return pd.DataFrame(columns)


def without_text(seed):
    """A good and a cheap expert whose answers have nothing to do with the text."""
    rng = np.random.default_rng(seed)
    columns = {"query": [f"question {number}" for number in rng.choice(10_000, N, replace=False)]}
    for name, share, dollars in (("dear", 0.9, 0.01), ("cheap", 0.5, 0.001)):
        columns[f"correct__{name}"] = (rng.random(N) < share).astype(int)
        columns[f"cost__{name}"] = np.full(N, dollars)
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def columns():
    return log(91, N)


@pytest.fixture(scope="module")
def figures(columns):
    return mild.tune(pd.DataFrame(columns), keep_quality=0.9).as_dict()


@pytest.mark.parametrize("seed", range(6))
def test_the_named_expert_has_its_own_mean_and_who_is_level_is_said(seed):
    table = at_par(seed)
    quality = {name: table[f"correct__{name}"].mean() for name in ("dear", "fair")}
    found = mild.tune(table, keep_quality=0.9).as_dict()
    assert adapter.read_target(found).reference == max(quality, key=quality.get)
    assert adapter.read_reference_quality(found) == pytest.approx(max(quality.values()))
    apart = (table["correct__dear"] - table["correct__fair"]).to_numpy()
    is_level = abs(apart.mean()) <= 1.645 * apart.std(ddof=1) / np.sqrt(N)
    assert found["level"] == (["fair", "dear"] if is_level else [])


def test_who_is_not_level_is_not_said_to_be(figures):
    assert figures["level"] == []


def test_shares_and_dollars_of_the_experts_add_up(figures):
    shares = adapter.read_shares(figures)
    assert list(shares) == list(EXPERTS)
    assert sum(share for share, _ in shares.values()) == pytest.approx(1)
    total = sum(dollars for _, dollars in shares.values())
    assert total == pytest.approx(adapter.read_target(figures).dollars[0])
    for name, (share, dollars) in shares.items():
        # Prices per query are within a half of their mean.
        assert dollars == pytest.approx(1000 * share * DOLLARS[name], rel=0.5)


def test_what_would_do_without_a_router_is_what_it_is_by_hand(columns, figures):
    best = int(matrix(columns, "correct__").mean(axis=0).argmax())
    # What is expected of single experts on new queries.
    quality, dollars = adapter.read_singles(figures, EXPERTS).T
    assert quality[best] == pytest.approx(np.mean(columns[f"correct__{EXPERTS[best]}"]))
    assert dollars[best] == pytest.approx(1000 * np.mean(columns[f"cost__{EXPERTS[best]}"]))
    found = adapter.read_alternatives(figures)
    target = adapter.read_target(figures)
    assert found["router"].kept == pytest.approx(target.kept[0])
    assert found["router"].dollars == pytest.approx(target.dollars[0])
    assert found["named"].kept == 1
    assert found["named"].dollars == pytest.approx(dollars[best])
    # Only the best one holds .9 here.
    assert found["single"].dollars == pytest.approx(dollars[best])

    # The cheapest mix of two experts that has the quality of the router.
    wanted = found["router"].kept * quality[best]
    prices = [price for q, price in zip(quality, dollars, strict=True) if q >= wanted]
    for i, j in combinations(range(len(EXPERTS)), 2):
        low, high = sorted((i, j), key=quality.__getitem__)
        if quality[low] < wanted <= quality[high]:
            share = (wanted - quality[low]) / (quality[high] - quality[low])
            prices.append((1 - share) * dollars[low] + share * dollars[high])
    assert found["coin"].dollars == pytest.approx(min(prices))
    saved, low, high = adapter.read_beyond_coin(figures)
    assert saved == pytest.approx((min(prices) - found["router"].dollars) / dollars[best])
    assert 0 < low < saved < high <= 1


def test_a_cheaper_expert_that_holds_the_target_is_named(columns):
    # "medium" is right in four of five.
    found = mild.tune(pd.DataFrame(columns), keep_quality=0.7)
    dollars = 1000 * np.mean(columns["cost__medium"])
    assert adapter.read_alternatives(found.as_dict())["single"].dollars == pytest.approx(dollars)


@pytest.mark.parametrize("seed", range(4))
def test_where_the_text_says_nothing_no_router_is_said_to_beat_a_coin(seed):
    beyond = adapter.read_beyond_coin(mild.tune(without_text(seed), keep_quality=0.9).as_dict())
    assert beyond is None or beyond[1] <= 0


def test_a_target_is_a_floor_by_default(columns, figures):
    table = pd.DataFrame(columns)
    assert mild.tune(table, keep_quality=0.9, target_probability=0.8).as_dict() == figures
    on_average = mild.tune(table, keep_quality=0.9, target_probability=0.5).as_dict()
    promised = adapter.read_target(figures)
    assert promised.kept[0] > adapter.read_target(on_average).kept[0]
    assert adapter.read_target(on_average).kept[0] == pytest.approx(0.9)
    assert promised.dollars[0] > adapter.read_target(on_average).dollars[0]


def test_a_budget_is_used(columns):
    # The best expert alone takes four times as much.
    budget = 3.0
    promised = {}
    for probability in (0.5, 0.95):
        found = mild.tune(pd.DataFrame(columns), max_dollars=budget, target_probability=probability)
        promised[probability] = adapter.read_target(found.as_dict())
    assert promised[0.5].dollars[0] == pytest.approx(budget, rel=0.01)
    assert budget * 0.8 < promised[0.95].dollars[0] < budget
    assert promised[0.95].dollars[2] < budget * 1.05


def test_without_a_goal_most_of_the_quality_is_kept_for_fewer_dollars(columns, tmp_path):
    table = pd.DataFrame(columns)
    table.to_csv(tmp_path / "log.csv", index=False)
    wanted = mild.tune(table, keep_quality=0.95)
    found = mild.tune(table)
    assert found.router.route(columns["query"]) == wanted.router.route(columns["query"])
    assert found.as_dict() == {**wanted.as_dict(), "goal": found.goal}
    assert found.goal == found.sentences[0]
    assert wanted.goal is None
    printed = mild_here(tmp_path, [*adapter.tune("log.csv", "router"), "--json"])
    assert printed.figures["target"] == json.loads(json.dumps(wanted.as_dict()["target"]))

    # Where no dollars are known, the mean error is the least.
    free = mild.read_outcomes(pd.DataFrame(without(columns, "cost__")))
    assert mild.tune(free).target is None
    assert mild.tune(table, price_weight=0).target is None


def one_expert(columns):
    return {name: cells for name, cells in columns.items() if not name.endswith(EXPERTS[1:])}


def no_right_answer(columns):
    return {
        name: [0] * len(cells) if name.startswith("correct__") else cells
        for name, cells in columns.items()
    }


@pytest.mark.parametrize(
    ("what", "spoil", "goal"),
    [
        ("one expert", one_expert, {"keep_quality": 0.9}),
        ("one expert", one_expert, {}),
        ("no right answer", no_right_answer, {"keep_quality": 0.9}),
        ("no right answer", no_right_answer, {"price_weight": 20}),
        ("a share in percent", dict, {"keep_quality": 95}),
        ("a share in percent", dict, {"keep_quality": 2}),
    ],
)
def test_what_cannot_be_tuned_is_refused(what, spoil, goal, columns, tmp_path):
    table = pd.DataFrame(spoil(columns))
    error, code = adapter.UNTUNABLE[what]
    with pytest.raises(error) as caught:
        mild.tune(table, **goal)
    assert caught.value.code == code
    table.to_csv(tmp_path / "log.csv", index=False)
    options = [
        word for name, value in goal.items() for word in (f"--{name}".replace("_", "-"), value)
    ]
    words = [*adapter.tune("log.csv", "router"), *map(str, options), "--json"]
    refused = mild_here(tmp_path, words)
    assert refused.code == 1
    assert refused.figures["code"] == code
    assert [file.name for file in tmp_path.iterdir()] == ["log.csv"]
