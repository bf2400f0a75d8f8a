"""Bounds: formulas against their slow forms, guarantees against draws that could break them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

from experiments.theory import bounds
from experiments.theory.bounds import _all_signs, _inverse_curvature, _two_experts
from mild.core.costs import reward_distribution, rewards
from mild.core.decisions import decide, stationary_distribution
from mild.core.losses import mild_loss
from mild.core.margins import expert_mass
from mild.errors import InvalidInputError

BAD = ([[0.55, 0.45]], [2 / 3, 1 / 3])


def random_problem(rng, n, p, spread=1.0):
    """Distributions, scores and margins that are neither all mild nor all extreme."""
    sharpness = rng.choice([0.1, 0.5, 2.0])
    distribution = rng.dirichlet(np.full(p, sharpness), n)
    scores = rng.standard_normal((n, p)) * rng.choice([0.1, 1.0, 4.0])
    return distribution, scores, np.exp(rng.uniform(-spread, spread, p))


def loss_vectors(scores, margins):
    """ell_k(f) for every row and expert, one expert's reward at a time."""
    n, p = scores.shape
    columns = [mild_loss(scores, np.tile(np.eye(p)[k], (n, 1)), margins) for k in range(p)]
    return np.stack(columns, axis=1)


# --- the exact minimiser -------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3, 5, 12])
def test_minimiser_has_zero_gradient_and_decodes_to_its_distribution(p):
    rng = np.random.default_rng(p)
    for _ in range(8):
        distribution = rng.dirichlet(np.full(p, 1.0), 4) + 1e-9
        distribution /= distribution.sum(axis=1, keepdims=True)
        margins = np.exp(rng.uniform(-1.5, 1.5, p))
        scores = bounds.exact_minimiser(distribution, margins)
        _, gradient = mild_loss(scores, distribution, margins, return_gradient=True)
        assert np.abs(gradient).max() < 1e-11
        recovered = stationary_distribution(scores, margins)
        np.testing.assert_allclose(recovered, distribution, atol=1e-9)


def test_minimal_risk_is_entropy_at_equal_margins_whatever_their_size():
    distribution = np.random.default_rng(0).dirichlet(np.ones(4), 20)
    entropy = -(distribution * np.log(distribution)).sum(axis=1)
    for margin in (0.3, 1.0, 7.0):
        risk = bounds.minimal_risk(distribution, np.full(4, margin))
        np.testing.assert_allclose(risk, entropy, rtol=1e-12)


def test_minimal_risk_scales_with_the_rewards():
    gain = np.random.default_rng(1).gamma(1.0, size=(5, 3))
    margins = [0.5, 1.0, 2.0]
    np.testing.assert_allclose(
        bounds.minimal_risk(7 * gain, margins), 7 * bounds.minimal_risk(gain, margins)
    )


def test_minimal_risk_drops_experts_without_reward_and_is_the_limit_of_small_rewards():
    margins = [0.5, 1.0, 3.0]
    exact = bounds.minimal_risk([[0.6, 0.0, 0.4]], margins)
    pair = bounds.minimal_risk([[0.6, 0.4]], [0.5, 3.0])
    near = bounds.minimal_risk([[0.6, 1e-10, 0.4]], margins)
    np.testing.assert_allclose(exact, pair, rtol=1e-13)
    np.testing.assert_allclose(exact, near, atol=1e-7)
    assert bounds.minimal_risk([[0.0, 0.0, 0.0]], margins)[0] == 0


def test_minimal_risk_lies_below_the_risk_of_any_scores():
    rng = np.random.default_rng(2)
    for p in (2, 3, 5):
        distribution, scores, margins = random_problem(rng, 200, p)
        gap = mild_loss(scores, distribution, margins) - bounds.minimal_risk(distribution, margins)
        assert gap.min() > -1e-12


# --- the modulus ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "known"), [(2, 0.59), (4, 0.27), (16, 0.059)])
def test_modulus_of_two_experts_is_certified_and_known(ratio, known):
    for margins in ([1, ratio], [3.0 * ratio, 3.0]):
        result = bounds.strong_concavity(margins)
        assert result.certified
        assert result.value == result.floor
        assert float(f"{result.value:.2g}") == known


def test_min_over_max_is_no_lower_bound_on_the_modulus():
    assert bounds.strong_concavity([1, 16]).value * (1 + 1e-6) < 1 / 16


