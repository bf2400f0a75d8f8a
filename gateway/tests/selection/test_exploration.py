"""``explore = "auto"``: whom exploration asks, how often, and what it may spend."""

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cascade_cases import cascade_router
from fake_upstream import FakeUpstream
from gateway_cases import KeptLedger, ask, chat, expert, gateway, priced_router, rows
from mild.artifact import load
from mild.artifact.info import RouterInfo, TableInfo
from mild_gateway.access import Access
from mild_gateway.config import RoutingSettings, Settings
from mild_gateway.decide import standard_errors
from mild_gateway.experts.expert import Expert
from mild_gateway.selection.exploration import MIN_EXPLORE, AutoExploration
from mild_gateway.selection.models import ModelRequest
from mild_gateway.selection.selector import ExpertSelector
from mild_gateway.server.context import AppContext
from mild_gateway.versions import load_candidate, read_versions, write_version

NAMES = ("a", "b", "c")
ERRORS = (0.3, 0.1, 0.2)


def sure(router, *errors):
    known = dict(zip(router.experts, errors, strict=True))
    return replace(router, info=replace(router.info, standard_errors=known))


def make(*errors, costs=ERRORS, weight=1.0, prices=(0.0, 0.0, 0.0)):
    return sure(priced_router(NAMES, costs, prices, weight), *(errors or (0.05, 0.05, 0.05)))


def shares(auto, able=(0, 1, 2), best=1, costs=ERRORS, dollars=None):
    features = np.zeros(auto_features(), np.float32)
    return np.array(auto.probabilities(best, able, costs, features, dollars))


def auto_features():
    return priced_router(NAMES, ERRORS, (0, 0, 0)).n_features


@pytest.mark.parametrize("candidate", [None, make(costs=(0.05, 0.4, 0.4))])
@pytest.mark.parametrize("most", [0.0, 0.01, 0.2, 0.6])
def test_they_are_probabilities_and_the_preferred_expert_keeps_its_share(candidate, most):
    rng = np.random.default_rng(0)
    for _ in range(50):
        auto = AutoExploration(make(*rng.uniform(0, 0.3, 3)), candidate, most)
        able = rng.permutation(3)[: rng.integers(1, 4)].tolist()
        found = shares(auto, able, best=able[0], costs=rng.random(3))
        assert found.sum() == pytest.approx(1)
        assert (found >= 0).all()
        assert not found[[k for k in range(3) if k not in able]].any()
        assert found[able[0]] >= 1 - most - 1e-12
        if len(able) == 1:
            assert found[able[0]] == 1


def test_the_explored_share_falls_with_the_standard_errors():
    explored = [
        1 - shares(AutoExploration(make(*[error] * 3), None, 0.9))[1]
        for error in (1.0, 0.3, 0.1, 0.03, 0.001)
    ]
    assert explored == sorted(explored, reverse=True)
    assert explored[0] > 0.5
    assert explored[-1] == pytest.approx(MIN_EXPLORE)


def test_it_asks_those_that_may_be_the_best():
    found = shares(AutoExploration(make(0.001, 0.001, 0.2), None, 0.5))
    assert found[2] > 0.2
    assert found[0] == 0
    # Nobody may be: each of the others a little.
    found = shares(AutoExploration(make(0, 0, 0), None, 0.5))
    assert found == pytest.approx([MIN_EXPLORE / 2, 1 - MIN_EXPLORE, MIN_EXPLORE / 2])


def test_half_of_the_exploration_goes_to_what_the_candidate_would_choose():
    router, candidate = make(), make(0.001, 0.001, 0.001, costs=(0.05, 0.4, 0.4))
    found = shares(AutoExploration(router, candidate, 0.3))
    assert found[1] == pytest.approx(0.7)
    assert found[0] >= 0.15
    # It chooses alike, or its choice cannot serve: its standard errors say how much.
    alike = make(0.001, 0.001, 0.001)
    assert shares(AutoExploration(router, alike, 0.3))[1] == 1 - MIN_EXPLORE
    assert shares(AutoExploration(router, candidate, 0.3), able=(1, 2))[0] == 0


