"""Does it pay? The statement, and the figures beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from mild.arrays import IntArray
from mild.comparison.verdict import state
from mild.metrics import chosen_costs, constant_losses, linearised_rows, paired_interval, summary
from mild.report.numbers.evidence import Evidence, mean_known

__all__ = ["judge"]


def judge(
    evidence: Evidence, confidence: float, seed: int, bundle: IntArray | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Verdict on the router against the expert that is best on these very rows, and its figures.

    Parameters
    ----------
    bundle : (n_samples,) rows with the same number are drawn together; None if each is alone

    Returns
    -------
    verdict : pays, sentence, estimate, low, high, dollars_per_1000, rows_needed, constant, confidence
    figures : summary of the routing, cost of each constant, means of router, constant and oracle
    """
    costs, chosen = evidence.costs, evidence.chosen
    found = summary(costs, chosen, missing="skip")
    best = found.constant_expert
    name = evidence.expert_names[best]
    constant = evidence.means(np.full(evidence.rows, best))
    router = evidence.means(chosen)
    both = np.column_stack([chosen_costs(costs, chosen), costs[:, best]])
    known = int((~np.isnan(both)).sum(axis=0).min())
    verdict: dict[str, Any] = {
        "pays": None,
        "sentence": f"It cannot be told whether routing pays: only {known} row(s) have a known cost.",
        "estimate": None,
        "low": None,
        "high": None,
        "dollars_per_1000": None,
        "rows_needed": None,
    }
    units = evidence.rows if bundle is None else len(np.unique(bundle))
    if known >= 2 and units >= 2:
        rows = linearised_rows(both)
        interval = paired_interval(
            rows[:, 0], rows[:, 1], confidence, random_state=seed, clusters=bundle
        )
        basis = (
            f"{confidence:.0%} interval of the difference {interval.low:+.4f} to "
            f"{interval.high:+.4f}, {known:,} rows"
        )
        dollars = _price_difference(evidence, best)
        limits = (interval.estimate, interval.low, interval.high)
        verdict = state("the router", name, limits, basis, known, dollars).as_dict()
    verdict |= {"constant": name, "confidence": confidence}
    figures = found.as_dict() | {
        "constant_losses": [
            None if np.isnan(loss) else float(loss) for loss in constant_losses(costs)
        ],
        "means": {
            "router": router,
            "constant": constant,
            "oracle": evidence.means(np.nanargmin(costs, axis=1)),
        },
    }
    return verdict, figures


def _price_difference(evidence: Evidence, constant: int) -> float | None:
    """Mean price of the router's choices minus the constant's, on rows that know both."""
    if evidence.prices is None:
        return None
    paid = evidence.prices[np.arange(evidence.rows), evidence.chosen]
    return mean_known(paid - evidence.prices[:, constant])
