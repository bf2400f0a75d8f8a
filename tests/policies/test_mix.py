"""A mix of two policies: its draws, its decisions, and what it hands to its parts."""

import hashlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from mild.core.answers import Answers
from mild.core.long_texts import abridge
from mild.errors import InvalidInputError, UnsupportedError
from mild.policies import (
    POLICIES,
    CascadePolicy,
    ConstantPolicy,
    LinearCostPolicy,
    MixPolicy,
    PricedPolicy,
    TradeoffPolicy,
    cascade_of,
    tradeoff_of,
)
from mild.policies.cascade import AgreementTable
from mild.policies.mix import text_draw

D, P = 3, 3
TEXTS = [f"question {number}" for number in range(200)]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(len(TEXTS), D)).astype(np.float32)


def always(expert):
    return ConstantPolicy(np.array([0.3, 0.2, 0.1]), D, expert)


def linear(seed):
    rng = np.random.default_rng(seed)
    return LinearCostPolicy(rng.normal(size=(P, D)), rng.normal(size=P))


def priced(price_weight):
    rng = np.random.default_rng(3)
    heads = rng.normal(size=(P, D)), rng.normal(size=P)
    return PricedPolicy(*heads, *heads, np.array([0.1, 0.2, 0.3]), price_weight, "ridge")


def cascade(steps, threshold=0.5, kind="number", direct=None):
    asked = [expert for step in steps for expert in step]
    codes = RNG.integers(0, 2, (40, len(asked)))
    scores = RNG.integers(0, 2, codes.shape).astype(float)
    table = AgreementTable.of_rows(codes, scores, np.ones(40))
    return CascadePolicy(kind, steps, threshold, table, direct or linear(0))


def test_a_draw_is_a_salted_hash_of_the_text():
    digest = hashlib.blake2b("Grüße".encode(), digest_size=3, salt=b"s").digest()
    assert text_draw("Grüße", "s") == int.from_bytes(digest, "big") / 2**24
    assert text_draw("Grüße", "t") != text_draw("Grüße", "s")
    # Half of a surrogate pair, as JSON can hold it.
    assert 0 <= text_draw("\ud800", "s") < 1


def test_a_long_text_has_the_draw_of_what_a_ledger_keeps_of_it():
    text = "word " * 5_000
    assert abridge(text) != text
    assert text_draw(abridge(text), "s") == text_draw(text, "s")


def test_draws_are_uniform_and_survive_the_type_of_features():
    mix = MixPolicy(linear(0), linear(1), 0.3, "s")
    draws = mix.draws(f"text {number}" for number in range(20_000))
    assert abs(draws.mean() - 0.5) < 0.01
    assert abs((draws < 0.3).mean() - 0.3) < 0.01
    assert_array_equal(draws.astype(np.float32).astype(np.float64), draws)


def test_each_query_is_decided_by_the_policy_that_is_drawn():
    mix = MixPolicy(linear(0), linear(1), 0.3, "s")
    inputs = mix.with_draws(X, TEXTS)
    chosen = mix.predict(inputs)
    decisions = mix.decide(inputs)
    for row, text in enumerate(TEXTS):
        part = mix.policy_for(text)
        assert mix.part_of(inputs[row]) is part
        assert chosen[row] == mix.decide_one(inputs[row]) == part.decide_one(X[row])
    assert_array_equal(decisions.chosen, chosen)
    assert_array_equal(decisions.costs, mix.expected_costs(inputs))
    assert_array_equal(decisions.values, mix.decision_function(inputs))
    assert_array_equal(decisions.probabilities, mix.predict_proba(inputs))
    assert_array_equal(mix.predict(inputs[:0]), [])


def test_a_larger_share_moves_queries_one_way_only():
    before = np.zeros(len(TEXTS), bool)
    for share in (0.01, 0.2, 0.5, 0.8, 0.99):
        mix = MixPolicy(always(0), always(1), share, "s")
        of_second = mix.predict(mix.with_draws(X, TEXTS)) == 1
        assert (of_second >= before).all()
        before = of_second
    assert before.sum() > 190


def test_features_without_the_draw_cannot_be_decided():
    mix = MixPolicy(linear(0), linear(1), 0.3, "s")
    for decide in (mix.predict, mix.decide, mix.expected_costs):
        with pytest.raises(UnsupportedError, match="route or predict_texts"):
            decide(X)
    with pytest.raises(UnsupportedError, match=r"router.features\(texts\)"):
        mix.decide_one(X[0])