@pytest.mark.parametrize("ratio", [1.0001, 1.5, 3.0, 40.0, 1e4])
def test_certified_modulus_is_a_tight_lower_bound_on_a_fine_grid(ratio):
    t = np.concatenate([np.linspace(-30, 30, 200_001), np.linspace(-30, 30, 200_001) / ratio])
    a, b = 1 / (1 + np.exp(t)), ratio / (1 + np.exp(-np.clip(ratio * t, -700, 700)))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        curvature = (a + b) ** 3 / (a * b * (1 + ratio - a - b))
    least = np.nanmin(curvature) / 4
    certified = _two_experts(ratio)
    assert certified <= least
    assert certified >= least * (1 - 2e-6)


@pytest.mark.parametrize("p", [1, 2, 3, 7])
def test_modulus_is_exactly_one_at_equal_margins(p):
    assert bounds.strong_concavity([0.4] * p) == bounds.StrongConcavity(1.0, True, 1.0)


@pytest.mark.parametrize(("margins", "known"), [([1, 1, 2], 0.5808), ([1, 2, 2], 0.5034)])
def test_modulus_of_three_experts_is_an_estimate(margins, known):
    result = bounds.strong_concavity(margins)
    assert not result.certified
    assert result.value == pytest.approx(known, abs=1e-4)
    assert result.floor < result.value


@pytest.mark.parametrize("ratio", [2, 4, 16])
def test_modulus_of_more_experts_is_at_most_that_of_the_extreme_pair(ratio):
    pair = bounds.strong_concavity([1, ratio]).value
    three = bounds.strong_concavity([1, 1, ratio]).value
    assert three <= pair
    assert bounds.strong_concavity([1, ratio, ratio]).value < three


def test_modulus_depends_on_ratios_of_margins_only():
    one = bounds.strong_concavity([1, 2, 5]).value
    assert bounds.strong_concavity([0.1, 0.2, 0.5]).value == pytest.approx(one, rel=1e-6)


def test_modulus_of_many_experts_lies_between_floor_and_pair():
    margins = np.linspace(1, 3, 10)
    result = bounds.strong_concavity(margins, n_starts=100, n_refined=1)
    assert result.floor < result.value <= bounds.strong_concavity([1, 3]).value


def slow_inverse_curvature(f, rho, sign):
    """s^T Q^+ s from J, M and pseudo-inverses, as written."""
    p = len(rho)
    softmax = np.array([np.exp(f / r) / np.exp(f / r).sum() for r in rho])
    q = stationary_distribution(f[None], rho)[0]
    jacobian = (softmax - np.eye(p)) / rho[:, None]
    hessian = sum(
        q[k] / rho[k] ** 2 * (np.diag(softmax[k]) - np.outer(softmax[k], softmax[k]))
        for k in range(p)
    )
    curvature = jacobian @ np.linalg.pinv(hessian) @ jacobian.T
    basis = np.linalg.qr(np.vstack([np.ones(p), np.eye(p)[:-1]]).T)[0][:, 1:]
    reduced = basis.T @ sign
    return reduced @ np.linalg.solve(basis.T @ curvature @ basis, reduced)


@pytest.mark.parametrize("p", [2, 3, 4, 5])
def test_poisson_form_equals_the_pseudo_inverse(p):
    rng = np.random.default_rng(p)
    rho = np.exp(rng.uniform(-1, 1, p))
    scores = 0.3 * rng.standard_normal((6, p))
    signs = _all_signs(p)
    assert len(signs) == 2 ** (p - 1) - 1
    fast = _inverse_curvature(scores, rho, signs)
    slow = [[slow_inverse_curvature(f, rho, s) for s in signs] for f in scores]
    np.testing.assert_allclose(fast, slow, rtol=1e-7)


