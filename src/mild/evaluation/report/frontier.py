"""Cost against quality: every constant, the oracle, the router and its operating points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.decisions import argmax_last
from mild.errors import UnsupportedError
from mild.evaluation.report.evidence import Evidence, mean_known

__all__ = ["AXES", "efficient", "frontier", "method_points", "mixtures", "operating_points"]

#: What can stand on the horizontal axis, by the first that is known, and its words.
AXES = {
    "dollars": "dollars per 1,000 queries",
    "asking": "mean cost of asking, in wrong answers",
    "seconds": "seconds per query",
}
# Weights to try: of dollars, as multiples of one wrong answer over the dearest expert's price; of what
# asking costs, as multiples of what it was.
DOLLAR_STEPS = 10.0 ** np.linspace(-2.5, 2.5, 26)
ASKING_STEPS = 10.0 ** np.linspace(-1.0, 1.0, 21)

Point = dict[str, Any]


def frontier(
    evidence: Evidence,
    sweep: Sequence[tuple[str, IntArray]] = (),
    methods: Sequence[Point] = (),
) -> dict[str, Any]:
    """Points of the frontier, and which of them nothing beats in both price and quality.

    Parameters
    ----------
    evidence : rows, with scores where quality is known
    sweep : (name, choices) of the router's other operating points
    methods : further points, with the keys of ``Evidence.means`` and a name

    Returns
    -------
    dict with ``axis`` (a key of AXES; None if nothing tells experts apart but quality), ``label``,
    ``points`` (kind, name, cost, quality, dollars, seconds, asking, shares, efficient) and
    ``mixtures`` (numbers of the constants between which dealing at random gives the best quality)
    """
    n, names = evidence.rows, evidence.expert_names
    points = [
        _point("constant", name, evidence.means(np.full(n, k))) for k, name in enumerate(names)
    ]
    points += [_point("operating", words, evidence.means(chosen)) for words, chosen in sweep]
    points += [_point("method", str(method["name"]), method) for method in methods]
    points.append(_point("router", "router", evidence.means(evidence.chosen)))
    points.append(_point("oracle", "oracle", evidence.means(np.nanargmin(evidence.costs, axis=1))))
    axis = _axis(points)
    best = efficient(points, axis)
    for number, point in enumerate(points):
        point["efficient"] = number in best
    return {
        "axis": axis,
        "label": None if axis is None else AXES[axis],
        "points": points,
        "mixtures": mixtures(points, axis),
    }


def operating_points(
    router: Any, X: Any, evidence: Evidence, cost: Mapping[str, Any]
) -> list[tuple[str, IntArray]]:
    """Choices of the router if prices weighed more or less, each with its words, where it can tell.

    A router with a price head re-decides by itself. One that knows expected costs has the mean price of
    each expert added to them, at the weight asked for minus the one it was trained with. Prices are
    dollars where nothing else makes asking cost; otherwise what asking costs in wrong answers.
    """
    found = _prices(evidence, cost)
    if found is None:
        return []
    prices, trained, steps, words = found
    weights = [0.0, *steps]
    try:
        choices = _priced_choices(router, X, weights)
    except UnsupportedError:
        try:
            expected = router.expected_costs(X)
        except (UnsupportedError, AttributeError):
            return []
        choices = [argmax_last(-(expected + (weight - trained) * prices)) for weight in weights]
    kept: list[tuple[str, IntArray]] = []
    known = [evidence.chosen]
    for weight, chosen in zip(weights, choices, strict=True):
        if not any(np.array_equal(chosen, other) for other in known):
            said = f"{weight:,.0f}" if weight >= 100 else f"{weight:.3g}"
            kept.append((f"router, {words.format(said)}", chosen))
            known.append(chosen)
    return kept


def _prices(
    evidence: Evidence, cost: Mapping[str, Any]
) -> tuple[FloatArray, float, list[float], str] | None:
    """Mean price of each expert, the weight it was trained with, others to try, and their words."""
    mixed = any((cost.get("beta") or {}).values()) or bool(cost.get("latency_weight"))
    if evidence.prices is not None and not mixed:
        means = np.array([mean_known(column) for column in evidence.prices.T], dtype=np.float64)
        if np.isnan(means).any() or not means.any():
            return None
        steps = (DOLLAR_STEPS / means.max()).tolist()
        trained = float(cost.get("price_weight") or 0.0)
        return means, trained, steps, "a dollar weighing {} wrong answers"
    if evidence.asking is None:
        return None
    means = np.array([mean_known(column) for column in evidence.asking.T], dtype=np.float64)
    if np.isnan(means).any():
        return None
    return means, 1.0, ASKING_STEPS.tolist(), "asking weighing {} times as much"


def efficient(points: Sequence[Mapping[str, Any]], axis: str | None) -> list[int]:
    """Numbers of the points that can be had and that none is both no dearer and no worse than.

    The oracle cannot be had, and methods were judged by other rows. In the order of rising price; of
    equal points the first.

    Examples
    --------
    >>> at = [(1.0, 0.5), (2.0, 0.5), (3.0, 0.9), (0.1, 1.0)]
    >>> kinds = ["constant", "constant", "router", "oracle"]
    >>> efficient([{"kind": k, "dollars": x, "quality": y} for k, (x, y) in zip(kinds, at)], "dollars")
    [0, 2]
    """
    found: list[int] = []
    for number in _had(points, axis, {"constant", "operating", "router"}):
        if not found or points[number]["quality"] > points[found[-1]]["quality"]:
            found.append(number)
    return found


def mixtures(points: Sequence[Mapping[str, Any]], axis: str | None) -> list[int]:
    """Numbers of the constants on the upper hull: dealing at random between them is a straight line.

    Examples
    --------
    >>> at = [(0.0, 0.5), (1.0, 0.6), (2.0, 0.9)]
    >>> mixtures([{"kind": "constant", "dollars": x, "quality": y} for x, y in at], "dollars")
    [0, 2]
    """
    hull: list[int] = []
    if axis is None:
        return hull
    for number in _had(points, axis, {"constant"}):
        if hull and points[number]["quality"] <= points[hull[-1]]["quality"]:
            continue
        while len(hull) >= 2 and not _turns_down(points, axis, hull[-2], hull[-1], number):
            hull.pop()
        hull.append(number)
    return hull


def _had(points: Sequence[Mapping[str, Any]], axis: str | None, kinds: set[str]) -> list[int]:
    """Numbers of the points of these kinds that have both coordinates, cheap and good ones first."""
    if axis is None:
        return []
    known = [
        number
        for number, point in enumerate(points)
        if point["kind"] in kinds and None not in (point[axis], point["quality"])
    ]
    return sorted(known, key=lambda i: (points[i][axis], -points[i]["quality"]))


def _turns_down(points: Sequence[Mapping[str, Any]], axis: str, a: int, b: int, c: int) -> bool:
    (xa, ya), (xb, yb), (xc, yc) = ((points[i][axis], points[i]["quality"]) for i in (a, b, c))
    return bool((yb - ya) * (xc - xb) > (yc - yb) * (xb - xa))


def _point(kind: str, name: str, means: Mapping[str, Any]) -> Point:
    keys = ("cost", "quality", "dollars", "seconds", "asking", "shares")
    return {"kind": kind, "name": name, **{key: means.get(key) for key in keys}}


def _axis(points: Sequence[Mapping[str, Any]]) -> str | None:
    """First axis on which every constant has a value, and not all the same one."""
    constants = [point for point in points if point["kind"] == "constant"]
    for key in AXES:
        values = [point[key] for point in constants if point["quality"] is not None]
        if values and None not in values and max(values) > min(values):
            return key
    return None


def _priced_choices(router: Any, X: Any, weights: Sequence[float]) -> list[IntArray]:
    if not hasattr(router, "with_prices"):
        raise UnsupportedError("this router knows no prices.")
    return [router.with_prices(price_weight=weight).predict(X) for weight in weights]


def method_points(
    comparison: Mapping[str, Any] | None, names: Sequence[str], cost: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Methods as points of the frontier, where quality can be had back from the cost.

    ``quality = 1 - (cost - beta . shares - price_weight * price)``; with seconds in the cost it cannot.
    The best constant is left out: the constants are there already.

    Parameters
    ----------
    comparison : ``Comparison.as_dict()``, or None
    names : experts, in the order of the shares to give
    cost : words, beta, price_weight, latency_weight

    Examples
    --------
    >>> methods = [{}, {"label": "CE", "mean_cost": 0.5, "shares": [0.5, 0.5], "price": None}]
    >>> comparison = {"experts": ["small", "large"], "methods": methods}
    >>> cost = {"words": "error + ...", "beta": {"large": 0.4}}
    >>> round(method_points(comparison, ["small", "large"], cost)[0]["quality"], 3)
    0.7
    """
    if comparison is None or cost.get("latency_weight") or "words" not in cost:
        return []
    if sorted(comparison["experts"]) != sorted(names):
        return []
    weight = cost.get("price_weight") or 0.0
    betas = dict(cost.get("beta") or {})
    points = []
    for row in comparison["methods"][1:]:
        shares = dict(zip(comparison["experts"], row["shares"], strict=True))
        price = row["price"]
        if weight and price is None:
            continue
        asking = sum(share * betas.get(name, 0.0) for name, share in shares.items())
        asking += weight * (price or 0.0)
        points.append(
            {
                "name": row["label"],
                "cost": row["mean_cost"],
                "quality": 1 - (row["mean_cost"] - asking),
                "dollars": None if price is None else 1000 * price,
                "asking": asking,
                "shares": [shares[name] for name in names],
            }
        )
    return points
