"""What a router is trained and judged on, and the figures that judge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.images.experts import held_out_rows
from experiments.images.methods import Method, Objective, decisions, make_objective
from experiments.images.training import Evaluate, Protocol, TrainedNetwork, train_network
from experiments.records import DivergedError
from mild.core.decisions import decide
from mild.metrics import (
    best_constant,
    deferral_loss,
    expert_recall,
    expert_shares,
    oracle_loss,
    oracle_shares,
)

Costs = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Problem:
    """What a router is trained and judged on, and how.

    ``prices`` (n_experts,) are the part of the costs that is no error; None where there is none.
    """

    images: NDArray[np.uint8]
    costs: Costs
    test_images: NDArray[np.uint8]
    test_costs: Costs
    largest: float
    flip: bool
    protocol: Protocol
    device: str
    scale: str = "raw"
    prices: NDArray[np.float64] | None = None

    def train(
        self,
        method: Method,
        seed: int,
        report: Callable[[str], None],
        rows: NDArray[np.int64] | None = None,
        curve: bool = False,
    ) -> tuple[TrainedNetwork, Objective]:
        """Train a network on ``rows`` (default: all).

        With ``curve`` the history of the network also holds the losses on the test rows after every epoch.
        """
        images = self.images if rows is None else self.images[rows]
        costs = self.costs if rows is None else self.costs[rows]
        objective = make_objective(
            method, costs, self.largest, self.device, self.scale, self.prices
        )
        network = train_network(
            images,
            costs.shape[1],
            objective.loss,
            self.protocol,
            seed,
            flip=self.flip,
            device=self.device,
            progress=lambda done, total, message: report(f"epoch {done} of {total}, {message}"),
            evaluate=self._evaluation(objective) if curve else None,
        )
        return network, objective

    def _evaluation(self, objective: Objective) -> Evaluate:
        loss = objective.loss_on(self.test_costs)
        rows = torch.arange(len(self.test_costs), device=self.device)

        def evaluate(score: Callable[[NDArray[np.uint8]], NDArray[np.float32]]) -> dict[str, float]:
            scores = score(self.test_images)
            surrogate = loss(torch.as_tensor(scores, device=self.device), rows)
            losses = {"test_surrogate": float(surrogate.mean())}
            for rule in decisions(objective.margins):
                chosen = decide(objective.values(scores), objective.margins, decision=rule)
                losses[rule] = deferral_loss(self.test_costs, chosen)
            return losses

        return evaluate

    def held_out(self) -> Problem:
        """The same problem, judged on a tenth of its training rows, which are not trained on."""
        rest, held = held_out_rows(self.costs)
        return replace(
            self,
            images=self.images[rest],
            costs=self.costs[rest],
            test_images=self.images[held],
            test_costs=self.costs[held],
        )


def outcomes(
    scores: NDArray[np.floating[Any]], costs: NDArray[np.floating[Any]], objective: Objective
) -> dict[str, dict[str, Any]]:
    """Loss, shares and recall of each decision rule that applies, JSON-ready."""
    if not np.isfinite(scores).all():
        raise DivergedError(
            "scores must be finite; the training diverged. Lower the learning rate."
        )
    values, margins = objective.values(scores), objective.margins
    return {
        rule: judged(costs, decide(values, margins, decision=rule)) for rule in decisions(margins)
    }


def judged(costs: NDArray[np.floating[Any]], chosen: NDArray[np.intp]) -> dict[str, Any]:
    """Loss, shares and recall of choices, JSON-ready.

    >>> judged(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, 1]))
    {'loss': 0.5, 'shares': [0.0, 1.0], 'recall': [0.0, 1.0]}
    """
    return {
        "loss": deferral_loss(costs, chosen),
        "shares": expert_shares(chosen, costs.shape[1]).tolist(),
        "recall": [None if np.isnan(v) else float(v) for v in expert_recall(costs, chosen)],
    }


def reference(costs: NDArray[np.floating[Any]]) -> dict[str, Any]:
    """The oracle and the best single expert on the test rows, JSON-ready."""
    constant = best_constant(costs)
    return {
        "oracle": oracle_loss(costs),
        "oracle_shares": oracle_shares(costs).tolist(),
        "constant": constant.cost,
        "constant_expert": constant.expert,
    }
