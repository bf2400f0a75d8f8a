"""What scores on the test rows come to: the loss, who was asked, and what to compare it with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.decisions import decide
from mild.metrics import (
    best_constant,
    deferral_loss,
    expert_recall,
    expert_shares,
    oracle_loss,
    oracle_shares,
)
from mild.reproduce.diverged import DivergedError

__all__ = ["decisions", "judged", "outcomes", "reference"]


def decisions(margins: Sequence[float] | None) -> tuple[str, ...]:
    """Rules that differ at these margins: equal ones leave argmax alone.

    Examples
    --------
    >>> decisions([1.0, 1.0]), decisions([1.0, 2.0]), decisions(None)
    (('argmax',), ('argmax', 'stationary'), ('argmax',))
    """
    if margins is None or len(set(margins)) == 1:
        return ("argmax",)
    return ("argmax", "stationary")


def outcomes(
    scores: NDArray[np.float32], costs: NDArray[np.float32], margins: Sequence[float] | None
) -> dict[str, dict[str, Any]]:
    """Loss, shares and recall of each decision that applies, JSON-ready.

    Recall of expert k: of the rows on which it is cheapest (ties to the lowest index), the share that
    was sent to it; None if there are no such rows.

    Parameters
    ----------
    scores, costs : (n_test, n_experts)
    margins : (n_experts,) that the scores were trained with; None for label-based methods

    Examples
    --------
    >>> scores = np.array([[1, 0], [1, 0]], np.float32)
    >>> outcomes(scores, np.array([[0, 1], [1, 0]], np.float32), None)
    {'argmax': {'loss': 0.5, 'shares': [1.0, 0.0], 'recall': [1.0, 0.0]}}
    """
    if not np.isfinite(scores).all():
        raise DivergedError(
            "scores must be finite; the training diverged. Lower the learning rate."
        )
    result = {}
    for rule in decisions(margins):
        result[rule] = judged(costs, decide(scores, margins, rule=rule))
    return result


def judged(costs: NDArray[np.floating], chosen: NDArray[np.intp]) -> dict[str, Any]:
    """Loss, shares and recall of choices, JSON-ready.

    Examples
    --------
    >>> judged(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, 1]))
    {'loss': 0.5, 'shares': [0.0, 1.0], 'recall': [0.0, 1.0]}
    """
    recall = expert_recall(costs, chosen)
    return {
        "loss": deferral_loss(costs, chosen),
        "shares": expert_shares(chosen, costs.shape[1]).tolist(),
        "recall": [None if np.isnan(value) else float(value) for value in recall],
    }


def reference(costs: NDArray[np.floating]) -> dict[str, Any]:
    """The cheapest expert of every test row, and the best of the constants on them.

    Examples
    --------
    >>> reference(np.array([[0, 1], [0, 0.5]], np.float32))["constant_expert"]
    0
    """
    constant = best_constant(costs)
    return {
        "oracle": oracle_loss(costs),
        "oracle_shares": oracle_shares(costs).tolist(),
        "constant": constant.cost,
        "constant_expert": constant.expert,
    }