def test_curvature_is_the_second_difference_of_the_minimal_risk():
    rho = np.array([0.7, 1.0, 2.5])
    f = np.array([0.3, -0.4, 0.0])
    q = stationary_distribution(f[None], rho)[0]
    jacobian = np.array([np.exp(f / r) / np.exp(f / r).sum() for r in rho])
    hessian = sum(
        q[k] / rho[k] ** 2 * (np.diag(jacobian[k]) - np.outer(jacobian[k], jacobian[k]))
        for k in range(3)
    )
    jacobian = (jacobian - np.eye(3)) / rho[:, None]
    curvature = jacobian @ np.linalg.pinv(hessian) @ jacobian.T
    for v in ([1.0, -1.0, 0.0], [0.5, 0.5, -1.0]):
        step = 1e-3 * np.array(v)
        risk = bounds.minimal_risk([q - step, q, q + step], rho)
        second = (risk[0] - 2 * risk[1] + risk[2]) / 1e-6
        assert second == pytest.approx(-np.array(v) @ curvature @ np.array(v), rel=1e-4)


def test_floor_of_the_modulus_holds_at_random_scores():
    rng = np.random.default_rng(3)
    for p in (3, 4, 6):
        for _ in range(5):
            rho = np.exp(rng.uniform(-1.5, 1.5, p))
            scores = rng.standard_normal((300, p)) * np.exp(rng.uniform(-2, 2, (300, 1)))
            worst = 1 / _inverse_curvature(scores, rho, _all_signs(p)).max()
            assert bounds.modulus_floor(rho) < worst


# --- the repaired guarantee ----------------------------------------------------------------------


def test_surrogate_regret_is_the_bregman_divergence_at_the_decoding():
    rng = np.random.default_rng(4)
    for p in (2, 3, 4, 5):
        distribution, scores, margins = random_problem(rng, 50, p)
        scores = np.clip(scores, -3, 3)
        q = stationary_distribution(scores, margins)
        loss = loss_vectors(scores, margins)
        least = bounds.minimal_risk(distribution, margins)
        regret = mild_loss(scores, distribution, margins) - least
        slope = (loss * (distribution - q)).sum(axis=1)
        bregman = bounds.minimal_risk(q, margins) + slope - least
        np.testing.assert_allclose(regret, bregman, atol=1e-10)


@pytest.mark.parametrize("p", [2, 3, 4, 5])
def test_guarantee_holds_for_stationary_decoding_on_random_draws(p):
    rng = np.random.default_rng(10 + p)
    unequal, wrong = 0, 0
    for _ in range(4):
        distribution, scores, margins = random_problem(rng, 120, p)
        modulus = bounds.strong_concavity(margins, n_starts=300, n_refined=3).value
        # Half of the scores sit near a minimiser: far from it the inequality is easy.
        near = bounds.exact_minimiser(distribution[::2] + 1e-6, margins)
        scores[::2] = near + 0.1 * rng.standard_normal(near.shape)
        q = stationary_distribution(scores, margins)
        regret = mild_loss(scores, distribution, margins) - bounds.minimal_risk(
            distribution, margins
        )
        distance = np.abs(distribution - q).sum(axis=1)
        assert (regret + 1e-12 >= modulus / 2 * distance**2).all()
        rows = np.arange(120)
        chosen = decide(scores, margins)
        lost = distribution.max(axis=1) - distribution[rows, chosen]
        assert (lost <= distance + 1e-12).all()
        unequal += int((chosen != decide(scores, margins, "argmax")).sum())
        wrong += int((lost > 0).sum())
    assert unequal > 0
    assert wrong > 0


@pytest.mark.parametrize("p", [2, 3, 4])
def test_consistency_holds_for_stationary_decoding_and_unnormalised_rewards(p):
    rng = np.random.default_rng(20 + p)
    for _ in range(4):
        distribution, scores, margins = random_problem(rng, 12, p)
        gain = distribution * rng.uniform(0, 20, (12, 1))
        modulus = bounds.strong_concavity(margins, n_starts=300, n_refined=3).value
        result = bounds.consistency(
            scores, gain, margins, weights=rng.uniform(0, 1, 12), modulus=modulus
        )
        assert result.holds
        assert result.proved == (p == 2)
        safe = bounds.consistency(scores, gain, margins, modulus=bounds.modulus_floor(margins))
        assert safe.holds
        assert safe.proved


def test_guarantee_is_nearly_attained_so_its_constant_is_not_slack():
    ratio = 4.0
    rho = np.array([1.0, 1 / ratio])
    t = np.linspace(-3, 3, 301)
    q = stationary_distribution(np.stack([t, 0 * t], axis=1), rho)
    p = q + 1e-3 * np.array([1.0, -1.0])
    regret = mild_loss(np.stack([t, 0 * t], axis=1), p, rho) - bounds.minimal_risk(p, rho)
    tightest = (2 * regret / (2e-3) ** 2).min()
    assert tightest == pytest.approx(bounds.strong_concavity(rho).value, rel=1e-2)


