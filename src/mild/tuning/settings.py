"""What can be chosen for a target: single experts, trade-offs, cascades, and routers of one's own.

Each kind of settings is one class. ``cross_fit`` fits its settings on all rows and without each fold, and
says what they do on rows that they were not fitted on. A new kind needs a class with this one method;
where its settings choose one expert per row, ``held_out_choices`` is enough.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.data import Outcomes
from mild.data.cascades import cascade_costs, cascade_scores
from mild.errors import InvalidInputError
from mild.metrics.curves import tradeoff_choices
from mild.metrics.operating_points import CASCADE, EXPERT, ROUTER, TRADE_OFF, Setting, concave_hull
from mild.metrics.results import Results, side_by_side
from mild.policies import CascadePolicy, Policy
from mild.policies.cascade import CascadeRun
from mild.routers.base import NamedCosts, unwarned
from mild.routers.cascade import CascadeRouter
from mild.routers.cost_models import FoldFeatures, HeadEstimates, fit_heads
from mild.tuning.rows import TuningRows
from mild.tuning.tasks import Task

# Trade-offs that are tried at most, and rows from which they are taken.
MOST_TRADE_OFFS = 128
SAMPLE_ROWS = 2_000
# Larger ones decide alike, and a gateway takes none.
LARGEST_TRADE_OFF = 1e12


@dataclass(frozen=True, eq=False)
class FoldMeans:
    """What cascades that were fitted without a fold did on the other rows, and on the fold.

    Attributes
    ----------
    quality, dollars : (m,) means on the other rows, by which they are chosen; single experts come last
    new_quality, new_dollars : (m,) means on the held-out rows
    n_rows : held-out rows in which everything is known
    """

    quality: FloatArray
    dollars: FloatArray
    new_quality: FloatArray
    new_dollars: FloatArray
    n_rows: int


@dataclass(frozen=True, eq=False)
class HeldOutSettings:
    """Settings of one kind, fitted on all rows and without each fold.

    Attributes
    ----------
    settings : m settings
    policies : the policy of each, on features as the router reads them; empty where the heads decide
    quality, dollars : (m,) means by which they are chosen
    outcomes : what they did on all rows (n_samples, m), each row left out of what decides it; cascades are
        those of all rows, whose means ``quality`` and ``dollars`` leave each row out
    asked_shares : (m, n_experts) shares of the held-out rows in which each expert is asked
    asked_dollars : (m, n_experts) mean dollars of a query that go to each expert
    folds : of cascades, what those that were fitted without each fold did; None of other settings, which
        are judged on rows that they were not fitted on
    """

    settings: list[Setting]
    policies: list[Policy]
    quality: FloatArray
    dollars: FloatArray
    outcomes: Results
    asked_shares: FloatArray
    asked_dollars: FloatArray
    folds: list[FoldMeans] | None = None


class SettingKind(ABC):
    """A kind of settings."""

    @abstractmethod
    def cross_fit(self, rows: TuningRows) -> HeldOutSettings:
        """Fit settings on all rows and without each fold."""


class ChoosingSettings(SettingKind):
    """Settings that choose one expert for each row."""

    @abstractmethod
    def held_out_choices(self, rows: TuningRows) -> IntArray:
        """Return the experts (n_samples, m) that m settings choose; only held-out rows count."""

    @abstractmethod
    def settings(self) -> list[Setting]:
        """The m settings, after ``held_out_choices``."""

    def policies(self) -> list[Policy]:
        """The policies of the settings; none where the heads for error and price decide."""
        return []

    def cross_fit(self, rows: TuningRows) -> HeldOutSettings:
        chosen = self.held_out_choices(rows)
        outcomes = outcomes_of_choices(rows.task, chosen)
        known = known_rows(rows)
        quality, dollars = group_means(outcomes.take(known), rows.task.groups[known])
        asked = [
            column[:, None] == np.arange(rows.task.costs.shape[1]) for column in chosen[known].T
        ]
        return HeldOutSettings(
            self.settings(),
            self.policies(),
            quality,
            dollars,
            outcomes,
            *what_is_asked(rows.task, asked, known),
        )


class SingleExperts(ChoosingSettings):
    """Always the same expert."""

    def held_out_choices(self, rows: TuningRows) -> IntArray:
        n_rows, n_experts = rows.task.costs.shape
        self._n_experts = n_experts
        return np.broadcast_to(np.arange(n_experts), (n_rows, n_experts))

    def settings(self) -> list[Setting]:
        return [Setting(EXPERT, expert) for expert in range(self._n_experts)]


class TradeOffs(ChoosingSettings):
    """The expert of least expected error plus a weight times its expected price, at many weights."""

    def __init__(self, heads: HeadEstimates) -> None:
        self._heads = heads

    def held_out_choices(self, rows: TuningRows) -> IntArray:
        errors = self._heads.errors
        prices = self._heads.prices
        covered = rows.held_out
        weights = trade_offs_to_try(errors[covered], prices[covered])
        covered_choices = tradeoff_choices(
            errors[covered], prices[covered], weights, rows.task.ranks
        )
        # A trade-off that always asks one expert is that single expert.
        varies = (covered_choices != covered_choices[0]).any(axis=0)
        self._weights = weights[varies]
        chosen = np.zeros((len(errors), len(self._weights)), np.intp)
        chosen[covered] = covered_choices[:, varies]
        return chosen

    def settings(self) -> list[Setting]:
        return [Setting(TRADE_OFF, float(weight)) for weight in self._weights]


class FurtherRouters(ChoosingSettings):
    """Routers of one's own: estimators ``fit(X, costs)`` with ``predict``."""

    def __init__(self, routers: Sequence[Any]) -> None:
        self._routers = list(routers)

    def held_out_choices(self, rows: TuningRows) -> IntArray:
        task = rows.task
        chosen = np.zeros((len(task.table), len(self._routers)), np.intp)
        self._policies = []
        for index, router in enumerate(self._routers):
            for fold in rows.folds:
                fitted = _fitted_router(router, task, fold.X, fold.train)
                chosen[fold.test, index] = fitted.predict(fold.X[fold.test])
            final = _fitted_router(router, task, rows.X, np.arange(len(task.table)))
            self._policies.append(rows.unscaled(final.policy_))
        return chosen

    def settings(self) -> list[Setting]:
        return [Setting(ROUTER, index) for index in range(len(self._routers))]

    def policies(self) -> list[Policy]:
        return self._policies


