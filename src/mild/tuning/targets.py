"""Targets: the trade-off between quality and dollars that does what a user asks for.

A router with separate heads for error and price decides for the least ``error + t * price``. ``solve``
searches the trade-off t on held-out rows that is expected to meet the target on new rows, or, with a
margin, to do so with a given probability; ``certify_loss`` finds one whose quality loss is below a limit
with a given probability, on calibration rows that were used for nothing else. Cascades at several price
weights are settings, too: each is one more column of quality and dollars.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.artifact.sources import source_of
from mild.artifact.targets import QUALITY_TARGETS, Target, always, margin_words
from mild.core.arrays import BoolArray, FloatArray, IntArray, invalid
from mild.core.rounding import tie_ranks
from mild.errors import InvalidInputError
from mild.metrics import simultaneous_intervals
from mild.metrics.curves import (
    CASCADE,
    TRADE_OFF,
    CurveErrors,
    TradeoffCurve,
    tradeoff_choices,
)
from mild.metrics.risk_control import Certificate, betting_p_values, certify
from mild.money import amount, decimals
from mild.policies import Policy, StandardizedPolicy, TradeoffPolicy
from mild.routers.baselines import mean_costs
from mild.routers.cost_models import fit_heads
from mild.tuning.cascades import CascadeOutcomes, FittedCascades
from mild.tuning.fitting import Fitted, table_features
from mild.tuning.tasks import Task

# Trade-offs that are tried at most, and rows from which they are taken.
MOST_WEIGHTS = 128
SAMPLE = 2_000
# Larger ones decide alike, and a gateway takes none.
LARGEST_WEIGHT = 1e12


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Estimates and outcomes of rows on which the estimates were not fitted."""

    errors: FloatArray  # (n_samples, n_experts) expected errors
    prices: FloatArray  # (n_samples, n_experts) expected prices
    quality: FloatArray  # (n_samples, n_experts) scores in [0, 1]
    dollars: FloatArray  # (n_samples, n_experts)
    groups: IntArray  # (n_samples,) labels of rows that count once together
    # (n_samples,) labels of rows whose estimates are of one fit; None if all are
    folds: IntArray | None = None
    cascades: CascadeOutcomes | None = None  # what cascades do with these rows
    ranks: IntArray | None = (
        None  # (n_experts,) of experts whose estimates tie, the lowest is taken
    )

    @property
    def known(self) -> BoolArray:
        """Mask (n_samples,) of the rows in which everything is known about every expert."""
        parts = [self.errors, self.prices, self.quality, self.dollars]
        parts += [] if self.cascades is None else [self.cascades.quality]
        return ~np.any([np.isnan(part).any(axis=1) for part in parts], axis=0)

    def comparable(self) -> HeldOut:
        """The rows in which everything is known about every expert."""
        known = self.known
        if len(np.unique(self.groups[known])) < 2:
            raise InvalidInputError(
                "a target needs held-out rows of at least two different queries in which the score and "
                f"the price of every expert are known; got {int(known.sum())} rows.",
                parameter="target",
            )
        parts = (self.errors, self.prices, self.quality, self.dollars, self.groups, self.folds)
        taken: list[Any] = [None if part is None else part[known] for part in parts]
        own = None if self.cascades is None else self.cascades.take(known)
        return replace(HeldOut(*taken), cascades=own, ranks=self.ranks)

    @property
    def all_quality(self) -> FloatArray:
        """Quality (n_samples, n_experts + m) of the experts and of m cascades."""
        own = [] if self.cascades is None else [self.cascades.quality]
        return np.column_stack([self.quality, *own])

    @property
    def all_dollars(self) -> FloatArray:
        """Dollars (n_samples, n_experts + m) of the experts and of m cascades."""
        if self.cascades is None or self.cascades.dollars is None:
            return self.dollars
        return np.column_stack([self.dollars, self.cascades.dollars])

    def asked(self, expert: int) -> BoolArray:
        """Whether an expert is asked (n_samples, n_experts + m) by each expert itself and m cascades."""
        itself = np.broadcast_to(np.arange(self.quality.shape[1]) == expert, self.quality.shape)
        own = [] if self.cascades is None else [self.cascades.asked[:, :, expert]]
        return np.column_stack([itself, *own])

    def by_group(self, values: Any) -> FloatArray:
        """Means (n_groups, m) of values (n_samples, m) over the rows of each group, in order."""
        labels = np.unique(self.groups, return_inverse=True)[1]
        order = np.argsort(labels, kind="stable")
        starts = np.unique(labels[order], return_index=True)[1]
        sums = np.add.reduceat(values[order].astype(np.float64), starts)
        means: FloatArray = sums / np.bincount(labels)[:, None]
        return means

    def choices(self, weights: ArrayLike) -> IntArray:
        """Expert (n_samples, m) of each row under each of m trade-offs."""
        return tradeoff_choices(self.errors, self.prices, weights, self.ranks)

    def chosen_by(self, solution: Solution, names: Sequence[str]) -> IntArray:
        """Expert (n_samples,) of each row under a solution; n_experts + j where that is the cascade j."""
        if solution.t is None:
            return np.full(len(self.quality), names.index(solution.expert or ""))
        if solution.cascade and self.cascades is not None:
            place = int(np.flatnonzero(self.cascades.weights == solution.t)[0])
            return np.full(len(self.quality), len(names) + place)
        return self.choices([solution.t])[:, 0]

    def best_expert(self) -> int:
        """The expert of the highest mean quality; of equal ones the cheapest."""
        price = self.dollars.mean(axis=0)
        quality = tie_ranks(-self.quality.mean(axis=0))
        return int(np.lexsort((tie_ranks(price), quality))[0])


