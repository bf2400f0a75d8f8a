"""Does it pay? The statement, and the figures beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from mild.core.arrays import IntArray
from mild.evaluation.report.numbers.evidence import Evidence, mean_known
from mild.metrics import common_rows, constant_losses, state_choices, summary

__all__ = ["judge"]


def judge(
    evidence: Evidence,
    confidence: float,
    seed: int,
    bundle: IntArray | None = None,
    unit: str = "query",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Verdict on the router against the expert that is best on these very rows, and its figures.

    Both are on the rows in which all that is compared is known.

    Parameters
    ----------
    bundle : (n_samples,) rows with the same number are drawn together; None if each is alone
    unit : what a bundle is: "query" or "group"

    Returns
    -------
    verdict : fields of ``mild.metrics.Statement`` (None where unknown), constant, confidence
    figures : summary of the routing, cost of each constant, means of router, constant and oracle
    """
    found = summary(evidence.costs, evidence.chosen, missing="skip")
    rows = common_rows(evidence.costs, evidence.chosen).rows
    best, judged = found.constant_expert, evidence.take(rows)
    costs, chosen = judged.costs, judged.chosen
    name = judged.expert_names[best]
    statement = state_choices(
        costs,
        chosen,
        best,
        judged.expert_names,
        bundle=None if bundle is None else bundle[rows],
        unit="row" if bundle is None else unit,
        confidence=confidence,
        seed=seed,
        dollars=_price_difference(judged, best),
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
            "router": judged.means(chosen),
            "constant": judged.means(np.full(judged.rows, best)),
            "oracle": judged.means(np.nanargmin(costs, axis=1)),
        },
    }
    return verdict, figures


def _price_difference(evidence: Evidence, constant: int) -> float | None:
    """Mean price of the router's choices minus the constant's, on rows that know both."""
    if evidence.prices is None:
        return None
    paid = evidence.prices[np.arange(evidence.rows), evidence.chosen]
    return mean_known(paid - evidence.prices[:, constant])