def test_counterexample_breaks_the_printed_bound_for_argmax_but_not_for_stationary_decoding():
    gain, margins = BAD
    scores = bounds.exact_minimiser(gain, margins)
    np.testing.assert_allclose(scores, [[-0.2036, 0.0]], atol=5e-5)
    printed = bounds.consistency(scores, gain, margins, decision="argmax")
    assert printed.surrogate_regret < 1e-14
    assert printed.target_regret == pytest.approx(0.10)
    assert printed.mean_total == pytest.approx(1.0)
    assert not printed.printed_holds
    assert not printed.holds
    assert not printed.proved
    repaired = bounds.consistency(scores, gain, margins)
    assert repaired.target_regret == 0
    assert repaired.holds
    assert repaired.proved


@pytest.mark.parametrize("margin", [0.2, 1.0, 3.0])
def test_printed_bound_with_mean_total_holds_for_argmax_at_equal_margins(margin):
    rng = np.random.default_rng(6)
    for p in (2, 3, 5):
        distribution, scores, _ = random_problem(rng, 40, p)
        gain = distribution * rng.uniform(0, 10, (40, 1))
        result = bounds.consistency(scores, gain, np.full(p, margin), decision="argmax")
        assert result.modulus == 1
        assert result.holds
        assert result.proved


def test_printed_bound_fails_without_mean_total_when_rewards_sum_to_more_than_one():
    result = bounds.consistency([[0.0, 0.0]], [[5.5, 4.5]], decision="argmax")
    assert result.mean_total == 10
    assert result.target_regret == pytest.approx(1.0)
    assert not result.printed_holds
    assert result.holds
    below_one = bounds.consistency([[0.0, 0.0]], [[0.55, 0.45]], decision="argmax")
    assert below_one.printed_holds


def test_inputs_of_zero_weight_do_not_count():
    gain, margins = np.array([[0.9, 0.1], [0.5, 0.5]]), [1.0, 2.0]
    scores = np.array([[0.0, 1.0], [5.0, 0.0]])
    both = bounds.consistency(scores, gain, margins, weights=[3.0, 0.0])
    alone = bounds.consistency(scores[:1], gain[:1], margins)
    assert both.target_regret == alone.target_regret
    assert both.surrogate_regret == pytest.approx(alone.surrogate_regret)


# --- Rademacher complexity -----------------------------------------------------------------------


def enumerate_complexity(X, membership, rho, norm):
    """Mean over all sign matrices of the supremum, attained at W proportional to the sum."""
    n, p = membership.shape
    total = 0.0
    for signs in itertools.product((-1, 1), repeat=n * p):
        eps = np.reshape(signs, (n, p))
        matrix = np.zeros((p, X.shape[1]))
        for i in range(n):
            slope = sum(membership[i, k] / rho[k] for k in range(p))
            for k in range(p):
                matrix[k] += eps[i, k] * slope * X[i]
        best = norm * matrix / max(np.linalg.norm(matrix), 1e-300)
        total += (best * matrix).sum()
    return total / 2 ** (n * p) / n


@pytest.mark.parametrize("soft", [False, True])
def test_monte_carlo_matches_enumeration_and_closed_form_bounds_both(soft):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((4, 3))
    rho = np.array([0.5, 1.5])
    membership = rng.dirichlet(np.ones(2), 4) if soft else np.eye(2)[[0, 1, 1, 0]]
    exact = enumerate_complexity(X, membership, rho, 2.0)
    estimate = bounds.rademacher_monte_carlo(X, membership, rho, 2.0, n_draws=20_000)
    assert abs(estimate.value - exact) < 4 * estimate.standard_error
    assert estimate.standard_error < 0.02 * exact
    closed = bounds.rademacher_closed_form(X, membership, rho, 2.0)
    assert exact <= closed
    assert closed <= bounds.rademacher_closed_form(X, membership, rho, 2.0, norms="max")


