import asyncio
from collections import Counter

import pytest

from gateway.gateway_cases import priced_router
from mild.gateway.selection.decision import Chooser
from mild.gateway.selection.drawing import Drawing
from mild.gateway.selection.models import Wish
from mild.gateway.selection.sessions import Pin, Sessions, hash_session, session_bytes

NAMES = ("a", "b", "c")
CHOOSER = Chooser(priced_router(NAMES, (0.3, 0.1, 0.2), (0.0, 0.0, 0.0)))
REQUEST = b"0123456789ab"


def choose(drawing, wish, text="x", session=None, request=REQUEST, times=1):
    async def run():
        return [await drawing.choose(wish, text, session, request) for _ in range(times)]

    found = asyncio.run(run())
    return found[0] if times == 1 else found


def test_without_exploration_the_best_is_certain_and_the_others_follow_by_cost():
    choice = choose(Drawing(CHOOSER), Wish())
    assert choice.order == ["b", "c", "a"]
    assert (choice.chosen, choice.propensity, choice.explored) == ("b", 1.0, False)


def test_propensities_are_the_frequencies():
    drawing = Drawing(CHOOSER, explore=0.3, seed=1)
    drawn = Counter()
    propensities = {}
    for choice in choose(drawing, Wish(), times=6_000):
        drawn[choice.chosen] += 1
        propensities[choice.chosen] = choice.propensity
        assert choice.order[0] == choice.chosen
    assert propensities == {
        name: pytest.approx(p) for name, p in zip(NAMES, (0.1, 0.8, 0.1), strict=True)
    }
    for name in NAMES:
        assert drawn[name] / 6_000 == pytest.approx(propensities[name], abs=0.025)


def test_a_named_expert_is_not_the_routers_choice():
    choice = choose(Drawing(CHOOSER, explore=1.0), Wish(expert="c"))
    assert choice.order == ["c"]
    assert choice.chosen is choice.propensity is choice.probabilities is None


def test_without_fallback_only_the_chosen_one_is_asked():
    assert choose(Drawing(CHOOSER, fallback=False), Wish()).order == ["b"]


def test_a_session_stays_with_its_expert_and_repeats_its_propensity():
    sessions = Sessions(memoryview(bytearray(session_bytes(100))), 100.0)
    sessions.know(list(NAMES))
    drawing = Drawing(CHOOSER, explore=0.9, sessions=sessions, seed=2)
    for name in map(str, range(30)):
        session = hash_session("k", name)
        first = choose(drawing, Wish(), "x", session)
        assert first.pinned_by is None
        for _ in range(3):
            again = choose(drawing, Wish(), "y", session, b"x" * 12)
            assert (again.chosen, again.propensity) == (first.chosen, first.propensity)
            assert again.pinned_by == REQUEST
            assert again.order[0] == first.chosen


def test_a_pin_of_an_expert_that_this_router_does_not_know_is_none():
    sessions = Sessions(memoryview(bytearray(session_bytes(8))), 60.0)
    sessions.know([*NAMES, "new"])
    session = hash_session("key", "s")
    sessions.pin(session, Pin("new", 0.5, REQUEST))
    choice = choose(Drawing(CHOOSER, sessions=sessions), Wish(), session=session)
    assert (choice.chosen, choice.pinned_by) == ("b", None)