@pytest.mark.parametrize("make", [lambda: linear(1), lambda: cascade([[0, 1], [2]])])
def test_a_mix_is_saved_and_read(make):
    first = make()
    mix = MixPolicy(first, always(2), 0.25, "salt")
    settings, tensors = mix.state()
    copy = POLICIES["mix"].from_state(settings, tensors)
    inputs = mix.with_draws(X, TEXTS)
    assert_array_equal(copy.predict(inputs), mix.predict(inputs))
    assert copy.parts == mix.parts
    assert copy.n_columns == D + 1


def test_experts_ranks_and_rules_reach_both_policies():
    mix = MixPolicy(linear(0), always(2), 0.5, "s")
    inputs = mix.with_draws(X, TEXTS)
    order = np.array([2, 0, 1])
    assert_array_equal(order[mix.with_experts(order).predict(inputs)], mix.predict(inputs))
    ranks = np.array([2, 1, 0])
    ranked = mix.with_ranks(ranks)
    assert_array_equal(ranked.first.ranks, ranks)
    assert_array_equal(ranked.second.ranks, ranks)


def test_new_prices_drop_the_mix():
    mix = MixPolicy(always(2), priced(1.0), 0.5, "s")
    assert mix.has_prices
    other = mix.with_prices(price_weight=3.0)
    assert_array_equal(other.predict(X), priced(3.0).predict(X))
    assert other.n_columns == D
    with pytest.raises(UnsupportedError):
        MixPolicy(linear(0), linear(1), 0.5, "s").with_prices(price_weight=3.0)


def test_costs_are_known_for_all_rows_or_for_none():
    from mild.policies import Decoder, LinearPolicy

    scores = LinearPolicy(np.eye(P), np.zeros(P), Decoder(np.ones(P), "argmax", "logistic"))
    mix = MixPolicy(scores, always(0), 0.5, "s")
    inputs = mix.with_draws(X, TEXTS)
    assert mix.decide(inputs).costs is None
    assert all(mix.decide(row[None]).costs is None for row in inputs[:20])
    assert mix.decide(inputs).by == "mix"


def test_cascades_run_as_the_one_that_is_drawn():
    shared = linear(0)
    mix = MixPolicy(
        cascade([[0, 1], [2]], direct=shared), cascade([[1], [0, 2]], direct=shared), 0.4, "s"
    )
    assert cascade_of(mix) is mix
    inputs = mix.with_draws(X, TEXTS)
    answers = Answers.of(RNG.integers(0, 2, (len(TEXTS), P)).astype(str).tolist(), "number")
    run = mix.run(inputs, answers)
    latencies = RNG.uniform(size=(len(TEXTS), P))
    for row, text in enumerate(TEXTS):
        part = mix.policy_for(text)
        alone = part.run(X[row : row + 1], answers.take([row]))
        assert run.expert[row] == alone.expert[0]
        assert_array_equal(run.asked[row], alone.asked[0])
        assert run.steps[run.accepted_step[row]] == part.steps[alone.accepted_step[0]]
        assert run.seconds(latencies)[row] == alone.seconds(latencies[row : row + 1])[0]
        assert mix.drawn_cascade(inputs[row]) is part
    assert [run.is_last(number) for number in range(4)] == [False, True, False, True]
    assert mix.first_asked(inputs) == [mix.policy_for(text).steps[0] for text in TEXTS]
    assert mix.direct is shared
    assert set(mix.order) == {0, 1, 2}


def test_a_single_expert_counts_as_a_cascade():
    several = cascade([[0, 1]])
    for expert in (1, 2):
        mix = MixPolicy(several, always(expert), 0.5, "s")
        assert mix.cascades[1].steps == [[expert]]
        assert mix.direct is several.direct
    assert MixPolicy(always(2), several, 0.5, "s").cascades[0].steps == [[2]]


def test_a_cascade_with_nobody_left_to_ask_leaves_the_mix():
    mix = MixPolicy(cascade([[0, 1]]), always(2), 0.5, "s")
    left = mix.without(2)
    assert isinstance(left, CascadePolicy)
    assert left.steps == [[0, 1]]


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.1, float("nan"), "0.5", True])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(InvalidInputError, match="share must be a number between 0 and 1"):
        MixPolicy(linear(0), linear(1), share, "s")


