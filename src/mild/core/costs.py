"""Cost matrices from outcomes and prices, rewards from costs, and reward distributions.

``costs`` (n_samples, n_experts) say how bad it is to send a sample to an expert. ``rewards`` of the same
shape are weights for the training of a router, large where the cost is low. A cost of NaN means that it is
not known, because the expert was never asked about this sample; the reward is then 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    check_costs,
    check_entries,
    check_rewards,
    check_shape,
    check_strength,
    float_matrix,
    float_vector,
    invalid,
)
from mild.core.rounding import ESTIMATE_TOLERANCE, tie_ranks
from mild.errors import check_option

REWARDS = ("others", "complement", "contrast")
#: These, and the kind whose strength is a parameter.
ALL_REWARDS = (*REWARDS, "baseline")
#: Costs of a table are sums of decimals: they tie if they differ by at most this share.
ROUNDING = 1e-12
#: Which of the cheapest experts of a row is its label: the one that is cheapest over all rows, or the first
#: one, which is the paper's rule.
LABEL_TIES = ("mean", "first")
# Strength of the row baseline in the two forms that have their own name.
STRENGTHS = {"contrast": 0.0, "others": 1.0}


def cost_matrix(
    predictions: ArrayLike, labels: ArrayLike, betas: ArrayLike | None = None
) -> FloatArray:
    """Return the cost of each expert on each sample, ``1[prediction_k != y] + beta_k`` (paper, section 2).

    Parameters
    ----------
    predictions : array of shape (n_samples, n_experts)
        Class label that each expert predicts.
    labels : array of shape (n_samples,)
        True class labels.
    betas : array of shape (n_experts,), default=None
        Non-negative price of asking each expert, in units of one error. None stands for zeros.

    Returns
    -------
    costs : array of shape (n_samples, n_experts)
        Cost of each expert.

    Examples
    --------
    >>> cost_matrix([[1, 2], [0, 0]], [1, 0], betas=[0.7, 0.2])
    array([[0.7, 1.2],
           [0.7, 0.2]])
    """
    predicted = np.asarray(predictions)
    truth = np.asarray(labels)
    if predicted.ndim != 2:
        rule = "must have shape (n_samples, n_experts)"
        raise invalid("predictions", f"{rule}; got {predicted.shape}.")
    check_shape("labels", truth.shape, "(n_samples,)", (len(predicted),))
    errors = (predicted != truth[:, None]).astype(np.float64)
    return errors + _checked_betas(betas, predicted.shape[1])


def costs_from_correctness(correct: ArrayLike, betas: ArrayLike | None = None) -> FloatArray:
    """Return costs ``1 - correct_k + beta_k`` from correctness in [0, 1] (n, p); NaN stays NaN."""
    array = float_matrix("correct", correct)
    outside = ~np.isnan(array) & ~((array >= 0) & (array <= 1))
    rule = "lie in [0, 1], or be NaN where an expert was never asked"
    check_entries("correct", array, outside, rule)
    return 1.0 - array + _checked_betas(betas, array.shape[1])


def _checked_betas(betas: ArrayLike | None, n_experts: int) -> FloatArray:
    """Return the checked prices (n_experts,) of asking each expert; None stands for zeros."""
    if betas is None:
        return np.zeros(n_experts)
    return float_vector("betas", betas, n_experts)


def weighted_costs(parts: Mapping[str, ArrayLike], weights: Mapping[str, float]) -> FloatArray:
    """Return the weighted sum of several kinds of cost, such as errors and dollars.

    Parameters
    ----------
    parts : mapping of str to array
        Kinds of cost by name. Each is (n_samples, n_experts), or (n_experts,) if all rows have the same.
    weights : mapping of str to float
        Non-negative weights by the names of ``parts``. A part without one has the weight 1.

    Returns
    -------
    costs : array of shape (n_samples, n_experts)
        The weighted sum.

    Examples
    --------
    >>> weighted_costs({"error": [[0, 1]], "dollars": [0.02, 0.001]}, {"dollars": 10})
    array([[0.2 , 1.01]])
    """
    unknown = sorted(set(weights) - set(parts))
    if unknown:
        raise invalid(
            "weights",
            f"must name parts among {sorted(parts)}; got {', '.join(map(repr, unknown))}.",
        )
    if not parts:
        raise invalid("parts", "must hold at least one cost part; got none.")
    total = np.zeros((1, 1))
    for name, part in parts.items():
        weight = float(weights.get(name, 1.0))
        if not (np.isfinite(weight) and weight >= 0):
            raise invalid("weights", f"must be finite and non-negative; got {weight} for {name!r}.")
        try:
            total = total + weight * np.atleast_2d(np.asarray(part, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise invalid(
                "parts", f"must be numbers of one shape (n_samples, n_experts); {name!r}: {error}."
            ) from error
    return total


def rewards(
    costs: ArrayLike, kind: str = "others", cost_scale: float | None = None, strength: float = 0.5
) -> FloatArray:
    """Return a non-negative weight per expert and sample, large where the cost c_k is low.

    The cost of the chosen expert, which training should make small, is not smooth in the scores. Up to a
    factor and a term that no decision changes, it is::

        sum_k reward_k * 1[expert k is not chosen]

    in which each indicator can be replaced by a smooth loss (``core.losses.mild_loss``). Several kinds of
    rewards have this property. With ``S`` the asked experts of a row (all of them, unless costs are NaN):

    - ``others``: ``sum of c_j over j in S, j != k`` (paper, Lemma 1);
    - ``complement``: ``1 - c_k / cost_scale`` (paper, Lemma 2);
    - ``contrast``: ``max of c_j over j in S, minus c_k``; a row of equal costs weighs nothing;
    - ``baseline``: ``b - c_k`` with ``b = max + strength * (sum - max)`` of the costs in S: a
      strength of 0 is ``contrast``, 1 is ``others``.

    Parameters
    ----------
    costs : array of shape (n_samples, n_experts)
        Non-negative costs; NaN where an expert was never asked. Its reward is then 0.
    kind : {"others", "complement", "contrast", "baseline"}, default="others"
        Form of the rewards.
    cost_scale : float, default=None
        Only for ``complement``: the largest possible cost. None takes the largest cost present; for a
        batch, give the largest of all rows.
    strength : float, default=0.5
        Only for ``baseline``: a number >= 0.

    Returns
    -------
    rewards : array of shape (n_samples, n_experts)
        Non-negative rewards.

    Examples
    --------
    >>> rewards([[1.0, 0.0, 0.5]], "others")
    array([[0.5, 1.5, 1. ]])
    """
    check_option("kind", kind, ALL_REWARDS)
    return unchecked_rewards(check_costs(costs), kind, cost_scale, strength)


def unchecked_rewards(
    array: FloatArray, kind: str, cost_scale: float | None = None, strength: float = 0.5
) -> FloatArray:
    """Return ``rewards`` of costs that are not checked again; a column may be all NaN, as in a batch."""
    if kind == "complement":
        weights = _complement(array, cost_scale)
    else:
        weights = _baseline_minus_cost(array, _baseline_strength(kind, strength))
    return np.where(np.isnan(array), 0, weights).astype(array.dtype, copy=False)


def _complement(array: FloatArray, cost_scale: float | None) -> FloatArray:
    """Return ``1 - c_k / cost_scale``; without one it is the largest cost."""
    largest = 1.0
    if array.size:
        largest = float(np.nanmax(array))
    if cost_scale is None:
        # Costs that are all zero have any scale.
        cost_scale = largest if largest > 0 else 1.0
    if not (np.isfinite(cost_scale) and cost_scale > 0):
        raise invalid("cost_scale", f"must be positive and finite; got {cost_scale}.")
    if largest > cost_scale * (1 + 1e-6):
        raise invalid(
            "cost_scale",
            f"must be the largest possible cost; got {cost_scale:g}, but a cost of "
            f"{largest:g} is present.",
        )
    return np.maximum(1 - array / array.dtype.type(cost_scale), 0)


def _baseline_strength(kind: str, strength: float) -> float:
    """Return the strength of a kind of reward; of ``others`` and ``contrast`` it is fixed."""
    if kind in STRENGTHS:
        return STRENGTHS[kind]
    return check_strength("strength", strength)


def _baseline_minus_cost(array: FloatArray, strength: float) -> FloatArray:
    """Return ``b - c_k`` with ``b = max + strength * (sum - max)`` of the row's known costs."""
    known = np.where(np.isnan(array), 0, array)
    baseline = known.max(axis=1, keepdims=True)
    if strength > 0:
        total = known.sum(axis=1, keepdims=True)
        baseline = (1 - strength) * baseline + strength * total
    # Rounding may leave a reward just below 0.
    return np.maximum(baseline - known, 0)


