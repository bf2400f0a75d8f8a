"""Compute the numbers of a report's sections: frontier, groups, calibration and regrets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from mild import metrics
from mild.artifact.info import EstimatorInfo, TargetInfo
from mild.artifact.targets import Target
from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.costs import ALL_REWARDS, cheapest_expected, rewards
from mild.core.rounding import is_less, tie_ranks
from mild.data import duplicate_groups
from mild.errors import UnsupportedError, check_option
from mild.evaluation.figures import mean_columns
from mild.metrics import TargetVerdict
from mild.metrics.curves import prices_unused
from mild.metrics.results import Results, mean_known
from mild.money import amount
from mild.report.charts import AXES

Point = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class RoutedRows:
    """Rows with known outcomes and a router's choices on them."""

    expert_names: list[str]  # names of the experts, in the router's order
    outcomes: Results
    # (n_samples,) the router's choices; for a cascade, the column after those of the experts
    chosen: IntArray
    # (n_samples, n_experts) its estimate of each expert's share of the reward, or None
    probabilities: FloatArray | None = None
    queries: list[str] | None = None  # texts, or None
    # (n_samples,) row numbers in the file, from 0; None for 0 to n - 1
    numbers: IntArray | None = None

    @property
    def costs(self) -> FloatArray:
        """Costs (n_samples, n_experts), NaN where an expert was not asked."""
        return self.outcomes.costs

    @property
    def answering(self) -> IntArray:
        """Expert (n_samples,) whose answer is given."""
        return self.outcomes.answering(self.chosen)

    @property
    def asking(self) -> FloatArray | None:
        """The cost without the error, (n_samples, n_experts); None if it is 0 everywhere."""
        if self.outcomes.scores is None:
            return None
        # Rounded, or 1.6 - 1 and 0.6 would differ.
        asking: FloatArray = np.round(self.costs - (1 - self.outcomes.scores), 12)
        if not np.nan_to_num(asking).any():
            return None
        return asking

    @property
    def file_rows(self) -> IntArray:
        """Row numbers (n_samples,) in the file, from 0."""
        if self.numbers is None:
            return np.arange(len(self.chosen))
        return self.numbers

    def take(self, rows: BoolArray) -> RoutedRows:
        """The rows of a mask."""
        probabilities = self.probabilities
        if probabilities is not None:
            probabilities = probabilities[rows]
        queries = self.queries
        if queries is not None:
            queries = [queries[number] for number in np.flatnonzero(rows)]
        return RoutedRows(
            self.expert_names,
            self.outcomes.take(rows),
            self.chosen[rows],
            probabilities,
            queries,
            self.file_rows[rows],
        )

    def least(self, values: FloatArray) -> IntArray:
        """Expert (n_samples,) of the least of values (n_samples, n_experts)."""
        return cheapest_expected(values, self.outcomes.ranks)

    def means(self, chosen: IntArray) -> dict[str, Any]:
        """Mean cost, quality, dollars per 1,000 rows, seconds and asking cost of these choices."""
        means = self.outcomes.means(chosen)
        asking = self.asking
        mean_asking = None
        if asking is not None:
            mean_asking = mean_known(asking[np.arange(len(chosen)), chosen])
        shares = metrics.expert_shares(self.outcomes.answering(chosen), len(self.expert_names))
        return {
            "cost": means["loss"],
            "quality": means["accuracy"],
            "dollars": means["dollars_per_1000"],
            "seconds": means["seconds"],
            "asking": mean_asking,
            "shares": shares.tolist(),
        }


# Frontier: price against quality.

# Price weights to try. Dollars: multiples of one wrong answer over the price of the most expensive
# expert. Asking costs: multiples of the asking cost.
DOLLAR_STEPS = 10.0 ** np.linspace(-2.5, 2.5, 26)
ASKING_STEPS = 10.0 ** np.linspace(-1.0, 1.0, 21)


class SweepPoint(NamedTuple):
    """The choices of a router at one of several price weights."""

    name: str
    chosen: IntArray  # (n_samples,)