class Cascades(SettingKind):
    """Cascades that are not beaten, in quality and dollars at once, by a mix of two others."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls

    def cross_fit(self, rows: TuningRows) -> HeldOutSettings:
        fitted = rows.each_part(fit_cascades, "cascades", self._max_calls)
        known = known_rows(rows)
        experts = rows.task.outcomes
        folds = []
        for fold, cascades in zip(rows.folds, fitted[1:], strict=True):
            held_out = fold.test[known[fold.test]]
            if not held_out.size:
                continue
            others = known.copy()
            others[fold.test] = False
            quality, dollars = group_means(experts.take(others), rows.task.groups[others])
            outcomes = cascade_outcomes(rows.task, fold.X, cascades.policies, held_out)
            new_outcomes = side_by_side([outcomes, experts.take(held_out)])
            folds.append(
                FoldMeans(
                    np.concatenate([cascades.quality, quality]),
                    np.concatenate([cascades.dollars, dollars]),
                    *group_means(new_outcomes, rows.task.groups[held_out]),
                    len(held_out),
                )
            )
        final = fitted[0]
        outcomes = cascade_outcomes(
            rows.task, rows.X, final.policies, np.arange(len(rows.task.table))
        )
        answers = rows.task.table[known].answers
        asked = [policy.run(rows.X[known], answers).asked for policy in final.policies]
        settings = [Setting(CASCADE, index) for index in range(len(final.policies))]
        policies = [rows.unscaled(policy) for policy in final.policies]
        return HeldOutSettings(
            settings,
            policies,
            final.quality,
            final.dollars,
            outcomes,
            *what_is_asked(rows.task, asked, known),
            folds,
        )


@dataclass(frozen=True, eq=False)
class FittedCascades:
    """Cascades that were fitted on some rows.

    Attributes
    ----------
    policies : one for each cascade
    quality, dollars : (m,) means on these rows, each left out of its own estimate
    """

    policies: list[CascadePolicy]
    quality: FloatArray
    dollars: FloatArray


@unwarned
def fit_cascades(task: Task, part: FoldFeatures, max_calls: int) -> FittedCascades:
    """Search for cascades on the training rows, and keep those on the hull of quality and dollars."""
    table = task.table
    train = part.train
    assert table.answers is not None
    assert table.prices is not None
    router = CascadeRouter(max_calls=max_calls)
    errors = 1 - table.scores[train]
    answers = table.answers.take(train)
    router.fit(part.X[train], errors, answers=answers, prices=table.prices[train])
    candidates = [
        candidate for candidate in router.candidates_ if sum(map(len, candidate.steps)) > 1
    ]
    quality = np.array([1 - candidate.cost for candidate in candidates])
    dollars = np.array([candidate.paid for candidate in candidates])
    kept = concave_hull(quality, dollars)
    policies = [router.policy_of(candidates[index]).with_ranks(task.ranks) for index in kept]
    return FittedCascades(policies, quality[kept], dollars[kept])


def outcomes_of_choices(task: Task, chosen: IntArray) -> Results:
    """Return the outcomes (n_samples, m) of the experts that m settings chose in the rows of a task."""
    known = task.outcomes

    def of_chosen(values: FloatArray | None) -> FloatArray | None:
        if values is None:
            return None
        return np.take_along_axis(values, chosen, axis=1)

    costs = np.take_along_axis(known.costs, chosen, axis=1)
    return Results(
        costs, of_chosen(known.scores), of_chosen(known.prices), of_chosen(known.latencies)
    )


def cascade_outcomes(
    task: Task, X: Any, policies: Sequence[CascadePolicy], rows: IntArray
) -> Results:
    """Return the outcomes (n, m) of m cascades on n rows of a task."""
    table = task.table[rows]
    assert table.answers is not None
    columns = []
    for policy in policies:
        run = policy.run(X[rows], table.answers)
        columns.append(_run_outcomes(task, table, run))
    if not columns:
        empty = np.empty((len(rows), 0))
        return Results(empty, empty, empty, None)
    return side_by_side(columns)


def what_is_asked(
    task: Task, asked: Sequence[BoolArray], known: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return how often m settings ask each expert, and what it is paid on average, (m, n_experts) each.

    ``asked`` has a mask (n_known, n_experts) for each setting: the experts that it asks in the known rows.
    """
    assert task.table.prices is not None
    weights = group_weights(task.groups[known])
    prices = task.table.prices[known]
    shape = (-1, prices.shape[1])
    shares = [np.minimum(weights @ mask, 1.0) for mask in asked]  # rounding
    dollars = [weights @ np.where(mask, prices, 0.0) for mask in asked]
    return np.array(shares).reshape(shape), np.array(dollars).reshape(shape)