def test_closed_form_is_exact_for_one_labelled_sample_and_counts_the_intercept():
    X, membership = np.array([[3.0, 4.0]]), np.array([[0.0, 1.0]])
    # Every sign pattern has the same norm: sqrt(p) * |x| / rho.
    exact = np.sqrt(2) * np.sqrt(26) / 0.5
    closed = bounds.rademacher_closed_form(X, membership, [9.0, 0.5], intercept=True)
    drawn = bounds.rademacher_monte_carlo(X, membership, [9.0, 0.5], intercept=True, n_draws=5)
    assert closed == pytest.approx(exact)
    assert drawn.value == pytest.approx(exact)


def test_monte_carlo_stays_below_closed_form_on_deferral_samples_dense_and_sparse():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((200, 6)) * (rng.uniform(size=(200, 6)) < 0.5)
    member = reward_distribution(rewards(rng.uniform(size=(200, 3)), "contrast"))
    rho = [0.5, 1.0, 2.0]
    dense = bounds.rademacher_monte_carlo(X, member, rho, intercept=True, n_draws=300)
    closed = bounds.rademacher_closed_form(X, member, rho, intercept=True)
    assert dense.value - 3 * dense.standard_error <= closed
    assert dense.value > 0.5 * closed
    csr = sparse.csr_matrix(X)
    again = bounds.rademacher_monte_carlo(csr, member, rho, intercept=True, n_draws=300)
    assert again.value == pytest.approx(dense.value)
    assert bounds.rademacher_closed_form(csr, member, rho, intercept=True) == pytest.approx(closed)


def test_monte_carlo_is_the_same_for_the_same_seed():
    X, member = np.ones((5, 2)), np.eye(3)[[0, 1, 2, 0, 1]]
    one = bounds.rademacher_monte_carlo(X, member, n_draws=50, seed=3)
    assert one == bounds.rademacher_monte_carlo(X, member, n_draws=50, seed=3)
    assert one != bounds.rademacher_monte_carlo(X, member, n_draws=50, seed=4)


# --- margin bound --------------------------------------------------------------------------------


def labelled_sample(n=400, p=3, seed=9):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    weights = rng.standard_normal((p, 4)) * 0.3
    scores = X @ weights.T
    return scores, np.linalg.norm(X, axis=1), float(np.linalg.norm(weights)), scores.argmax(axis=1)


def test_margin_bound_is_the_printed_corollary_term_by_term():
    scores, lengths, norm, labels = labelled_sample()
    rho, n, p = np.array([0.3, 0.5, 0.8]), 400, 3
    bound = bounds.margin_bound(scores, rho, lengths, norm, labels=labels, delta=0.1, norms="max")
    loss, energy = 0.0, 0.0
    for i, k in enumerate(labels):
        gaps = [scores[i, k] - scores[i, j] for j in range(p) if j != k]
        loss += max(min(1, max(0, 1 - gap / rho[k])) for gap in gaps)
    for k in range(p):
        mine = labels == k
        energy += mine.sum() * lengths[mine].max() ** 2 / rho[k] ** 2
    assert bound.empirical == pytest.approx(loss / n)
    assert bound.complexity == pytest.approx(4 * np.sqrt(2) * p * norm / n * np.sqrt(energy))
    assert bound.confidence == pytest.approx(3 * np.sqrt(np.log(20) / (2 * n)))
    assert bound.total == bound.empirical + bound.complexity + bound.confidence


def test_one_hot_rewards_and_labels_give_the_same_bound():
    scores, lengths, norm, labels = labelled_sample()
    rho = [0.3, 0.5, 0.8]
    assert bounds.margin_bound(scores, rho, lengths, norm, labels=labels) == bounds.margin_bound(
        scores, rho, lengths, norm, rewards=np.eye(3)[labels]
    )


def test_deferral_bound_uses_the_reward_mass_and_the_weighted_margin_loss():
    rng = np.random.default_rng(11)
    scores, lengths, norm, _ = labelled_sample()
    costs = rng.uniform(size=scores.shape)
    gain = rewards(costs, "others") / 6.0
    rho = np.array([0.5, 0.6, 0.7])
    bound = bounds.margin_bound(scores, rho, np.ones_like(lengths) * 9, norm, rewards=gain)
    mass = expert_mass(costs, "others")
    energy = (mass * 81 / rho**2).sum()
    assert bound.complexity == pytest.approx(4 * np.sqrt(2) * 3 * norm / 400 * np.sqrt(energy))
    loss = 0.0
    for f, weights in zip(scores, gain, strict=True):
        for k in range(3):
            rival = max(f[j] for j in range(3) if j != k)
            loss += weights[k] * min(1, max(0, 1 - (f[k] - rival) / rho[k])) / 400
    assert bound.empirical == pytest.approx(loss)
    chosen = scores.argmax(axis=1)
    not_chosen = gain.sum(axis=1) - gain[np.arange(400), chosen]
    assert bound.empirical >= not_chosen.mean()


