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

from mild.core.arrays import IntArray, invalid
from mild.errors import InvalidInputError
from mild.routers.neural.network import Problem, check_output

MOMENTUM = 0.9
# One cycle: up for this share of the steps, from and down to these fractions of the largest rate.
RISE = 0.3
START = 1 / 25
END = 1 / 25e4

Progress = Callable[[int, int, str], Any]


@dataclass
class Run:
    """The epochs of a training so far.

    Attributes
    ----------
    epoch : number of epochs
    best_epoch : the best one, counted from 1; the last one where no rows are held out
    history : the record of each epoch
    best : weights after the best epoch; None where no rows are held out
    diverged : whether training stopped because the loss or a weight was not finite
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
        """Return what is compared between epochs: the deferral loss, and of equal ones the surrogate."""
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
    """Train the network of a router in place, and leave it at its best epoch.

    Parameters
    ----------
    router : NetworkRouter
        Gives the number of ``epochs``, the ``batch_size`` and the learning rate ``lr``.
    module : torch.nn.Module
        The network.
    problem : Problem
        The rows, with their targets.
    optimizer : torch.optim.Optimizer
        Of the parameters of the module.
    reseed : callable
        Seeds the generators that the module draws from.
    schedule : callable, default=None
        ``schedule(step, n_steps)`` is the factor by which all learning rates are multiplied at a step,
        counted from 0. None for constant rates.
    clip : float, default=None
        Largest norm of a step's gradient.
    patience : int, default=None
        Epochs without improvement before training stops; None trains to the end.
    progress, step_progress : callable, default=None
        Called as ``progress(done, total, message)`` after every epoch, and after every step.
    remedy : str, default=""
        Further advice in the error that says that training diverged.

    Returns
    -------
    run : Run
        The record of each epoch, and which one was the best.
    """
    n_epochs = int(router.epochs)
    initial_rates = [group["lr"] for group in optimizer.param_groups]

    def set_learning_rates(step: int, n_steps: int) -> None:
        if schedule is not None:
            for group, rate in zip(optimizer.param_groups, initial_rates, strict=True):
                group["lr"] = rate * schedule(step, n_steps)

    def run_epoch(epoch: int) -> dict[str, Any]:
        """Train on all batches once; ``epoch`` is counted from 1."""
        rng = np.random.default_rng([problem.seed, epoch])
        batches = problem.batches(int(router.batch_size), rng)
        reseed(int(rng.integers(2**63)))
        module.train()
        n_steps = n_epochs * len(batches)
        first_step = (epoch - 1) * len(batches)
        summed_losses = []
        for step, rows in enumerate(batches, first_step):
            set_learning_rates(step, n_steps)
            loss = _train_on_batch(module, problem, optimizer, rows, clip)
            summed_losses.append(loss * len(rows))
            if step_progress is not None:
                message = f"epoch {epoch} of {n_epochs}, loss {loss:.4f}"
                step_progress(step + 1, n_steps, message)
        n_rows = sum(map(len, batches))
        record: dict[str, Any] = {
            "epoch": epoch,
            "loss": float(torch.stack(summed_losses).sum()) / n_rows,
            "learning_rate": optimizer.param_groups[0]["lr"],
        }
        if len(problem.validation):
            record.update(problem.validate(module))
        return record

    return train_epochs(
        module,
        run_epoch,
        n_epochs,
        patience=patience,
        progress=progress,
        remedy=f"Lower lr={float(router.lr):g}{remedy}.",
    )


def _train_on_batch(
    module: nn.Module,
    problem: Problem,
    optimizer: torch.optim.Optimizer,
    rows: IntArray,
    clip: float | None,
) -> Tensor:
    """Take one step of the optimiser on a batch of rows, and return their mean loss before it."""
    optimizer.zero_grad()
    scores = module(problem.inputs(rows))
    check_output(scores, len(rows), problem.n_experts)
    loss = problem.losses(scores, rows).sum() / len(rows)
    loss.backward()  # type: ignore[no-untyped-call]
    if clip is not None:
        nn.utils.clip_grad_norm_(module.parameters(), clip)
    optimizer.step()
    return loss.detach()


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

    Parameters
    ----------
    module : torch.nn.Module
        What ``epoch`` trains in place.
    epoch : callable
        ``epoch(number)`` runs one epoch, counted from 1, and returns its record: a dict with "loss", and
        with "validation_loss" and "validation_surrogate" where rows are held out.
    epochs : int
        Largest number of epochs.
    patience : int, default=None
        Training stops after this many epochs without a better validation loss; None for no limit.
    progress : callable, default=None
        Called as ``progress(done, total, message)`` after every epoch.
    remedy : str, default="Lower the learning rate."
        Advice in the error that says that training diverged.

    Returns
    -------
    run : Run
        If training diverged after a good epoch, its weights are kept; if there is none, an error is raised.
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
    """Return the learning rate of a step, counted from 0, as a share of the largest one.

    One cycle (Smith and Topin 2019): a cosine from 1/25 up to 1 over the first 30 % of the steps, then one
    down to almost 0.

    >>> [round(learning_rate(step, 11), 3) for step in (0, 2, 5, 10)]
    [0.04, 0.96, 0.726, 0.0]
    """
    peak = RISE * steps - 1
    if peak > 0 and step <= peak:
        start = START
        end = 1.0
        progress = step / peak
    else:
        peak = max(peak, 0.0)
        start = 1.0
        end = END
        progress = (step - peak) / max(steps - 1 - peak, 1.0)
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


@contextmanager
def own_randomness(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Yield a function that seeds torch's generators, and put them back as they were at the end."""
    is_cuda = device.type == "cuda"
    devices = []
    if is_cuda:
        devices = [device]

    def reseed(seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        if is_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)

    with torch.random.fork_rng(devices):
        yield reseed


def make_optimizer(
    parts: Sequence[tuple[nn.Module, float]], weight_decay: float, kind: str = "adamw"
) -> torch.optim.Optimizer:
    """Make an optimiser of several modules.

    Parameters
    ----------
    parts : sequence of (module, learning rate)
        What is trained; parameters that require no gradient are left out.
    weight_decay : float
        For matrices; biases and other vectors have none.
    kind : {"adamw", "adam", "sgd"}, default="adamw"
        Algorithm.

    Returns
    -------
    optimizer : torch.optim.Optimizer
    """
    groups: list[dict[str, Any]] = []
    for module, rate in parts:
        matrices = []
        vectors = []
        for parameter in module.parameters():
            if not parameter.requires_grad:
                continue
            if parameter.ndim >= 2:
                matrices.append(parameter)
            else:
                vectors.append(parameter)
        if matrices:
            groups.append({"params": matrices, "lr": rate, "weight_decay": weight_decay})
        if vectors:
            groups.append({"params": vectors, "lr": rate, "weight_decay": 0.0})
    if not groups:
        raise invalid("module", "must have parameters to train; got none.")

    # The fused form updates all parameters in one kernel; torch has it for these devices only.
    device_types = {parameter.device.type for group in groups for parameter in group["params"]}
    fused = device_types <= {"cpu", "cuda"}
    if kind == "sgd":
        return torch.optim.SGD(groups, momentum=MOMENTUM, fused=fused)
    if kind == "adam":
        return torch.optim.Adam(groups, fused=fused)
    return torch.optim.AdamW(groups, fused=fused)
