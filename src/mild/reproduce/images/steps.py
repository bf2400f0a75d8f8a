"""One optimiser step: plain, or recorded as a CUDA graph that is then replayed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from mild.reproduce.images.feed import ImageFeed
from mild.reproduce.images.network import Backbone, Network
from mild.reproduce.images.protocol import Protocol

__all__ = ["Loss", "Stepper", "make_optimizer", "make_stepper"]

#: Scores (b, n_outputs) and the rows they belong to, (b,), to one loss per row, (b,).
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]

WARM_UP = 3
# The fused kernels work on blocks of channels: powers of two from here on.
LEAST_FUSED_WIDTH = 16
# They count numbers in 32 bits, up to the end of the last block of 4,096.
MOST_FUSED = 2**31 - 4096


class Stepper:
    """Takes one step per call; ``total`` on the device adds up the losses."""

    def __init__(
        self,
        network: Network,
        optimizer: torch.optim.Optimizer,
        feed: ImageFeed,
        loss: Loss,
        batch_size: int,
        forward: Callable[[Backbone, Tensor], Tensor],
    ) -> None:
        self.network = network
        self.optimizer = optimizer
        self.feed = feed
        self.loss = loss
        self.forward = forward
        self.device = feed.pixels.device
        self.plan = torch.zeros(4, batch_size, dtype=torch.int64, device=self.device)
        self.total = torch.zeros((), device=self.device)

    def __call__(self, plan: Tensor, lr: float) -> None:
        """One step on the batch that ``plan`` (4, batch_size) describes."""
        self.plan.copy_(plan, non_blocking=True)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr
        self.run()

    def run(self) -> None:
        """The step itself, on what lies in ``self.plan``."""
        self.optimizer.zero_grad(set_to_none=True)
        images = self.feed.batch(self.plan)
        with torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda"):
            features = self.forward(self.network.backbone, images)
        scores = self.network.head(features.float())
        value = self.loss(scores, self.plan[0]).mean()
        value.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.total.add_(value.detach())


class GraphStepper(Stepper):
    """The same, recorded once as a CUDA graph: the launches of a step cost nothing any more."""

    def record(self) -> None:
        """Record the step; weights, statistics and the optimiser are left as they were."""
        kept = [value.detach().clone() for value in self._state()]
        known = len(kept)
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                Stepper.run(self)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            Stepper.run(self)
        with torch.no_grad():
            for place, value in enumerate(self._state()):
                # What the optimiser made during the warm-up starts at zero.
                value.copy_(kept[place]) if place < known else value.zero_()
            self.total.zero_()
        self._replay = graph.replay

    def run(self) -> None:
        self._replay()

    def _state(self) -> list[Tensor]:
        """All tensors that a step changes, in an order that only ever grows at its end."""
        state = [*self.network.parameters(), *self.network.buffers()]
        for entries in self.optimizer.state.values():
            state += [value for value in entries.values() if isinstance(value, Tensor)]
        return state


def make_optimizer(network: Network, protocol: Protocol) -> torch.optim.Optimizer:
    """Adam or AdamW on all parameters, the learning rate on the device where steps are recorded there."""
    cuda = next(network.parameters()).device.type == "cuda"
    rate: float | Tensor = torch.tensor(protocol.lr, device="cuda") if cuda else protocol.lr
    kind = torch.optim.AdamW if protocol.decay == "decoupled" else torch.optim.Adam
    return kind(
        network.parameters(), rate, weight_decay=protocol.weight_decay, fused=True, capturable=cuda
    )


def make_stepper(
    network: Network,
    optimizer: torch.optim.Optimizer,
    feed: ImageFeed,
    loss: Loss,
    batch_size: int,
    width: int,
) -> Stepper:
    """The quickest way to take steps on this device."""
    if feed.pixels.device.type != "cuda":
        return Stepper(network, optimizer, feed, loss, batch_size, Backbone.forward)
    # No layer gives more numbers than the first.
    forward = _forward_on_cuda(width, batch_size * feed.height * feed.width * width)
    stepper = GraphStepper(network, optimizer, feed, loss, batch_size, forward)
    stepper.record()
    return stepper


def _forward_on_cuda(width: int, largest: int) -> Callable[[Backbone, Tensor], Tensor]:
    """The backbone with fused kernels; torch's own where they do not fit or Triton is missing."""
    fits = width >= LEAST_FUSED_WIDTH and width & (width - 1) == 0 and largest <= MOST_FUSED
    if not fits or importlib.util.find_spec("triton") is None:
        return Backbone.forward
    from mild.reproduce.images.fused import fused_forward

    return fused_forward