def reward_distribution(rewards: ArrayLike) -> FloatArray:
    """Return rewards divided by their row sum, ``p(k | x) = reward_k / sum_j reward_j`` (paper, section 3).

    A row whose rewards are all zero stays all zero.

    Parameters
    ----------
    rewards : array of shape (n_samples, n_experts)
        Non-negative rewards.

    Returns
    -------
    distribution : array of shape (n_samples, n_experts)
        Rewards whose rows sum to 1, or to 0 where all rewards are zero.

    Examples
    --------
    >>> reward_distribution([[1.0, 3.0], [0.0, 0.0]])
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    array = check_rewards(rewards)
    # Dividing by the largest first keeps the sum of huge rewards finite.
    largest = array.max(axis=1, keepdims=True)
    scaled = array / np.where(largest > 0, largest, 1)
    total = scaled.sum(axis=1, keepdims=True)
    return scaled / np.where(total > 0, total, 1)


def cheapest(costs: ArrayLike) -> IntArray:
    """Return the index of the cheapest asked expert per row; ties go to the lowest (the paper's rule).

    Examples
    --------
    >>> cheapest([[0.0, 0.0], [np.nan, 2.0]])
    array([0, 1])
    """
    return cheapest_known(check_costs(costs))


def cheapest_labels(array: FloatArray, means: FloatArray | None) -> IntArray:
    """Return the cheapest asked expert (n_samples,) of each row, the label for losses that need one.

    Among experts that tie, up to rounding, it is the one with the least of ``means`` (n_experts,), the mean
    costs over all training rows, then the lowest index. Such a label does not depend on the order of the
    experts. With ``means=None`` it is the lowest index, as in the paper.

    Examples
    --------
    >>> costs = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> cheapest_labels(costs, costs.mean(axis=0)), cheapest_labels(costs, None)
    (array([1, 1]), array([0, 1]))
    """
    if means is None:
        return cheapest_known(array)
    tolerance = max(ROUNDING, 8 * float(np.finfo(array.dtype).eps))
    return cheapest_known(array, ranks=tie_ranks(means), tolerance=tolerance)


def mean_known_costs(array: FloatArray, weight: FloatArray | None = None) -> FloatArray:
    """Return the mean cost (n_experts,) of each expert over the rows where it is known; NaN if nowhere."""
    if weight is None:
        weight = np.ones(len(array))
    asked = ~np.isnan(array)
    mass = weight @ asked
    total = weight @ np.where(asked, array, 0).astype(np.float64, copy=False)
    return np.divide(total, mass, out=np.full(len(mass), np.nan), where=mass > 0)


def expert_ranks(mean_scores: FloatArray, mean_prices: FloatArray | None = None) -> IntArray:
    """Return a rank (n_experts,) of each expert, by which ties of costs are decided: the lowest rank wins.

    The expert with the higher mean score comes first, then the one with the lower mean price, then the one
    of lower index, which in a table is the first by name. Unknown means come last.

    Parameters
    ----------
    mean_scores : array of shape (n_experts,)
        Mean score of each expert over the training rows.
    mean_prices : array of shape (n_experts,), default=None
        Mean price of each expert over the training rows. None leaves prices out.

    Returns
    -------
    ranks : array of int of shape (n_experts,)
        0 for the expert that is preferred to all others.

    Examples
    --------
    >>> expert_ranks(np.array([0.5, 0.8, 0.8]), np.array([1.0, 3.0, 2.0]))
    array([2, 1, 0])
    """
    falling_scores = np.nan_to_num(-rounded(mean_scores), nan=np.inf)
    rising_prices = np.zeros(len(mean_scores))
    if mean_prices is not None:
        rising_prices = np.nan_to_num(rounded(mean_prices), nan=np.inf)
    best_first = np.lexsort((rising_prices, falling_scores))
    return np.argsort(best_first)


def best_first(ranks: IntArray) -> list[int]:
    """Return the indices of the experts from the lowest rank, the best expert, to the highest.

    >>> best_first(np.array([2, 0, 1]))
    [1, 2, 0]
    """
    indices: list[int] = np.argsort(ranks).tolist()
    return indices


def rounded(means: FloatArray) -> FloatArray:
    """Return means (n_experts,) to twelve digits: the last ones depend on the order of summation."""
    digits = [float(f"{mean:.12g}") for mean in means]
    return np.array(digits)


def cheapest_expected(costs: FloatArray, ranks: IntArray | None = None) -> IntArray:
    """Return the index (n,) of the lowest of the expected costs (n, p) of each row.

    Expected costs tie if they differ by rounding only. The expert with the lowest of the ranks (p,) then
    wins; without ranks it is the one with the highest index.

    Examples
    --------
    >>> costs = np.array([[0.2, 0.1, 0.1 + 1e-16], [0.1, 0.2, 0.3]])
    >>> cheapest_expected(costs), cheapest_expected(costs, np.array([1, 0, 2]))
    (array([2, 0]), array([1, 0]))
    """
    cheapest_cost = costs.min(axis=1, keepdims=True)
    size = np.maximum(np.abs(costs), np.abs(cheapest_cost))
    tied = costs - cheapest_cost <= ESTIMATE_TOLERANCE * size
    if ranks is None:
        return costs.shape[1] - 1 - tied[:, ::-1].argmax(axis=1)
    return np.where(tied, ranks, len(ranks)).argmin(axis=1)


def cheapest_known(
    array: FloatArray,
    *,
    prices: ArrayLike | None = None,
    ranks: ArrayLike | None = None,
    tolerance: float = 0.0,
) -> IntArray:
    """Return the index (n_samples,) of the cheapest expert per row, among those whose cost is known.

    Ties go to the lowest price, if there are prices, then to the lowest rank, if there are ranks, then to
    the lowest index. An unknown price comes last. Nothing is validated.

    Parameters
    ----------
    array : array of shape (n_samples, n_experts)
        Costs, or other values of which less is better; NaN where unknown, possibly in a whole column.
    prices : array of shape (n_samples, n_experts) or (n_experts,), default=None
        Prices; of shape (n_experts,) if they are the same for all rows.
    ranks : array of shape (n_experts,), default=None
        Ranks, as ``expert_ranks`` gives them.
    tolerance : float, default=0.0
        Costs tie with the lowest one up to ``tolerance * max(1, abs(lowest))``.

    Returns
    -------
    experts : array of int of shape (n_samples,)

    Examples
    --------
    >>> costs = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    >>> cheapest_known(costs), cheapest_known(costs, prices=[2, 1, 1])
    (array([0, 0]), array([1, 1]))
    >>> cheapest_known(costs, ranks=[2, 1, 0])
    array([1, 2])
    """
    costs = np.where(np.isnan(array), np.inf, array)
    if prices is None and ranks is None and tolerance == 0:
        return np.argmin(costs, axis=1)
    lowest = costs.min(axis=1, keepdims=True)
    highest_tied = lowest
    if tolerance > 0:
        highest_tied = lowest + tolerance * np.maximum(1.0, np.abs(lowest))
    is_tied = costs <= highest_tied
    if prices is not None:
        is_tied = _lowest_among(is_tied, prices)
    if ranks is not None:
        is_tied = _lowest_among(is_tied, ranks)
    # argmax of booleans: the first of those that still tie.
    return is_tied.argmax(axis=1)


def _lowest_among(is_tied: BoolArray, values: ArrayLike) -> BoolArray:
    """Return which of the tied experts (n, p) have the lowest value; unknown values come last."""
    tied_values = np.where(is_tied, values, np.inf)
    tied_values[np.isnan(tied_values)] = np.inf
    is_lowest: BoolArray = tied_values == tied_values.min(axis=1, keepdims=True)
    return is_tied & is_lowest
