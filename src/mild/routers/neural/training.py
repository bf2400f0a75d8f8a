"""Minibatch training with early stopping on the deferral loss.

All randomness of an epoch (the order of the rows, dropout) comes from the seed and the number of the
epoch: a run continued from a checkpoint needs no generator state to repeat itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from mild.errors import InvalidInputError
from mild.routers.neural.checkpoint import Checkpoint
from mild.routers.neural.group import Group
from mild.routers.neural.problem import Problem, check_output
from mild.routers.neural.run import Run, is_finite

__all__ = ["Settings", "learning_rate", "own_randomness", "train", "train_epochs"]

MOMENTUM = 0.9
# One cycle: up for this share of the steps, from and down to these fractions of the largest rate.
RISE, START, END = 0.3, 1 / 25, 1 / 25e4


@dataclass(frozen=True)
class Settings:
    """How a network is trained; the meaning is NeuralRouter's."""

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    optimizer: str
    schedule: str | None
    patience: int
    seed: int

    @classmethod
    def of(cls, router: Any, seed: int) -> Self:
        """Settings of a router, as plain numbers."""
        return cls(
            int(router.epochs),
            int(router.batch_size),
            float(router.lr),
            float(router.weight_decay),
            router.optimizer,
            router.schedule,
            int(router.patience),
            seed,
        )


def train(
    module: nn.Module,
    problem: Problem,
    settings: Settings,
    reseed: Callable[[int], None],
    store: Checkpoint | None = None,
    progress: Callable[[int, int, str], Any] | None = None,
    group: Group | None = None,
) -> Run:
    """Train the module in place and leave it at its best epoch.

    Parameters
    ----------
    reseed : seeds the generators that the module draws from
    store : where every epoch is written to, and where the run may continue from
    group : processes that train it together, from the same weights; None for those that torch knows of
    """
    group = Group() if group is None else group
    optimizer = _optimizer(module, settings)
    return train_epochs(
        module,
        optimizer,
        lambda epoch: _epoch(module, problem, settings, optimizer, epoch, reseed, group),
        settings.epochs,
        patience=settings.patience,
        store=store,
        progress=progress,
        group=group,
        remedy=f"Lower lr={settings.lr:g}, or scale the features.",
    )


def train_epochs(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    epoch: Callable[[int], dict[str, Any]],
    epochs: int,
    *,
    patience: int | None = None,
    store: Checkpoint | None = None,
    progress: Callable[[int, int, str], Any] | None = None,
    group: Group | None = None,
    remedy: str = "Lower the learning rate.",
) -> Run:
    """Run epochs and leave the module at its best one; the loop of every torch model here.

    Parameters
    ----------
    epoch : runs one epoch, counted from 1, and returns its record: "loss", and "validation_loss" and
        "validation_surrogate" where rows are held out
    epochs : how many to run
    patience : stop after so many epochs without a better validation loss; None to run all
    store : where every epoch is written to, and where the run may continue from
    progress : called with epochs done, epochs in all and a message
    group : processes that train the module together
    remedy : what to do about a training that diverges, for the error
    """
    group = Group() if group is None else group
    run = Run() if store is None else _continued(store, module, optimizer, epochs, group)
    with torch.enable_grad():
        while not run.is_over(epochs, epochs if patience is None else patience):
            record = epoch(run.epoch + 1)
            # One process decides for all: a last digit that differs must not part them.
            record, finite = group.first(partial(_judged, record, module))
            if not finite:
                run.diverged = True
                break
            run.add(record, module)
            if store is not None:
                _write(store, run, module, optimizer, group)
            if progress is not None and group.is_first:
                progress(run.epoch, epochs, _message(record))
    if run.diverged and run.best is None:
        raise InvalidInputError(
            f"training diverged in epoch {run.epoch + 1}: loss or weights are not finite. {remedy}"
        )
    if run.best is not None:
        module.load_state_dict(run.best)
    return run


def _judged(record: dict[str, Any], module: nn.Module) -> tuple[dict[str, Any], bool]:
    return record, is_finite(module, record)


