import asyncio
from collections import Counter

import pytest

from gateway_cases import TEXTS, knowing, priced_router, scored_router, trading_router
from mild.errors import InvalidInputError, UnsupportedError
from mild_gateway.config import RoutingSettings, TargetSettings
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import tokens_in_bytes
from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import ModelRequest
from mild_gateway.selection.selector import ExpertSelector
from mild_gateway.selection.sessions import (
    MemorySessions,
    Pin,
    content_session,
    named_session,
    sent_before,
)

NAMES = ("a", "b", "c")
REQUEST = b"0123456789ab"


def selector_of(sessions=None, seed=None, **routing):
    router = priced_router(NAMES, (0.3, 0.1, 0.2), (0.0, 0.0, 0.0))
    return ExpertSelector(router, RoutingSettings(**routing), sessions, seed)


def select(selector, model=None, text="x", session=None, request=REQUEST, document=None, size=0):
    wanted = model or ModelRequest()
    return asyncio.run(selector.select(wanted, text, session, request, document or {}, size))


async def select_many(selector, times):
    return await many(selector, [None] * times, {})


def many(selector, sessions, document):
    """Selections for one request of each session, decided together."""
    return asyncio.gather(
        *(
            selector.select(ModelRequest(), "x", session, REQUEST, document, 0)
            for session in sessions
        )
    )


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


FAR = "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich"


def selector_on_novel(name, **routing):
    router = knowing(priced_router(NAMES, (0.3, 0.1, 0.2), (0.0, 0.0, 0.0)))
    return ExpertSelector(router, RoutingSettings(on_novel=name, **routing))


def test_novel_texts_go_to_the_expert_that_is_named_for_them():
    selector = selector_on_novel("a")
    far, near = select(selector, text=FAR), select(selector, text=TEXTS[0])
    assert (far.chosen, far.order, far.propensity) == ("a", ["a", "b", "c"], 1.0)
    assert near.order == ["b", "c", "a"]
    together = selector.score_all([FAR, TEXTS[1]], [None, 2.0])
    assert [(found.best, found.novel) for found in together] == [(0, True), (1, False)]


def test_a_target_decides_for_the_model_mild_and_a_client_may_ask_for_another_trade_off():
    # Expected are errors 0.6 and 0.1 at prices 0.001 and 0.1: they turn at t = 0.5 / 0.099.
    router = trading_router()
    chosen = {}
    for target in (TargetSettings(max_quality_loss=0.0), TargetSettings(max_dollars=1.0)):
        selector = ExpertSelector(router, RoutingSettings(target=target))
        chosen[target] = select(selector).chosen
        assert select(selector, ModelRequest(price_weight=0.0)).chosen == "large"
        assert select(selector, ModelRequest(price_weight=50.0)).chosen == "small"
    assert list(chosen.values()) == ["large", "small"]


def test_novel_texts_are_explored_like_others():
    selector = selector_on_novel("a", explore=1.0)
    assert {select(selector, text=FAR).chosen for _ in range(40)} == set(NAMES)


def test_without_a_record_no_expert_can_be_named_for_novel_texts():
    with pytest.raises(UnsupportedError) as caught:
        selector_of(on_novel="a")
    assert caught.value.parameter == "on_novel"
    with pytest.raises(InvalidInputError):
        selector_on_novel("nobody")


def test_a_named_expert_is_not_the_routers_choice():
    choice = select(selector_of(explore=1.0), ModelRequest(expert="c"))
    assert choice.order == ["c"]
    assert choice.chosen is choice.propensity is choice.probabilities is None


def test_a_session_stays_with_its_expert_and_repeats_its_propensity():
    sessions = MemorySessions()
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
    sessions = MemorySessions()
    session = named_session("key", "s")
    sessions.pin(session, Pin("new", 0.5, REQUEST))
    choice = select(selector_of(sessions), session=session)
    assert (choice.chosen, choice.pinned_by) == ("b", None)


def expert(name, **more):
    return Expert(name, "http://127.0.0.1:1/v1", "m", **more)


