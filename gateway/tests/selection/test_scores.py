import numpy as np
import pytest

from gateway_cases import TEXTS, features, priced_router, scored_router
from mild.artifact import Router, RouterInfo
from mild.errors import MildError
from mild.policies import (
    ConstantPolicy,
    LinearCostPolicy,
    PricedPolicy,
    StandardizedPolicy,
    TradeoffPolicy,
)
from mild_gateway.config import RoutingSettings
from mild_gateway.refusals import Refusal
from mild_gateway.selection.selector import ExpertSelector
from tolerances import rounding


def selector_of(router, **routing):
    return ExpertSelector(router, RoutingSettings(**routing))


def random_priced(rng, kind, experts=4):
    width = features().n_features_
    heads = [rng.normal(size=(experts, width)).astype(np.float32) for _ in range(2)]
    shifts = [rng.normal(size=experts).astype(np.float32) for _ in range(2)]
    betas = rng.uniform(size=experts).astype(np.float32)
    return PricedPolicy(heads[0], shifts[0], heads[1], shifts[1], betas, 0.7, kind, 1.5)


def unsigned(policy, x, weight=None):
    """What an expected cost sums up, without signs, so that nothing cancels; of the dearest expert."""
    size = np.abs(x)
    if isinstance(policy, StandardizedPolicy):
        size = (size + np.abs(policy.mean)) / policy.scale
        policy = policy.inner
    errors = size @ np.abs(policy.error_coef).T + np.abs(policy.error_intercept)
    prices = size @ np.abs(policy.price_coef).T + np.abs(policy.price_intercept) + policy.betas
    # A sigmoid makes differences smaller: its slope is a quarter at most.
    return (errors + (policy.price_weight if weight is None else weight) * prices).max()


def close_costs(policy, x, weight=None):
    return rounding(np.float32, unsigned(policy, x, weight), steps=policy.n_features)


def close_shares(costs, policy, x, weight=None):
    """Shares are costs over their sum: so much larger are their differences."""
    atol = close_costs(policy, x, weight)["atol"]
    return {"rtol": 0, "atol": 4 * atol / max(np.maximum(costs, 0).sum(), atol)}


@pytest.mark.parametrize("kind", ["logistic", "ridge"])
@pytest.mark.parametrize("scaled", [False, True])
def test_one_text_is_decided_as_the_policy_decides(kind, scaled):
    rng = np.random.default_rng(3)
    step = features()
    for _ in range(20):
        policy = random_priced(rng, kind)
        if scaled:
            mean, scale = rng.normal(size=(2, step.n_features_))
            policy = StandardizedPolicy(mean, np.abs(scale) + 0.5, policy)
        names = [f"e{k}" for k in range(4)]
        notes = {"cost": {"price_weight": 1.0}}
        router = Router(policy, names, text=step, info=RouterInfo.from_notes(notes))
        selector = selector_of(router)
        for text in (*TEXTS, "", "é \ud800"):
            for weight in (None, 0.0, 3.0):
                wanted = router if weight is None else router.with_prices(price_weight=weight)
                x = step.transform([text])
                found = selector.score(text, weight)
                near = close_costs(policy, x, weight)
                np.testing.assert_allclose(found.costs, wanted.expected_costs(x)[0], **near)
                shares = close_shares(found.costs, policy, x, weight)
                np.testing.assert_allclose(
                    found.probabilities, wanted.predict_proba(x)[0], **shares
                )
                gap = np.sort(found.costs)[1] - min(found.costs)
                if gap > 2 * near["atol"]:
                    assert found.best == wanted.predict(x)[0] == found.order[0]
                assert sorted(found.order) == [0, 1, 2, 3]
                rest = [found.costs[k] for k in found.order[1:]]
                assert rest == sorted(rest)


def test_several_texts_are_decided_as_each_alone():
    rng = np.random.default_rng(4)
    policy, step = random_priced(rng, "logistic"), features()
    router = Router(policy, list("abcd"), text=step)
    for selector in (selector_of(router), selector_of(scored_router())):
        texts = [*TEXTS, "", "é \ud800", "x" * 20_000]
        found = selector.score_all(texts, [None] * len(texts))
        for text, together in zip(texts, found, strict=True):
            alone = selector.score(text)
            assert (together.best, together.order) == (alone.best, alone.order)
            near = rounding(np.float32)
            if alone.costs is not None:
                near = close_shares(alone.costs, policy, step.transform([text]))
            np.testing.assert_allclose(together.probabilities, alone.probabilities, **near)


def test_ties_go_to_the_highest_index_as_in_the_policies():
    selector = selector_of(priced_router(("a", "b", "c"), (0.5, 0.5, 0.5), (0.0, 0.0, 0.0)))
    assert selector.score("x").best == 2
    assert selector.score("x").probabilities == pytest.approx([1 / 3] * 3)


def test_costs_of_zero_give_equal_shares():
    selector = selector_of(priced_router(("a", "b"), (0.0, 0.0), (0.0, 0.0)))
    assert selector.score("x").probabilities == [0.5, 0.5]


def test_other_policies_decide_by_their_own_way():
    step = features()
    costs = LinearCostPolicy(np.zeros((2, step.n_features_)), np.array([0.3, 0.2]))
    found = selector_of(Router(costs, ["a", "b"], text=step)).score("x")
    assert (found.best, found.order, found.costs) == (1, [1, 0], [0.3, 0.2])
    constant = ConstantPolicy(np.array([0.5, 0.2]), step.n_features_)
    assert selector_of(Router(constant, ["a", "b"], text=step)).score("x").best == 1
    scored = selector_of(scored_router()).score("x")
    assert (scored.best, scored.order, scored.costs) == (1, [1, 0], None)


def test_a_one_head_router_refuses_another_weight_with_the_reason():
    selector = selector_of(scored_router())
    selector.check_weight(None)
    with pytest.raises(Refusal, match="one head") as caught:
        selector.check_weight(0.5)
    assert caught.value.status == 400
    with pytest.raises(MildError, match="one head"):
        selector_of(scored_router(), price_weight=2.0)


def test_a_router_on_numbers_cannot_serve_texts():
    router = Router(ConstantPolicy(np.array([0.5, 0.2]), 3), ["a", "b"])
    with pytest.raises(MildError, match="fitted on numbers"):
        selector_of(router)


def test_a_tuned_router_decides_by_its_heads_under_another_price_weight():
    heads = random_priced(np.random.default_rng(3), "logistic")
    names = ["a", "b", "c", "d"]
    constant = ConstantPolicy(np.ones(4, np.float32), heads.n_features, 2)
    notes = {"cost": {"price_weight": None}, "price_head": "dollars"}
    router = Router(
        TradeoffPolicy(constant, heads), names, None, RouterInfo.from_notes(notes), features()
    )
    selector = selector_of(router)
    assert selector.fixed_weight_reason is None
    X = router.features(TEXTS)
    for weight in (0.0, 5.0):
        wanted = heads.with_prices(price_weight=weight).predict(X).tolist()
        found = selector.score_all(TEXTS, [weight] * len(TEXTS))
        assert [scores.best for scores in found] == wanted
    assert {scores.best for scores in selector.score_all(TEXTS, [None] * len(TEXTS))} == {2}
    mixed = {"cost": {"price_weight": None, "latency_weight": 1.0}, "price_head": "dollars"}
    slow = Router(router.policy, names, None, RouterInfo.from_notes(mixed), features())
    assert selector_of(slow).fixed_weight_reason is not None
