"""What every policy must do, kind by kind."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from mild.core.costs import reward_distribution, rewards
from mild.errors import InvalidInputError, UnsupportedError
from mild.policies import (
    POLICIES,
    BlendPolicy,
    CascadePolicy,
    ConstantPolicy,
    Decoder,
    DeferralPolicy,
    LinearCostPolicy,
    LinearPolicy,
    NearestPolicy,
    PerceptronPolicy,
    PricedPolicy,
    StandardizedPolicy,
    TradeoffPolicy,
    score_network,
)
from mild.policies.base import BLOCK
from mild.policies.cascade import AgreementTable

D, P = 4, 3


RANKED = ("linear", "linear_costs", "nearest", "constant", "priced", "blend")


def make(dtype=np.float64):
    rng = np.random.default_rng(0)

    def draw(*shape):
        return rng.normal(size=shape).astype(dtype)

    costs = np.abs(draw(30, P))
    costs[::4, 1] = np.nan
    linear = LinearPolicy(
        draw(P, D), draw(P), Decoder(np.array([0.5, 1.0, 1.5]), "stationary", "logistic")
    )
    regression = LinearCostPolicy(draw(P, D), draw(P))
    policies = {
        "linear": linear,
        "linear-argmax": LinearPolicy(
            draw(P, D), draw(P), Decoder(np.array([0.5, 1.0, 1.5]), "argmax", 0.5)
        ),
        "perceptron": PerceptronPolicy(
            [draw(6, D), draw(5, 6), draw(P, 5)],
            [draw(6), draw(5), draw(P)],
            Decoder(np.array([1.0, 1.0, 2.0]), "stationary", "pairwise_logistic"),
        ),
        "linear_costs": regression,
        "nearest": NearestPolicy(draw(30, D), costs, 5, np.ones(30, dtype), draw(D)),
        "nearest-weighted": NearestPolicy(
            draw(30, D), costs, 5, rng.uniform(0.1, 2, 30).astype(dtype)
        ),
        "constant": ConstantPolicy(np.abs(draw(P)), D),
        "constant-named": ConstantPolicy(np.abs(draw(P)), D, 2),
        "priced": PricedPolicy(
            draw(P, D), draw(P), draw(P, D), draw(P), np.abs(draw(P)), 0.5, "logistic", 2.0
        ),
        "priced-ridge": PricedPolicy(
            draw(P, D), draw(P), draw(P, D), draw(P), np.abs(draw(P)), 0.5, "ridge"
        ),
        "standardized": StandardizedPolicy(draw(D), np.abs(draw(D)) + 0.5, linear),
        "blend": BlendPolicy(
            [linear, regression], np.array([0.5, 2.0], dtype), np.array([0.0, 1.0], dtype)
        ),
    }
    policies["tradeoff"] = TradeoffPolicy(linear, policies["priced"])
    codes, scores = np.array([[0, 0, 0], [0, 0, 1], [0, 1, -1]]), rng.uniform(size=(3, P))
    table = AgreementTable.of_rows(codes, scores.astype(dtype), np.ones(3, dtype))
    policies["cascade"] = CascadePolicy("number", [[0, 1], [2]], 0.5, table, linear)
    network = score_network([draw(6, D), draw(5, 6)], [draw(6), draw(5)])
    own_costs = np.array([0.0, 0.1, 0.0], dtype)
    margins = np.array([0.5, 1.0, 1.5, 1.0, 1.0], dtype)
    for reading in ("shares", "sigmoid", "separate", "gate"):
        policies[f"deferral-{reading}"] = DeferralPolicy(
            network,
            ["a", "b", "c"],
            reading,
            own_costs,
            reading == "shares",
            margins,
            threshold=0.1,
        )
    policies["deferral-others"] = DeferralPolicy(
        network, [0, 1, 2], "shares", own_costs, True, margins, strength=1.0
    )
    policies["deferral-router"] = DeferralPolicy(
        network, [0, 1], "router", own_costs, True, margins[:3]
    )
    for name in RANKED:
        policies[f"{name}-ranked"] = policies[name].with_ranks(np.array([2, 0, 1]))
    return policies


KINDS = pytest.mark.parametrize("kind", list(make()))


@KINDS
@pytest.mark.parametrize("order", [[2, 0, 1], [1, 0, 2]])
def test_in_another_order_of_its_experts_a_policy_decides_the_same(kind, order):
    policy, order = make()[kind], np.array(order)
    other, X = policy.with_experts(order), inputs()
    # Where everything is 0, many policies have ties.
    X[::2] = 0
    assert_array_equal(order[other.predict(X)], policy.predict(X))
    assert order[other.decide_one(X[0])] == policy.decide_one(X[0])
    assert_allclose(other.predict_proba(X), policy.predict_proba(X)[:, order], atol=1e-12)
    settings, tensors = other.state()
    copy = POLICIES[other.kind].from_state(settings, tensors)
    assert_array_equal(copy.predict(X), other.predict(X))


def tied(ranks):
    """Policies of two kinds for which experts 0 and 1 tie, with ranks."""
    coef, intercept = np.zeros((P, D)), np.array([0.1, 0.1, 0.5])
    costs = LinearCostPolicy(coef, intercept)
    decoders = [Decoder(np.ones(P), "argmax", "logistic")]
    decoders.append(Decoder(np.array([0.5, 0.5, 1.0]), "stationary", "logistic"))
    scores = [LinearPolicy(coef, -intercept, decoder) for decoder in decoders]
    return [policy.with_ranks(ranks) for policy in (costs, *scores)]


@pytest.mark.parametrize(
    ("ranks", "expected"), [(None, 1), ([0, 1, 2], 0), ([1, 0, 2], 1), ([2, 1, 0], 1)]
)
def test_of_experts_that_tie_the_lowest_rank_is_chosen(ranks, expected):
    X = inputs()
    for policy in tied(None if ranks is None else np.array(ranks)):
        assert_array_equal(policy.predict(X), expected)
        assert_array_equal(policy.decide(X).chosen, expected)
        assert policy.decide_one(X[0]) == expected
        assert_array_equal(policy.predict(np.tile(X, (100, 1))), expected)
        assert_array_equal(policy.without(2).predict(X), expected)


def test_ranks_reach_the_policies_that_decide():
    ranks = np.array([0, 1, 2])
    costs, scores, _ = tied(None)
    flat = PricedPolicy(
        np.zeros((P, D)), np.full(P, 0.1), np.zeros((P, D)), np.zeros(P), np.zeros(P), 0.5, "ridge"
    )
    around = [
        StandardizedPolicy(np.zeros(D), np.ones(D), costs),
        TradeoffPolicy(scores, flat),
        BlendPolicy([costs], np.ones(1), np.ones(1)),
    ]
    for policy in around:
        assert_array_equal(policy.predict(inputs()), 1)
        ranked = policy.with_ranks(ranks)
        assert_array_equal(ranked.ranks, ranks)
        assert_array_equal(ranked.predict(inputs()), 0)
    heads = TradeoffPolicy(scores, flat).with_ranks(ranks).with_prices(price_weight=1.0)
    assert_array_equal(heads.predict(inputs()), 0)


def inputs(n=60, dtype=np.float64):
    return np.random.default_rng(1).normal(size=(n, D)).astype(dtype)


@KINDS
def test_state_is_json_and_arrays_and_builds_the_same_policy(kind):
    policy = make()[kind]
    settings, tensors = policy.state()
    assert all(isinstance(tensor, np.ndarray) for tensor in tensors.values())
    copy = POLICIES[policy.kind].from_state(json.loads(json.dumps(settings)), dict(tensors))
    X = inputs()
    assert type(copy) is type(policy)
    assert (copy.n_features, copy.n_experts) == (D, P)
    assert_array_equal(copy.predict(X), policy.predict(X))
    assert_array_equal(copy.decision_function(X), policy.decision_function(X))
    assert_array_equal(copy.predict_proba(X), policy.predict_proba(X))
    again, arrays = copy.state()
    assert again == settings
    assert set(arrays) == set(tensors)


def test_every_registered_kind_is_tested_here():
    # A mix reads texts as well: test_mix.py.
    assert {policy.kind for policy in make().values()} == set(POLICIES) - {"mix"}


@KINDS
@pytest.mark.parametrize("n", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_block_boundaries_change_nothing(kind, n):
    policy = make()[kind]
    X = inputs(n)
    chosen = policy.predict(X)
    assert chosen.shape == (n,)
    assert chosen.dtype == np.intp
    probabilities = policy.predict_proba(X)
    assert probabilities.shape == (n, P)
    assert policy.decision_function(X).shape == (n, P)
    for start in {0, max(0, BLOCK - 3), max(0, n - 5)}:
        part = slice(start, start + 5)
        assert_array_equal(policy.predict(X[part]), chosen[part])
        assert_allclose(policy.predict_proba(X[part]), probabilities[part], rtol=1e-9, atol=1e-12)


def test_very_long_batches_are_decided_as_short_ones():
    policy = make()["linear"]
    X = inputs(70_001)
    whole = policy.predict(X)
    parts = [policy.predict(X[start : start + 1000]) for start in range(0, len(X), 1000)]
    assert_array_equal(whole, np.concatenate(parts))


@KINDS
def test_one_input_is_decided_as_in_a_batch(kind):
    policy = make()[kind]
    X = inputs(200)
    assert [policy.decide_one(x) for x in X] == policy.predict(X).tolist()


@KINDS
def test_one_pass_gives_what_three_calls_give(kind):
    policy, X = make()[kind], inputs(200)
    found = policy.decide(X)
    assert_array_equal(found.chosen, policy.predict(X))
    assert_allclose(found.probabilities, policy.predict_proba(X), rtol=1e-12)
    if kind != "constant-named":
        best = found.values.max(axis=1)
        assert_array_equal(found.values[np.arange(len(X)), found.chosen], best)
    if found.costs is None:
        with pytest.raises(UnsupportedError):
            policy.expected_costs(X)
    else:
        assert_allclose(found.costs, policy.expected_costs(X))


@KINDS
def test_every_block_can_be_checked_before_it_is_decided(kind):
    policy, X = make()[kind], inputs(BLOCK + 5)
    seen = []
    chosen = policy.predict_checked(X, lambda block, first: seen.append((first, len(block))))
    assert_array_equal(chosen, policy.predict(X))
    # Finite scores of a linear policy say that the block is finite.
    assert seen in ([], [(0, BLOCK), (BLOCK, 5)])


@pytest.mark.parametrize("kind", ["linear", "linear-argmax", "linear_costs"])
@pytest.mark.parametrize("scaled", [False, True])
def test_slopes_are_derivatives_of_the_lead(kind, scaled):
    policy = make()[kind]
    if scaled:
        policy = StandardizedPolicy(np.full(D, 0.5), np.array([0.5, 1.0, 2.0, 3.0]), policy)
    x, step = inputs(2) * [[1.0], [1e-5]]

    def lead(at):
        found = policy.decide(at[None])
        values = np.log(found.values[0]) if found.by == "probability" else found.values[0]
        return values[2] - values[0]

    change = lead(x + step) - lead(x - step)
    assert change == pytest.approx(2 * policy.slopes(x, 2, 0) @ step, rel=1e-4)
    assert_array_equal(TradeoffPolicy(policy, policy).slopes(x, 2, 0), policy.slopes(x, 2, 0))


@pytest.mark.parametrize("kind", ["perceptron", "nearest", "priced", "cascade", "blend"])
def test_policies_that_are_not_linear_have_no_slopes(kind):
    assert make()[kind].slopes(inputs(1)[0], 2, 0) is None


def test_policies_know_their_parts_and_margins():
    policies = make()
    scaled = StandardizedPolicy(np.zeros(D), np.ones(D), policies["tradeoff"])
    assert scaled.parts == ["standardized", "tradeoff", "linear"]
    assert policies["blend"].parts == ["blend", "linear", "linear_costs"]
    assert_array_equal(scaled.margins, [0.5, 1.0, 1.5])
    assert policies["blend"].margins is None


def test_heads_for_errors_and_prices_are_found_behind_other_policies():
    policies, X = make(), inputs()
    priced, mean, scale = policies["priced"], np.full(D, 0.5), np.full(D, 2.0)
    scaled = StandardizedPolicy(mean, scale, priced)
    assert scaled.has_errors
    assert scaled.has_prices
    for method in ("expected_errors", "expected_prices"):
        wanted = getattr(priced, method)((X - mean) / scale)
        assert_allclose(getattr(scaled, method)(X), wanted)
    # A trade-off decides by another policy than that with the heads.
    assert policies["tradeoff"].has_prices
    assert not policies["tradeoff"].has_errors
    assert not policies["linear"].has_prices
    with pytest.raises(UnsupportedError):
        policies["linear"].expected_errors(X)


def test_with_decision_gives_a_policy_with_that_rule():
    policies, X = make(), inputs(300)
    linear = policies["linear"]
    found = linear.with_decision("argmax")
    assert_array_equal(found.predict(X), found.decision_function(X).argmax(axis=1))
    assert linear.decoder.rule == "stationary"
    scaled = StandardizedPolicy(np.zeros(D), np.ones(D), policies["tradeoff"])
    assert_array_equal(scaled.with_decision("argmax").predict(X), found.predict(X))
    with pytest.raises(UnsupportedError) as caught:
        policies["priced"].with_decision("argmax")
    assert caught.value.parameter == "decision"


# A blend scores by shares, which are float64.
@pytest.mark.parametrize("kind", [kind for kind in make() if kind != "stack"])
def test_scores_in_float32_stay_in_float32(kind):
    policy = make(np.float32)[kind]
    X = inputs(dtype=np.float32)
    assert policy.decision_function(X).dtype == np.float32
    assert_allclose(policy.predict_proba(X).sum(axis=1), 1, rtol=1e-5)


@KINDS
@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_rows_are_decided_as_dense_ones(kind, container):
    policy = make()[kind]
    X = inputs()
    X[np.abs(X) < 0.4] = 0
    assert_array_equal(policy.predict(container(X)), policy.predict(X))
    assert_allclose(policy.predict_proba(container(X)), policy.predict_proba(X), atol=1e-12)


@KINDS
def test_removing_an_expert_leaves_two_and_does_not_change_the_policy(kind):
    policy = make()[kind]
    X = inputs()
    before = policy.predict(X)
    for expert in range(P):
        left = policy.without(expert)
        assert left.n_experts == 2
        assert left.predict_proba(X).shape == (len(X), 2)
        assert set(left.predict(X)) <= {0, 1}
        settings, tensors = left.state()
        copy = POLICIES[left.kind].from_state(settings, tensors)
        assert_array_equal(copy.predict(X), left.predict(X))
    assert_array_equal(policy.predict(X), before)


@KINDS
def test_without_refuses_an_unknown_and_the_last_expert(kind):
    policy = make()[kind]
    for expert in (-1, P):
        with pytest.raises(InvalidInputError, match=r"expert must be an index in \[0, 3\)"):
            policy.without(expert)
    with pytest.raises(InvalidInputError, match="at least one expert"):
        policy.without(0).without(0).without(0)


@pytest.mark.parametrize("kind", ["linear_costs", "nearest", "constant", "priced", "priced-ridge"])
def test_dropping_an_expert_leaves_the_costs_of_the_others_alone(kind):
    policy = make()[kind]
    X = inputs()
    left = policy.without(1)
    assert_allclose(left.expected_costs(X), policy.expected_costs(X)[:, [0, 2]])


def test_expected_costs_that_are_all_zero_give_a_uniform_distribution():
    policy = ConstantPolicy(np.zeros(P), D)
    assert_allclose(policy.predict_proba(inputs(2)), 1 / P)


def test_negative_expected_costs_count_as_zero_in_the_distribution():
    policy = LinearCostPolicy(np.zeros((2, D)), np.array([-1.0, 2.0]))
    assert_allclose(policy.predict_proba(inputs(1)), [[1.0, 0.0]])
    assert_array_equal(policy.predict(inputs(1)), [0])


def test_the_same_sums_of_prices_and_errors_tie_to_the_highest_index():
    zero = np.zeros((P, D))
    policy = PricedPolicy(zero, np.zeros(P), zero, np.zeros(P), np.zeros(P), 1.0, "ridge")
    assert_array_equal(policy.predict(inputs(3)), 2)


def test_scaled_inputs_pass_expected_costs_on():
    rng = np.random.default_rng(2)
    inner = LinearCostPolicy(rng.normal(size=(P, D)), rng.normal(size=P))
    mean, scale = rng.normal(size=D), rng.uniform(1, 2, D)
    X = inputs()
    scaled = StandardizedPolicy(mean, scale, inner)
    assert_allclose(scaled.expected_costs(X), inner.expected_costs((X - mean) / scale))


def test_new_prices_reach_through_scaled_inputs():
    policy = StandardizedPolicy(np.zeros(D), np.ones(D), make()["priced"])
    dear = policy.with_prices(betas=[0.0, 0.0, 1e6])
    assert not (dear.predict(inputs()) == 2).any()


def test_under_other_prices_a_tradeoff_decides_by_its_heads():
    policies, X = make(), inputs()
    tradeoff, linear, priced = (policies[kind] for kind in ("tradeoff", "linear", "priced"))
    assert_array_equal(tradeoff.predict(X), linear.predict(X))
    for weight in (0.0, 3.0):
        found = tradeoff.with_prices(price_weight=weight)
        assert_array_equal(found.predict(X), priced.with_prices(price_weight=weight).predict(X))
    less = tradeoff.without(1)
    assert_array_equal(less.predict(X), linear.without(1).predict(X))
    assert_array_equal(
        less.with_prices(price_weight=2.0).predict(X),
        priced.without(1).with_prices(price_weight=2.0).predict(X),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("zero_row", [False, True])
def test_the_distribution_of_costs_is_that_of_their_rewards(dtype, zero_row):
    costs = np.random.default_rng(3).normal(1.0, 1.0, (50, P)).astype(dtype)
    if zero_row:
        costs[7] = 0
    expected = reward_distribution(rewards(np.maximum(costs, 0), "others"))
    expected[expected.sum(axis=1) == 0] = 1 / P
    found = make(dtype)["linear_costs"].distribution_of(costs)
    assert found.dtype == dtype
    assert_array_equal(found, expected)


def test_infinite_costs_have_no_distribution():
    with pytest.raises(InvalidInputError) as caught:
        make()["linear_costs"].distribution_of(np.array([[1.0, np.inf, 0.5]]))
    assert caught.value.parameter == "costs"