@dataclass(frozen=True, eq=False)
class Frontier:
    """The trade-off curve of m settings, and what each does in every group of the held-out rows."""

    curve: TradeoffCurve  # the settings and their means
    held: HeldOut  # the rows
    # (n_samples, m) expert of each row under each setting; n_experts + j for the cascade j
    chosen: IntArray

    def of_settings(self, values: Any) -> Any:
        """Values (n_samples, m) of the settings, of those of experts and cascades."""
        return np.take_along_axis(values, self.chosen, axis=1)

    @property
    def losses(self) -> FloatArray:
        """(n_groups, m) quality of the best expert minus that of the setting."""
        quality = self.of_settings(self.held.all_quality)
        return self.held.by_group(self.held.quality[:, [self.curve.best]] - quality)

    @property
    def dollars(self) -> FloatArray:
        """(n_groups, m) dollars per query."""
        return self.held.by_group(self.of_settings(self.held.all_dollars))

    @property
    def reference_shares(self) -> FloatArray:
        """(n_groups, m) share of the rows in which the best expert is asked."""
        return self.held.by_group(self.of_settings(self.held.asked(self.curve.best)))


@dataclass(frozen=True)
class Bounds:
    """An estimate and its interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Solution:
    """The setting that meets a target, or comes nearest to it."""

    target: Target  # what was asked for
    t: float | None  # the trade-off; None where the setting is a single expert
    expert: str | None  # name of that expert; None where the setting is a trade-off
    met: bool  # whether the estimates meet the target
    certified: bool | None  # whether the limit is certified; None without a guarantee
    quality: float  # mean quality on the held-out rows
    quality_loss: Bounds  # that of the best expert minus it
    dollars_per_1000: Bounds
    reference_share: Bounds  # share of the queries in which the best expert is asked
    saved: float | None  # share of the best expert's dollars that is saved; None if these are 0
    best_expert: str  # the expert that is compared with
    best_quality: float
    best_dollars_per_1000: float
    n_groups: int  # different queries (or groups) among the rows
    confidence: float  # of the intervals, which hold for all settings that were tried at once
    # about how many calibration queries would certify the next setting; None without a guarantee, if there
    # is no next one, or if no number would do
    rows_needed: int | None = None
    # with which probability the target is to be met on the same number of new rows; None with a guarantee
    probability: float | None = None
    likely: bool | None = None  # whether the setting has the margins for that
    margins: Mapping[str, float] | None = None  # target -> margin in its unit
    cascade: bool = False  # whether ``t`` is the price weight of a cascade

    @property
    def setting(self) -> str:
        """The setting, for a sentence."""
        learned = "a cascade" if self.cascade else "a trade-off"
        return f"always {self.expert}" if self.t is None else learned

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields; ``estimate``, ``low`` and ``high`` are of what the target is about."""
        about = self.quality_loss
        if not set(QUALITY_TARGETS) & set(self.target.wanted):
            about = self.dollars_per_1000
        fields = asdict(self)
        fields["n_units"] = fields.pop("n_groups")
        return {
            **fields,
            "target": self.target.wanted,
            "guarantee": self.target.guarantee,
            **asdict(about),
            "sentence": self.sentence,
            "promise": self.promise,
        }

    @property
    def sentence(self) -> str:
        """The solution in words."""
        wanted = self.target.words
        loss, price = self.quality_loss, self.dollars_per_1000
        figures = [
            f"quality {self.quality:.4f}, {abs(loss.estimate):.4f} "
            f"{'below' if loss.estimate >= 0 else 'above'} always {self.best_expert} "
            f"({100 * self.confidence:g} % interval of the quality loss {decimals(loss.low)} to "
            f"{decimals(loss.high)})",
            f"${amount(price.estimate)} per 1,000 queries ({amount(price.low)} to {amount(price.high)}; "
            f"always {self.best_expert} ${amount(self.best_dollars_per_1000)})",
        ]
        described = f"{self.setting}, with {'; '.join(figures)}; {self.n_groups:,} held-out queries"
        return f"Target {wanted}: {described}. {self.promise}"

    @property
    def promise(self) -> str:
        """What can be expected of the setting on new queries, in a sentence."""
        if self.certified is None:
            if not self.met:
                return "The target cannot be met: this is the nearest setting."
            probability = self.target.target_probability
            return margin_words(probability, bool(self.likely), self.margins or {})
        needed = ""
        if self.rows_needed is not None:
            next_one = "A cheaper setting" if self.certified else "The limit"
            needed = f" {next_one} needs about {self.rows_needed:,} calibration queries."
        limit = f"with probability {self.target.guarantee:g} over the calibration queries"
        if self.certified:
            return f"The limit is certified {limit}.{needed}"
        return (
            f"No setting can be certified to hold the limit {limit}: the router asks always "
            f"{self.expert}.{needed}"
        )


