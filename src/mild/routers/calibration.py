"""Calibration of expected costs on held-out rows, and the novelty of inputs.

A router that estimates costs is often too sure: its estimates spread more than the true means do.
Calibration replaces the raw estimate of each expert by ``slope * raw + offset``, with two numbers per
expert that are fitted on rows the router was not fitted on. Novelty says how far an input is from the
training inputs, compared with inputs that were held out.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression, LogisticRegression

from mild.artifact.novelty import LEVELS, NOVEL, Novelty
from mild.core.arrays import FloatArray, IntArray
from mild.core.costs import cheapest_expected
from mild.core.rounding import ESTIMATE_TOLERANCE, is_less
from mild.errors import InvalidInputError, UnsupportedError
from mild.features import TextFeatures
from mild.policies import Policy
from mild.routers.base import BaseRouter

# Pairs of the rows to fit on and the held-out rows.
Folds = Sequence[tuple[IntArray, IntArray]]
# If there are more rows than this, evenly spaced ones are used.
MAX_ROWS = 20_000
# An expert is calibrated if its cost is known in at least this many rows.
LEAST_ROWS = 50
# At most this many centres stand for the training inputs, with at most this many numbers in all.
MAX_CENTRES = 256
MAX_NUMBERS = 1 << 18
# Centres are found from about this many rows.
CENTRE_ROWS = 2_000
# Probabilities are kept this far from 0 and 1 where their log-odds are taken.
TINY = 1e-6


@dataclass(frozen=True)
class Calibration:
    """Slopes and offsets of the experts' estimates, and what they change on held-out rows."""

    slopes: list[float]
    offsets: list[float]
    logistic: bool  # whether log-odds of errors are calibrated (Platt), and not costs
    decides: bool  # whether to decide by calibrated estimates: the held-out loss does not rise
    loss: tuple[float, float]  # held-out mean cost of the choices, before and after calibration
    squared_error: tuple[float, float]  # mean over held-out rows, before and after calibration
    rows: int  # number of held-out rows that were used

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)

    @property
    def slopes_and_offsets(self) -> tuple[FloatArray, FloatArray]:
        """Slopes and offsets (n_experts,)."""
        return np.array(self.slopes), np.array(self.offsets)


@dataclass(frozen=True, eq=False)
class HeldOutEstimates:
    """A router's estimates for rows that it was not fitted on.

    Attributes
    ----------
    raw : (n, p) array, expected costs or errors, or log-odds of errors; NaN for rows that no fold holds out
    prices : (n, p) array, weighted prices that are added to errors to get costs; 0 where raw are costs
    error_scale : the largest error, if ``raw`` are log-odds of errors as a share of it; else None
    """

    raw: FloatArray
    prices: FloatArray | float = 0.0
    error_scale: float | None = None

    @property
    def values(self) -> FloatArray:
        """Expected costs or errors (n, p)."""
        if self.error_scale is None:
            return self.raw
        return self.error_scale / (1 + np.exp(-self.raw))

    @property
    def rows(self) -> IntArray:
        """The rows that have estimates."""
        return np.flatnonzero(~np.isnan(self.raw).any(axis=1))


class _Line(NamedTuple):
    """The calibrated estimate of one expert: ``slope * raw + offset``."""

    slope: float
    offset: float


IDENTITY = _Line(1.0, 0.0)


