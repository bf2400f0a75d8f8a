"""Calibration of expected costs on rows that were held out, and the novelty of inputs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression

from mild.artifact.novelty import LEVELS, NOVEL, Novelty
from mild.core.arrays import FloatArray, IntArray
from mild.core.costs import cheapest_expected
from mild.core.rounding import ESTIMATES, is_less
from mild.errors import InvalidInputError, UnsupportedError
from mild.features import TextFeatures
from mild.policies import Policy
from mild.routers.base import BaseRouter
from mild.routers.kmeans import distinct_rows, fit_centres

Folds = Sequence[tuple[IntArray, IntArray]]
# Rows that are looked at, of more.
MAX_ROWS = 20_000
# Rows of an expert that are needed to calibrate it.
LEAST_ROWS = 50
# Centres, and numbers in them.
MAX_CENTRES = 256
MAX_NUMBERS = 1 << 18
# Rows from which centres are found.
CENTRE_ROWS = 2_000
# Bounds of log-odds.
TINY = 1e-6


@dataclass(frozen=True)
class Calibration:
    """Two numbers per expert, and what they change on held-out rows."""

    slopes: list[float]
    offsets: list[float]
    logistic: bool  # whether log-odds of errors are calibrated (Platt), and not costs
    decides: bool  # whether decisions use it: the held-out loss does not rise
    loss: tuple[float, float]  # held-out mean cost of the choices, before and after
    squared_error: tuple[float, float]  # of the estimates on held-out rows, before and after
    rows: int

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)

    @property
    def numbers(self) -> tuple[FloatArray, FloatArray]:
        """Slopes and offsets (n_experts,)."""
        return np.array(self.slopes), np.array(self.offsets)


@dataclass(frozen=True, eq=False)
class RawEstimates:
    """Estimates (n, p) for rows that the router was not fitted on; NaN for rows in no fold."""

    raw: FloatArray  # expected costs, or log-odds of errors
    prices: FloatArray | float = 0.0  # what is added to errors
    scale: float | None = None  # of errors whose log-odds are given

    @property
    def values(self) -> FloatArray:
        """Costs, or errors."""
        if self.scale is None:
            return self.raw
        return self.scale / (1 + np.exp(-self.raw))

    @property
    def rows(self) -> IntArray:
        """The rows that have estimates."""
        return np.flatnonzero(~np.isnan(self.raw).any(axis=1))


class _LinearMap(NamedTuple):
    """``slope * raw + offset``: what calibration makes of the raw estimates of an expert."""

    slope: float
    offset: float


IDENTITY = _LinearMap(1.0, 0.0)


def fit_calibration(
    router: BaseRouter,
    X: Any,
    costs: FloatArray,
    folds: Folds,
    errors: FloatArray | None = None,
    prices: Any = None,
) -> Calibration | None:
    """Calibrate the estimates of a fitted router by those for rows it was not fitted on.

    Each expert's cost is regressed on its expected cost; with a logistic error head, its error on the
    log-odds (Platt). An expert whose estimates do not get better by that keeps them. A search whose stack
    won has made estimates for held-out rows already; other routers are fitted again without each fold.

    Parameters
    ----------
    router : BaseRouter
        The fitted router.
    X, costs : arrays of shape (n_samples, n_features) and (n_samples, n_experts)
        What it was fitted on.
    folds : sequence of (rows to fit on, held-out rows)
        The folds for which it is fitted again.
    errors : array of shape (n_samples, n_experts), default=None
        The errors of a PricedRouter.
    prices : array of shape (n_experts,) or (n_samples, n_experts), default=None
        The prices of a PricedRouter.

    Returns
    -------
    calibration : Calibration or None
        None where the router has no expected costs that depend on the input, or where none gets better.
    """
    step = 1 + len(costs) // MAX_ROWS
    folds = [(train[::step], test[::step]) for train, test in folds]
    try:
        with warnings.catch_warnings():
            # The fit on all rows has given its warnings already.
            warnings.simplefilter("ignore")
            before = _held_out_estimates(router, X, costs, folds, errors, prices)
    except InvalidInputError:
        return None  # without a fold, some expert was never asked
    if before is None:
        return None
    targets = costs
    if errors is not None:
        targets = errors
    rows = before.rows
    maps = _fit_maps(before, targets, rows)
    after = _cross_fitted(before, targets, folds)

    # An expert whose estimates do not improve by more than rounding keeps them.
    errors_before = _mean_squared_errors(before, targets)
    improves = _mean_squared_errors(after, targets) < errors_before * (1 - ESTIMATES)
    if not improves.any():
        return None
    after = replace(after, raw=np.where(improves, after.raw, before.raw))
    for expert in np.flatnonzero(~improves):
        maps[expert] = IDENTITY
    ranks = router.policy_.ranks
    loss_before = _mean_cost_of_choices(before, costs, ranks)
    loss_after = _mean_cost_of_choices(after, costs, ranks)
    return Calibration(
        slopes=[line.slope for line in maps],
        offsets=[line.offset for line in maps],
        logistic=before.scale is not None,
        decides=not is_less(loss_before, loss_after),
        loss=(loss_before, loss_after),
        squared_error=(
            float(errors_before.mean()),
            float(_mean_squared_errors(after, targets).mean()),
        ),
        rows=len(rows),
    )


def _mean_squared_errors(estimates: RawEstimates, targets: FloatArray) -> FloatArray:
    """Mean squared error (p,) of the estimates of each expert, where its cost is known."""
    residuals = (estimates.values - targets)[estimates.rows]
    return np.asarray(np.nanmean(residuals**2, axis=0))


def _mean_cost_of_choices(
    estimates: RawEstimates, costs: FloatArray, ranks: IntArray | None
) -> float:
    """Mean cost of choosing the expert of least estimated cost."""
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
) -> RawEstimates | None:
    """Estimates for held-out rows; None where the router has none that depend on the input."""
    best = getattr(router, "best_router_", router)
    policy: Policy = best.policy_
    if policy.is_constant or router.policy_ is not policy:
        return None
    stack_costs = getattr(best, "held_out_costs_", None)
    if stack_costs is not None:
        # Of many rows the stack has estimates for more than those that are looked at.
        looked_at = np.concatenate([test for _, test in folds])
        expected = np.full(costs.shape, np.nan, stack_costs.dtype)
        expected[looked_at] = stack_costs[looked_at]
        return RawEstimates(expected)
    try:
        policy.expected_costs(X[:1])
    except UnsupportedError:
        return None
    if errors is not None:
        return _held_out_errors(best, X, errors, prices, folds)
    expected = np.full(costs.shape, np.nan)
    for train, test in folds:
        fold_policy = clone(best).fit(X[train], costs[train]).policy_
        expected[test] = fold_policy.expected_costs(X[test])
    return RawEstimates(expected)


def _held_out_errors(
    router: Any, X: Any, errors: FloatArray, prices: Any, folds: Folds
) -> RawEstimates:
    """Expected errors, or their log-odds, of a PricedRouter for held-out rows, and expected prices."""
    expected = np.full(errors.shape, np.nan)
    priced = np.zeros(errors.shape)
    logistic_scales = []
    for train, test in folds:
        fold_prices = prices
        if np.ndim(prices) == 2:
            fold_prices = prices[train]
        policy = clone(router).fit(X[train], errors[train], prices=fold_prices).policy_
        expected[test] = policy.expected_errors(X[test])
        priced[test] = policy.price_weight * policy.expected_prices(X[test])
        if policy.kind_of_error == "logistic":
            logistic_scales.append(policy.error_scale)
    if not logistic_scales:
        return RawEstimates(expected, priced)
    scale = max(logistic_scales)
    return RawEstimates(_log_odds(expected / scale), priced, scale)


def _log_odds(probability: FloatArray) -> FloatArray:
    """Log-odds of probabilities, which are kept away from 0 and 1."""
    inside = np.clip(probability, TINY, 1 - TINY)
    return np.asarray(np.log(inside / (1 - inside)))


def _cross_fitted(estimates: RawEstimates, targets: FloatArray, folds: Folds) -> RawEstimates:
    """The estimates of each fold, calibrated on the rows of the other folds."""
    rows = estimates.rows
    calibrated = np.full(estimates.raw.shape, np.nan)
    for _, test in folds:
        held_out = np.intersect1d(test, rows)
        maps = _fit_maps(estimates, targets, np.setdiff1d(rows, held_out))
        slopes = np.array([line.slope for line in maps])
        offsets = np.array([line.offset for line in maps])
        calibrated[held_out] = slopes * estimates.raw[held_out] + offsets
    return replace(estimates, raw=calibrated)


def _fit_maps(estimates: RawEstimates, targets: FloatArray, rows: IntArray) -> list[_LinearMap]:
    """The map of each expert; the identity where its rows are too few or say nothing."""
    maps = []
    for expert in range(targets.shape[1]):
        known = rows[~np.isnan(targets[rows, expert])]
        raw = estimates.raw[known, expert]
        target = targets[known, expert]
        if len(known) < LEAST_ROWS or _is_constant(raw) or np.ptp(target) == 0:
            maps.append(IDENTITY)
        elif estimates.scale is None:
            maps.append(_least_squares_map(raw, target))
        else:
            maps.append(_platt_map(raw, target / estimates.scale))
    return maps


def _least_squares_map(raw: FloatArray, target: FloatArray) -> _LinearMap:
    """The line that predicts costs from estimates (n,)."""
    model = LinearRegression().fit(raw[:, None], target)
    slope = float(model.coef_[0])
    if slope < 0:
        # Estimates that are worse than none keep their order with a slope near 0, never the opposite one.
        return _LinearMap(0.0, float(target.mean()))
    return _LinearMap(slope, float(model.intercept_))


def _platt_map(log_odds: FloatArray, target: FloatArray) -> _LinearMap:
    """The line from log-odds (n,) to log-odds under which soft targets are likeliest (Platt scaling)."""
    # A soft target is a right and a wrong answer with their weights.
    share = np.clip(target, 0.0, 1.0)
    twice = np.concatenate([log_odds, log_odds])[:, None]
    labels = np.repeat([1, 0], len(log_odds))
    model = LogisticRegression(C=1e4)
    model.fit(twice, labels, sample_weight=np.concatenate([share, 1 - share]))
    slope = float(model.coef_[0, 0])
    if slope < 0:
        return _LinearMap(0.0, float(_log_odds(target.mean())))
    return _LinearMap(slope, float(model.intercept_[0]))


def _is_constant(estimates: FloatArray) -> bool:
    """Whether estimates differ by rounding at most."""
    return bool(np.ptp(estimates) <= ESTIMATES * np.abs(estimates).max())


def fit_novelty(
    step: TextFeatures,
    contents: Sequence[Any],
    X: FloatArray,
    fold: tuple[IntArray, IntArray],
    means: FloatArray,
) -> Novelty:
    """Learn how far inputs that were held out are from those that were not.

    Parameters
    ----------
    step : TextFeatures
        Says how much of a text is made of terms that other texts do not have.
    contents : sequence
        The texts of the rows.
    X : array of shape (n_samples, n_features)
        Their features.
    fold : (rows that count as seen, rows that are held out)
        The rows to compare.
    means : array of shape (1 or 2, n_experts)
        Mean costs, or mean errors and prices.

    Returns
    -------
    novelty : Novelty
    """
    seen, held_out = fold
    seen = seen[:: 1 + len(seen) // MAX_ROWS]
    held_out = held_out[:: 1 + len(held_out) // MAX_ROWS]
    centres = _centres(X[seen[:: 1 + len(seen) // CENTRE_ROWS]])
    unseen = step.held_out_shares([contents[i] for i in seen], [contents[i] for i in held_out])
    # Without scales the scores are the distances themselves.
    distances = Novelty(centres, np.array([1.0, np.inf]), LEVELS, means).scores(X[held_out], unseen)
    distance_scale = _novelty_scale(distances)
    unseen_scale = _novelty_scale(unseen)
    scores = distances / distance_scale + unseen / unseen_scale
    return Novelty(
        centres,
        np.array([distance_scale, unseen_scale], np.float32),
        np.quantile(scores, LEVELS).astype(np.float32),
        means.astype(np.float32),
    )


def _centres(X: FloatArray) -> FloatArray:
    """Centres that stand for the rows: the different rows themselves, or k-means of many."""
    rows, _ = distinct_rows(X.astype(np.float64), np.ones(len(X)), X.dtype)
    n_centres = max(16, min(MAX_CENTRES, MAX_NUMBERS // X.shape[1]))
    if len(rows) > n_centres:
        rows = fit_centres(rows, np.ones(len(rows)), n_centres, 0, n_init=1, max_iter=10)
    return rows.astype(np.float32)


def _novelty_scale(values: FloatArray) -> float:
    """The value above which an input counts as novel."""
    # A scale of 0 would make every other input infinitely novel.
    return max(float(np.quantile(values, NOVEL)), 0.01)
