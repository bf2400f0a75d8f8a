"""The numbers of a report's sections: frontier, groups, calibration and regrets of a routing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
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
from mild.metrics import TargetVerdict
from mild.metrics.curves import prices_unused
from mild.metrics.outcomes import Outcomes, mean_known
from mild.money import amount
from mild.report.charts import AXES

Point = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class RoutedRows:
    """Rows with known outcomes and a router's choices on them."""

    expert_names: list[str]  # names of the experts, in the router's order
    outcomes: Outcomes
    chosen: (
        IntArray  # (n_samples,) the router's choices; of a cascade, the column behind the experts'
    )
    # (n_samples, n_experts) its estimate of each expert's share of the reward, or None
    probabilities: FloatArray | None = None
    queries: list[str] | None = None  # texts, or None
    numbers: IntArray | None = (
        None  # (n_samples,) row numbers in the file, from 0; None for 0 to n - 1
    )

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
        return asking if np.nan_to_num(asking).any() else None

    def take(self, rows: BoolArray) -> RoutedRows:
        """The rows of a mask."""
        shares, texts = self.probabilities, self.queries
        return RoutedRows(
            self.expert_names,
            self.outcomes.take(rows),
            self.chosen[rows],
            None if shares is None else shares[rows],
            None if texts is None else [texts[i] for i in np.flatnonzero(rows)],
            np.flatnonzero(rows) if self.numbers is None else self.numbers[rows],
        )

    def least(self, values: FloatArray) -> IntArray:
        """Expert (n_samples,) of the least of values (n_samples, n_experts)."""
        return cheapest_expected(values, self.outcomes.ranks)

    def means(self, chosen: IntArray) -> dict[str, Any]:
        """Mean cost, quality, dollars per 1,000 rows, seconds and asking cost of these choices."""

        found, asking = self.outcomes.means(chosen), self.asking
        return {
            "cost": found["loss"],
            "quality": found["accuracy"],
            "dollars": found["dollars_per_1000"],
            "seconds": found["seconds"],
            "asking": None
            if asking is None
            else mean_known(asking[np.arange(len(chosen)), chosen]),
            "shares": metrics.expert_shares(
                self.outcomes.answering(chosen), len(self.expert_names)
            ).tolist(),
        }


# Frontier: price against quality.

# Price weights to try. Dollars: multiples of one wrong answer over the price of the most expensive
# expert. Asking costs: multiples of the asking cost.
DOLLAR_STEPS = 10.0 ** np.linspace(-2.5, 2.5, 26)
ASKING_STEPS = 10.0 ** np.linspace(-1.0, 1.0, 21)