@pytest.mark.parametrize("prices", [(0.0, 0.001, 1.0), (1.0, 0.001, 0.0), (0.0, 0.0, 0.0)])
def test_above_the_least_share_exploration_spends_at_most_its_share_of_the_dollars(prices):
    rng = np.random.default_rng(1)
    auto = AutoExploration(make(0.3, 0.3, 0.3), make(costs=(0.05, 0.4, 0.4)), 0.1)
    total = explored = requests = 0.0
    for number in range(1, 2001):
        dollars = np.array(prices) * rng.gamma(1)
        found = shares(auto, dollars=dollars.tolist())
        total, explored = total + found @ dollars, explored + found[[0, 2]] @ dollars[[0, 2]]
        requests += 1 - found[1]
        if 1 - found[1] > MIN_EXPLORE + 1e-9:
            assert explored <= 0.1 * total + 1e-9
        assert MIN_EXPLORE * number - 1e-9 <= requests <= 0.1 * number + 1e-9


@pytest.mark.parametrize(("most", "least"), [(0.2, MIN_EXPLORE), (0.01, 0.01)])
@pytest.mark.parametrize("price", [0.0, 0.0001])
def test_the_least_share_is_explored_beside_an_expert_that_is_cheap_or_free(price, most, least):
    auto = AutoExploration(make(0.3, 0.3, 0.3), make(costs=(0.05, 0.4, 0.4)), most)
    explored = [1 - shares(auto, dollars=[1.0, price, 1.0])[1] for _ in range(300)]
    assert min(explored) == pytest.approx(least)
    assert np.mean(explored) < least + 0.01


def test_standard_errors_are_those_of_learning_or_of_the_table():
    def errors_of(info):
        return standard_errors(replace(make(), info=info))

    none = RouterInfo()
    assert errors_of(none) is None
    table = replace(none, mean_scores={"a": 0.5, "b": 0.9}, table=TableInfo("t", 100, "", ""))
    found = errors_of(table)
    assert found == pytest.approx([0.05, 0.03, 0.05])
    # An expert that was added to the router of a table has its own.
    added = errors_of(replace(table, standard_errors={"c": 0.2}))
    assert added == pytest.approx([0.05, 0.03, 0.2])
    learned = errors_of(replace(none, standard_errors={"a": 0.1, "b": 0.2}))
    assert learned[:2] == pytest.approx([0.1, 0.2])
    assert learned[2] > 0.2


def select_all(selector, times, model=None, size=0):
    async def run():
        return await asyncio.gather(
            *(
                selector.select(model or ModelRequest(), "x", None, b"0" * 12, {}, size)
                for _ in range(times)
            )
        )

    return asyncio.run(run())


def test_what_is_drawn_has_the_frequencies_that_are_logged():
    routing = RoutingSettings(explore="auto", explore_max=0.4)
    candidate = make(costs=(0.05, 0.4, 0.4))
    found = select_all(
        ExpertSelector(make(0.1, 0.1, 0.1), routing, seed=3, candidate=candidate), 8000
    )
    counts = Counter(one.chosen for one in found)
    for one in found[:50]:
        assert one.preferred == "b"
        assert one.propensity == one.draws[NAMES.index(one.chosen)]
        assert one.explored == (one.chosen != "b")
    for k, name in enumerate(NAMES):
        assert counts[name] / 8000 == pytest.approx(found[0].draws[k], abs=0.02)
    assert counts["a"] > 1000


def test_a_request_with_a_trade_off_of_its_own_is_not_explored():
    selector = ExpertSelector(make(0.3, 0.3, 0.3), RoutingSettings(explore="auto"), seed=0)
    found = select_all(selector, 200, ModelRequest(price_weight=0.0))
    assert {one.propensity for one in found} == {1.0}


def test_dollars_that_are_known_limit_the_selector():
    def experts(*prices):
        return [
            Expert(name, "http://127.0.0.1:1/v1", "m", price_in=one, price_out=one)
            for name, one in zip(NAMES, prices, strict=True)
        ]

    routing = RoutingSettings(explore="auto", explore_max=0.2)
    found = {}
    for prices in ((100.0, 0.01, 100.0), (0.01, 0.01, 0.01), (None, 0.01, 100.0)):
        selector = ExpertSelector(make(0.5, 0.5, 0.5), routing, seed=0, experts=experts(*prices))
        found[prices] = np.mean([1 - one.draws[1] for one in select_all(selector, 300, size=4000)])
    dear, equal, unknown = found.values()
    assert dear == pytest.approx(MIN_EXPLORE, abs=0.001)
    assert equal == pytest.approx(0.2)
    assert unknown == pytest.approx(0.2)


