"""Training data of a network: rows, their loss on scores, and the rows held out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mild.core.arrays import FloatArray, IntArray
from mild.errors import InvalidInputError
from mild.nn import mild_loss
from mild.policies import Decoder
from mild.routers.neural.group import Group
from mild.routers.targets import Targets

__all__ = ["Problem", "as_input", "check_output"]

# Dense rows up to this many bytes are kept on an accelerator; more is sent batch by batch.
RESIDENT = 4 << 30
# Rows per block when rows that are held out are scored.
BLOCK = 4096


class Problem:
    """Rows of X with their targets, split into ``train`` and ``validation`` (row indices).

    Rows of weight 0 are left out. Rewards are scaled to mean row sum 1 over the training rows.

    Parameters
    ----------
    X : (n_samples, n_features) dense or CSR
    costs : (n_samples, n_experts), NaN where an expert was never asked
    sample_weight : (n_samples,) or None
    decoder : turns scores into choices, for the rows held out
    held_out, seed : share of the rows held out, and the seed of their choice
    """

    def __init__(
        self,
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        targets: Targets,
        decoder: Decoder,
        held_out: float,
        seed: int,
        device: torch.device,
    ) -> None:
        self.X = X
        self.n_features, self.n_experts = X.shape[1], costs.shape[1]
        self.device = device
        self.decoder = decoder
        weight = np.ones(len(costs)) if sample_weight is None else sample_weight
        self.train, self.validation = _split(weight, targets.sample_weight, held_out, seed)
        self._costs = costs[self.validation]
        self._weight = weight[self.validation]
        mass = float(targets.rewards[self.train].sum())
        unit = len(self.train) / mass if mass > 0 else 1.0
        self._rewards = self._tensor(targets.rewards * unit)
        self._asked = None if targets.asked is None else torch.from_numpy(targets.asked).to(device)
        self._margins: list[float] = targets.margins.tolist()
        self._surrogate = targets.surrogate
        self._scale, self._offset, self._own_offset = (
            None if value is None else self._tensor(value)
            for value in (targets.scale, targets.offset, targets.own_offset)
        )
        dense = not hasattr(X, "toarray")
        on_device = device.type != "cpu" and dense and 4 * X.size <= RESIDENT
        self._resident = as_input(X, device) if on_device else None

    def _tensor(self, values: FloatArray) -> Tensor:
        return torch.from_numpy(np.array(values, dtype=np.float32)).to(self.device)

    def inputs(self, rows: IntArray) -> Tensor:
        """Features (m, n_features) of some rows, float32, on the device."""
        if self._resident is not None:
            return self._resident[self._index(rows)]
        return as_input(self.X[rows], self.device)

    def batches(self, size: int, rng: np.random.Generator) -> list[IntArray]:
        """The training rows in random batches, whose sizes differ by at most one."""
        return np.array_split(rng.permutation(self.train), math.ceil(len(self.train) / size))

    def losses(self, scores: Tensor, rows: IntArray) -> Tensor:
        """Loss of each of these rows on their scores (m, n_experts)."""
        at = self._index(rows)
        rewards = self._rewards[at]
        if self._scale is not None:
            scores = scores * self._scale
        if self._offset is not None:
            scores = scores + self._offset
        if self._own_offset is not None:
            scores = scores + torch.where(rewards > 0, self._own_offset, 0.0)
        asked = None if self._asked is None else self._asked[at]
        return mild_loss(scores, rewards, self._margins, self._surrogate, asked=asked)

    def validate(self, module: nn.Module, group: Group | None = None) -> dict[str, float]:
        """Deferral loss and mean surrogate on the rows held out; shared among the processes of a group.

        Rows whose chosen expert was never asked are left out of the deferral loss; if that leaves
        none it is infinite. Both are NaN for scores that are not finite.
        """
        module.eval()
        with torch.no_grad():
            scores = self._scores(module, self.validation, group)
            if not bool(torch.isfinite(scores).all()):
                return {"validation_loss": math.nan, "validation_surrogate": math.nan}
            surrogate = float(self.losses(scores, self.validation).mean())
        chosen = self.decoder.choose(scores.cpu().numpy())
        values = self._costs[np.arange(len(chosen)), chosen].astype(np.float64)
        known = ~np.isnan(values)
        mass = float(self._weight[known].sum())
        deferral = float(self._weight[known] @ values[known]) / mass if mass > 0 else math.inf
        return {"validation_loss": deferral, "validation_surrogate": surrogate}

    def _scores(self, module: nn.Module, rows: IntArray, group: Group | None) -> Tensor:
        """Scores (m, n_experts) of rows, in blocks; each process of a group scores its share."""
        places = np.arange(len(rows))
        own = places if group is None else group.share(places)
        blocks = np.array_split(own, max(1, math.ceil(len(own) / BLOCK)))
        parts = [module(self.inputs(rows[block])).float() for block in blocks if len(block)]
        if group is None or group.size == 1:
            return torch.cat(parts)
        scores = torch.zeros(len(rows), self.n_experts, device=self.device)
        if parts:
            scores[torch.from_numpy(own).to(self.device)] = torch.cat(parts)
        return group.add(scores)

    def _index(self, rows: IntArray) -> Tensor:
        return torch.from_numpy(rows).to(self.device)


def as_input(rows: Any, device: torch.device) -> Tensor:
    """Dense or CSR rows as a float32 tensor on the device; always a copy."""
    dense = rows.toarray() if hasattr(rows, "toarray") else rows
    # Overflow to infinity is reported by training.
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.array(dense, dtype=np.float32)).to(device)


def check_output(scores: Any, n_rows: int, n_experts: int) -> None:
    """Check that a module returned scores (n_rows, n_experts)."""
    if isinstance(scores, Tensor) and scores.shape == (n_rows, n_experts):
        if scores.is_floating_point():
            return
        got = f"dtype {scores.dtype}"
    else:
        got = str(tuple(scores.shape)) if isinstance(scores, Tensor) else type(scores).__name__
    raise InvalidInputError(
        f"module must return float scores of shape (n_rows, n_experts) = ({n_rows}, {n_experts}); "
        f"got {got}.",
        parameter="module",
    )


def _split(
    weight: FloatArray, training_weight: FloatArray, held_out: float, seed: int
) -> tuple[IntArray, IntArray]:
    """Rows to train on and rows held out; resampling applies to the former alone."""
    rows = np.flatnonzero(weight > 0)
    order = np.random.default_rng([seed, 0]).permutation(rows)
    count = int(held_out * len(rows))
    validation, train = np.sort(order[:count]), np.sort(order[count:])
    train = train[training_weight[train] > 0]
    if len(train) == 0:
        # Under-sampling kept only rows that were held out.
        return rows[training_weight[rows] > 0], rows[:0]
    return train, validation
