"""Fine-tuning: AdamW, a linear warm-up and decay, batches of texts of like length.

All randomness of an epoch (the batches, dropout) comes from the seed and the number of the epoch: a run
continued from a checkpoint needs no generator state to repeat itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from mild.core.arrays import FloatArray, IntArray
from mild.features.tokens import Ids
from mild.policies import Decoder
from mild.routers.neural.checkpoint import Checkpoint
from mild.routers.neural.problem import Problem
from mild.routers.neural.run import Run
from mild.routers.neural.training import train_epochs
from mild.routers.targets import Targets
from mild.routers.transformer.network import RoutingNetwork

__all__ = ["Plan", "TextProblem", "batches", "learning_rate", "train"]

# Batches among whose texts those of like length are put together: less padding, still random.
POOL = 16


@dataclass(frozen=True)
class Plan:
    """How a network is trained; the meaning is TransformerRouter's."""

    epochs: int
    batch_size: int
    lr: float
    head_lr: float
    weight_decay: float
    warmup: float
    clip: float
    seed: int

    @classmethod
    def of(cls, router: Any, seed: int) -> Self:
        """Plan of a router, as plain numbers."""
        return cls(
            int(router.epochs),
            int(router.batch_size),
            float(router.lr),
            float(router.lr if router.head_lr is None else router.head_lr),
            float(router.weight_decay),
            float(router.warmup),
            float(router.clip),
            seed,
        )


class TextProblem(Problem):
    """Token numbers of texts, what the loss sees of their costs, and which of them are held out."""

    def __init__(
        self,
        tokens: Sequence[Ids],
        costs: FloatArray,
        sample_weight: FloatArray | None,
        targets: Targets,
        decoder: Decoder,
        held_out: float,
        seed: int,
        device: torch.device,
    ) -> None:
        # Texts have no columns of numbers.
        nothing = np.empty((len(tokens), 0), np.float32)
        super().__init__(nothing, costs, sample_weight, targets, decoder, held_out, seed, device)
        self.tokens = tokens
        self.lengths = np.array([len(row) for row in tokens])

    def inputs(self, rows: IntArray) -> Any:
        """Token numbers of some rows."""
        return [self.tokens[row] for row in rows]


def train(
    network: RoutingNetwork,
    problem: TextProblem,
    plan: Plan,
    reseed: Callable[[int], None],
    store: Checkpoint | None = None,
    progress: Callable[[int, int, str], Any] | None = None,
) -> Run:
    """Train the network in place; with rows held out it is left at its best epoch.

    Parameters
    ----------
    reseed : seeds the generators that the network draws from
    store : where every epoch is written to, and where the run may continue from
    progress : called with steps done, steps in all and a message
    """
    optimizer = _optimizer(network, plan)
    return train_epochs(
        network,
        optimizer,
        lambda epoch: _epoch(network, problem, plan, optimizer, epoch, reseed, progress),
        plan.epochs,
        store=store,
        remedy=f"Lower lr={plan.lr:g}.",
    )


def _epoch(
    network: RoutingNetwork,
    problem: TextProblem,
    plan: Plan,
    optimizer: torch.optim.Optimizer,
    epoch: int,
    reseed: Callable[[int], None],
    progress: Callable[[int, int, str], Any] | None,
) -> dict[str, Any]:
    rng = np.random.default_rng([plan.seed, epoch])
    parts = batches(problem.train, problem.lengths, plan.batch_size, rng)
    reseed(int(rng.integers(2**63)))
    network.train()
    losses = []
    for step, rows in enumerate(parts):
        done, steps = (epoch - 1) * len(parts) + step, plan.epochs * len(parts)
        share = learning_rate(done, steps, plan.warmup)
        for group in optimizer.param_groups:
            group["lr"] = share * group["peak"]
        optimizer.zero_grad()
        loss = problem.losses(network(problem.inputs(rows)), rows).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), plan.clip)
        optimizer.step()
        losses.append(loss.detach() * len(rows))
        if progress is not None:
            progress(done + 1, steps, f"epoch {epoch} of {plan.epochs}, loss {loss.detach():.4f}")
    record: dict[str, Any] = {
        "epoch": epoch,
        "loss": float(torch.stack(losses).sum()) / len(problem.train),
        "learning_rate": optimizer.param_groups[0]["lr"],
    }
    if len(problem.validation):
        record.update(problem.validate(network))
    return record


def batches(
    rows: IntArray, lengths: IntArray, size: int, rng: np.random.Generator
) -> list[IntArray]:
    """All rows in batches whose sizes differ by at most one, in random order, of like length each.

    Examples
    --------
    >>> parts = batches(np.arange(5), np.array([9, 1, 8, 2, 3]), 2, np.random.default_rng(0))
    >>> sorted(sorted(part.tolist()) for part in parts)
    [[0], [1, 3], [2, 4]]
    """
    steps = math.ceil(len(rows) / size)
    order = rng.permutation(rows)
    pools = np.array_split(order, math.ceil(steps / POOL))
    alike = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    parts = np.array_split(alike, steps)
    return [parts[place] for place in rng.permutation(steps)]


def learning_rate(step: int, steps: int, warmup: float) -> float:
    """Rate of a step, counted from 0, as a share of the largest: up in a line, then down to 0.

    Examples
    --------
    >>> [round(learning_rate(step, 10, 0.2), 3) for step in (0, 1, 2, 9)]
    [0.5, 1.0, 1.0, 0.125]
    """
    rise = round(warmup * steps)
    if step < rise:
        return (step + 1) / rise
    return (steps - step) / max(1, steps - rise)


def _optimizer(network: RoutingNetwork, plan: Plan) -> torch.optim.Optimizer:
    """AdamW; weight decay on matrices alone, and a rate of its own for the head."""
    groups: list[dict[str, Any]] = []
    for part, rate in ((network.encoder, plan.lr), (network.head, plan.head_lr)):
        for matrices, decay in ((True, plan.weight_decay), (False, 0.0)):
            values = [value for value in part.parameters() if (value.ndim >= 2) is matrices]
            if values:
                groups.append({"params": values, "peak": rate, "weight_decay": decay})
    # One kernel for all parameters, where torch has one.
    fused = network.head.weight.device.type in ("cpu", "cuda")
    return torch.optim.AdamW(groups, plan.lr, fused=fused)