def test_weighted_margin_loss_is_as_lipschitz_as_the_deferral_proof_says():
    rng = np.random.default_rng(12)
    tightest = 0.0
    for _ in range(3000):
        p = int(rng.integers(2, 5))
        rho = np.exp(rng.uniform(-1, 1, p))
        weights = rng.dirichlet(np.ones(p))
        f = rng.standard_normal((2, p)) * 0.5
        f[1] = f[0] + 0.1 * (f[1] - f[0])
        rival = [[np.delete(row, k).max() for k in range(p)] for row in f]
        loss = (weights * np.clip(1 - (f - rival) / rho, 0, 1)).sum(axis=1)
        ratio = abs(loss[0] - loss[1]) / np.linalg.norm(f[0] - f[1])
        slope = np.sqrt(2) * (weights / rho).sum()
        tightest = max(tightest, ratio / slope)
    assert 0.5 < tightest <= 1 + 1e-9


def test_sharp_constant_is_smaller_by_the_root_of_twice_the_number_of_experts():
    scores, lengths, norm, labels = labelled_sample()
    paper = bounds.margin_bound(scores, None, lengths, norm, labels=labels)
    sharp = bounds.margin_bound(scores, None, lengths, norm, labels=labels, constant="sharp")
    assert sharp.complexity == pytest.approx(paper.complexity / np.sqrt(6))


def test_terms_move_the_right_way_with_margins_norm_confidence_and_sample_size():
    scores, lengths, norm, labels = labelled_sample()

    def at(margin=0.5, factor=1.0, delta=0.05, n=400, **options):
        return bounds.margin_bound(
            scores[:n],
            [margin] * 3,
            lengths[:n],
            norm * factor,
            labels=labels[:n],
            delta=delta,
            **options,
        )

    assert at(margin=0.25).empirical < at().empirical < at(margin=1.0).empirical
    assert at(margin=0.25).complexity == pytest.approx(2 * at().complexity)
    assert at(factor=3).complexity == pytest.approx(3 * at().complexity)
    assert at(delta=0.01).confidence > at().confidence > at(delta=0.5).confidence
    assert at(n=100).confidence == pytest.approx(2 * at().confidence)
    assert at(n=100).complexity > at().complexity


def test_uniform_bound_doubles_complexity_and_pays_log_log_terms():
    scores, lengths, norm, labels = labelled_sample()
    rho = np.array([1.0, 0.5, 0.1])
    plain = bounds.margin_bound(scores, rho, lengths, norm, labels=labels)
    uniform = bounds.margin_bound(scores, rho, lengths, norm, labels=labels, uniform=True)
    log_term = np.log(40) + 3 * np.log(np.pi**2 / 6)
    log_term += 2 * sum(np.log(np.log2(2 / r)) for r in rho)
    assert uniform.empirical == plain.empirical
    assert uniform.complexity == pytest.approx(2 * plain.complexity)
    assert uniform.confidence == pytest.approx(3 * np.sqrt(log_term / 800))


def test_uniform_bound_is_implied_by_the_union_over_the_grid():
    scores, lengths, norm, labels = labelled_sample()
    for rho in ([0.9, 0.26, 0.13], [1.0, 0.5, 0.25], [0.51, 0.04, 0.7]):
        k = np.floor(np.log2(1 / np.array(rho))).astype(int) + 1
        grid = 2.0**-k
        assert (grid < rho).all()
        assert (np.array(rho) <= 2 * grid).all()
        delta = 0.05 * np.prod(6 / (np.pi**2 * k**2))
        at_grid = bounds.margin_bound(scores, grid, lengths, norm, labels=labels, delta=delta)
        uniform = bounds.margin_bound(scores, rho, lengths, norm, labels=labels, uniform=True)
        assert at_grid.empirical <= uniform.empirical
        assert at_grid.complexity <= uniform.complexity * (1 + 1e-12)
        assert at_grid.confidence <= uniform.confidence * (1 + 1e-12)