def with_experts(*experts, sessions=None, seed=None, **routing):
    router = priced_router(NAMES, (0.3, 0.1, 0.2), (0.0, 0.0, 0.0))
    return ExpertSelector(router, RoutingSettings(**routing), sessions, seed, experts)


IMAGE = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}


def test_the_router_chooses_among_those_that_can_serve():
    selector = with_experts(expert("a"), expert("b", unsupported=["images"]), expert("c"))
    assert select(selector).order == ["b", "c", "a"]
    choice = select(selector, document=IMAGE)
    assert (choice.order, choice.chosen, choice.propensity) == (["c", "a"], "c", 1.0)
    shares = choice.probabilities
    assert shares[1] is None
    assert shares[0] + shares[2] == pytest.approx(1)
    whole = select(selector).probabilities
    assert shares[0] / shares[2] == pytest.approx(whole[0] / whole[2])
    assert set(choice.expected) == set(NAMES)


async def test_propensities_are_exact_over_the_experts_that_can_serve():
    selector = with_experts(
        expert("a"), expert("b", unsupported=["images"]), expert("c"), explore=0.4, seed=1
    )
    choices = await many(selector, [None] * 4_000, IMAGE)
    drawn = Counter(choice.chosen for choice in choices)
    assert {choice.chosen: choice.propensity for choice in choices} == {
        "a": pytest.approx(0.2),
        "c": pytest.approx(0.8),
    }
    assert drawn["a"] / 4_000 == pytest.approx(0.2, abs=0.025)


def test_a_request_that_nobody_can_serve_is_refused_with_each_reason():
    selector = with_experts(
        expert("a", unsupported=["images"]), expert("b", context=10), expert("c", max_output=5),
        expert("last", role="fallback"),
    )  # fmt: skip
    with pytest.raises(Refusal) as caught:
        select(selector, document={**IMAGE, "max_tokens": 6}, size=400)
    assert (caught.value.status, caught.value.code) == (400, "no_capable_expert")
    for words in ("a takes no images", "b takes 10 tokens", "c answers with up to 5 tokens"):
        assert words in caught.value.message
    # By its name it is asked all the same: its endpoint knows best.
    assert select(selector, ModelRequest(expert="a"), document=IMAGE).order == ["a"]


def test_a_fallback_comes_last_and_is_never_chosen():
    experts = [expert("last", role="fallback"), *map(expert, NAMES)]
    assert select(with_experts(*experts)).order == ["b", "c", "a", "last"]
    blind = expert("last", role="fallback", unsupported=["images"])
    assert select(with_experts(blind, *map(expert, NAMES)), document=IMAGE).order == ["b", "c", "a"]
    # The same for one that the router knows.
    selector = with_experts(
        expert("a"), expert("b", role="fallback"), expert("c"), explore=1.0, seed=3
    )
    choices = [select(selector) for _ in range(50)]
    assert {choice.chosen for choice in choices} == {"a", "c"}
    assert all(choice.order[-1] == "b" for choice in choices)
    assert all(choice.propensity == 0.5 for choice in choices)
    assert choices[0].probabilities[1] == 0.0
    assert sum(choices[0].probabilities) == pytest.approx(1)


def sessions_of(clock=lambda: 1000.0):
    return MemorySessions(clock)


def test_a_session_leaves_an_expert_that_cannot_serve_its_request_and_stays_away():
    selector = with_experts(
        expert("a"), expert("b", unsupported=["images"]), expert("c"), sessions=sessions_of()
    )
    session = named_session("key", "s")
    assert select(selector, session=session).chosen == "b"
    moved = select(selector, session=session, request=b"x" * 12, document=IMAGE)
    assert (moved.chosen, moved.propensity, moved.pinned_by) == ("c", 1.0, None)
    stays = select(selector, session=session)
    assert (stays.chosen, stays.pinned_by) == ("c", b"x" * 12)


