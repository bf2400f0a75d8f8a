"""Minibatch training: the loop of every torch model, optimisers and learning-rate schedules.

All randomness of an epoch (the order of the rows, dropout) comes from the seed and the number of the
epoch: a run continued from a checkpoint needs no generator state to repeat itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import nn

from mild.core.arrays import invalid
from mild.errors import InvalidInputError
from mild.routers.neural.checkpoint import Checkpoint, Run, run_options
from mild.routers.neural.group import Group
from mild.routers.neural.network import Problem, check_output

MOMENTUM = 0.9
# One cycle: up for this share of the steps, from and down to these fractions of the largest rate.
RISE, START, END = 0.3, 1 / 25, 1 / 25e4

Progress = Callable[[int, int, str], Any]


def train_router(
    router: Any,
    module: nn.Module,
    problem: Problem,
    optimizer: torch.optim.Optimizer,
    reseed: Callable[[int], None],
    *,
    options: Sequence[str],
    schedule: Callable[[int, int], float] | None = None,
    clip: float | None = None,
    patience: int | None = None,
    progress: Progress | None = None,
    step_progress: Progress | None = None,
    remedy: str = "",
) -> Run:
    """Train the module of a router in place and leave it at its best epoch.

    ``epochs``, ``batch_size``, ``checkpoint`` and ``resume`` are read from the router, whose parameters
    ``options`` identify the run. In a process group of torch the processes train together. ``reseed``
    seeds the generators that the module draws from; ``schedule`` gives the factor of the learning rates
    at a step, of so many; ``clip`` is the largest norm of a step's gradient.
    """
    epochs = int(router.epochs)
    group = Group()
    if group.size > 1 and not isinstance(router.random_state, Integral):
        raise invalid(
            "random_state",
            f"must be an integer where several processes train together, so that they agree; got "
            f"{router.random_state!r}.",
        )
    group.begin(module)
    store = None
    if router.checkpoint is not None or group.size > 1:
        identity = run_options(router, options, problem.data(), problem.targets, module)
        group.check_same(identity)
        if router.checkpoint is not None:
            owner = type(router).__name__
            store = Checkpoint(router.checkpoint, identity, bool(router.resume), owner)
    rates = [options["lr"] for options in optimizer.param_groups]

    def run_epoch(epoch: int) -> dict[str, Any]:
        rng = np.random.default_rng([problem.seed, epoch])
        batches = problem.batches(int(router.batch_size), rng)
        # Dropout must differ between the shares of the processes.
        reseed((int(rng.integers(2**63)) + group.rank) % 2**63)
        module.train()
        losses = []
        for step, rows in enumerate(batches, (epoch - 1) * len(batches)):
            steps = epochs * len(batches)
            if schedule is not None:
                for values, rate in zip(optimizer.param_groups, rates, strict=True):
                    values["lr"] = rate * schedule(step, steps)
            optimizer.zero_grad()
            share = group.share(rows)
            if len(share):
                scores = module(problem.inputs(share))
                check_output(scores, len(share), problem.n_experts)
                loss = problem.losses(scores, share).sum() / len(rows)
                loss.backward()  # type: ignore[no-untyped-call]
                losses.append(loss.detach() * len(rows))
            group.add_gradients(module)
            if clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimizer.step()
            if step_progress is not None and group.is_first:
                message = f"epoch {epoch} of {epochs}, loss {loss.detach():.4f}"
                step_progress(step + 1, steps, message)
        total = torch.stack(losses).sum() if losses else torch.zeros((), device=problem.device)
        record: dict[str, Any] = {
            "epoch": epoch,
            "loss": float(group.add(total)) / sum(map(len, batches)),
            "learning_rate": optimizer.param_groups[0]["lr"],
        }
        if len(problem.validation):
            record.update(problem.validate(module, group))
        return record

    return train_epochs(
        module,
        optimizer,
        run_epoch,
        epochs,
        patience=patience,
        store=store,
        progress=progress,
        group=group,
        remedy=f"Lower lr={float(router.lr):g}{remedy}.",
    )


def train_epochs(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    epoch: Callable[[int], dict[str, Any]],
    epochs: int,
    *,
    patience: int | None = None,
    store: Checkpoint | None = None,
    progress: Progress | None = None,
    group: Group | None = None,
    remedy: str = "Lower the learning rate.",
) -> Run:
    """Run epochs and leave the module at its best one; the loop of every torch model here.

    ``epoch`` runs one epoch, counted from 1, and returns its record: "loss", and "validation_loss" and
    "validation_surrogate" where rows are held out. Training stops after ``patience`` epochs without a
    better validation loss, continues from ``store`` and writes it after every epoch. ``remedy`` is the
    advice in the error that says that training diverged.
    """
    group = Group() if group is None else group
    run = Run() if store is None else _continued(store, module, optimizer, epochs, group)
    with torch.enable_grad():
        while not run.is_over(epochs, epochs if patience is None else patience):
            own = epoch(run.epoch + 1)
            # The first process decides for all, which may differ in the last digit.
            record = group.first(partial(_finite, own, module))
            if record is None:
                run.diverged = True
                break
            run.add(record, module)
            if store is not None:
                group.first(partial(store.write, run, module, optimizer))
            if progress is not None and group.is_first:
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


def _finite(record: dict[str, Any], module: nn.Module) -> dict[str, Any] | None:
    """The record of an epoch; None if the loss or a weight is not finite after it."""
    finite = math.isfinite(record["loss"]) and not math.isnan(record.get("validation_loss", 0.0))
    if finite and all(bool(value.isfinite().all()) for value in module.parameters()):
        return record
    return None


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


def warmup_rate(step: int, steps: int, warmup: float) -> float:
    """Linear warm-up and decay: the rate of a step, counted from 0, as a share of the largest.

    >>> [round(warmup_rate(step, 10, 0.2), 3) for step in (0, 1, 2, 9)]
    [0.5, 1.0, 1.0, 0.125]
    """
    rise = round(warmup * steps)
    if step < rise:
        return (step + 1) / rise
    return (steps - step) / max(1, steps - rise)


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
