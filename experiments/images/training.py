"""Train a ResNet-18 on images by any loss on its scores.

All randomness of an epoch comes from the seed and the number of the epoch. On a CPU a training that is
repeated ends in the same bits. On a GPU cuDNN chooses convolutions by timing them, and another choice
rounds differently.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from experiments.images.network import Network, make_network
from experiments.records import DivergedError
from mild.errors import InvalidInputError, check_option

Images: TypeAlias = NDArray[np.uint8]
Scores: TypeAlias = NDArray[np.float32]
#: Scores (b, n_outputs) and the rows they belong to, (b,), to one loss per row, (b,).
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
#: Gets a function from images to scores; gives numbers for the record of an epoch.
Evaluate: TypeAlias = Callable[[Callable[[Images], Scores]], dict[str, float]]

#: Part of the keys of trainings: raise it when network, initialisation, augmentation or steps change.
RECIPE = 1
SCHEDULES = ("constant", "one-cycle")
#: Weight decay as part of the gradient (torch's Adam), or taken off the weights by itself (AdamW).
DECAYS = ("coupled", "decoupled")
DEFAULT = "adamw"
CHANGED = ", changed"
# One cycle: up for this share of the steps, from and down to these shares of the largest rate.
RISE, START, END = 0.3, 1 / 25, 1 / 25e4
PADDING = 4
EVALUATION_BATCH = 2000
IMAGE, TOP, LEFT, MIRROR = range(4)


@dataclass(frozen=True)
class Protocol:
    """Settings of one training; results are labelled with ``name``.

    Attributes
    ----------
    epochs, batch_size : every epoch is a new order of the images in full batches
    lr, weight_decay : Adam's; all parameters decay
    schedule : "constant", or "one-cycle": up to ``lr`` for 30 % of the steps, then down to nothing
    augment : random crops, and mirror images where a mirror image means the same
    width : channels of the first stage; ResNet-18 has 64
    decay : "coupled" adds ``weight_decay * weight`` to the gradient, so that the size of the loss decides
        how strong it is; "decoupled" subtracts ``lr * weight_decay * weight`` in each step
    stride : of the first convolution

    >>> PROTOCOLS["fast"].changed(epochs=2, width=None).name
    'fast, changed'
    """

    name: str
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    schedule: str
    augment: bool
    width: int = 64
    decay: str = "coupled"
    stride: int = 1

    def __post_init__(self) -> None:
        check_option("schedule", self.schedule, SCHEDULES)
        check_option("decay", self.decay, DECAYS)
        for name, least in {"epochs": 1, "batch_size": 2, "width": 1, "stride": 1}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInputError(f"{name} must be an integer >= {least}; got {value!r}.")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise InvalidInputError(f"lr must be positive and finite; got {self.lr}.")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InvalidInputError(
                f"weight_decay must be non-negative and finite; got {self.weight_decay}."
            )

    def changed(self, **fields: Any) -> Protocol:
        """The protocol with other fields (None keeps one); its name says that it was changed."""
        result = dataclasses.replace(self, **{k: v for k, v in fields.items() if v is not None})
        if result == self:
            return self
        return dataclasses.replace(result, name=self.name.removesuffix(CHANGED) + CHANGED)

    @property
    def optimizer(self) -> dict[str, Any]:
        """The optimiser in the words of a record."""
        name = "AdamW" if self.decay == "decoupled" else "Adam"
        return {"name": name, "weight_decay": self.weight_decay, "decay": self.decay}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record; without what the first records leave out at its usual value."""
        values = dataclasses.asdict(self)
        for name, usual in (("decay", "coupled"), ("stride", 1)):
            if values[name] == usual:
                del values[name]
        return values


#: "paper" is the paper's (section 6), which does not say whether it augmented the images, nor which kind of
#: decay it used. The decay of "adamw" is the best of eight for TDEF on held-out training rows of setup I
#: (docs/science/reproduction.md).
PROTOCOLS = {
    "adamw": Protocol("adamw", 50, 1024, 1e-3, 8.0, "one-cycle", augment=True, decay="decoupled"),
    "paper": Protocol("paper", 200, 1024, 1e-3, 1e-3, "constant", augment=True),
    "fast": Protocol("fast", 16, 1024, 4e-3, 1e-3, "one-cycle", augment=True),
}


