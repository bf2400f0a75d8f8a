"""A router from logged answers: weights, costs, and what a candidate has learned."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import mild
from cascade_cases import cascade_router
from mild.artifact.info import CostInfo, TargetInfo
from mild.datasets import load_outcomes
from mild.errors import InvalidInputError
from mild.policies import MixPolicy
from mild.policies.mix import tradeoff_of
from mild_gateway.learning.logged_outcomes import (
    CLIP,
    CostWeights,
    LoggedOutcomes,
    TableRows,
    dropped_mix,
    fit_candidate,
    is_current,
    learned_router,
    logged_weights,
)
from mild_gateway.learning.pooled_heads import PooledHeads
from world_cases import DOLLARS, KINDS, NAMES, NEW, WRONG, make_router, texts_of

ALWAYS_LARGE = dict.fromkeys(KINDS, "large")
# Probability of a wrong answer, whatever is asked.
SMALL_IS_BEST = dict.fromkeys(KINDS, (0.05, 0.5, 0.3))


def make_logged(router, n=1500, seed=0, wrong=WRONG, dollars=DOLLARS, rate=1.0):
    """Answers to texts of the small world, of an expert drawn at random; all are judged."""
    rng = np.random.default_rng(seed)
    kinds = [KINDS[k] for k in rng.integers(0, len(KINDS), n)]
    expert = rng.integers(0, router.n_experts, n)
    is_wrong = np.array([wrong[kind][k] for kind, k in zip(kinds, expert, strict=True)])
    price = np.array([dollars[kind][k] for kind, k in zip(kinds, expert, strict=True)])
    return LoggedOutcomes(
        X=router.features(texts_of(kinds, rng)).astype(np.float32),
        request_id=np.array([f"r{k}".encode() for k in range(n)]),
        time=1e9 + np.arange(n),
        expert=expert,
        chosen=expert,
        preferred=np.full(n, 2),
        propensity=np.full(n, 1 / router.n_experts),
        selected=np.zeros(n, bool),
        error=(rng.random(n) < is_wrong).astype(float),
        rate=np.full(n, rate),
        dollars=price,
        latency=np.full(n, 2.0),
        source=np.zeros(n, int),
        router=np.zeros(n, int),
        reported=np.full(n, -1),
        episode=np.arange(n),
        draws=np.full((n, router.n_experts), 1 / router.n_experts, np.float32),
        expert_names=tuple(router.experts),
        routers=("f",),
        reports=("m-1", "m-2"),
        requests=n,
        from_text=n,
        from_features=0,
        left_out={},
    )


def choices(router, n=60):
    """Names of the experts for texts of each kind, by kind."""
    rng = np.random.default_rng(9)
    named = {}
    for kind in KINDS:
        chosen = router.predict_texts(texts_of([kind] * n, rng))
        named[kind] = {router.experts[k] for k in chosen}
    return named


def always(name):
    """Choices of a router that sends everything to one expert."""
    return {kind: {name} for kind in KINDS}


def with_cost(router, **fields):
    terms = {"beta": None, "price_weight": None, "latency_weight": None, **fields}
    return replace(router, info=replace(router.info, cost=CostInfo("a cost", **terms)))


# Weights


def test_the_weight_of_an_answer_is_relative_to_the_most_frequent_draw():
    logged = make_logged(make_router(), 4)
    propensity = np.array([0.8, 0.4, 0.8, 0.001])
    rate = np.array([1.0, 1.0, 0.5, 1.0])
    weights = logged_weights(replace(logged, propensity=propensity, rate=rate))
    np.testing.assert_allclose(weights, [1.0, 2.0, 2.0, CLIP])


def test_volunteered_feedback_is_weighted_apart():
    """Its rate is not known, and it counts as if all answers were judged."""
    logged = make_logged(make_router(), 4)
    propensity = np.array([0.8, 0.4, 0.2, 0.1])
    rate = np.array([0.1, 0.1, np.nan, np.nan])
    logged = replace(logged, propensity=propensity, rate=rate)
    assert logged.sampled.tolist() == [True, True, False, False]
    np.testing.assert_allclose(logged_weights(logged), [1.0, 2.0, 1.0, 2.0])


def test_no_answers_have_no_weights():
    assert logged_weights(make_logged(make_router(), 0)).shape == (0,)


# Costs


def test_a_cost_has_the_terms_of_the_router():
    router = with_cost(
        make_router(), price_weight=10.0, latency_weight=0.25, beta={"large": 0.5, "gone": 9.0}
    )
    weights = CostWeights.of(router)
    assert (weights.price_weight, weights.latency_weight) == (10.0, 0.25)
    assert weights.beta.tolist() == [0.0, 0.0, 0.5]
    assert weights.formula == "error + beta + 10 * dollars + 0.25 * seconds"
    logged = make_logged(router, 50)
    expected = logged.error + 0.5 * (logged.expert == 2) + 10 * logged.dollars + 0.25 * 2.0
    np.testing.assert_allclose(weights.costs(logged), expected)


def test_a_router_without_a_cost_counts_errors():
    weights = CostWeights.of(make_router())
    assert weights.formula == "error"
    logged = replace(make_logged(make_router(), 20), dollars=np.full(20, np.nan))
    np.testing.assert_array_equal(weights.costs(logged), logged.error)


def test_the_trade_off_of_a_target_is_the_price_of_a_dollar():
    router = with_cost(make_router(), price_weight=10.0)
    target = TargetInfo(
        target={"keep_quality": 0.9},
        guarantee=None,
        t=3.0,
        expert=None,
        met=True,
        certified=None,
        best_expert="large",
        sentence="It keeps 90 % of the quality.",
    )
    router = replace(router, info=replace(router.info, target=target))
    assert CostWeights.of(router).price_weight == 3.0


def test_a_cost_whose_price_is_unknown_is_unknown():
    router = with_cost(make_router(), price_weight=1.0)
    logged = make_logged(router, 3)
    logged = replace(logged, dollars=np.array([0.1, np.nan, 0.2]))
    assert np.isnan(CostWeights.of(router).costs(logged)).tolist() == [False, True, False]


# Rows of a table


def make_table(n=120, names=NAMES, wrong=WRONG):
    rng = np.random.default_rng(4)
    kinds = [KINDS[k] for k in rng.integers(0, len(KINDS), n)]
    columns = {"query": texts_of(kinds, rng)}
    for place, name in enumerate(names):
        is_wrong = np.array([wrong[kind][place] for kind in kinds])
        columns[f"correct__{name}"] = (rng.random(n) >= is_wrong).astype(int)
    return mild.read_outcomes(pa.table(columns))


def test_rows_of_a_table_are_those_of_the_router_s_experts():
    router = make_router()
    table = make_table(names=["small", "other", "large"])
    known = TableRows.of(table, router)
    assert known.X.shape == (120, router.n_features)
    np.testing.assert_array_equal(known.errors[:, 0], 1 - table.scores[:, 2])
    assert np.isnan(known.errors[:, 1]).all()
    assert np.isnan(known.dollars).all()
    empty = TableRows.of(None, router)
    assert empty.X.shape == (0, router.n_features)
    assert empty.errors.shape == (0, 3)


def test_a_table_of_other_experts_is_refused():
    with pytest.raises(InvalidInputError, match="scores of experts of the router: small") as caught:
        TableRows.of(make_table(names=["x", "y", "z"]), make_router())
    assert caught.value.code == "invalid_table"


# The candidate


def learn(router, logged, table=None):
    return fit_candidate(router, TableRows.of(table, router), logged, CostWeights.of(router))


def test_a_candidate_learns_which_expert_is_good():
    router = make_router(ALWAYS_LARGE)
    candidate = learn(router, make_logged(router, wrong=SMALL_IS_BEST))
    assert choices(candidate) == always("small")
    assert candidate.experts == router.experts
    assert candidate.text is router.text
    assert candidate.info.estimator.class_name == "PooledHeads"
    assert candidate.info.verdict is None
    assert candidate.info.shares.experts["small"] == pytest.approx(1.0)
    assert set(candidate.info.standard_errors) == set(NAMES)


def test_a_candidate_learns_which_kind_of_query_an_expert_is_good_at():
    router = make_router(ALWAYS_LARGE)
    wrong = {"sum": (0.0, 0.9, 0.9), "place": (0.9, 0.0, 0.9), "code": (0.9, 0.9, 0.0)}
    logged = make_logged(router, 6000, wrong=wrong)
    assert choices(learn(router, logged)) == {kind: {NEW[kind]} for kind in KINDS}


def test_dollars_count_by_the_weight_of_the_router():
    same_errors = dict.fromkeys(KINDS, (0.3, 0.3, 0.3))
    dollars = dict.fromkeys(KINDS, (0.2, 0.001, 0.2))
    router = with_cost(make_router(ALWAYS_LARGE), price_weight=10.0)
    candidate = learn(router, make_logged(router, wrong=same_errors, dollars=dollars))
    assert choices(candidate) == always("middle")
    expected = candidate.policy.expected_prices(candidate.features(["what is 1 plus 2 together"]))
    np.testing.assert_allclose(expected[0], (0.2, 0.001, 0.2), rtol=0.05)
    # A router for errors learns what dollars are expected, too.
    plain = make_router(ALWAYS_LARGE)
    candidate = learn(plain, make_logged(plain, wrong=same_errors, dollars=dollars))
    assert candidate.policy.price_weight == 0
    assert candidate.info.price_head == "dollars"
    assert candidate.with_prices(price_weight=3.0).policy.price_weight == 3


def test_beta_and_seconds_count():
    router = with_cost(make_router(ALWAYS_LARGE), beta={"small": 0.5})
    candidate = learn(router, make_logged(router, wrong=SMALL_IS_BEST))
    assert choices(candidate) == always("large")
    router = with_cost(make_router(ALWAYS_LARGE), latency_weight=0.1)
    logged = make_logged(router, wrong=SMALL_IS_BEST)
    logged = replace(logged, latency=np.where(logged.expert == 0, 9.0, 1.0))
    assert choices(learn(router, logged)) == always("large")


def test_an_answer_to_what_is_seldom_drawn_stands_for_several():
    """Small was seldom drawn where it is wrong; by its logged answers alone it would be the best."""
    router = make_router(ALWAYS_LARGE)
    logged = make_logged(router, 4000, wrong=dict.fromkeys(KINDS, (0.0, 0.9, 0.3)))
    is_seldom = (logged.expert == 0) & (np.arange(len(logged)) % 10 == 0)
    logged = replace(logged, error=np.where(is_seldom, 1.0, logged.error))
    assert choices(learn(router, logged)) == always("small")
    logged = replace(logged, propensity=np.where(is_seldom, 0.05, logged.propensity))
    assert choices(learn(router, logged)) == always("large")


def test_a_table_counts_beside_the_log():
    router = make_router(ALWAYS_LARGE)
    logged = make_logged(router, 30, wrong=dict.fromkeys(KINDS, (0.5, 0.5, 0.5)))
    candidate = learn(router, logged, make_table(600, wrong=SMALL_IS_BEST))
    assert choices(candidate) == always("small")
    assert candidate.info.shares.rows == 630


def test_without_any_row_the_router_stays():
    router = make_router(ALWAYS_LARGE)
    assert learn(router, make_logged(router, 0)) is router


def test_of_a_cascade_the_router_without_answers_learns():
    router = cascade_router()
    wrong = dict.fromkeys(KINDS, (0.6, 0.6, 0.6, 0.02))
    dollars = dict.fromkeys(KINDS, (0.01, 0.01, 0.01, 0.01))
    logged = make_logged(router, wrong=wrong, dollars=dollars)
    candidate = learn(router, logged)
    assert candidate.cascade.steps == router.cascade.steps
    assert choices(candidate.direct) == always("spare")


def test_a_mix_becomes_one_setting_and_is_named():
    router = make_router(ALWAYS_LARGE)
    assert dropped_mix(router) is None
    other = make_router(dict.fromkeys(KINDS, "middle")).policy
    mixed = replace(router, policy=MixPolicy(router.policy, other, 0.1, "salt"))
    assert dropped_mix(mixed).startswith("10 % of the queries: ")
    candidate = learn(mixed, make_logged(mixed))
    assert candidate.mix is None
    assert candidate.info.dropped_mix == dropped_mix(mixed)


def test_a_learned_router_can_be_set_to_other_targets():
    outcomes = load_outcomes()
    router = mild.tune(outcomes, keep_quality=0.9, search=mild.RouterCV(n_jobs=1)).router
    heads = tradeoff_of(router.policy).heads
    X = router.text.vectorize(outcomes.queries)
    count = router.n_experts
    pooled = PooledHeads(heads.error_coef, heads.error_intercept, np.zeros(count))
    learned = learned_router(router, heads, pooled, X).with_target(keep_quality=0.95)
    expected = router.with_target(keep_quality=0.95)
    assert learned.info.target == expected.info.target
    assert learned.route(outcomes.queries) == expected.route(outcomes.queries)


# Which answers


def test_answers_of_a_version_that_is_no_longer_reported_are_not_current():
    logged = make_logged(make_router(), 60)
    expert = np.repeat([0, 1, 2], 20)
    reported = np.concatenate([np.repeat([0, 1], 10), np.full(20, 0), np.full(20, -1)])
    logged = replace(logged, expert=expert, reported=reported)
    current = is_current(logged, newest=5)
    assert current[:10].tolist() == [False] * 10, "small reports m-2 now"
    assert current[10:].all()
    assert is_current(logged, newest=20).all(), "both versions are among the newest 20"


def test_some_of_the_answers():
    logged = make_logged(make_router(), 20)
    part = logged.take(slice(5, 8))
    assert part.request_id.astype(str).tolist() == ["r5", "r6", "r7"]
    assert (len(part), part.expert_names) == (3, logged.expert_names)
    assert np.shares_memory(part.X, logged.X)
    assert repr(part) == "<LoggedOutcomes: 3 answers, 3 of a known rate>"