def frontier(
    rows: RoutedRows,
    sweep: Sequence[tuple[str, IntArray]] = (),
    methods: Sequence[Point] = (),
    target: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Points of price and quality, which of them no other point beats in both, and the router's target."""
    keys = ("cost", "quality", "dollars", "seconds", "asking", "shares")
    found: list[tuple[str, str, Point]] = [
        ("constant", name, rows.means(np.full(len(rows.costs), k)))
        for k, name in enumerate(rows.expert_names)
    ]
    found += [("operating", name, rows.means(chosen)) for name, chosen in sweep]
    found += [("method", str(method["name"]), method) for method in methods]
    found.append(("router", "router", rows.means(rows.chosen)))
    found.append(("oracle", "oracle", rows.means(rows.outcomes.oracle())))
    points: list[dict[str, Any]] = [
        {"kind": kind, "name": name, **{key: means.get(key) for key in keys}}
        for kind, name, means in found
    ]
    axis = _axis(points)
    best = efficient(points, axis)
    for number, point in enumerate(points):
        point["efficient"] = number in best
    return {
        "axis": axis,
        "label": None if axis is None else AXES[axis],
        "points": points,
        "mixtures": mixtures(points, axis),
        "target": target,
    }


def operating_points(
    router: Any, X: Any, rows: RoutedRows, cost: Mapping[str, Any], name: str = "router"
) -> list[tuple[str, IntArray]]:
    """The router's choices at other price weights, each with its name, if it can compute them.

    A router with a price head decides again by itself. For one that knows expected costs, the mean
    price of each expert is added at the new weight minus the weight of the fit. Prices are dollars if
    the cost has no other asking term, and asking costs otherwise.
    """
    rows = replace(rows, outcomes=rows.outcomes.experts)
    mixed = any((cost.get("beta") or {}).values()) or bool(cost.get("latency_weight"))
    if rows.outcomes.prices is not None and not mixed:
        values, fitted = rows.outcomes.prices, float(cost.get("price_weight") or 0.0)
        label = "a dollar counts as {} wrong answers"
    elif rows.asking is not None:
        values, fitted, label = rows.asking, 1.0, "asking costs {} times as much"
    else:
        return []
    prices = np.array([mean_known(column) for column in values.T], dtype=np.float64)
    if np.isnan(prices).any() or not prices.any():
        return []
    steps = DOLLAR_STEPS / prices.max() if values is rows.outcomes.prices else ASKING_STEPS
    weights = [0.0, *steps.tolist()]
    try:
        choices = [router.with_prices(price_weight=weight).predict(X) for weight in weights]
    except UnsupportedError:
        try:
            expected = router.policy.expected_costs(X)  # as the router decides, without limits
        except UnsupportedError:
            return []
        choices = [rows.least(expected + (weight - fitted) * prices) for weight in weights]
    points: list[tuple[str, IntArray]] = []
    known = [rows.chosen]
    for weight, chosen in zip(weights, choices, strict=True):
        if not any(np.array_equal(chosen, other) for other in known):
            number = f"{weight:,.0f}" if weight >= 100 else f"{weight:.3g}"
            points.append((f"{name}, {label.format(number)}", chosen))
            known.append(chosen)
    return points


def target_limits(solved: TargetInfo | None, judged: TargetVerdict | None) -> dict[str, Any] | None:
    """What the target of a router asks for on these rows; None if the router has no target.

    Limits that are relative to the best expert, as it was found when the router was tuned, are those of
    this expert on these rows. ``kept`` says whether the verdict ``judged`` finds the target met; it is None
    where the rows do not say.
    """
    if solved is None or judged is None:
        return None
    target = Target(**solved.target)
    least, most = target.limits(judged.reference_quality)
    limits = {"quality": least or None, "dollars": most if math.isfinite(most) else None}
    return {
        "words": target.words,
        "sentence": solved.sentence,
        "guarantee": solved.guarantee,
        "certified": solved.certified,
        **limits,
        "kept": judged.met,
    }


def unused_prices(found: Mapping[str, Any], cost: Mapping[str, Any]) -> str | None:
    """What the frontier saves at the router's quality, if the loss leaves dollars out; None otherwise."""
    points = [p for p in found["points"] if None not in (p["quality"], p["dollars"])]
    own = next((point for point in points if point["kind"] == "router"), None)
    if cost.get("price_weight") or own is None or not any(point["dollars"] for point in points):
        return None
    good = [
        point
        for point in points
        if point["kind"] in ("constant", "operating") and point["quality"] >= own["quality"] - 1e-9
    ]
    best = own
    if good:
        dollars = tie_ranks([point["dollars"] for point in good])
        quality = tie_ranks([-point["quality"] for point in good])
        best = good[int(np.lexsort((quality, dollars))[0])]
    if not is_less(best["dollars"], own["dollars"]):
        return prices_unused(
            "No other point of the frontier has the router's quality for fewer dollars."
        )
    name = f"always {best['name']}" if best["kind"] == "constant" else best["name"]
    saved = 1 - best["dollars"] / own["dollars"]
    return prices_unused(
        f"On these rows, the router costs ${amount(own['dollars'])} per 1,000 queries. Its quality, or a "
        f"higher one, costs ${amount(best['dollars'])} ({100 * saved:.0f} % less) with: {name}."
    )


def efficient(points: Sequence[Point], axis: str | None) -> list[int]:
    """Numbers of the constants and router points that no other is both no dearer and no worse than.

    They are in the order of rising price; of equal points the first counts.
    """
    found: list[int] = []
    for number in _by_price(points, axis, {"constant", "operating", "router"}):
        if not found or points[number]["quality"] > points[found[-1]]["quality"]:
            found.append(number)
    return found


def mixtures(points: Sequence[Point], axis: str | None) -> list[int]:
    """Numbers of the constants on the upper hull, between which choosing at random is a straight line."""

    if axis is None:
        return []

    def turns_down(*corners: int) -> bool:
        (xa, ya), (xb, yb), (xc, yc) = ((points[i][axis], points[i]["quality"]) for i in corners)
        return bool((yb - ya) * (xc - xb) > (yc - yb) * (xb - xa))

    hull: list[int] = []
    for number in _by_price(points, axis, {"constant"}):
        if hull and points[number]["quality"] <= points[hull[-1]]["quality"]:
            continue
        while len(hull) >= 2 and not turns_down(hull[-2], hull[-1], number):
            hull.pop()
        hull.append(number)
    return hull


def _by_price(points: Sequence[Point], axis: str | None, kinds: set[str]) -> list[int]:
    """Numbers of the points of these kinds with both coordinates, cheap and good ones first."""
    if axis is None:
        return []
    at = [(point[axis], point["quality"]) for point in points]
    known = [i for i, p in enumerate(points) if p["kind"] in kinds and None not in at[i]]
    return sorted(known, key=lambda i: (at[i][0], -at[i][1], points[i].get("name", "")))


def _axis(points: Sequence[Point]) -> str | None:
    """First axis on which every constant has a value, and not all the same one."""
    constants = [point for point in points if point["kind"] == "constant"]
    for key in AXES:
        values = [point[key] for point in constants if point["quality"] is not None]
        if values and None not in values and max(values) > min(values):
            return key
    return None


def method_points(
    comparison: Mapping[str, Any] | None, names: Sequence[str]
) -> list[dict[str, Any]]:
    """Methods of a comparison of the same experts as points of the frontier, if their quality is known.

    The best constant is left out, because the constants are points already.
    """
    if comparison is None or sorted(comparison["experts"]) != sorted(names):
        return []
    order = [comparison["experts"].index(name) for name in names]
    return [
        {
            "name": row["label"],
            "cost": row["mean_cost"],
            "quality": row["accuracy"],
            "dollars": None if row["price"] is None else 1000 * row["price"],
            "seconds": row["latency"],
            "asking": row["mean_cost"] - (1 - row["accuracy"]),
            "shares": [row["shares"][k] for k in order],
        }
        for row in comparison["methods"][1:]
        if row.get("accuracy") is not None
    ]


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
    """The first usual column of subjects that has at least two and not too many values, or None."""
    for name in SUBJECT_COLUMNS:
        if name in columns.column_names:
            values = len(columns[name].unique())
            if 2 <= values <= min(MAX_GROUP_VALUES, max(2, columns.num_rows // 2)):
                return name
    return None


def groups(
    rows: RoutedRows, column: str, values: Sequence[Any], constant: int, confidence: float
) -> dict[str, Any]:
    """Cost of the router minus cost of the constant in each group, largest gain first.

    Groups with fewer than 20 known costs are merged, and so are all but the 24 largest. The intervals
    hold for all groups at once: each has level ``confidence ** (1 / groups)``. Within a group, equal
    queries count once.
    """
    labels = np.array(["unknown" if value is None else str(value) for value in values])
    both = np.column_stack([metrics.chosen_costs(rows.costs, rows.chosen), rows.costs[:, constant]])
    names, place = np.unique(labels, return_inverse=True)
    known = ~np.isnan(both)
    sizes = np.array([known[place == g].sum(axis=0).min() for g in range(len(names))])
    order = np.argsort(-sizes, kind="stable")
    own = [int(g) for g in order if sizes[g] >= MIN_GROUP_ROWS]
    # One group too many is better shown than merged alone.
    own = own if len(own) <= MAX_GROUPS + 1 else own[:MAX_GROUPS]
    rest = [g for g in range(len(names)) if g not in own]
    parts = [(str(names[g]), np.flatnonzero(place == g)) for g in own]
    left = np.flatnonzero(np.isin(place, rest))
    merged = len(rest)
    if merged and known[left].sum(axis=0).min() >= 2:
        name = str(names[rest[0]]) if merged == 1 else f"{merged} smaller groups"
        parts.append((name, left))
    each = confidence ** (1 / max(1, len(parts)))
    found = [_group(rows, name, index, both[index], each) for name, index in parts]
    found.sort(key=lambda row: float(row["estimate"]))
    return {
        "column": column,
        "merged": merged if merged > 1 else 0,
        "confidence": confidence,
        "rows": found,
    }


def _group(
    rows: RoutedRows, name: str, index: IntArray, both: FloatArray, confidence: float
) -> dict[str, Any]:
    level = metrics.linearised_rows(both)
    difference: FloatArray = level[:, :1] - level[:, 1:]
    equal = None
    if rows.queries is not None:
        equal = [duplicate_groups([rows.queries[i] for i in index])]
    estimate, low, high = metrics.difference_intervals([difference], equal, confidence).row(0)
    asked = np.bincount(rows.answering[index], minlength=len(rows.expert_names))
    return {
        "name": name,
        "rows": len(index),
        "estimate": estimate,
        "low": low,
        "high": high,
        "router": float(level[:, 0].mean()),
        "constant": float(level[:, 1].mean()),
        "expert": rows.expert_names[rows.outcomes.take(index).best_constant()],
        "asked": rows.expert_names[int(rows.outcomes.least(-asked[None].astype(float))[0])],
        "share": float(asked.max() / len(index)),
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
    """Reliability of each expert's probability; None if the router has no probabilities.

    The probability of expert k estimates ``E[reward_k | x] / E[sum_j reward_j | x]``. In ten bins of the
    predicted probability, of about as many rows each, it is compared with

        ``sum_i reward_ik / sum_i C_i``, ``C_i = sum_j reward_ij``

    over the rows of the bin. The prediction of a bin is the mean weighted by ``C_i``; the interval is that
    of a ratio of means. If an expert was not asked, its probability is divided among the others. Rows
    without any reward are left out.
    """
    if rows.probabilities is None:
        return None
    check_option("form", form, FORMS)
    reward = _rewards(rows.outcomes, form, scale, strength)
    total = reward.sum(axis=1)
    asked = ~np.isnan(rows.costs)
    predicted = np.where(asked, rows.probabilities, 0)
    mass = predicted.sum(axis=1)
    use = (total > 0) & (mass > 0)
    if not use.any():
        return None
    predicted /= np.where(use, mass, 1)[:, None]
    labels = np.arange(len(rows.costs)) if groups is None else groups
    experts = []
    for k in range(len(rows.expert_names)):
        mask = use & asked[:, k]
        experts.append(
            _curve(predicted[mask, k], reward[mask, k], total[mask], labels[mask], confidence)
        )
    return {"form": form, "rows": int(use.sum()), "confidence": confidence, "experts": experts}


class RewardForm(NamedTuple):
    """What probabilities are shares of."""

    form: str  # one of FORMS
    scale: float | None  # of complement rewards; None for that of the rows
    strength: float  # of baseline rewards


def reward_form(estimator: EstimatorInfo | None) -> RewardForm:
    """What a saved router's probabilities are shares of; scale and strength of its rewards."""
    params = _reward_parameters(estimator)
    loss = params.get("loss", "mild")
    scale = params.get("cost_scale")
    if isinstance(scale, (int, float)):
        scale = float(scale)
    else:
        scale = None
    if loss == "tdef":
        return RewardForm("complement", scale, 0.5)
    if loss != "mild":
        return RewardForm("cheapest", None, 0.5)
    form = params.get("rewards", "others")
    if form not in ALL_REWARDS:
        form = "others"
    return RewardForm(form, scale, float(params.get("strength", 0.5)))


def _reward_parameters(estimator: EstimatorInfo | None) -> dict[str, Any]:
    """The parameters of the router that decides: of a search, those of the family that it chose."""
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


def _rewards(outcomes: Outcomes, form: str, scale: float | None, strength: float) -> FloatArray:
    costs = outcomes.costs
    result = np.zeros_like(costs)
    if form == "cheapest":
        # As the labels of a fit: where costs tie, the expert that is best on average.
        result[np.arange(len(costs)), outcomes.least(costs)] = 1
        return result
    # ``rewards`` refuses a column without a single cost; its expert has no curve here.
    known = ~np.isnan(costs).all(axis=0)
    largest = max(scale, float(np.nanmax(costs))) if scale is not None else None
    result[:, known] = rewards(costs[:, known], form, largest, strength)
    return result


def _curve(
    predicted: FloatArray,
    reward: FloatArray,
    total: FloatArray,
    groups: IntArray,
    confidence: float,
) -> dict[str, Any]:
    n = len(predicted)
    if n == 0:
        return {"bins": [], "error": None, "counts": [], "range": None}
    wanted = max(1, min(BINS, n // MIN_BIN_ROWS))
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, wanted + 1)[1:-1]))
    place = np.searchsorted(edges, predicted, side="right")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    bins = [
        _bin(predicted[place == b], reward[place == b], total[place == b], groups[place == b], z)
        for b in np.unique(place)
    ]
    low, high = float(predicted.min()), float(predicted.max())
    counts, _ = np.histogram(predicted, HISTOGRAM_BARS, (low, high if high > low else low + 1e-9))
    gaps = [one["rows"] * abs(one["predicted"] - one["realised"]) for one in bins]
    return {"bins": bins, "error": sum(gaps) / n, "counts": counts.tolist(), "range": [low, high]}


def _bin(
    predicted: FloatArray, reward: FloatArray, total: FloatArray, groups: IntArray, z: float
) -> dict[str, Any]:
    mass = float(total.sum())
    realised = float(reward.sum()) / mass
    # Rows of a group may err together: their residuals are added before they are squared.
    residual = np.bincount(np.unique(groups, return_inverse=True)[1], reward - realised * total)
    n = len(residual)
    low = high = None
    if n > 1:
        error = math.sqrt(float(residual @ residual) * n / (n - 1)) / mass
        low, high = max(0.0, realised - z * error), min(1.0, realised + z * error)
    return {
        "predicted": float(predicted @ total) / mass,
        "realised": realised,
        "low": low,
        "high": high,
        "rows": len(predicted),
    }


# Regrets: the choices that cost most more than the cheapest expert.

# Characters of a query that are shown, and that can be unfolded.
SHORT_TEXT = 140
LONG_TEXT = 1200
MAX_PAIRS = 5
# A prefix that all texts share is left out from this length on.
MIN_PREFIX = 16


def regrets(rows: RoutedRows, most: int, labels: Sequence[Any] | None = None) -> dict[str, Any]:
    """The choices with the largest regret, and the pairs of experts with the largest total regret.

    The regret of a row is the cost of the router's choice minus the least cost of the row. Among equal
    regrets, rows come first in which the router preferred its choice to the best one most clearly. A
    text that is in several rows is shown once.
    """
    names, chosen, shares = rows.expert_names, rows.answering, rows.probabilities
    paid = metrics.chosen_costs(rows.costs, rows.chosen)
    best = rows.outcomes.oracle()
    regret = np.nan_to_num(paid - np.nanmin(rows.costs, axis=1))
    # Costs are sums of decimals: less than this is rounding.
    regret[regret < 1e-9] = 0
    known = max(1, int((~np.isnan(paid)).sum()))
    every = np.arange(len(regret))
    preference = np.zeros(len(regret))
    if shares is not None:
        preference = shares[every, chosen] - shares[every, best]
    order = np.lexsort((-preference, -np.round(regret, 9)))
    prefix = shared_prefix(rows.queries or [])
    worst: list[dict[str, Any]] = []
    seen: set[str] = set()
    for i in order[: most * 20]:
        text = "" if rows.queries is None else rows.queries[i].strip()
        if len(worst) == most or regret[i] <= 0:
            break
        if text and text in seen:
            continue
        seen.add(text)
        worst.append(
            {
                "row": int(i),
                "row_number": 1 + int(i if rows.numbers is None else rows.numbers[i]),
                **_shortened(text, prefix),
                "chosen": names[chosen[i]],
                "best": names[best[i]],
                "paid": float(paid[i]),
                "least": float(rows.costs[i, best[i]]),
                "regret": float(regret[i]),
                "gave": None
                if shares is None
                else [float(shares[i, chosen[i]]), float(shares[i, best[i]])],
                "group": None
                if labels is None or labels[i] is None
                else str(labels[i])[:SHORT_TEXT],
            }
        )
    total, p = float(regret.sum()), len(names)
    lost = np.bincount(chosen * p + best, regret, minlength=p * p)
    count = np.bincount((chosen * p + best)[regret > 0], minlength=p * p)
    # Pairs that lost as much are in the order of their names.
    by_name = np.argsort(np.argsort(names, kind="stable"))
    pairs = np.lexsort((np.tile(by_name, p), np.repeat(by_name, p), -lost.round(9)))
    return {
        "regretted": float((regret > 0).sum() / known),
        "mean": total / known,
        "pairs": [
            {
                "chosen": names[int(pair) // p],
                "best": names[int(pair) % p],
                "rows": int(count[pair]),
                "share": float(lost[pair] / total),
            }
            for pair in pairs[:MAX_PAIRS]
            if lost[pair] > 0
        ],
        "rows": worst,
    }


def shared_prefix(texts: Sequence[str]) -> int:
    """Length of the prefix of whole words that all texts share, such as an instruction; 0 if short."""
    if len(texts) < 2:
        return 0
    # The first and the last in alphabetical order differ earliest.
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(min(texts), max(texts), strict=False))
    end = max((place + 1 for place, (letter, _) in enumerate(pairs) if letter.isspace()), default=0)
    return end if end >= MIN_PREFIX else 0


def _shortened(text: str, prefix: int) -> dict[str, str | None]:
    """A text on one line without the shared prefix, and a longer version if something is missing."""
    own = text[prefix:] if len(text) > prefix else text
    line = " ".join(own[: 4 * SHORT_TEXT].split())
    if len(text) <= SHORT_TEXT and line == text:
        return {"text": line, "more": None}
    short = line if len(line) <= SHORT_TEXT else line[: SHORT_TEXT - 1].rstrip() + "…"
    more = text if len(text) <= LONG_TEXT else text[:LONG_TEXT] + f"… ({len(text):,} characters)"
    return {"text": short, "more": more}
