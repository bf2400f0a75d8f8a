"""Does it pay? The statement, and the figures beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from mild.arrays import IntArray
from mild.metrics import constant_losses, state_choices, summary
from mild.report.numbers.evidence import Evidence, mean_known

__all__ = ["judge"]


def judge(
    evidence: Evidence,
    confidence: float,
    seed: int,
    bundle: IntArray | None = None,
    unit: str = "query",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Verdict on the router against the expert that is best on these very rows, and its figures.

    Parameters
    ----------
    bundle : (n_samples,) rows with the same number are drawn together; None if each is alone
    unit : what a bundle is: "query" or "group"

    Returns
    -------
    verdict : fields of ``mild.metrics.Statement`` (None where unknown), constant, confidence
    figures : summary of the routing, cost of each constant, means of router, constant and oracle
    """
    costs, chosen = evidence.costs, evidence.chosen
    found = summary(costs, chosen, missing="skip")
    best = found.constant_expert
    name = evidence.expert_names[best]
    constant = evidence.means(np.full(evidence.rows, best))
    router = evidence.means(chosen)
    statement = state_choices(
        costs,
        chosen,
        best,
        evidence.expert_names,
        bundle=bundle,
        unit="row" if bundle is None else unit,
        confidence=confidence,
        seed=seed,
        dollars=_price_difference(evidence, best),
    )
    verdict = {
        key: None if isinstance(value, float) and np.isnan(value) else value
        for key, value in statement.as_dict().items()
    }
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