class ImageFeed:
    """Training images on a device: batches are cropped, mirrored and normalised there."""

    def __init__(self, images: Images, augment: bool, flip: bool, device: torch.device) -> None:
        self.n_images, self.height, self.width, self.channels = images.shape
        # A crop of an 8 x 8 digit moves by one pixel, one of a 32 x 32 photograph by four.
        self.shift = max(1, min(PADDING, self.height // 8)) if augment else 0
        self.flip = augment and flip
        pixels = torch.as_tensor(images, device=device)
        flat = pixels.reshape(-1, self.channels).to(torch.float32)
        self.mean = flat.mean(dim=0, dtype=torch.float64).to(torch.float32)
        spread = (flat - self.mean).square().mean(dim=0, dtype=torch.float64).sqrt()
        self.std = torch.where(spread > 0, spread, 1.0).to(torch.float32)
        around = (self.shift, self.shift)
        self.pixels = pad(pixels, (0, 0, *around, *around))
        self.precision = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._down = torch.arange(self.height, device=device)
        self._right = torch.arange(self.width, device=device)

    def plan(self, seed: int, epoch: int, batch_size: int) -> Tensor:
        """What an epoch shows: (steps, 4, batch_size) of image, top, left and mirrored or not."""
        steps = self.n_images // batch_size
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(self.n_images)[: steps * batch_size]
        offsets = rng.integers(0, 2 * self.shift + 1, size=(2, len(order)))
        mirrored = rng.integers(0, 2 if self.flip else 1, size=(1, len(order)))
        plan = np.concatenate([order[None], offsets, mirrored])
        return torch.as_tensor(plan.reshape(4, steps, batch_size)).transpose(0, 1).contiguous()

    def batch(self, plan: Tensor) -> Tensor:
        """The batch (b, channels, height, width) of one step of a plan, (4, b)."""
        down = plan[TOP, :, None] + self._down
        right = torch.where(plan[MIRROR, :, None] > 0, self._right.flip(0), self._right)
        right = plan[LEFT, :, None] + right
        return self._normalised(
            self.pixels[plan[IMAGE, :, None, None], down[:, :, None], right[:, None, :]]
        )

    def batches(self, images: Images) -> Iterator[Tensor]:
        """Other images as they are, normalised as these."""
        for start in range(0, len(images), EVALUATION_BATCH):
            part = np.ascontiguousarray(images[start : start + EVALUATION_BATCH])
            yield self._normalised(torch.as_tensor(part, device=self.pixels.device))

    def _normalised(self, pixels: Tensor) -> Tensor:
        return ((pixels - self.mean) / self.std).to(self.precision).permute(0, 3, 1, 2)


class Stepper:
    """Takes one optimiser step per call; ``total`` on the device adds up the losses.

    On a GPU the backbone is compiled, and the whole step is recorded once as a CUDA graph and replayed.
    """

    def __init__(
        self,
        network: Network,
        optimizer: torch.optim.Optimizer,
        feed: ImageFeed,
        loss: Loss,
        size: int,
    ) -> None:
        self.network, self.optimizer, self.feed, self.loss = network, optimizer, feed, loss
        self.device = feed.pixels.device
        self.plan = torch.zeros(4, size, dtype=torch.int64, device=self.device)
        self.total = torch.zeros((), device=self.device)
        self._backbone: Callable[[Tensor], Tensor] = network.backbone
        self._replay: Callable[[], None] = self._step
        if self.device.type == "cuda":
            self._backbone = torch.compile(network.backbone)
            self._record()

    def __call__(self, plan: Tensor, lr: float) -> None:
        """One step on the batch that ``plan`` (4, batch_size) describes."""
        self.plan.copy_(plan, non_blocking=True)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr
        self._replay()

    def _step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda"):
            features = self._backbone(self.feed.batch(self.plan))
        value = self.loss(self.network.head(features.float()), self.plan[IMAGE]).mean()
        value.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.total.add_(value.detach())

    def _record(self) -> None:
        """Record the step; weights, statistics and the optimiser are left as they were."""
        kept = [value.detach().clone() for value in self._state()]
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        with torch.no_grad():
            for place, value in enumerate(self._state()):
                # What the optimiser made during the warm-up starts at zero.
                value.copy_(kept[place]) if place < len(kept) else value.zero_()
            self.total.zero_()
        self._replay = graph.replay

    def _state(self) -> list[Tensor]:
        """All tensors that a step changes, in an order that only ever grows at its end."""
        state = [*self.network.parameters(), *self.network.buffers()]
        for entries in self.optimizer.state.values():
            state += [value for value in entries.values() if isinstance(value, Tensor)]
        return state


class TrainedNetwork:
    """What training gave: the network, one record per epoch, and the seconds of all epochs."""

    def __init__(
        self, network: Network, feed: ImageFeed, history: Sequence[dict[str, Any]]
    ) -> None:
        self.network, self.feed, self.history = network, feed, history
        self.seconds = math.fsum(record["seconds"] for record in history)
        self.images_per_second = len(history) * feed.n_images / max(self.seconds, 1e-9)

    def scores(self, images: Images) -> Scores:
        """Scores (n, n_outputs) of images as they are."""
        return _evaluate(self.network, self.feed, images, self.network.head)

    def features(self, images: Images) -> Scores:
        """Features (n, 8 * width) that the head scores."""
        return _evaluate(self.network, self.feed, images, lambda features: features)


def train_network(
    images: Images,
    n_outputs: int,
    loss: Loss,
    protocol: Protocol,
    seed: int,
    *,
    flip: bool,
    device: str = "cpu",
    progress: Callable[[int, int, str], Any] | None = None,
    evaluate: Evaluate | None = None,
) -> TrainedNetwork:
    """Train a network of ``protocol.width`` on images (n, height, width, channels) uint8.

    ``loss`` gives a value per row from scores (b, n_outputs) and rows (b,), both on the device; it must
    not wait for the device, as the step is recorded as a CUDA graph. ``flip`` says whether a mirror
    image means the same. What ``evaluate`` returns after every epoch is added to its record. Departs from
    the paper: bfloat16 with float32 weights on a GPU.
    """
    if len(images) < 2:
        raise InvalidInputError(
            "images must be at least 2 to train on, for batch normalisation; got 1."
        )
    place = torch.device(device)
    cuda = place.type == "cuda"
    feed = ImageFeed(images, protocol.augment, flip, place)
    network = make_network(feed.channels, n_outputs, protocol.width, seed, protocol.stride)
    network.to(place)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    kind = torch.optim.AdamW if protocol.decay == "decoupled" else torch.optim.Adam
    rate: Any = torch.tensor(protocol.lr, device=place) if cuda else protocol.lr
    optimizer = kind(
        network.parameters(), rate, weight_decay=protocol.weight_decay, fused=True, capturable=cuda
    )
    size = min(protocol.batch_size, feed.n_images)
    steps = feed.n_images // size
    network.train()
    with _deterministic():
        stepper = Stepper(network, optimizer, feed, loss, size)

    def epoch(number: int) -> dict[str, Any]:
        network.train()
        start = time.monotonic()
        plans = feed.plan(seed, number - 1, size).to(place, non_blocking=True)
        stepper.total.zero_()
        rate = protocol.lr
        for step in range(steps):
            if protocol.schedule == "one-cycle":
                done = (number - 1) * steps + step
                rate = protocol.lr * one_cycle(done, protocol.epochs * steps)
            stepper(plans[step], rate)
        record = {"epoch": number, "loss": float(stepper.total) / steps, "learning_rate": rate}
        record["seconds"] = time.monotonic() - start
        if evaluate is not None:
            record |= evaluate(lambda others: _evaluate(network, feed, others, network.head))
        return record

    history: list[dict[str, Any]] = []
    with _deterministic():
        for number in range(1, protocol.epochs + 1):
            record = epoch(number)
            weights = network.parameters()
            if not math.isfinite(record["loss"]) or not all(w.isfinite().all() for w in weights):
                raise DivergedError(
                    f"training diverged in epoch {number}: loss or weights are not finite. Lower the "
                    f"learning rate."
                )
            history.append(record)
            if progress is not None:
                progress(number, protocol.epochs, f"loss {record['loss']:.4f}")
    return TrainedNetwork(network, feed, history)


def one_cycle(step: int, steps: int) -> float:
    """The learning rate of a step, counted from 0, as a share of the largest one (Smith and Topin 2019).

    A cosine up over the first 30 % of the steps, and one down to almost nothing.

    >>> [round(one_cycle(step, 11), 3) for step in (0, 2, 5, 10)]
    [0.04, 0.96, 0.726, 0.0]
    """
    peak = RISE * steps - 1
    if peak > 0 and step <= peak:
        start, end, done = START, 1.0, step / peak
    else:
        peak = max(peak, 0.0)
        start, end, done = 1.0, END, (step - peak) / max(steps - 1 - peak, 1.0)
    return end + (start - end) * (1 + math.cos(math.pi * done)) / 2


def recipe() -> dict[str, int]:
    """What keys say of the recipe: nothing of the first, as the first records do."""
    return {} if RECIPE == 1 else {"recipe": RECIPE}


def best_device() -> str:
    """ "cuda" where there is a GPU that torch can use, otherwise "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _evaluate(
    network: Network, feed: ImageFeed, images: Images, finish: Callable[[Tensor], Tensor]
) -> Scores:
    kind = feed.pixels.device.type
    network.eval()
    parts = []
    with torch.no_grad(), _deterministic():
        for batch in feed.batches(images):
            with torch.autocast(kind, torch.bfloat16, kind == "cuda"):
                features = network.backbone(batch)
            parts.append(finish(features.float()).cpu())
    return torch.cat(parts).numpy()


@contextmanager
def _deterministic() -> Iterator[None]:
    """The quickest convolutions among those that give the same bits each time."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=True):
        yield