def _run_outcomes(task: Task, table: Any, run: CascadeRun) -> Results:
    """Return the outcomes (n,) of a run of a cascade."""
    prices = np.full(len(table), np.nan)
    if table.prices is not None:
        prices = run.total_prices(table.prices)
    latencies = None
    if table.latencies is not None:
        latencies = run.seconds(table.latencies)
    return Results(
        cascade_costs(table, task.terms, run),
        cascade_scores(table.scores, run),
        prices,
        latencies,
    )


def known_rows(rows: TuningRows) -> BoolArray:
    """Return a mask of the held-out rows in which score and price of every expert are known."""
    table = rows.task.table
    assert table.prices is not None
    unknown = np.isnan(table.scores) | np.isnan(table.prices)
    known: BoolArray = rows.held_out & ~unknown.any(axis=1)
    return known


def group_means(outcomes: Results, groups: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return mean quality and mean dollars (m,) of settings; the rows of a group count as one."""
    assert outcomes.scores is not None
    assert outcomes.prices is not None
    weights = group_weights(groups)
    return weights @ outcomes.scores, weights @ outcomes.prices


def group_weights(groups: IntArray) -> FloatArray:
    """Return weights (n_samples,) that sum to 1, with which every group counts once.

    >>> group_weights(np.array([0, 0, 1])).tolist()
    [0.25, 0.25, 0.5]
    """
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    weights: FloatArray = 1 / (sizes[group] * len(sizes))
    return weights


def trade_offs_to_try(errors: FloatArray, prices: FloatArray) -> FloatArray:
    """Return the weights of a dollar that are tried, in wrong answers, ascending from 0.

    They are quantiles of the weights at which a row changes between two experts j and k,
    ``(error_j - error_k) / (price_k - price_j)``, over some of the rows.

    >>> trade_offs_to_try(np.array([[0.4, 0.2]]), np.array([[0.0, 0.1]]))
    array([0. , 1. , 2. , 2.2])
    """
    n_rows = len(errors)
    sample = np.linspace(0, n_rows, min(n_rows, SAMPLE_ROWS), endpoint=False).astype(np.intp)
    first, second = np.triu_indices(errors.shape[1], 1)
    error_differences = errors[sample][:, first] - errors[sample][:, second]
    price_differences = prices[sample][:, second] - prices[sample][:, first]
    with np.errstate(divide="ignore", invalid="ignore"):
        turning_points = error_differences / price_differences
    is_possible = np.isfinite(turning_points) & (turning_points > 0)
    turning_points = turning_points[is_possible & (turning_points < LARGEST_TRADE_OFF)]
    if not turning_points.size:
        return np.zeros(1)
    levels = np.linspace(0, 1, MOST_TRADE_OFFS)
    quantiles = np.quantile(turning_points.astype(np.float64), levels)
    weights = [0.0, quantiles[0] / 2, *quantiles, 1.1 * quantiles[-1]]
    # Short numbers: a name such as router-mild-<t> says the same, and rounding rarely changes them.
    return np.unique([float(f"{weight:.4g}") for weight in weights])


def fit_price_heads(rows: TuningRows) -> HeadEstimates:
    """Fit separate heads for error and price, on all rows and without each fold."""
    table = rows.task.table
    assert table.prices is not None
    check_prices(table)
    weight = float(rows.task.terms.price_weight or 0.0)
    return fit_heads(
        rows.X,
        1 - table.scores,
        table.prices,
        rows.folds,
        weight,
        rows.n_jobs,
        number_columns=rows.number_columns,
    )


def check_prices(table: Outcomes) -> None:
    """Refuse to trade quality for dollars where the price of an expert is not known in any row."""
    assert table.prices is not None
    unpriced = []
    for index, name in enumerate(table.experts):
        if np.isnan(table.prices[:, index]).all():
            unpriced.append(repr(name))
    if unpriced:
        raise InvalidInputError(
            f"a target needs the prices of every expert; {', '.join(unpriced)} has none. Fill them in, or "
            "leave the expert out with experts=NAMES.",
            parameter="prices",
        )


def _fitted_router(router: Any, task: Task, X: Any, rows: IntArray) -> Any:
    """Fit a copy of a router on some rows of a task."""
    costs = NamedCosts.of(task.costs[rows], task.table.experts, task.ranks)
    return clone(router).fit(X[rows], costs)