def test_a_cascade_is_explored_a_little_and_never_more_than_allowed():
    for most, share in ((0.2, MIN_EXPLORE), (0.005, 0.005)):
        routing = RoutingSettings(explore="auto", explore_max=most)
        found = select_all(ExpertSelector(cascade_router(), routing, seed=0), 500)
        assert {one.preferred for one in found} == {"cascade"}
        whole = [one for one in found if one.chosen == "cascade"]
        assert {one.propensity for one in whole} == {1 - share}
        assert sum(found[0].draws) == pytest.approx(share)
        assert len(whole) == pytest.approx(500 * (1 - share), abs=20)


def test_a_candidate_is_tried_at_the_trade_off_of_the_gateway():
    dollars = (0.0, 0.1, 0.5)
    router = make(costs=(0.6, 0.1, 0.2), weight=0.0, prices=dollars)
    # Without prices it would choose c; at the gateway's weight it is too dear.
    candidate = make(0.001, 0.001, 0.001, costs=(0.6, 0.1, 0.05), weight=0.0, prices=dollars)
    for weight, explored in ((None, 0.3), (1.0, MIN_EXPLORE)):
        routing = RoutingSettings(explore="auto", explore_max=0.3, price_weight=weight)
        (found,) = select_all(ExpertSelector(router, routing, candidate=candidate), 1)
        assert 1 - found.draws[1] == pytest.approx(explored)


@pytest.mark.parametrize("other", [("a", "b"), ("a", "b", "d")])
def test_a_candidate_with_other_experts_is_none(other):
    candidate = priced_router(other, ERRORS[: len(other)], (0.0,) * len(other))
    routing = RoutingSettings(explore="auto")
    with_it, without = (
        select_all(ExpertSelector(make(), routing, candidate=one), 1)[0].draws
        for one in (candidate, None)
    )
    assert with_it == without


def test_a_candidate_that_cannot_be_read_is_none(tmp_path):
    folder = make().save(tmp_path / "router")
    assert load_candidate(folder) is None
    number = write_version(folder, make(costs=(0.0, 1, 1)), why="learned", serve=False)
    assert load_candidate(folder).info.fingerprint == read_versions(folder)[number].fingerprint
    assert read_versions(folder).serving == 1
    (folder / "versions" / f"{number:04d}" / "router.json").unlink()
    assert load_candidate(folder) is None


async def test_the_ledger_has_the_whole_draw():
    async with FakeUpstream() as up:
        experts, routing = [expert(name, up) for name in NAMES], {"explore": "auto"}
        async with gateway(experts, make(0.3, 0.3, 0.3), routing=routing) as g:
            for _ in range(3):
                await ask(g.port, chat())
            found = await rows(g, 3)
    for row in found:
        assert row.preferred == "b"
        assert row.propensity == row.draws[NAMES.index(row.chosen)]
        assert row.draws == pytest.approx(found[0].draws)
        assert sum(row.draws) == pytest.approx(1)


async def test_a_gateway_tries_the_candidate_of_its_router_out(tmp_path):
    folder = make().save(tmp_path / "router")
    settings = Settings(
        tuple(expert(name, "http://127.0.0.1:9/v1") for name in NAMES),
        router=str(folder),
        routing=RoutingSettings(explore="auto", explore_max=0.3),
    )
    context = AppContext(settings, load(folder), Access(settings), KeptLedger())

    async def share():
        selector = context.serving.selector
        return (await selector.select(ModelRequest(), "x", None, b"0" * 12, {}, 0)).draws[0]

    assert await share() < 0.1
    write_version(folder, make(costs=(0.0, 1, 1)), why="learned", serve=False)
    await context.reload(lambda: load(folder))
    assert await share() >= 0.15
    assert context.serving.fingerprint == load(folder).info.fingerprint