def test_policies_that_cannot_be_mixed_are_refused():
    with pytest.raises(InvalidInputError, match="salt must be a text of at most 16 bytes"):
        MixPolicy(linear(0), linear(1), 0.5, "x" * 17)
    with pytest.raises(InvalidInputError, match="must both be cascades"):
        MixPolicy(cascade([[0, 1]]), linear(1), 0.5, "s")
    with pytest.raises(InvalidInputError, match="compare answers as first does"):
        MixPolicy(cascade([[0, 1]]), cascade([[0, 1]], kind="text"), 0.5, "s")
    with pytest.raises(InvalidInputError, match="features and experts of first"):
        MixPolicy(linear(1), ConstantPolicy(np.zeros(2), D), 0.5, "s")
    mix = MixPolicy(linear(0), linear(1), 0.5, "s")
    with pytest.raises(InvalidInputError, match="must not be mixes themselves"):
        MixPolicy(mix, linear(1), 0.5, "s")
    with pytest.raises(UnsupportedError, match="mix two cascades"):
        cascade([[0, 1]], direct=mix)


def tuned_mix():
    """Two trade-offs of one tuned router, which holds heads and a further router."""
    heads = priced(1.0)
    tuned = TradeoffPolicy(heads, heads, routers=[linear(5)])
    first = tuned.decided_by(heads.with_prices(price_weight=9.0))
    return MixPolicy(first, tuned.decided_by(always(1)), 0.4, "s")


def tuned_mix_of_cascades():
    """Two cascades of one tuned router, which holds both of them as settings."""
    heads = priced(1.0)
    cascades = [cascade([[0], [1]], direct=heads), cascade([[0], [2]], direct=heads)]
    tuned = TradeoffPolicy(heads, heads, cascades)
    first, second = (setting.with_direct(tuned) for setting in cascades)
    return MixPolicy(first, second, 0.4, "s")


@pytest.mark.parametrize("make", [tuned_mix, tuned_mix_of_cascades])
def test_heads_and_settings_of_a_tuned_router_are_saved_once(make):
    mix = make()
    settings, tensors = mix.state()
    of_second = {name for name in tensors if name.startswith("1.")}
    # Not those of the heads ("1.0.0.error_coef" and the like) and of the other settings.
    assert not any(name.startswith(("1.0.0.", "1.0.2.")) for name in of_second)
    assert "tradeoff" not in {part["kind"] for part in settings["parts"][1:]}
    loaded = MixPolicy.from_state(settings, tensors)
    drawn = mix.with_draws(X, TEXTS)
    assert_array_equal(loaded.predict(drawn), mix.predict(drawn))
    assert_array_equal(loaded.decision_function(drawn), mix.decision_function(drawn))
    assert loaded.parts == mix.parts
    first, second = tradeoff_of(loaded.first), tradeoff_of(loaded.second)
    assert second.heads is first.heads
    assert (len(second.cascades), len(second.routers)) == (len(first.cascades), len(first.routers))
    assert_array_equal(second.predict(X), tradeoff_of(mix.second).predict(X))
    # Saved again, it is the same.
    again_settings, again_tensors = loaded.state()
    assert again_settings == settings
    assert set(again_tensors) == set(tensors)


def test_parts_with_different_heads_are_saved_whole():
    first, second = TradeoffPolicy(priced(1.0), linear(1)), TradeoffPolicy(priced(1.0), linear(2))
    settings, tensors = MixPolicy(first, second, 0.4, "s").state()
    loaded = MixPolicy.from_state(settings, tensors)
    assert_array_equal(loaded.second.heads.coef, second.heads.coef)
    assert_array_equal(loaded.first.heads.coef, first.heads.coef)


def test_a_policy_is_shown_in_one_line_without_its_arrays():
    assert repr(priced(1.0)) == "PricedPolicy(3 features, 3 experts)"
    shown = repr(tuned_mix())
    trade_off = "TradeoffPolicy(PricedPolicy(3 features, 3 experts))"
    single = "TradeoffPolicy(ConstantPolicy(3 features, 3 experts))"
    assert shown == f"MixPolicy(first={trade_off}, second={single}, share=0.4, salt='s')"
    for policy in (tuned_mix_of_cascades(), cascade([[0], [1]]), linear(1)):
        assert "\n" not in repr(policy)
        assert "array" not in repr(policy)
