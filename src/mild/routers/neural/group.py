"""Processes that train one network together: each takes a share of every batch, gradients are added.

Every process has all rows and the same seed, so that all draw the same batches. The gradient of the mean
over a batch is the sum of the gradients of the shares, each divided by the size of the whole batch: the
network is that of one process with the same batches, up to rounding. The first process decides when to
stop and writes the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from mild.core.arrays import IntArray
from mild.errors import InvalidInputError, MildError, UnsupportedError

T = TypeVar("T")
BATCH_NORM = nn.modules.batchnorm._BatchNorm


class Group:
    """The process group of torch, or this process alone; the first, of rank 0, decides and writes."""

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.size = dist.get_world_size() if together else 1
        self.rank = dist.get_rank() if together else 0
        self.is_first = self.rank == 0

    def share(self, rows: IntArray) -> IntArray:
        """This process's share of the rows of a batch, which may be empty."""
        return rows if self.size == 1 else np.array_split(rows, self.size)[self.rank]

    def add_gradients(self, module: nn.Module) -> None:
        """Replace the gradients of every process by their sum."""
        if self.size == 1:
            return
        free = [value for value in module.parameters() if value.requires_grad]
        # An empty share has no gradient to add.
        own = [torch.zeros_like(value) if value.grad is None else value.grad for value in free]
        whole = torch.cat([gradient.reshape(-1) for gradient in own])
        dist.all_reduce(whole)
        sizes = [value.numel() for value in free]
        parts = whole.split(sizes)  # type: ignore[no-untyped-call]
        for value, part in zip(free, parts, strict=True):
            value.grad = torch.empty_like(value).copy_(part.reshape(value.shape))

    def add(self, values: Tensor) -> Tensor:
        """The sum over processes; ``values`` is overwritten."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def first(self, action: Callable[[], T]) -> T:
        """Result, or MildError, of ``action`` in the first process, for all processes."""
        if self.size == 1:
            return action()
        outcome: list[Any] = [None, None]
        if self.is_first:
            try:
                outcome[0] = action()
            except MildError as error:
                outcome[1] = error
        dist.broadcast_object_list(outcome)
        if outcome[1] is not None:
            raise outcome[1]
        return cast(T, outcome[0])

    def begin(self, module: nn.Module) -> None:
        """Copy the weights of the first process to all."""
        if self.size == 1:
            return
        norms = [name for name, part in module.named_modules() if isinstance(part, BATCH_NORM)]
        if norms:
            raise UnsupportedError(
                f"a module trained by several processes must not normalise over the batch, of which each "
                f"sees a part; layer {norms[0]!r} does. Use LayerNorm or GroupNorm, or one process."
            )
        for value in module.state_dict().values():
            dist.broadcast(value, 0)

    def check_same(self, options: Mapping[str, Any]) -> None:
        """Check that all processes have the same data and options."""
        if self.size == 1:
            return
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, dict(options))
        for rank, other in enumerate(gathered):
            differ = [name for name in sorted(other) if other[name] != gathered[0][name]]
            if differ:
                what = "rows" if differ[0] == "data" else differ[0]
                raise InvalidInputError(
                    f"all processes must be given the same {what}, of which each takes its share; "
                    f"those of process {rank} differ from those of process 0."
                )