def _continued(
    store: Checkpoint,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    epochs: int,
    group: Group,
) -> Run:
    """The run so far, read by the first process for all."""

    def read() -> tuple[Run, Any, Any]:
        return store.read(module, optimizer, epochs), module.state_dict(), optimizer.state_dict()

    run, weights, state = group.first(read)
    if not group.is_first:
        module.load_state_dict(weights)
        optimizer.load_state_dict(state)
    return run


def _write(
    store: Checkpoint,
    run: Run,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    group: Group,
) -> None:
    """Write an epoch down, once, and have everybody know if that failed."""
    group.first(lambda: store.write(run, module, optimizer))


def _epoch(
    module: nn.Module,
    problem: Problem,
    settings: Settings,
    optimizer: torch.optim.Optimizer,
    epoch: int,
    reseed: Callable[[int], None],
    group: Group,
) -> dict[str, Any]:
    """One pass over the training rows in batches whose sizes differ by at most one."""
    rng = np.random.default_rng([settings.seed, epoch])
    order = rng.permutation(problem.train)
    # Dropout must not strike the same places of every process's share.
    reseed((int(rng.integers(2**63)) + group.rank) % 2**63)
    steps = math.ceil(len(order) / settings.batch_size)
    module.train()
    rate = settings.lr
    parts = []
    for step, rows in enumerate(np.array_split(order, steps)):
        if settings.schedule is not None:
            rate = settings.lr * learning_rate((epoch - 1) * steps + step, settings.epochs * steps)
            for options in optimizer.param_groups:
                options["lr"] = rate
        optimizer.zero_grad()
        share = group.share(rows)
        if len(share):
            scores = module(problem.inputs(share))
            check_output(scores, len(share), problem.n_experts)
            loss = problem.losses(scores, share).sum() / len(rows)
            loss.backward()  # type: ignore[no-untyped-call]
            parts.append(loss.detach() * len(rows))
        group.add_gradients(module)
        optimizer.step()
    total = torch.stack(parts).sum() if parts else torch.zeros((), device=problem.device)
    record: dict[str, Any] = {
        "epoch": epoch,
        "loss": float(group.add(total)) / len(order),
        "learning_rate": rate,
    }
    if len(problem.validation):
        record.update(problem.validate(module, group))
    return record


def learning_rate(step: int, steps: int) -> float:
    """One cycle (Smith and Topin 2019): the rate of a step, counted from 0, as a share of the largest.

    A cosine from 1/25 up to 1 over the first 30 % of the steps, then one down to almost 0.

    Examples
    --------
    >>> [round(learning_rate(step, 11), 3) for step in (0, 2, 5, 10)]
    [0.04, 0.96, 0.726, 0.0]
    """
    peak = RISE * steps - 1
    if peak > 0 and step <= peak:
        return _between(START, 1.0, step / peak)
    peak = max(peak, 0.0)
    return _between(1.0, END, (step - peak) / max(steps - 1 - peak, 1.0))


def _between(start: float, end: float, part: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


@contextmanager
def own_randomness(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Yield a function that seeds torch's generators, and put them back as they were at the end."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    states = [generator.get_state() for generator in generators]

    def reseed(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    try:
        yield reseed
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _optimizer(module: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Weight decay on matrices alone: biases are as free as a linear router's intercept."""
    free = [value for value in module.parameters() if value.requires_grad]
    if not free:
        raise InvalidInputError("module must have parameters to train; got none.")
    groups: list[dict[str, Any]] = [
        {"params": [value for value in free if value.ndim >= 2]},
        {"params": [value for value in free if value.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    # One kernel for all parameters, where torch has one.
    fused = all(value.device.type in ("cpu", "cuda") for value in free)
    lr, decay = settings.lr, settings.weight_decay
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr, momentum=MOMENTUM, weight_decay=decay, fused=fused)
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, lr, weight_decay=decay, fused=fused)


def _message(record: dict[str, Any]) -> str:
    message = f"loss {record['loss']:.4f}"
    if "validation_loss" in record:
        message += f", validation {record['validation_loss']:.4f}"
    return message
