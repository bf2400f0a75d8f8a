import asyncio
from collections import Counter

import pytest

from gateway.gateway_cases import priced_router
from mild.gateway.config import RoutingSettings
from mild.gateway.selection.models import ModelRequest
from mild.gateway.selection.selector import ExpertSelector
from mild.gateway.selection.sessions import Pin, Sessions, named_session, table_bytes

NAMES = ("a", "b", "c")
REQUEST = b"0123456789ab"


def selector_of(sessions=None, seed=None, **routing):
    router = priced_router(NAMES, (0.3, 0.1, 0.2), (0.0, 0.0, 0.0))
    return ExpertSelector(router, RoutingSettings(**routing), sessions, seed)


def select(selector, model=None, text="x", session=None, request=REQUEST, document=None, size=0):
    wanted = model or ModelRequest()
    return asyncio.run(selector.select(wanted, text, session, request, document or {}, size))


async def select_many(selector, times):
    return [await selector.select(ModelRequest(), "x", None, REQUEST, {}, 0) for _ in range(times)]


def test_without_exploration_the_best_is_certain_and_the_others_follow_by_cost():
    choice = select(selector_of())
    assert choice.order == ["b", "c", "a"]
    assert (choice.chosen, choice.propensity, choice.explored) == ("b", 1.0, False)


def test_propensities_are_the_frequencies():
    selector = selector_of(explore=0.3, seed=1)
    drawn = Counter()
    propensities = {}
    for choice in asyncio.run(select_many(selector, 6_000)):
        drawn[choice.chosen] += 1
        propensities[choice.chosen] = choice.propensity
        assert choice.order[0] == choice.chosen
    assert propensities == {
        name: pytest.approx(p) for name, p in zip(NAMES, (0.1, 0.8, 0.1), strict=True)
    }
    for name in NAMES:
        assert drawn[name] / 6_000 == pytest.approx(propensities[name], abs=0.025)


def test_a_named_expert_is_not_the_routers_choice():
    choice = select(selector_of(explore=1.0), ModelRequest(expert="c"))
    assert choice.order == ["c"]
    assert choice.chosen is choice.propensity is choice.probabilities is None


def test_without_fallback_only_the_chosen_one_is_asked():
    assert select(selector_of(fallback=False)).order == ["b"]


def test_a_session_stays_with_its_expert_and_repeats_its_propensity():
    sessions = Sessions(memoryview(bytearray(table_bytes(100))), 100.0)
    sessions.set_experts(list(NAMES))
    selector = selector_of(sessions, 2, explore=0.9)
    for name in map(str, range(30)):
        session = named_session("k", name)
        first = select(selector, session=session)
        assert first.pinned_by is None
        for _ in range(3):
            again = select(selector, None, "y", session, b"x" * 12)
            assert (again.chosen, again.propensity) == (first.chosen, first.propensity)
            assert again.pinned_by == REQUEST
            assert again.order[0] == first.chosen


def test_a_pin_of_an_expert_that_this_router_does_not_know_is_none():
    sessions = Sessions(memoryview(bytearray(table_bytes(8))), 60.0)
    sessions.set_experts([*NAMES, "new"])
    session = named_session("key", "s")
    sessions.pin(session.hash, Pin("new", 0.5, REQUEST))
    choice = select(selector_of(sessions), session=session)
    assert (choice.chosen, choice.pinned_by) == ("b", None)