def fit_calibration(
    router: BaseRouter,
    X: Any,
    costs: FloatArray,
    folds: Folds,
    errors: FloatArray | None = None,
    prices: Any = None,
) -> Calibration | None:
    """Fit a slope and an offset per expert that improve a fitted router's estimates on held-out rows.

    For most routers, each expert's cost is regressed on its expected cost. For a PricedRouter that
    estimates the log-odds of an error, the error is calibrated on the log-odds (Platt scaling). An expert
    whose held-out estimates do not improve keeps slope 1 and offset 0.

    A stack found by RouterCV already has estimates for held-out rows; any other router is refitted without
    each fold.

    Parameters
    ----------
    router : BaseRouter
        The fitted router.
    X, costs : arrays of shape (n_samples, n_features) and (n_samples, n_experts)
        What it was fitted on; the costs include prices.
    folds : sequence of (rows to fit on, held-out rows)
        The router is refitted on the first rows of each pair and predicts the second.
    errors : array of shape (n_samples, n_experts), default=None
        The errors that a PricedRouter was fitted on; None for other routers.
    prices : array of shape (n_experts,) or (n_samples, n_experts), default=None
        The prices that a PricedRouter was fitted on; None for other routers.

    Returns
    -------
    calibration : Calibration or None
        None if the router has no expected costs that depend on the input, or if calibration improves the
        estimates of no expert.
    """
    # Evenly spaced rows, at most MAX_ROWS.
    stride = 1 + len(costs) // MAX_ROWS
    folds = [(train[::stride], test[::stride]) for train, test in folds]
    try:
        with warnings.catch_warnings():
            # The fit on all rows has given its warnings already.
            warnings.simplefilter("ignore")
            held_out = _held_out_estimates(router, X, costs, folds, errors, prices)
    except InvalidInputError:
        # All outcomes of some expert are in one fold: without that fold, the router cannot be fitted.
        return None
    if held_out is None:
        return None
    targets = costs
    if errors is not None:
        targets = errors

    # Each fold is calibrated by lines fitted on the other folds, so that the improvement is not measured on
    # the rows that the lines were fitted on.
    calibrated = _cross_calibrated(held_out, targets, folds)
    raw_squared_errors = _mean_squared_errors(held_out, targets)
    # Better by more than rounding.
    threshold = raw_squared_errors * (1 - ESTIMATE_TOLERANCE)
    improves = _mean_squared_errors(calibrated, targets) < threshold
    if not improves.any():
        return None
    lines = _fit_lines(held_out, targets, held_out.rows)
    for expert in np.flatnonzero(~improves):
        lines[expert] = IDENTITY
    calibrated = replace(calibrated, raw=np.where(improves, calibrated.raw, held_out.raw))
    calibrated_squared_errors = _mean_squared_errors(calibrated, targets)

    ranks = router.policy_.ranks
    raw_loss = _mean_cost_of_choices(held_out, costs, ranks)
    calibrated_loss = _mean_cost_of_choices(calibrated, costs, ranks)
    return Calibration(
        slopes=[line.slope for line in lines],
        offsets=[line.offset for line in lines],
        logistic=held_out.error_scale is not None,
        decides=not is_less(raw_loss, calibrated_loss),
        loss=(raw_loss, calibrated_loss),
        squared_error=(float(raw_squared_errors.mean()), float(calibrated_squared_errors.mean())),
        rows=len(held_out.rows),
    )


def _mean_squared_errors(estimates: HeldOutEstimates, targets: FloatArray) -> FloatArray:
    """Return the mean squared error (p,) of each expert's estimates, over the rows with known targets."""
    residuals = (estimates.values - targets)[estimates.rows]
    return np.asarray(np.nanmean(residuals**2, axis=0))


def _mean_cost_of_choices(
    estimates: HeldOutEstimates, costs: FloatArray, ranks: IntArray | None
) -> float:
    """Return the mean cost of choosing the expert of least estimated cost."""
    rows = estimates.rows
    chosen = cheapest_expected((estimates.values + estimates.prices)[rows], ranks)
    return float(np.nanmean(costs[rows, chosen]))