def trade_off_weights(held: HeldOut) -> FloatArray:
    """Trade-offs to try, ascending from 0: quantiles of those at which a choice between two experts turns.

    >>> held = HeldOut(*np.array([[[0.4, 0.2]], [[0.0, 0.1]], [[1, 1]], [[1, 1]]], float), np.arange(1))
    >>> trade_off_weights(held)
    array([0. , 1. , 2. , 2.2])
    """
    rows = np.linspace(0, len(held.errors), min(len(held.errors), SAMPLE), endpoint=False)
    errors, prices = held.errors[rows.astype(np.intp)], held.prices[rows.astype(np.intp)]
    first, second = np.triu_indices(errors.shape[1], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        turns = (errors[:, first] - errors[:, second]) / (prices[:, second] - prices[:, first])
    turns = turns[np.isfinite(turns) & (turns > 0) & (turns < LARGEST_WEIGHT)]
    if not turns.size:
        return np.zeros(1)
    found = np.quantile(turns.astype(np.float64), np.linspace(0, 1, MOST_WEIGHTS))
    # Short numbers: a name such as router-mild-<t> says the same, and rounding rarely changes them.
    short = [float(f"{t:.4g}") for t in [0.0, found[0] / 2, *found, 1.1 * found[-1]]]
    return np.unique(short)


def measure(
    held: HeldOut, weights: ArrayLike | None = None, reference: int | None = None
) -> Frontier:
    """What trade-offs, cascades and every single expert do on comparable held-out rows.

    ``weights`` are by default those of ``trade_off_weights``; ``reference`` is the expert that is compared
    with, by default the best on these rows.
    """
    weights = trade_off_weights(held) if weights is None else np.asarray(weights, float)
    cascades = np.zeros(0) if held.cascades is None else held.cascades.weights
    (n, p), m, c = held.quality.shape, len(weights), len(cascades)
    every = np.broadcast_to(np.concatenate([p + np.arange(c), np.arange(p)]), (n, c + p))
    best = held.best_expert() if reference is None else reference
    first = np.unique(held.groups, return_index=True)[1]
    folds = None if held.folds is None else np.unique(held.folds[first], return_inverse=True)[1]
    chosen = np.column_stack([held.choices(weights), every])

    gaps = np.zeros((2, m + c + p))
    if held.cascades is not None and held.cascades.gaps is not None:
        gaps[:, m : m + c] = held.cascades.gaps

    def settings(values: Any, unit: float, gap: FloatArray | float = 0.0) -> FloatArray:
        """Mean, its error, and the error of its difference to the best expert (3, m + c + p)."""
        own = held.by_group(np.take_along_axis(values, chosen, axis=1))  # a group counts once
        parts = own, own - own[:, [m + c + best]]
        errors = (np.hypot(_new_rows_errors(x, folds, unit, m + c), gap) for x in parts)
        return np.array([own.mean(axis=0), *errors])

    quality = settings(held.all_quality, 1.0, gaps[0])
    unit = float(np.ptp(held.dollars.mean(axis=0)))
    dollars = 1000 * settings(held.all_dollars, unit, gaps[1])
    n_folds = 0 if folds is None else int(folds.max()) + 1
    curve = TradeoffCurve(
        np.concatenate([weights, cascades, np.full(p, np.nan)]),
        np.concatenate([np.full(m, TRADE_OFF), np.full(c, CASCADE), np.arange(p)]),
        quality[0],
        dollars[0],
        best,
        CurveErrors(quality[1], quality[2], dollars[1], n_folds),
    )
    return Frontier(curve, held, chosen)


def _new_rows_errors(
    values: FloatArray, folds: IntArray | None, unit: float, n_learned: int
) -> FloatArray:
    """Standard errors (m,) of means over groups (n_groups, m) as predictions for as many new groups.

    They have the spread of both samples. The first ``n_learned`` settings are made of estimates that would
    be others after another fit: to the extent that their means differ between folds more than their groups
    explain, this is added. Of these settings one more group that differs by a ``unit`` is assumed, so that
    the error is not 0 where all groups are alike by chance.
    """
    n = len(values)
    variance = values.var(axis=0, ddof=1)
    total = 2 * variance / n
    total[:n_learned] += 2 * (unit / n) ** 2
    if folds is not None and folds.any():  # two or more
        sizes = np.bincount(folds)
        members = (folds == np.arange(len(sizes))[:, None]) / sizes[:, None]
        between = (members @ values).var(axis=0, ddof=1) - variance * (1 / sizes).mean()
        total[:n_learned] += np.maximum(between, 0)[:n_learned]
    errors: FloatArray = np.sqrt(total)
    return errors


def solve(
    target: Target,
    held: HeldOut,
    expert_names: Sequence[str],
    confidence: float = 0.95,
    seed: int = 0,
) -> Solution:
    """The setting that meets a target at the least dollars; a target of dollars, with the best quality.

    Settings are trade-offs, cascades where ``held`` has them, and single experts. The target is met by a
    margin, so that on the same number of new rows it is met with ``target.target_probability``, by an
    estimate; at 0.5 only single experts, of which one may be lucky, need a margin. Where
    no setting has the margin, the nearest is returned, with ``likely`` False, and with ``met`` False if it
    does not meet the target on these rows either.

    >>> errors = np.array([[0.1, 0.1], [0.9, 0.1]] * 10)
    >>> prices = np.full((20, 2), [0.0, 0.01])
    >>> held = HeldOut(errors, prices, 1 - errors, prices, np.arange(20))
    >>> solve(Target(max_quality_loss=0.1), held, ["small", "large"]).reference_share.estimate
    0.5
    """
    held = held.comparable()
    target.check(priced=True)
    frontier = measure(held)
    choice = target.choose(frontier.curve)
    found = _solution(
        target, frontier, choice.index, expert_names, confidence, seed, choice.met, None
    )
    probability = target.target_probability
    return replace(found, probability=probability, likely=choice.likely, margins=choice.margins)


def certify_loss(
    target: Target,
    fitting: HeldOut,
    calibration: HeldOut,
    expert_names: Sequence[str],
    confidence: float = 0.95,
    seed: int = 0,
) -> Solution:
    """The cheapest setting whose quality loss is certified to be at most ``target.max_quality_loss``.

    The reference, the expert of the highest quality, the choice between trade-offs and cascades, and the
    sequence of settings are fixed on the held-out rows of the fitting part: settings of the kind that meets
    the target there at the least dollars, from the one that is safest there on, upwards. They are tested in
    this sequence on the calibration rows until one fails (Learn-then-Test). A group counts once, with the
    mean of its rows. Where nothing is certified, the setting is the reference.
    """
    if target.guarantee is None or target.max_quality_loss is None:
        raise invalid("guarantee", "must be given, with max_quality_loss; got none.")
    fitting, calibration = fitting.comparable(), calibration.comparable()
    target.check(priced=True)
    limit, guarantee = target.max_quality_loss, target.guarantee
    reference = fitting.best_expert()
    weights = trade_off_weights(fitting)
    if fitting.cascades is not None:
        frontier = measure(fitting, weights, reference)
        if frontier.curve.experts[target.choose(frontier.curve).index] == CASCADE:
            weights = np.zeros(0)
        else:
            fitting, calibration = (replace(part, cascades=None) for part in (fitting, calibration))

    def learned(held: HeldOut, first: int = 0) -> tuple[Frontier, FloatArray]:
        """Settings from the place ``first`` in the sequence on, and their losses (n_groups, m)."""
        cascades = None if held.cascades is None else held.cascades.take(slice(None), first)
        frontier = measure(replace(held, cascades=cascades), weights[first:], reference)
        return frontier, frontier.losses[:, frontier.curve.experts < 0]

    _, tried = learned(fitting)
    rng = np.random.default_rng([seed, 2])
    p_values = betting_p_values(rng.permutation(tried), limit, 1 - guarantee)
    safest = int(np.lexsort((tie_ranks(tried.mean(axis=0)), tie_ranks(p_values)))[0])
    frontier, losses = learned(calibration, safest)
    certificate = certify(rng.permutation(losses), limit, guarantee)
    allowed = [*range(certificate.n_certified), losses.shape[1] + reference]
    curve = frontier.curve
    price_rank, quality_rank = tie_ranks(curve.dollars), tie_ranks(-curve.quality)
    index = min(allowed, key=lambda i: (price_rank[i], quality_rank[i]))
    found = _solution(target, frontier, index, expert_names, confidence, seed, True, certificate)
    return replace(found, met=bool(certificate.n_certified))


def _solution(
    target: Target,
    frontier: Frontier,
    index: int,
    names: Sequence[str],
    confidence: float,
    seed: int,
    met: bool,
    certificate: Certificate | None,
) -> Solution:
    def bounds(values: FloatArray, factor: float = 1.0) -> Bounds:
        # Of a certified setting the other settings are no candidates: they were ruled out in sequence.
        columns = values if certificate is None else values[:, [index]]
        found = simultaneous_intervals(columns, confidence, seed)
        place = index if certificate is None else 0
        three = (found.estimate[place], found.low[place], found.high[place])
        return Bounds(*(factor * float(value) for value in three))

    curve, losses = frontier.curve, frontier.losses
    best = curve.best_index
    expert = int(curve.experts[index])
    price = bounds(frontier.dollars, 1000.0)
    best_price = float(curve.dollars[best])
    saved = 1 - price.estimate / best_price if best_price else None
    needed = None
    if certificate is not None and certificate.rows_needed not in (None, math.inf):
        needed = int(certificate.rows_needed or 0)
    return Solution(
        target,
        None if expert >= 0 else float(curve.weights[index]),
        names[expert] if expert >= 0 else None,
        met,
        None if certificate is None else certificate.n_certified > 0,
        float(curve.quality[index]),
        bounds(losses),
        price,
        bounds(frontier.reference_shares),
        saved,
        names[curve.best],
        float(curve.quality[best]),
        best_price,
        len(losses),
        confidence,
        needed,
        cascade=expert == CASCADE,
    )


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """Separate heads for error and price of a task, and their held-out estimates."""

    policy: Policy  # the heads, on the features of the task
    held: HeldOut  # estimates for the rows of the task, NaN in rows that no fold holds out

    def decide_as(self, solution: Solution, names: Sequence[str]) -> Policy:
        """The policy of a solution: the heads at its trade-off, or its expert."""
        if solution.t is not None:
            return self.policy.with_prices(price_weight=solution.t)
        assert solution.expert is not None
        errors = np.nanmean(1 - self.held.quality, axis=0)
        return always(names.index(solution.expert), errors, self.policy)


def can_trade(task: Task, folds: Sequence[tuple[IntArray, IntArray]]) -> bool:
    """Whether a task has prices, and heads for error and price can be learned without each fold."""
    if task.table.prices is None:
        return False
    known = ~np.isnan(task.table.scores), ~np.isnan(task.table.prices)
    return all(part[train].any(axis=0).all() for part in known for train, _ in folds)


def check_prices(expert_names: Sequence[str], prices: FloatArray) -> None:
    """Refuse to trade quality for dollars where the price of an expert is not known in any row."""
    bare = [name for k, name in enumerate(expert_names) if np.isnan(prices[:, k]).all()]
    if bare:
        names = ", ".join(map(repr, bare))
        rule = "a target needs the prices of every expert"
        remedy = "Fill them in, or leave the expert out with experts=NAMES"
        raise InvalidInputError(f"{rule}; {names} has none. {remedy}.", parameter="prices")


def traded_prices(task: Task) -> FloatArray:
    """Prices (n_samples, n_experts) that are traded for quality, in dollars."""
    table = task.table
    assert table.prices is not None
    check_prices(table.expert_names, table.prices)
    return table.prices


def fit_tradeoff(
    task: Task,
    fitted: Fitted,
    folds: Sequence[tuple[IntArray, IntArray]],
    n_jobs: int | None = None,
) -> Tradeoff:
    """Learn separate heads for error and price of a task, on the features of a fitted router."""
    table = task.table
    prices = traded_prices(task)
    scaler = fitted.model[0] if hasattr(fitted.model, "steps") else None
    X = fitted.features if scaler is None else scaler.transform(fitted.features)
    weight = float(task.terms.price_weight or 0.0)
    found = fit_heads(X, 1 - table.scores, prices, folds, weight, n_jobs)
    policy: Policy = found.router.policy_.with_ranks(task.ranks)
    if scaler is not None:
        policy = StandardizedPolicy(np.asarray(scaler.mean_), np.asarray(scaler.scale_), policy)
    parts = np.full(table.rows, -1)
    for number, (_, test) in enumerate(folds):
        parts[test] = number
    held = HeldOut(
        found.errors, found.prices, table.scores, prices, task.groups, parts, ranks=task.ranks
    )
    return Tradeoff(policy, held)


@dataclass(frozen=True, eq=False)
class PricedFit:
    """A router that keeps error and price apart, facts to save with it, and the solution of its target."""

    fitted: Fitted
    notes: dict[str, Any]
    solution: Solution | None = None
    held: HeldOut | None = None  # the rows that the solution was found on
    direct: Solution | None = None  # the solution without answers; the same unless it is a cascade


def with_price_heads(
    fitted: Fitted,
    task: Task,
    folds: Sequence[tuple[IntArray, IntArray]],
    target: Target | None = None,
    calibration: Task | None = None,
    n_jobs: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    cascades: FittedCascades | None = None,
) -> PricedFit:
    """Add separate heads for error and price to a router that was fitted on a task.

    Without a target the router decides as before, under other prices by the heads; where the task has no
    prices, nothing is added. With a target it decides as the solution says. A target with a guarantee
    needs a ``calibration`` task, whose rows are used for nothing else. With ``cascades`` the solution may
    be one of them; the router then decides as the solution without answers, with a guarantee the reference.
    """
    names = task.table.expert_names
    notes: dict[str, Any]
    if target is None:
        if not can_trade(task, folds):
            return PricedFit(fitted, {})
        tradeoff = fit_tradeoff(task, fitted, folds, n_jobs)
        policy: Policy = TradeoffPolicy(source_of(fitted.model).policy, tradeoff.policy)
        notes = {"price_head": "dollars", **_curve_notes(tradeoff.held, names)}
        return PricedFit(_with_policy(fitted, policy, task), notes)
    tradeoff = fit_tradeoff(task, fitted, folds, n_jobs)
    rows = held = replace(tradeoff.held, cascades=None if cascades is None else cascades.held)
    if calibration is None:
        solution = direct = solve(target, held, names, confidence, seed)
        if solution.cascade:
            direct = solve(target, tradeoff.held, names, confidence, seed)
    else:
        rows = _calibration_rows(tradeoff, calibration, fitted, cascades)
        solution = direct = certify_loss(target, held, rows, names, confidence, seed)
        if solution.cascade:
            direct = replace(solution, t=None, expert=solution.best_expert, cascade=False)
    # The price weight of a cascade is no trade-off of the heads.
    own = {"t": None} if solution.cascade else {}
    notes = {"target": {**solution.as_dict(), **own}, **_curve_notes(tradeoff.held, names)}
    notes["price_head"] = "dollars"
    policy = tradeoff.decide_as(direct, names)
    # The calibration is that of the router that was found, and the heads decide.
    fitted = _with_policy(replace(fitted, calibration=None), policy, task)
    return PricedFit(fitted, notes, solution, rows, direct)


def _curve_notes(held: HeldOut, names: Sequence[str]) -> dict[str, Any]:
    """What the trade-offs do, to choose a target later; empty if no two queries are fully known."""
    try:
        return {"tradeoffs": measure(held.comparable()).curve.as_dict(names)}
    except InvalidInputError:
        return {}


def _calibration_rows(
    tradeoff: Tradeoff, task: Task, fitted: Fitted, cascades: FittedCascades | None
) -> HeldOut:
    X = table_features(task.table, fitted.step)
    heads, table = tradeoff.policy, task.table
    estimates = heads.expected_errors(X), heads.expected_prices(X)
    own = None if cascades is None else cascades.of(task, X)
    return HeldOut(
        *estimates,
        table.scores,
        traded_prices(task),
        task.groups,
        cascades=own,
        ranks=tradeoff.held.ranks,
    )


def _with_policy(fitted: Fitted, policy: Policy, task: Task) -> Fitted:
    """The same with another policy, and with what experts err and cost on average, apart."""
    novelty, table = fitted.novelty, task.table
    if novelty is not None and table.prices is not None:
        priced = ~np.isnan(table.prices).all(axis=1)
        means = [mean_costs(1 - table.scores), mean_costs(table.prices[priced])]
        novelty = replace(novelty, means=np.stack(means).astype(novelty.means.dtype))
    model = replace(source_of(fitted.model), policy=policy)
    return replace(fitted, model=model, novelty=novelty)