def test_margin_bound_of_one_expert_has_no_margin_loss():
    bound = bounds.margin_bound([[1.0], [2.0]], [1.0], [2.0, 2.0], 1.0, labels=[0, 0])
    assert bound.empirical == 0
    soft = bounds.margin_bound([[1.0], [2.0]], [1.0], [2.0, 2.0], 1.0, rewards=[[1.0], [0.0]])
    assert soft.empirical == 0


def test_vacuous_means_a_total_of_at_least_one():
    scores, lengths, norm, labels = labelled_sample()
    large = bounds.margin_bound(scores, None, lengths, norm, labels=labels)
    assert large.vacuous
    assert large.total >= 1
    assert not bounds.MarginBound(0.1, 0.2, 0.3, 1.0).vacuous


# --- router bound --------------------------------------------------------------------------------


def routed_sample(seed=13):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 5))
    costs = rng.uniform(size=(300, 3))
    return X, costs, rng.standard_normal((3, 5)), rng.standard_normal(3)


def test_router_bound_at_face_value_is_the_margin_bound_of_the_centred_router():
    X, costs, coef, intercept = routed_sample()
    bound = bounds.router_bound(coef, intercept, X, costs, [1, 2, 3], uniform=False)
    augmented = np.hstack([coef, intercept[:, None]])
    norm = float(np.linalg.norm(augmented - augmented.mean(axis=0)))
    gain = rewards(costs, "others")
    lengths = np.sqrt((X**2).sum(axis=1) + 1)
    same = bounds.margin_bound(
        X @ coef.T + intercept,
        [1, 2, 3],
        lengths,
        norm,
        rewards=gain / gain.sum(axis=1).max(),
    )
    assert bound.norm == pytest.approx(norm)
    assert bound.norm < np.linalg.norm(augmented)
    assert bound.total == pytest.approx(same.total)
    assert bound.unit == pytest.approx(gain.sum(axis=1).max())


def test_router_bound_is_unchanged_when_weights_and_margins_scale_together():
    X, costs, coef, intercept = routed_sample()
    for uniform in (True, False):
        one = bounds.router_bound(coef, intercept, X, costs, [1, 2, 3], uniform=uniform)
        ten = bounds.router_bound(
            10 * coef, 10 * intercept, X, costs, [10, 20, 30], uniform=uniform
        )
        assert one.total == pytest.approx(ten.total)


def test_router_bound_is_unchanged_by_a_common_shift_of_the_weights():
    X, costs, coef, intercept = routed_sample()
    one = bounds.router_bound(coef, intercept, X, costs)
    shifted = bounds.router_bound(coef + 5.0, intercept - 2.0, X, costs)
    assert shifted.total == pytest.approx(one.total)


def test_uniform_router_bound_fixes_the_radius_and_cuts_margins_at_one():
    X, costs, coef, intercept = routed_sample()
    bound = bounds.router_bound(coef, intercept, X, costs, [1, 2, 300])
    assert bound.norm == 1
    assert bound.uniform
    cut = bounds.router_bound(coef, intercept, X, costs, [1, 2, 9000])
    assert cut.total == bound.total
    wide = bounds.router_bound(coef, intercept, X, costs, [0.1, 0.2, 0.3], radius=2.0)
    narrow = bounds.router_bound(coef, intercept, X, costs, [0.1, 0.2, 0.3])
    assert wide.complexity == pytest.approx(narrow.complexity)
    assert wide.confidence < narrow.confidence


def test_router_bound_takes_sparse_features_no_intercept_and_zero_weights():
    X, costs, coef, _ = routed_sample()
    dense = bounds.router_bound(coef, None, X, costs)
    csr = bounds.router_bound(coef, None, sparse.csr_matrix(X), costs)
    assert csr.total == pytest.approx(dense.total)
    zero = bounds.router_bound(0 * coef, None, X, costs, uniform=True)
    assert np.isfinite(zero.total)
    assert bounds.router_bound(0 * coef, None, X, costs, uniform=False).complexity == 0