def _held_out_estimates(
    router: Any,
    X: Any,
    costs: FloatArray,
    folds: Folds,
    errors: FloatArray | None,
    prices: Any,
) -> HeldOutEstimates | None:
    """Return the router's estimates for held-out rows.

    None if it has no expected costs, or if they do not depend on the input. ``errors`` and ``prices`` are
    those of a PricedRouter.
    """
    # A RouterCV has fitted the winning router, but may still decide as a constant.
    winner = getattr(router, "best_estimator_", router)
    policy: Policy = winner.policy_
    if policy.is_constant or router.policy_ is not policy:
        return None
    stack_costs = getattr(winner, "held_out_costs_", None)
    if stack_costs is not None:
        # The stack has estimates for all rows, including those that ``MAX_ROWS`` leaves out.
        rows = np.concatenate([test for _, test in folds])
        expected = np.full(costs.shape, np.nan, stack_costs.dtype)
        expected[rows] = stack_costs[rows]
        return HeldOutEstimates(expected)
    # Some policies have no expected costs: one row is enough to find out.
    try:
        policy.expected_costs(X[:1])
    except UnsupportedError:
        return None
    if errors is not None:
        return _held_out_errors(winner, X, errors, prices, folds)
    expected = np.full(costs.shape, np.nan)
    for train, test in folds:
        fold_policy = clone(winner).fit(X[train], costs[train]).policy_
        expected[test] = fold_policy.expected_costs(X[test])
    return HeldOutEstimates(expected)


def _held_out_errors(
    router: Any, X: Any, errors: FloatArray, prices: Any, folds: Folds
) -> HeldOutEstimates:
    """Return a PricedRouter's estimates of errors and prices for held-out rows."""
    expected_errors = np.full(errors.shape, np.nan)
    weighted_prices = np.zeros(errors.shape)
    logistic_scales = []
    for train, test in folds:
        fold_prices = prices
        if np.ndim(prices) == 2:
            fold_prices = prices[train]
        policy = clone(router).fit(X[train], errors[train], prices=fold_prices).policy_
        expected_errors[test] = policy.expected_errors(X[test])
        weighted_prices[test] = policy.price_weight * policy.expected_prices(X[test])
        if policy.kind_of_error == "logistic":
            logistic_scales.append(policy.error_scale)
    if not logistic_scales:
        return HeldOutEstimates(expected_errors, weighted_prices)
    scale = max(logistic_scales)
    return HeldOutEstimates(_log_odds(expected_errors / scale), weighted_prices, scale)


def _log_odds(probability: FloatArray) -> FloatArray:
    """Return the log-odds of probabilities, which are kept away from 0 and 1."""
    inside = np.clip(probability, TINY, 1 - TINY)
    return np.asarray(np.log(inside / (1 - inside)))


def _cross_calibrated(
    estimates: HeldOutEstimates, targets: FloatArray, folds: Folds
) -> HeldOutEstimates:
    """Calibrate the estimates of each fold by lines that are fitted on the rows of the other folds."""
    rows = estimates.rows
    calibrated = np.full(estimates.raw.shape, np.nan)
    for _, test in folds:
        held_out = np.intersect1d(test, rows)
        lines = _fit_lines(estimates, targets, np.setdiff1d(rows, held_out))
        slopes = np.array([line.slope for line in lines])
        offsets = np.array([line.offset for line in lines])
        calibrated[held_out] = slopes * estimates.raw[held_out] + offsets
    return replace(estimates, raw=calibrated)


def _fit_lines(estimates: HeldOutEstimates, targets: FloatArray, rows: IntArray) -> list[_Line]:
    """Fit one line per expert on these rows; the identity where they are too few or all alike."""
    lines = []
    for expert in range(targets.shape[1]):
        known_rows = rows[~np.isnan(targets[rows, expert])]
        raw = estimates.raw[known_rows, expert]
        target = targets[known_rows, expert]
        if len(known_rows) < LEAST_ROWS or _is_constant(raw) or np.ptp(target) == 0:
            lines.append(IDENTITY)
        elif estimates.error_scale is None:
            lines.append(_least_squares_line(raw, target))
        else:
            lines.append(_platt_line(raw, target / estimates.error_scale))
    return lines


def _least_squares_line(raw: FloatArray, target: FloatArray) -> _Line:
    """Fit the line that predicts costs (n,) from estimates (n,), without a negative slope."""
    model = LinearRegression().fit(raw[:, None], target)
    slope = float(model.coef_[0])
    if slope < 0:
        # The estimates are worse than none. A negative slope would reverse their order, by chance alone.
        return _Line(0.0, float(target.mean()))
    return _Line(slope, float(model.intercept_))


