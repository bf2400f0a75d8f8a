"""Calibration of expected costs on rows that were held out, and the novelty of inputs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

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
# Rows that are looked at, of more; rows of an expert that are needed to calibrate it.
MAX_ROWS = 20_000
LEAST_ROWS = 50
# Centres, and numbers in them.
MAX_CENTRES, MAX_NUMBERS = 256, 1 << 18
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

    def values(self, raw: FloatArray) -> FloatArray:
        """Costs, or errors, from raw estimates."""
        return raw if self.scale is None else self.scale / (1 + np.exp(-raw))


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
    ``errors`` (n, p) and ``prices`` are those of a PricedRouter. None where the router has no expected
    costs that depend on the input, or where none gets better.
    """
    step = 1 + len(costs) // MAX_ROWS
    folds = [(train[::step], test[::step]) for train, test in folds]
    try:
        with warnings.catch_warnings():
            # The fit on all rows has given its warnings already.
            warnings.simplefilter("ignore")
            held = _held_out(router, X, costs, folds, errors, prices)
    except InvalidInputError:
        return None  # without a fold, some expert was never asked
    if held is None:
        return None
    targets = costs if errors is None else errors
    rows = np.flatnonzero(~np.isnan(held.raw).any(axis=1))
    slopes, offsets = _fit_maps(held, targets, rows)
    mapped = np.full(held.raw.shape, np.nan)
    for _, test in folds:
        own = np.intersect1d(test, rows)
        fitted = _fit_maps(held, targets, np.setdiff1d(rows, own))
        mapped[own] = fitted[0] * held.raw[own] + fitted[1]
    before, after = (_squares(held.values(raw), targets, rows) for raw in (held.raw, mapped))
    # An expert whose estimates do not improve by more than rounding keeps them.
    same = ~(after < before * (1 - ESTIMATES))
    slopes[same], offsets[same], mapped[:, same] = 1.0, 0.0, held.raw[:, same]
    if same.all():
        return None
    losses, squares = [], []
    for raw in (held.raw, mapped):
        values = held.values(raw)
        chosen = cheapest_expected((values + held.prices)[rows], router.policy_.ranks)
        losses.append(float(np.nanmean(costs[rows, chosen])))
        squares.append(float(_squares(values, targets, rows).mean()))
    return Calibration(
        slopes.tolist(),
        offsets.tolist(),
        held.scale is not None,
        not is_less(losses[0], losses[1]),
        (losses[0], losses[1]),
        (squares[0], squares[1]),
        len(rows),
    )


def _squares(values: FloatArray, targets: FloatArray, rows: IntArray) -> FloatArray:
    """Mean squared error (p,) of the estimates of each expert, where its cost is known."""
    return np.asarray(np.nanmean((values - targets)[rows] ** 2, axis=0))


def _held_out(
    router: Any,
    X: Any,
    costs: FloatArray,
    folds: Folds,
    errors: FloatArray | None,
    prices: Any,
) -> RawEstimates | None:
    best = getattr(router, "best_router_", router)
    policy: Policy = best.policy_
    if policy.is_constant or router.policy_ is not policy:
        return None
    made = getattr(best, "held_out_costs_", None)
    if made is not None:
        return RawEstimates(made)
    try:
        policy.expected_costs(X[:1])
    except UnsupportedError:
        return None
    raw = np.full(costs.shape, np.nan)
    paid = np.zeros(costs.shape)
    scale = None
    for train, test in folds:
        if errors is None:
            part = clone(best).fit(X[train], costs[train]).policy_
            raw[test] = part.expected_costs(X[test])
            continue
        own = prices[train] if np.ndim(prices) == 2 else prices
        part = clone(best).fit(X[train], errors[train], prices=own).policy_
        raw[test] = part.expected_errors(X[test])
        paid[test] = part.price_weight * part.expected_prices(X[test])
        if part.kind_of_error == "logistic":
            scale = max(scale or 0.0, part.error_scale)
    if scale is None:
        return RawEstimates(raw, paid)
    share = np.clip(raw / scale, TINY, 1 - TINY)
    return RawEstimates(np.log(share / (1 - share)), paid, scale)


def _fit_maps(
    held: RawEstimates, targets: FloatArray, rows: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Slopes and offsets (p,) of every expert; 1 and 0 where its rows are too few."""
    count = targets.shape[1]
    slopes, offsets = np.ones(count), np.zeros(count)
    for k in range(count):
        own = rows[~np.isnan(targets[rows, k])]
        raw, target = held.raw[own, k], targets[own, k]
        if len(own) < LEAST_ROWS or _is_constant(raw) or np.ptp(target) == 0:
            continue
        if held.scale is None:
            model = LinearRegression().fit(raw[:, None], target)
            slope, offset = float(model.coef_[0]), float(model.intercept_)
        else:
            # A soft target is a right and a wrong answer with their weights.
            share = np.clip(target / held.scale, 0.0, 1.0)
            twice = np.concatenate([raw, raw])[:, None]
            labels = np.repeat([1, 0], len(own))
            model = LogisticRegression(C=1e4)
            model.fit(twice, labels, sample_weight=np.concatenate([share, 1 - share]))
            slope, offset = float(model.coef_[0, 0]), float(model.intercept_[0])
        # Estimates that are worse than none keep their order with a slope near 0, never the opposite one.
        if slope < 0:
            slope = 0.0
            offset = float(target.mean())
            if held.scale is not None:
                share = min(max(offset / held.scale, TINY), 1 - TINY)
                offset = float(np.log(share / (1 - share)))
        slopes[k], offsets[k] = slope, offset
    return slopes, offsets


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

    ``fold`` are the rows that count as seen, and those that are held out. ``means`` (1 or 2, n_experts)
    are mean costs, or mean errors and prices.
    """
    seen, held = (rows[:: 1 + len(rows) // MAX_ROWS] for rows in fold)
    some = X[seen[:: 1 + len(seen) // CENTRE_ROWS]].astype(np.float64)
    different, _ = distinct_rows(some, np.ones(len(some)), X.dtype)
    most = max(16, min(MAX_CENTRES, MAX_NUMBERS // X.shape[1]))
    if len(different) > most:
        weight = np.ones(len(different))
        different = fit_centres(different, weight, most, 0, n_init=1, max_iter=10)
    unseen = step.held_out_shares([contents[i] for i in seen], [contents[i] for i in held])
    centres = different.astype(np.float32)
    plain = Novelty(centres, np.array([1.0, np.inf]), LEVELS, means)
    distances = plain.scores(X[held], unseen)
    # A scale of 0 would make every other input infinitely novel.
    scales = [max(float(np.quantile(values, NOVEL)), 0.01) for values in (distances, unseen)]
    scores = distances / scales[0] + unseen / scales[1]
    quantiles = np.quantile(scores, LEVELS).astype(np.float32)
    return Novelty(centres, np.array(scales, np.float32), quantiles, means.astype(np.float32))
