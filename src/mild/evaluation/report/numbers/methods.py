"""Methods of a comparison as points beside the router's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["method_points"]


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