def _platt_line(log_odds: FloatArray, target: FloatArray) -> _Line:
    """Fit the line from log-odds (n,) to log-odds under which targets in [0, 1] are likeliest (Platt)."""
    # A logistic regression on soft targets: each row counts as an error with the weight of the target, and
    # as no error with the rest.
    error_share = np.clip(target, 0.0, 1.0)
    both = np.concatenate([log_odds, log_odds])[:, None]
    labels = np.repeat([1, 0], len(log_odds))
    model = LogisticRegression(C=1e4)
    model.fit(both, labels, sample_weight=np.concatenate([error_share, 1 - error_share]))
    slope = float(model.coef_[0, 0])
    if slope < 0:
        return _Line(0.0, float(_log_odds(target.mean())))
    return _Line(slope, float(model.intercept_[0]))


def _is_constant(estimates: FloatArray) -> bool:
    """Whether estimates differ by rounding at most."""
    return bool(np.ptp(estimates) <= ESTIMATE_TOLERANCE * np.abs(estimates).max())


def fit_novelty(
    text_features: TextFeatures,
    texts: Sequence[Any],
    X: FloatArray,
    fold: tuple[IntArray, IntArray],
    means: FloatArray,
) -> Novelty:
    """Learn how far held-out inputs are from training inputs, to recognise inputs that are farther.

    The score of an input is

        distance to the nearest centre / distance_scale + unseen share / unseen_scale,

    where the centres stand for the training inputs, the unseen share is the share of the text's terms
    that occur in no training text, and each scale is the 99th percentile over the held-out inputs, at
    least 0.01.

    Parameters
    ----------
    text_features : TextFeatures
        Counts the terms of texts.
    texts : sequence
        The texts of all rows.
    X : array of shape (n_samples, n_features)
        Their features.
    fold : (training rows, held-out rows)
        The rows to compare.
    means : array of shape (1 or 2, n_experts)
        Mean costs, or mean errors and prices, which the result keeps for novel inputs.

    Returns
    -------
    novelty : Novelty
    """
    train, held_out = fold
    # Evenly spaced rows, at most MAX_ROWS of each kind.
    train = train[:: 1 + len(train) // MAX_ROWS]
    held_out = held_out[:: 1 + len(held_out) // MAX_ROWS]
    centres = _centres(X[train[:: 1 + len(train) // CENTRE_ROWS]])
    train_texts = [texts[row] for row in train]
    held_out_texts = [texts[row] for row in held_out]
    unseen_shares = text_features.held_out_shares(train_texts, held_out_texts)
    # With these scales the score is the distance alone. Levels and means play no part in it.
    distance_only = Novelty(centres, np.array([1.0, np.inf]), LEVELS, means)
    distances = distance_only.scores(X[held_out], unseen_shares)
    distance_scale = _novelty_scale(distances)
    unseen_scale = _novelty_scale(unseen_shares)
    scores = distances / distance_scale + unseen_shares / unseen_scale
    return Novelty(
        centres,
        np.array([distance_scale, unseen_scale], np.float32),
        np.quantile(scores, LEVELS).astype(np.float32),
        means.astype(np.float32),
    )


def _centres(X: FloatArray) -> FloatArray:
    """Return points (m, n_features) that stand for the rows: all distinct rows, or k-means centres."""
    rows = np.unique(X.astype(np.float64).round(6), axis=0)
    n_centres = max(16, min(MAX_CENTRES, MAX_NUMBERS // X.shape[1]))
    if len(rows) > n_centres:
        rows = KMeans(n_centres, n_init=1, max_iter=10, random_state=0).fit(rows).cluster_centers_
    return rows.astype(np.float32)


def _novelty_scale(values: FloatArray) -> float:
    """Return the value that only one in a hundred held-out inputs exceeds."""
    # A scale of 0 would make every other input infinitely novel.
    return max(float(np.quantile(values, NOVEL)), 0.01)