def test_unit_turns_the_bound_into_costs_for_every_reward_form():
    X, costs, coef, intercept = routed_sample()
    costs = 10 * costs
    chosen = np.argmax(X @ coef.T + intercept, axis=1)
    for kind in ("others", "complement", "contrast"):
        bound = bounds.router_bound(
            coef, intercept, X, costs, 1e-9, rewards=kind, scale=20.0, uniform=False
        )
        gain = rewards(costs, kind, 20.0) * (20.0 if kind == "complement" else 1.0)
        lost = gain.sum(axis=1) - gain[np.arange(300), chosen]
        # At a tiny margin the margin loss is the zero-one loss.
        assert bound.empirical * bound.unit == pytest.approx(lost.mean())


# --- messages ------------------------------------------------------------------------------------

ONE = np.ones((1, 2))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: bounds.strong_concavity([1, -2]), "margins"),
        (lambda: bounds.strong_concavity([]), "margins"),
        (lambda: bounds.exact_minimiser([[1.0, 0.0]]), "rewards"),
        (lambda: bounds.minimal_risk([[1.0, -1.0]]), "rewards"),
        (lambda: bounds.consistency(ONE, ONE, modulus=0.0), "modulus"),
        (lambda: bounds.consistency(ONE, ONE, weights=[0.0]), "weights"),
        (lambda: bounds.consistency(ONE, np.ones((1, 3))), "rewards"),
        (lambda: bounds.consistency(ONE[:0], ONE[:0]), "scores"),
        (lambda: bounds.consistency(ONE, ONE, decision="argmx"), "decision"),
        (lambda: bounds.feature_norms([1.0, 2.0]), "X"),
        (lambda: bounds.feature_norms([["a"]]), "X"),
        (lambda: bounds.feature_norms([[np.nan]]), "X"),
        (lambda: bounds.rademacher_closed_form(ONE, [[1.0, 1.0]]), "membership"),
        (lambda: bounds.rademacher_closed_form(ONE, np.eye(2)), "membership"),
        (lambda: bounds.rademacher_closed_form(ONE, [[1.0]], norm=-1), "norm"),
        (lambda: bounds.rademacher_closed_form(ONE, [[1.0]], norms="mx"), "norms"),
        (lambda: bounds.rademacher_monte_carlo(ONE, [[1.0]], n_draws=1), "n_draws"),
    ],
)
def test_bad_input_is_refused(call, code):
    with pytest.raises(InvalidInputError) as caught:
        call()
    assert caught.value.code == f"invalid_{code}"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"labels": None}, "input"),
        ({"rewards": [[0.5, 0.5]]}, "input"),
        ({"labels": None, "rewards": [[1.0, 1.0]]}, "rewards"),
        ({"labels": None, "rewards": [[1.0, 0.0]], "costs": ONE}, "costs"),
        ({"costs": [[0.0, 3.0]]}, "costs"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"norm": -1.0}, "norm"),
        ({"norm": 0.1}, "scores"),
        ({"lengths": [1.0, 1.0]}, "lengths"),
        ({"uniform": True, "margins": [2.0, 1.0]}, "margins"),
        ({"scores": np.ones((0, 2))}, "scores"),
        ({"constant": "sharpe"}, "constant"),
    ],
)
def test_margin_bound_refuses(change, code):
    given = {"scores": [[1.0, 0.0]], "margins": None, "lengths": [1.0], "norm": 1.0, "labels": [0]}
    with pytest.raises(InvalidInputError) as caught:
        bounds.margin_bound(**given | change)
    assert caught.value.code == f"invalid_{code}"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"coef": np.ones((3, 4))}, "coef"),
        ({"intercept": [1.0]}, "intercept"),
        ({"costs": np.ones((300, 2))}, "costs"),
        ({"costs": np.ones((299, 3))}, "costs"),
        ({"costs": np.where(np.eye(300, 3) > 0, np.nan, 1.0)}, "costs"),
        ({"largest_total": 0.1}, "largest_total"),
        ({"radius": 0.0}, "radius"),
    ],
)
def test_router_bound_refuses(change, code):
    X, costs, coef, intercept = routed_sample()
    given = {"coef": coef, "intercept": intercept, "X": X, "costs": costs} | change
    with pytest.raises(InvalidInputError) as caught:
        bounds.router_bound(**given)
    assert caught.value.code == f"invalid_{code}"