def test_the_first_request_of_a_conversation_by_content_is_drawn_anew():
    selector = with_experts(*map(expert, NAMES), sessions=sessions_of(), explore=1.0, seed=1)
    begun = {"messages": [{"role": "user", "content": "Hello"}]}
    later = {"messages": [*begun["messages"], {"role": "assistant", "content": "Yes?"}]}
    first, second = (content_session("key", document) for document in (begun, later))
    choices = [select(selector, session=first, document=begun) for _ in range(30)]
    assert {choice.chosen for choice in choices} == set(NAMES)
    assert all(choice.pinned_by is None for choice in choices)
    follows = select(selector, session=second, document=later)
    assert (follows.chosen, follows.pinned_by) == (choices[-1].chosen, REQUEST)


def conversation(characters):
    """A second turn whose first held so many characters."""
    turns = [("user", "x" * characters), ("assistant", "Yes?"), ("user", "And?")]
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


# The router expects c to cost 0.1 more than b; a dollar weighs 1, so that a cached token saves 1e-3.
CACHED = {"price_in": 1000.0, "price_cached_in": 0.0}


@pytest.mark.parametrize(
    ("characters", "price", "idle", "weight", "chosen"),
    [
        (4_000, CACHED, 0, None, "c"),  # about 1000 tokens saved: 1.0
        (0, CACHED, 0, None, "b"),  # hardly anything was sent before
        (4_000, {"price_in": 1000.0}, 0, None, "b"),  # no cache
        (4_000, CACHED, 400, None, "b"),  # the cache has forgotten it
        (4_000, CACHED, 0, 0.0, "b"),  # prices do not count
    ],
)
def test_a_soft_pin_is_credited_with_the_cached_prefix(characters, price, idle, weight, chosen):
    clock = Clock()
    sessions = sessions_of(clock)
    selector = with_experts(
        expert("a"), expert("b"), expert("c", **price), sessions=sessions, pin_sessions="soft"
    )
    session = named_session("key", "s")
    sessions.pin(session, Pin("c", 0.5, b"x" * 12))
    clock.now += idle
    model = ModelRequest(price_weight=weight)
    choice = select(selector, model, session=session, document=conversation(characters))
    assert (choice.chosen, choice.propensity, choice.pinned_by) == (chosen, 1.0, None)
    assert choice.expected["c"] == pytest.approx(0.2)
    assert asyncio.run(sessions.find(session)).expert == chosen


def test_the_credit_is_the_difference_of_the_prices():
    # 0.1 more cost; 4 bytes a token, tokens save 1e-3 each: it pays from about 400 bytes on.
    sessions = sessions_of()
    selector = with_experts(
        expert("a"), expert("b"), expert("c", **CACHED), sessions=sessions, pin_sessions="soft"
    )
    session = named_session("key", "s")
    for characters in (100, 250, 500, 1_000):
        document = conversation(characters)
        sessions.pin(session, Pin("c", 0.5, REQUEST))
        stays = tokens_in_bytes(sent_before(document)) * 1e-3 >= 0.1
        assert (select(selector, session=session, document=document).chosen == "c") == stays


async def test_a_soft_pin_is_drawn_with_its_propensity():
    sessions = sessions_of()
    selector = with_experts(
        expert("a"), expert("b"), expert("c", **CACHED),
        sessions=sessions, pin_sessions="soft", explore=0.3, seed=1,
    )  # fmt: skip
    pinned = [named_session(f"key {number % 4}", str(number)) for number in range(3_000)]
    for session in pinned:
        sessions.pin(session, Pin("c", 0.5, REQUEST))
    choices = await many(selector, pinned, conversation(4_000))
    for choice in choices:
        assert choice.propensity == pytest.approx(0.8 if choice.chosen == "c" else 0.1)
    drawn = Counter(choice.chosen for choice in choices)
    assert drawn["c"] / 3_000 == pytest.approx(0.8, abs=0.03)


def test_a_router_without_costs_keeps_its_sessions():
    sessions = MemorySessions()
    experts = [expert("small", **CACHED), expert("large")]
    selector = ExpertSelector(
        scored_router(), RoutingSettings(pin_sessions="soft"), sessions, None, experts
    )
    session = named_session("key", "s")
    sessions.pin(session, Pin("small", 0.5, b"x" * 12))
    choice = select(selector, session=session, document=conversation(0))
    assert (choice.chosen, choice.propensity, choice.pinned_by) == ("small", 0.5, b"x" * 12)
