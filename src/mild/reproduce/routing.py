"""One routing problem: images and what each expert costs on them; a network is trained to route."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from mild.decisions import decide
from mild.metrics import deferral_loss
from mild.reproduce.experts.answers import ExpertAnswers, expert_costs, largest_cost
from mild.reproduce.experts.splits import held_out_rows
from mild.reproduce.images.training import Evaluate, TrainedNetwork, train_network
from mild.reproduce.methods import Method
from mild.reproduce.objective import Objective, make_objective
from mild.reproduce.outcomes import decisions
from mild.reproduce.turns import Tell

if TYPE_CHECKING:
    from mild.reproduce.data.images import ImageData
    from mild.reproduce.images.protocol import Protocol

__all__ = ["RoutingProblem", "forget_checkpoint", "routing_problem", "tidied"]


@dataclass(frozen=True, eq=False)
class RoutingProblem:
    """What a router is trained and judged on, and how.

    Attributes
    ----------
    images : (n, height, width, channels), those that the router may train on
    costs : (n, n_experts) on them
    test_images, test_costs : the same for the test
    largest : largest possible cost
    flip : whether a mirror image means the same
    protocol, device : how and where networks are trained
    checkpoints : folder of unfinished trainings, or None
    scale : of the rewards, "raw" or "unit"
    """

    images: NDArray[np.uint8]
    costs: NDArray[np.float32]
    test_images: NDArray[np.uint8]
    test_costs: NDArray[np.float32]
    largest: float
    flip: bool
    protocol: Protocol
    device: str
    checkpoints: Path | None = None
    scale: str = "raw"

    def train(
        self,
        method: Method,
        seed: int,
        key: str,
        rows: NDArray[np.int64] | None = None,
        tell: Tell | None = None,
        curve: bool = False,
    ) -> tuple[TrainedNetwork, Objective]:
        """Train a network on ``rows`` (default: all); ``key`` names the training's checkpoint.

        The checkpoint stays until ``forget``: the caller knows when the result is safe. With ``curve``
        the history of the network also holds the losses on the test rows after every epoch.
        """
        images = self.images if rows is None else self.images[rows]
        costs = self.costs if rows is None else self.costs[rows]
        objective = make_objective(method, costs, self.largest, self.device, self.scale)
        network = train_network(
            images,
            costs.shape[1],
            objective.loss,
            self.protocol,
            seed,
            flip=self.flip,
            device=self.device,
            checkpoint=self._checkpoint(key),
            identity=_identity(key, objective),
            progress=_epochs(tell),
            evaluate=self._evaluation(objective) if curve else None,
        )
        return network, objective

    def _evaluation(self, objective: Objective) -> Evaluate:
        """The surrogate and the deferral losses on the test rows, from scores."""
        loss = objective.loss_on(self.test_costs)
        place = torch.device(self.device)
        rows = torch.arange(len(self.test_costs), device=place)

        def evaluate(
            scores_of: Callable[[NDArray[np.uint8]], NDArray[np.float32]],
        ) -> dict[str, float]:
            scores = scores_of(self.test_images)
            surrogate = loss(torch.as_tensor(scores, device=place), rows)
            losses = {"test_surrogate": float(surrogate.mean())}
            for rule in decisions(objective.margins):
                chosen = decide(scores, objective.margins, rule=rule)
                losses[rule] = deferral_loss(self.test_costs, chosen)
            return losses

        return evaluate

    def held_out(self) -> RoutingProblem:
        """The same problem, judged on a tenth of its training rows, which are not trained on."""
        rest, held = held_out_rows(self.costs)
        return replace(
            self,
            images=self.images[rest],
            costs=self.costs[rest],
            test_images=self.images[held],
            test_costs=self.costs[held],
        )

    def forget(self, key: str) -> None:
        """Remove the checkpoint of a training whose result is safe."""
        forget_checkpoint(self.checkpoints, key)

    def _checkpoint(self, key: str) -> Path | None:
        return None if self.checkpoints is None else self.checkpoints / f"{key}.safetensors"


def forget_checkpoint(folder: Path | None, key: str) -> None:
    """Remove the checkpoint of a training, if there is one."""
    if folder is not None:
        with suppress(OSError):
            (folder / f"{key}.safetensors").unlink()
        # The last one to go takes the folder along.
        _remove_empty(folder)


@contextmanager
def tidied(folder: Path | None) -> Iterator[None]:
    """Leave no empty folder of checkpoints behind, however the work within ends."""
    try:
        yield
    finally:
        if folder is not None:
            _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def routing_problem(
    data: ImageData,
    answers: ExpertAnswers,
    cost: str,
    protocol: Protocol,
    device: str,
    checkpoints: Path | None = None,
    scale: str = "raw",
) -> RoutingProblem:
    """The problem of routing ``data`` among the experts, for one cost type."""
    rows = answers.router_rows
    everything = len(rows) == len(data.train_labels)
    costs = expert_costs(answers.train, data.train_labels, answers.prices, cost)
    return RoutingProblem(
        images=data.train_images if everything else data.train_images[rows],
        costs=costs if everything else costs[rows],
        test_images=data.test_images,
        test_costs=expert_costs(answers.test, data.test_labels, answers.prices, cost),
        largest=largest_cost(answers.prices, cost),
        flip=data.flip,
        protocol=protocol,
        device=device,
        checkpoints=checkpoints,
        scale=scale,
    )


def _epochs(tell: Tell | None) -> Callable[[int, int, str], None] | None:
    if tell is None:
        return None
    return lambda done, total, message: tell(f"epoch {done} of {total}, {message}")


def _identity(key: str, objective: Objective) -> Mapping[str, Any]:
    margins = objective.margins
    return {"key": key, "margins": None if margins is None else list(margins)}
