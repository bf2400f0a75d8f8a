"""Minibatch training: the loop of every torch model, optimisers and learning-rate schedules.

All randomness of an epoch (the order of the rows, dropout) comes from the seed and the number of the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mild.core.arrays import invalid
from mild.errors import InvalidInputError
from mild.routers.neural.network import Problem, check_output

MOMENTUM = 0.9
# One cycle: up for this share of the steps, from and down to these fractions of the largest rate.
RISE, START, END = 0.3, 1 / 25, 1 / 25e4

Progress = Callable[[int, int, str], Any]


@dataclass
class Run:
    """Epochs run so far, their records, and the weights of the best, counted from 1.

    Where no rows are held out, the last epoch is the best, and ``best`` is None.
    """

    epoch: int = 0
    best_epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] | None = None
    diverged: bool = False

    def add(self, record: dict[str, Any], module: nn.Module) -> None:
        """Record one more epoch, and the network if it is the best so far."""
        self.epoch += 1
        self.history.append(record)
        if "validation_loss" not in record:
            self.best_epoch = self.epoch
        elif self.best is None or self._merit(self.epoch) < self._merit(self.best_epoch):
            self.best_epoch = self.epoch
            self.best = {name: value.clone() for name, value in module.state_dict().items()}

    def is_over(self, epochs: int, patience: int) -> bool:
        """Whether all epochs are run, or none of the last ``patience`` was the best."""
        return self.epoch >= epochs or self.epoch - self.best_epoch >= patience

    def _merit(self, epoch: int) -> tuple[float, float]:
        """Deferral loss; ties are broken by the surrogate."""
        record = self.history[epoch - 1]
        return record["validation_loss"], record["validation_surrogate"]


def train_router(
    router: Any,
    module: nn.Module,
    problem: Problem,
    optimizer: torch.optim.Optimizer,
    reseed: Callable[[int], None],
    *,
    schedule: Callable[[int, int], float] | None = None,
    clip: float | None = None,
    patience: int | None = None,
    progress: Progress | None = None,
    step_progress: Progress | None = None,
    remedy: str = "",
) -> Run:
    """Train the module of a router in place and leave it at its best epoch.

    ``epochs`` and ``batch_size`` are read from the router. ``reseed`` seeds the generators that the module
    draws from; ``schedule`` gives the factor of the learning rates at a step, of so many; ``clip`` is the
    largest norm of a step's gradient.
    """
    epochs = int(router.epochs)
    rates = [options["lr"] for options in optimizer.param_groups]

    def run_epoch(epoch: int) -> dict[str, Any]:
        rng = np.random.default_rng([problem.seed, epoch])
        batches = problem.batches(int(router.batch_size), rng)
        reseed(int(rng.integers(2**63)))
        module.train()
        losses = []
        for step, rows in enumerate(batches, (epoch - 1) * len(batches)):
            steps = epochs * len(batches)
            if schedule is not None:
                for values, rate in zip(optimizer.param_groups, rates, strict=True):
                    values["lr"] = rate * schedule(step, steps)
            optimizer.zero_grad()
            scores = module(problem.inputs(rows))
            check_output(scores, len(rows), problem.n_experts)
            loss = problem.losses(scores, rows).sum() / len(rows)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach() * len(rows))
            if clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimizer.step()
            if step_progress is not None:
                message = f"epoch {epoch} of {epochs}, loss {loss.detach():.4f}"
                step_progress(step + 1, steps, message)
        record: dict[str, Any] = {
            "epoch": epoch,
            "loss": float(torch.stack(losses).sum()) / sum(map(len, batches)),
            "learning_rate": optimizer.param_groups[0]["lr"],
        }
        if len(problem.validation):
            record.update(problem.validate(module))
        return record

    return train_epochs(
        module,
        run_epoch,
        epochs,
        patience=patience,
        progress=progress,
        remedy=f"Lower lr={float(router.lr):g}{remedy}.",
    )


def train_epochs(
    module: nn.Module,
    epoch: Callable[[int], dict[str, Any]],
    epochs: int,
    *,
    patience: int | None = None,
    progress: Progress | None = None,
    remedy: str = "Lower the learning rate.",
) -> Run:
    """Run epochs and leave the module at its best one; the loop of every torch model here.

    ``epoch`` runs one epoch, counted from 1, and returns its record: "loss", and "validation_loss" and
    "validation_surrogate" where rows are held out. Training stops after ``patience`` epochs without a
    better validation loss. ``remedy`` is the advice in the error that says that training diverged.
    """
    if patience is None:
        patience = epochs
    run = Run()
    with torch.enable_grad():
        while not run.is_over(epochs, patience):
            record = epoch(run.epoch + 1)
            if not _is_finite(record, module):
                run.diverged = True
                break
            run.add(record, module)
            if progress is not None:
                held_out = ""
                if "validation_loss" in record:
                    held_out = f", validation {record['validation_loss']:.4f}"
                progress(run.epoch, epochs, f"loss {record['loss']:.4f}{held_out}")
    if run.diverged and run.best is None:
        raise InvalidInputError(
            f"training diverged in epoch {run.epoch + 1}: loss or weights are not finite. {remedy}"
        )
    if run.best is not None:
        module.load_state_dict(run.best)
    return run


def _is_finite(record: dict[str, Any], module: nn.Module) -> bool:
    """Whether the loss of an epoch and every weight after it are finite."""
    if not math.isfinite(record["loss"]) or math.isnan(record.get("validation_loss", 0.0)):
        return False
    return all(bool(value.isfinite().all()) for value in module.parameters())


def learning_rate(step: int, steps: int) -> float:
    """One cycle (Smith and Topin 2019): the rate of a step, counted from 0, as a share of the largest.

    A cosine from 1/25 up to 1 over the first 30 % of the steps, then one down to almost 0.

    >>> [round(learning_rate(step, 11), 3) for step in (0, 2, 5, 10)]
    [0.04, 0.96, 0.726, 0.0]
    """
    peak = RISE * steps - 1
    if peak > 0 and step <= peak:
        start, end, part = START, 1.0, step / peak
    else:
        peak = max(peak, 0.0)
        start, end, part = 1.0, END, (step - peak) / max(steps - 1 - peak, 1.0)
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


@contextmanager
def own_randomness(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Yield a function that seeds torch's generators, and put them back as they were at the end."""
    cuda = device.type == "cuda"

    def reseed(seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)

    with torch.random.fork_rng([device] if cuda else []):
        yield reseed


def make_optimizer(
    parts: Sequence[tuple[nn.Module, float]], weight_decay: float, kind: str = "adamw"
) -> torch.optim.Optimizer:
    """Optimiser of modules, each with its learning rate; weight decay on matrices alone."""
    groups: list[dict[str, Any]] = []
    for part, rate in parts:
        free = [value for value in part.parameters() if value.requires_grad]
        matrices = [value for value in free if value.ndim >= 2]
        vectors = [value for value in free if value.ndim < 2]
        for values, decay in ((matrices, weight_decay), (vectors, 0.0)):
            if values:
                groups.append({"params": values, "lr": rate, "weight_decay": decay})
    if not groups:
        raise invalid("module", "must have parameters to train; got none.")
    # One kernel for all parameters, where torch has one.
    fused = all(v.device.type in ("cpu", "cuda") for group in groups for v in group["params"])
    if kind == "sgd":
        return torch.optim.SGD(groups, momentum=MOMENTUM, fused=fused)
    return (torch.optim.Adam if kind == "adam" else torch.optim.AdamW)(groups, fused=fused)