def frontier(
    rows: RoutedRows,
    sweep: Sequence[SweepPoint] = (),
    target: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return points of price and quality, marked if no other one beats them in both, and the target."""
    points = _points(rows, sweep)
    axis = _axis(points)
    label = None
    if axis is not None:
        label = AXES[axis]
    efficient_numbers = efficient(points, axis)
    marked_points = []
    for number, point in enumerate(points):
        marked_points.append({**point, "efficient": number in efficient_numbers})
    return {
        "axis": axis,
        "label": label,
        "points": marked_points,
        "mixtures": mixtures(points, axis),
        "target": target,
    }


def _points(rows: RoutedRows, sweep: Sequence[SweepPoint]) -> list[dict[str, Any]]:
    """Return a point for each expert, other price weights, the router and perfect choice."""
    points = []
    for expert, name in enumerate(rows.expert_names):
        points.append(_point("constant", name, rows.means(np.full(len(rows.costs), expert))))
    for name, chosen in sweep:
        points.append(_point("operating", name, rows.means(chosen)))
    points.append(_point("router", "router", rows.means(rows.chosen)))
    points.append(_point("oracle", "oracle", rows.means(rows.outcomes.oracle())))
    return points


def _point(kind: str, name: str, means: Point) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "cost": means.get("cost"),
        "quality": means.get("quality"),
        "dollars": means.get("dollars"),
        "seconds": means.get("seconds"),
        "asking": means.get("asking"),
        "shares": means.get("shares"),
    }


@dataclass(frozen=True, eq=False)
class PriceWeights:
    """Weights of the experts' prices that are tried."""

    prices: FloatArray  # (n_experts,) mean price of each expert
    fitted_weight: float  # how much a price counts in the cost of the fit
    weights: list[float]
    words: str  # what a weight means, with a place for it

    def name(self, router_name: str, weight: float) -> str:
        """Return the name of the router at a weight."""
        number = f"{weight:,.0f}" if weight >= 100 else f"{weight:.3g}"
        return f"{router_name}, {self.words.format(number)}"


def operating_points(
    router: Any, X: Any, rows: RoutedRows, cost: Mapping[str, Any], name: str = "router"
) -> list[SweepPoint]:
    """Return a router's choices at other price weights, each with its name, if it can compute them.

    A router with a price head decides again by itself. For one that knows expected costs, the mean
    price of each expert is added at the new weight minus the weight of the fit. Prices are dollars if
    the cost has no other asking term, and asking costs otherwise.
    """
    rows = replace(rows, outcomes=rows.outcomes.experts)
    price_weights = _price_weights(rows, cost)
    if price_weights is None:
        return []
    choices = _choices_at(router, X, rows, price_weights)
    points: list[SweepPoint] = []
    different_choices = [rows.chosen]
    for weight, chosen in zip(price_weights.weights, choices, strict=False):
        if any(np.array_equal(chosen, other) for other in different_choices):
            continue
        points.append(SweepPoint(price_weights.name(name, weight), chosen))
        different_choices.append(chosen)
    return points


def _price_weights(rows: RoutedRows, cost: Mapping[str, Any]) -> PriceWeights | None:
    """Return weights of dollars, or of asking costs if other terms count; None without prices."""
    has_other_terms = any((cost.get("beta") or {}).values()) or bool(cost.get("latency_weight"))
    dollars = rows.outcomes.prices
    if dollars is not None and not has_other_terms:
        prices = mean_columns(dollars)
        steps = DOLLAR_STEPS
        fitted_weight = float(cost.get("price_weight") or 0.0)
        words = "a dollar counts as {} wrong answers"
    elif rows.asking is not None:
        prices = mean_columns(rows.asking)
        steps = ASKING_STEPS
        fitted_weight = 1.0
        words = "asking costs {} times as much"
    else:
        return None
    if np.isnan(prices).any() or not prices.any():
        return None
    if steps is DOLLAR_STEPS:
        steps = DOLLAR_STEPS / prices.max()
    return PriceWeights(prices, fitted_weight, [0.0, *steps.tolist()], words)


def _choices_at(
    router: Any, X: Any, rows: RoutedRows, price_weights: PriceWeights
) -> list[IntArray]:
    """Return the router's choices at each of the weights; none if it cannot compute them."""
    try:
        return _repriced_choices(router, X, price_weights.weights)
    except UnsupportedError:
        pass
    try:
        # As the router decides, without limits.
        expected = router.policy.expected_costs(router.own_columns(X))
    except UnsupportedError:
        return []
    choices = []
    for weight in price_weights.weights:
        added = (weight - price_weights.fitted_weight) * price_weights.prices
        choices.append(rows.least(expected + added))
    return choices


def _repriced_choices(router: Any, X: Any, weights: Sequence[float]) -> list[IntArray]:
    """Return the choices of a router with a price head at each of the weights."""
    choices = []
    for weight in weights:
        # Of the policy, because these prices may be another unit than dollars.
        repriced = replace(router, policy=router.policy.with_prices(price_weight=weight))
        choices.append(repriced.policy.predict(repriced.own_columns(X)))
    return choices


def target_limits(
    solved: TargetInfo | None, verdict: TargetVerdict | None
) -> dict[str, Any] | None:
    """Return the limits of a router's target on these rows; None if the router has no target.

    Limits that are relative to the best expert, as it was found when the router was tuned, are those of
    this expert on these rows. ``kept`` says whether the verdict finds the target met; it is None where the
    rows do not say.
    """
    if solved is None or verdict is None:
        return None
    target = Target(**solved.target)
    least_quality, most_dollars = target.limits(verdict.reference_quality)
    dollars = None
    if math.isfinite(most_dollars):
        dollars = most_dollars
    return {
        "words": target.words,
        "sentence": solved.sentence,
        "guarantee": solved.guarantee,
        "certified": solved.certified,
        "quality": least_quality or None,
        "dollars": dollars,
        "kept": verdict.met,
    }


def unused_prices(content: Mapping[str, Any], cost: Mapping[str, Any]) -> str | None:
    """Return what the frontier saves at the router's quality; None if the loss counts dollars."""
    if cost.get("price_weight"):
        return None
    points = []
    router = None
    for point in content["points"]:
        if point["quality"] is None or point["dollars"] is None:
            continue
        points.append(point)
        if point["kind"] == "router":
            router = point
    if router is None or not any(point["dollars"] for point in points):
        return None
    best = _cheapest_as_good(points, router)
    if not is_less(best["dollars"], router["dollars"]):
        return prices_unused(
            "No other point of the frontier has the router's quality for fewer dollars."
        )
    name = best["name"]
    if best["kind"] == "constant":
        name = f"always {name}"
    saved = 1 - best["dollars"] / router["dollars"]
    return prices_unused(
        f"On these rows, the router costs ${amount(router['dollars'])} per 1,000 queries. Its quality, or "
        f"a higher one, costs ${amount(best['dollars'])} ({100 * saved:.0f} % less) with: {name}."
    )


def _cheapest_as_good(points: Sequence[Point], router: Point) -> Point:
    """Return the cheapest point that is as good as the router; of equally cheap ones, the best."""
    as_good = []
    dollars = []
    losses = []
    for point in points:
        if point["kind"] not in ("constant", "operating"):
            continue
        if point["quality"] < router["quality"] - 1e-9:
            continue
        as_good.append(point)
        dollars.append(point["dollars"])
        losses.append(-point["quality"])
    if not as_good:
        return router
    order = np.lexsort((tie_ranks(losses), tie_ranks(dollars)))
    return as_good[int(order[0])]


def efficient(points: Sequence[Point], axis: str | None) -> list[int]:
    """Return the indices of single experts and router points that are better than all cheaper ones.

    They are in the order of rising price; of equal points, the first one counts.
    """
    numbers: list[int] = []
    for number in _by_price(points, axis, {"constant", "operating", "router"}):
        if not numbers or points[number]["quality"] > points[numbers[-1]]["quality"]:
            numbers.append(number)
    return numbers


def mixtures(points: Sequence[Point], axis: str | None) -> list[int]:
    """Return the indices of the single experts on the upper hull of price and quality.

    Choosing between two of them at random gives the points of the line between them.
    """
    if axis is None:
        return []
    hull: list[int] = []
    for number in _by_price(points, axis, {"constant"}):
        if hull and points[number]["quality"] <= points[hull[-1]]["quality"]:
            continue
        while len(hull) >= 2:
            if _turns_down(points[hull[-2]], points[hull[-1]], points[number], axis):
                break
            hull.pop()
        hull.append(number)
    return hull


def _turns_down(left: Point, middle: Point, right: Point, axis: str) -> bool:
    """Return whether the line through three points rises less after the middle one than before it."""
    rise_before = middle["quality"] - left["quality"]
    rise_after = right["quality"] - middle["quality"]
    run_before = middle[axis] - left[axis]
    run_after = right[axis] - middle[axis]
    return bool(rise_before * run_after > rise_after * run_before)


def _by_price(points: Sequence[Point], axis: str | None, kinds: set[str]) -> list[int]:
    """Return the indices of the points of these kinds with both coordinates, cheap and good ones first."""
    if axis is None:
        return []
    ordered = []
    for number, point in enumerate(points):
        if point["kind"] not in kinds or point[axis] is None or point["quality"] is None:
            continue
        ordered.append((point[axis], -point["quality"], point.get("name", ""), number))
    return [number for *_, number in sorted(ordered)]


def _axis(points: Sequence[Point]) -> str | None:
    """Return the first axis on which all single experts have values that are not all equal."""
    constants = [point for point in points if point["kind"] == "constant"]
    for key in AXES:
        values = [point[key] for point in constants if point["quality"] is not None]
        if values and None not in values and max(values) > min(values):
            return key
    return None


# Groups: where routing helps.

#: Usual names of columns that say what kind of query a row is; the first that is there is shown.
SUBJECT_COLUMNS = (
    "subject", "topic", "task", "category", "dataset", "domain", "source", "benchmark", "eval_name",
    "group",
)  # fmt: skip
MIN_GROUP_ROWS = 20
MAX_GROUPS = 24
# A column with more values than this identifies rows, not groups.
MAX_GROUP_VALUES = 500


def find_group_column(columns: Any) -> str | None:
    """Return the first usual column of subjects with at least two and not too many values, or None."""
    for name in SUBJECT_COLUMNS:
        if name in columns.column_names:
            values = len(columns[name].unique())
            if 2 <= values <= min(MAX_GROUP_VALUES, max(2, columns.num_rows // 2)):
                return name
    return None


class RowGroup(NamedTuple):
    """Rows of the same subject, or of several small ones."""

    name: str
    rows: IntArray


class RowGroups(NamedTuple):
    """The groups that a report shows."""

    groups: list[RowGroup]
    n_merged: int  # how many small ones are shown as one


def groups(
    rows: RoutedRows, column: str, values: Sequence[Any], constant: int, confidence: float
) -> dict[str, Any]:
    """Compare the costs of the router and of the best single expert by group, largest gain first.

    Groups with fewer than 20 known costs are merged, and so are all but the 24 largest. The intervals
    hold for all groups at once: each has level ``confidence ** (1 / groups)``. Within a group, equal
    queries count once.
    """
    router_costs = metrics.chosen_costs(rows.costs, rows.chosen)
    both_costs = np.column_stack([router_costs, rows.costs[:, constant]])
    shown = _shown_groups(values, ~np.isnan(both_costs))
    confidence_of_each = confidence ** (1 / max(1, len(shown.groups)))
    lines = [
        _group_line(rows, group, both_costs[group.rows], confidence_of_each)
        for group in shown.groups
    ]
    lines.sort(key=lambda line: float(line["estimate"]))
    return {"column": column, "merged": shown.n_merged, "confidence": confidence, "rows": lines}


def _shown_groups(values: Sequence[Any], is_known: BoolArray) -> RowGroups:
    """Return groups of rows by value; ``is_known`` (n, 2) is for the costs of router and constant."""
    names, label_of_row = np.unique([_group_label(value) for value in values], return_inverse=True)
    shown_labels = _shown_labels(label_of_row, is_known)
    shown_groups = [
        RowGroup(str(names[label]), np.flatnonzero(label_of_row == label)) for label in shown_labels
    ]
    small_labels = np.setdiff1d(np.arange(len(names)), shown_labels)
    if len(small_labels) == 0:
        return RowGroups(shown_groups, n_merged=0)
    n_merged = 0
    small_name = str(names[small_labels[0]])
    if len(small_labels) > 1:
        n_merged = len(small_labels)
        small_name = f"{n_merged} smaller groups"
    small_rows = np.flatnonzero(np.isin(label_of_row, small_labels))
    if is_known[small_rows].sum(axis=0).min() >= 2:
        shown_groups.append(RowGroup(small_name, small_rows))
    return RowGroups(shown_groups, n_merged)


def _group_label(value: Any) -> str:
    if value is None:
        return "unknown"
    return str(value)


def _shown_labels(label_of_row: IntArray, is_known: BoolArray) -> list[int]:
    """Return the labels with enough known costs of router and constant, the largest group first."""
    sizes = [
        int(is_known[label_of_row == label].sum(axis=0).min())
        for label in range(label_of_row.max(initial=-1) + 1)
    ]
    order = np.argsort(-np.array(sizes, dtype=np.intp), kind="stable")
    labels = [int(label) for label in order if sizes[label] >= MIN_GROUP_ROWS]
    # One group too many is better shown than merged alone.
    if len(labels) == MAX_GROUPS + 1:
        return labels
    return labels[:MAX_GROUPS]


def _group_line(
    rows: RoutedRows, group: RowGroup, both_costs: FloatArray, confidence: float
) -> dict[str, Any]:
    """Return the figures of a group, from the costs (n, 2) of router and constant in its rows."""
    level = metrics.linearised_rows(both_costs)
    difference: FloatArray = level[:, :1] - level[:, 1:]
    equal_queries = None
    if rows.queries is not None:
        equal_queries = [duplicate_groups([rows.queries[row] for row in group.rows])]
    intervals = metrics.split_intervals([difference], equal_queries, confidence)
    estimate, low, high = intervals.row(0)
    n_asked = np.bincount(rows.answering[group.rows], minlength=len(rows.expert_names))
    most_asked = int(rows.outcomes.least(-n_asked[None].astype(float))[0])
    return {
        "name": group.name,
        "rows": len(group.rows),
        "estimate": estimate,
        "low": low,
        "high": high,
        "router": float(level[:, 0].mean()),
        "constant": float(level[:, 1].mean()),
        "expert": rows.expert_names[rows.outcomes.take(group.rows).best_constant()],
        "asked": rows.expert_names[most_asked],
        "share": float(n_asked.max() / len(group.rows)),
    }


# Calibration: predicted against realised shares of the reward.

#: What the probabilities are shares of: a reward, or the chance to be the cheapest.
FORMS = (*ALL_REWARDS, "cheapest")
BINS = 10
MIN_BIN_ROWS = 20
HISTOGRAM_BARS = 24


def calibration(
    rows: RoutedRows,
    form: str,
    scale: float | None = None,
    confidence: float = 0.95,
    groups: IntArray | None = None,
    strength: float = 0.5,
) -> dict[str, Any] | None:
    """Compute reliability curves: each expert's predicted and observed share of the reward.

    With rewards ``r_ij`` of expert j in row i and ``t_i = sum_j r_ij``, the probability ``p_ik`` of expert
    k estimates ``E[r_ik | x_i] / E[t_i | x_i]``. Rows are sorted by ``p_ik`` into at most ten bins with
    roughly equal numbers of rows. In each bin, these two are compared:

        predicted share    ``sum_i t_i p_ik / sum_i t_i``
        observed share     ``sum_i r_ik / sum_i t_i``

    The interval of the observed share is that of a ratio of means. If an expert was not asked in a row,
    the probabilities of the others are rescaled to sum to 1. Rows without any reward are left out.

    Parameters
    ----------
    rows : RoutedRows
        Rows with the costs of the experts and the router's probabilities.
    form : str
        Rewards that the router was trained with, one of ``FORMS``; "cheapest" if trained on labels.
    scale : float or None, default=None
        Largest possible cost, for "complement".
    confidence : float, default=0.95
        Confidence of the intervals.
    groups : (n_samples,) array or None, default=None
        Group of each row, for rows whose errors may be correlated; None if all are independent.
    strength : float, default=0.5
        Strength of "baseline".

    Returns
    -------
    dict or None
        The bins of each expert, in "experts". None if the router has no probabilities, or if no row has a
        reward.
    """
    if rows.probabilities is None:
        return None
    check_option("form", form, FORMS)
    if groups is None:
        groups = np.arange(len(rows.costs))
    rewards = _rewards(rows.outcomes, form, scale, strength)
    total_rewards = rewards.sum(axis=1)
    is_asked = ~np.isnan(rows.costs)
    probabilities = np.where(is_asked, rows.probabilities, 0)
    probability_sums = probabilities.sum(axis=1)
    is_usable = (total_rewards > 0) & (probability_sums > 0)
    if not is_usable.any():
        return None
    probabilities /= np.where(is_usable, probability_sums, 1)[:, None]
    curves = []
    for expert in range(len(rows.expert_names)):
        expert_rewards = ExpertRewards(
            probabilities[:, expert], rewards[:, expert], total_rewards, groups
        )
        is_used = is_usable & is_asked[:, expert]
        curves.append(_curve(expert_rewards.take(is_used), confidence))
    n_rows = int(is_usable.sum())
    return {"form": form, "rows": n_rows, "confidence": confidence, "experts": curves}


class RewardForm(NamedTuple):
    """What probabilities are shares of."""

    form: str  # one of FORMS
    scale: float | None  # of complement rewards; None for that of the rows
    strength: float  # of baseline rewards


def reward_form(estimator: EstimatorInfo | None) -> RewardForm:
    """Return what a saved router's probabilities are shares of."""
    params = _reward_parameters(estimator)
    loss = params.get("loss", "mild")
    scale = params.get("cost_scale")
    scale = float(scale) if isinstance(scale, (int, float)) else None
    if loss == "tdef":
        return RewardForm("complement", scale, 0.5)
    if loss != "mild":
        return RewardForm("cheapest", None, 0.5)
    form = params.get("rewards", "others")
    if form not in ALL_REWARDS:
        form = "others"
    return RewardForm(form, scale, float(params.get("strength", 0.5)))


def _reward_parameters(estimator: EstimatorInfo | None) -> dict[str, Any]:
    """Return the parameters of the router that decides; of a search, those of the family it chose."""
    if estimator is None:
        return {}
    params = dict(estimator.params or {})
    if estimator.best_family is None:
        return params
    best_params = estimator.best_params or {}
    if estimator.best_family != "linear":
        return {**best_params}
    inner = params.get("estimator") or {}
    return {**(inner.get("params") or {}), **best_params}


def _rewards(outcomes: Results, form: str, scale: float | None, strength: float) -> FloatArray:
    costs = outcomes.costs
    result = np.zeros_like(costs)
    if form == "cheapest":
        # As the labels of a fit: where costs tie, the expert that is best on average.
        result[np.arange(len(costs)), outcomes.least(costs)] = 1
        return result
    # ``rewards`` refuses a column without a single cost; its expert has no curve here.
    known = ~np.isnan(costs).all(axis=0)
    largest = None
    if scale is not None:
        largest = max(scale, float(np.nanmax(costs)))
    result[:, known] = rewards(costs[:, known], form, largest, strength)
    return result


@dataclass(frozen=True, eq=False)
class ExpertRewards:
    """Predicted and realised rewards of one expert, each (n,)."""

    predicted: FloatArray  # the share of the reward that the router expects
    reward: FloatArray
    total: FloatArray  # reward of all experts
    groups: IntArray  # rows of one group may err together

    def take(self, rows: BoolArray) -> ExpertRewards:
        """The rows of a mask."""
        return ExpertRewards(
            self.predicted[rows], self.reward[rows], self.total[rows], self.groups[rows]
        )


def _curve(rows: ExpertRewards, confidence: float) -> dict[str, Any]:
    """Return an expert's reliability curve: bins, their mean error, and a histogram of predictions."""
    predicted = rows.predicted
    n_rows = len(predicted)
    if n_rows == 0:
        return {"bins": [], "error": None, "counts": [], "range": None}
    n_bins = max(1, min(BINS, n_rows // MIN_BIN_ROWS))
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, n_bins + 1)[1:-1]))
    bin_of_row = np.searchsorted(edges, predicted, side="right")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    bins = []
    distance = 0.0
    for number in np.unique(bin_of_row):
        content = _bin(rows.take(bin_of_row == number), z)
        bins.append(content)
        distance += content["rows"] * abs(content["predicted"] - content["realised"])
    low = float(predicted.min())
    high = float(predicted.max())
    histogram_end = high
    if high == low:
        histogram_end = low + 1e-9
    counts, _ = np.histogram(predicted, HISTOGRAM_BARS, (low, histogram_end))
    return {
        "bins": bins,
        "error": distance / n_rows,
        "counts": counts.tolist(),
        "range": [low, high],
    }


def _bin(rows: ExpertRewards, z: float) -> dict[str, Any]:
    """Return predicted and observed share of a bin, with an interval of ``z`` standard errors."""
    total = float(rows.total.sum())
    realised = float(rows.reward.sum()) / total
    # Rows of a group may err together: their residuals are added before they are squared.
    _, group_of_row = np.unique(rows.groups, return_inverse=True)
    residual = np.bincount(group_of_row, rows.reward - realised * rows.total)
    n_groups = len(residual)
    low = None
    high = None
    if n_groups > 1:
        error = math.sqrt(float(residual @ residual) * n_groups / (n_groups - 1)) / total
        low = max(0.0, realised - z * error)
        high = min(1.0, realised + z * error)
    return {
        "predicted": float(rows.predicted @ rows.total) / total,
        "realised": realised,
        "low": low,
        "high": high,
        "rows": len(rows.predicted),
    }


# Regrets: the choices that cost most more than the cheapest expert.

# Characters of a query that are shown, and that can be unfolded.
SHORT_TEXT = 140
LONG_TEXT = 1200
MAX_PAIRS = 5
# A prefix that all texts share is left out from this length on.
MIN_PREFIX = 16


@dataclass(frozen=True, eq=False)
class RowRegrets:
    """What each row cost more than necessary, all (n_samples,)."""

    chosen: IntArray  # expert whose answer was given
    best: IntArray  # expert of least cost
    paid: FloatArray  # cost of the choice, NaN where unknown
    regret: FloatArray  # minus the least cost of the row; 0 where unknown

    @classmethod
    def of(cls, rows: RoutedRows) -> RowRegrets:
        """Compute the regrets of a router's choices."""
        paid = metrics.chosen_costs(rows.costs, rows.chosen)
        regret = np.nan_to_num(paid - np.nanmin(rows.costs, axis=1))
        # Costs are sums of decimals: less than this is rounding.
        regret[regret < 1e-9] = 0
        return cls(rows.answering, rows.outcomes.oracle(), paid, regret)

    def largest_first(self, probabilities: FloatArray | None) -> IntArray:
        """Return row numbers by regret; of equal ones, the clearest preference for the choice first."""
        preference = np.zeros(len(self.regret))
        if probabilities is not None:
            numbers = np.arange(len(self.regret))
            preference = probabilities[numbers, self.chosen] - probabilities[numbers, self.best]
        return np.lexsort((-preference, -np.round(self.regret, 9)))


def regrets(rows: RoutedRows, n_shown: int, labels: Sequence[Any] | None = None) -> dict[str, Any]:
    """Return the choices with the largest regret, and the pairs of experts with the largest sum of it.

    The regret of a row is the cost of the router's choice minus the least cost of the row. Among equal
    regrets, rows come first in which the router preferred its choice to the best one most clearly. A
    text that is in several rows is shown once.
    """
    if labels is None:
        labels = [None] * len(rows.chosen)
    row_regrets = RowRegrets.of(rows)
    n_known = max(1, int((~np.isnan(row_regrets.paid)).sum()))
    return {
        "regretted": float((row_regrets.regret > 0).sum() / n_known),
        "mean": float(row_regrets.regret.sum()) / n_known,
        "pairs": _regretted_pairs(row_regrets, rows.expert_names),
        "rows": _regretted_rows(rows, row_regrets, n_shown, labels),
    }


def _regretted_rows(
    rows: RoutedRows, row_regrets: RowRegrets, n_shown: int, labels: Sequence[Any]
) -> list[dict[str, Any]]:
    """Return the rows of the largest regrets, each text once."""
    queries = rows.queries or [""] * len(rows.chosen)
    prefix = shared_prefix(rows.queries or [])
    lines: list[dict[str, Any]] = []
    seen: set[str] = set()
    for number in row_regrets.largest_first(rows.probabilities)[: n_shown * 20]:
        if len(lines) == n_shown or row_regrets.regret[number] <= 0:
            break
        text = queries[number].strip()
        if text and text in seen:
            continue
        seen.add(text)
        shortened = _shortened(text, prefix)
        lines.append(_regretted_row(rows, row_regrets, number, shortened, labels[number]))
    return lines


def _regretted_row(
    rows: RoutedRows,
    row_regrets: RowRegrets,
    number: int,
    shortened: Mapping[str, str | None],
    label: Any,
) -> dict[str, Any]:
    """Return a row for the report: its text, what was chosen, and what would have been best."""
    chosen = row_regrets.chosen[number]
    best = row_regrets.best[number]
    estimated_shares = None
    if rows.probabilities is not None:
        shares = rows.probabilities[number]
        estimated_shares = [float(shares[chosen]), float(shares[best])]
    group = None
    if label is not None:
        group = str(label)[:SHORT_TEXT]
    return {
        "row": int(number),
        "row_number": 1 + int(rows.file_rows[number]),
        **shortened,
        "chosen": rows.expert_names[chosen],
        "best": rows.expert_names[best],
        "paid": float(row_regrets.paid[number]),
        "least": float(rows.costs[number, best]),
        "regret": float(row_regrets.regret[number]),
        "gave": estimated_shares,
        "group": group,
    }


def _regretted_pairs(row_regrets: RowRegrets, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return pairs of a chosen and a better expert by their total regret, with their share of it."""
    n_experts = len(names)
    pair_of_row = row_regrets.chosen * n_experts + row_regrets.best
    n_pairs = n_experts * n_experts
    lost = np.bincount(pair_of_row, row_regrets.regret, minlength=n_pairs)
    n_rows = np.bincount(pair_of_row[row_regrets.regret > 0], minlength=n_pairs)
    total = float(row_regrets.regret.sum())
    # Pairs that lost as much are in the order of their names.
    by_name = np.argsort(np.argsort(names, kind="stable"))
    chosen_name = np.repeat(by_name, n_experts)
    best_name = np.tile(by_name, n_experts)
    pairs = []
    for pair in np.lexsort((best_name, chosen_name, -lost.round(9)))[:MAX_PAIRS]:
        if lost[pair] <= 0:
            continue
        pairs.append(
            {
                "chosen": names[int(pair) // n_experts],
                "best": names[int(pair) % n_experts],
                "rows": int(n_rows[pair]),
                "share": float(lost[pair] / total),
            }
        )
    return pairs


def shared_prefix(texts: Sequence[str]) -> int:
    """Return the length of the prefix of whole words that all texts share; 0 if it is short."""
    if len(texts) < 2:
        return 0
    # The first and the last in alphabetical order differ earliest.
    first = min(texts)
    last = max(texts)
    end = 0
    for position, letter in enumerate(first):
        if position == len(last) or letter != last[position]:
            break
        if letter.isspace():
            end = position + 1
    if end < MIN_PREFIX:
        return 0
    return end


def _shortened(text: str, prefix: int) -> dict[str, str | None]:
    """Return a text on one line without the shared prefix, and a longer version if it is cut."""
    content = text
    if len(text) > prefix:
        content = text[prefix:]
    line = " ".join(content[: 4 * SHORT_TEXT].split())
    if len(text) <= SHORT_TEXT and line == text:
        return {"text": line, "more": None}
    if len(line) > SHORT_TEXT:
        line = line[: SHORT_TEXT - 1].rstrip() + "…"
    if len(text) > LONG_TEXT:
        text = text[:LONG_TEXT] + f"… ({len(text):,} characters)"
    return {"text": line, "more": text}
