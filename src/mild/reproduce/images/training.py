"""Train a ResNet-18 on images by any loss on its scores; a killed run goes on where it was.

All randomness of an epoch comes from the seed and the number of the epoch: a run continued from a
checkpoint needs no generator state to repeat itself. On a CPU it ends in the same bits as one that
was never broken. On a GPU cuDNN measures anew in every process which of its convolutions is quickest
here, and another choice rounds differently: two runs agree as two ways of rounding do.
"""

from __future__ import annotations

import errno
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mild.exceptions import ArtifactError, InvalidInputError, MildWarning
from mild.reproduce.data.images import check_images
from mild.reproduce.diverged import DivergedError
from mild.reproduce.images.feed import ImageFeed
from mild.reproduce.images.network import Network, make_network
from mild.reproduce.images.protocol import Protocol, recipe
from mild.reproduce.images.steps import Loss, Stepper, make_optimizer, make_stepper
from mild.routers.neural.checkpoint import Checkpoint
from mild.routers.neural.run import Run, is_finite
from mild.routers.neural.training import learning_rate

__all__ = ["Evaluate", "TrainedNetwork", "best_device", "train_network"]

#: Gets a function from images to scores; gives numbers for the record of an epoch.
Evaluate: TypeAlias = Callable[
    [Callable[[NDArray[np.uint8]], NDArray[np.float32]]], dict[str, float]
]

CHECKPOINT_SECONDS = 30.0
JUDGED_AT_ONCE = 2000


class TrainedNetwork:
    """What training gave.

    Attributes
    ----------
    network, feed : the network and the feed it was trained from, which knows how inputs are scaled
    history : one record per epoch
    seconds : wall time of all epochs, those of earlier processes included, start-up left out
    images_per_second : images of the epochs over that time
    """

    def __init__(self, network: Network, feed: ImageFeed, run: Run, images_per_epoch: int) -> None:
        self.network = network
        self.feed = feed
        self.history = run.history
        self.seconds = _seconds(run)
        self.images_per_second = run.epoch * images_per_epoch / max(self.seconds, 1e-9)

    def scores(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Scores (n, n_outputs) of images as they are."""
        return _scores(self.network, self.feed, images)

    def features(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Features (n, 8 * width) that the head scores."""
        return _judge(self.network, self.feed, images, lambda features: features)


def _scores(network: Network, feed: ImageFeed, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return _judge(network, feed, images, lambda features: network.head(features))


def _judge(
    network: Network,
    feed: ImageFeed,
    images: NDArray[np.uint8],
    finish: Callable[[Tensor], Tensor],
) -> NDArray[np.float32]:
    """Leaves the network in evaluation mode."""
    kind = feed.pixels.device.type
    parts = []
    network.eval()
    with torch.no_grad(), _repeatable():
        for batch in feed.batches(images, JUDGED_AT_ONCE):
            with torch.autocast(kind, torch.bfloat16, kind == "cuda"):
                features = network.backbone(batch)
            parts.append(finish(features.float()).cpu())
    return torch.cat(parts).numpy()


def train_network(
    images: NDArray[np.uint8],
    n_outputs: int,
    loss: Loss,
    protocol: Protocol,
    seed: int,
    *,
    flip: bool,
    device: str | torch.device = "cpu",
    checkpoint: Path | None = None,
    identity: Mapping[str, Any] | None = None,
    progress: Callable[[int, int, str], Any] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    evaluate: Evaluate | None = None,
) -> TrainedNetwork:
    """Train a network of ``protocol.width`` on images.

    Parameters
    ----------
    images : uint8 array (n, height, width, channels)
    n_outputs : number of scores per image
    loss : function of scores (b, n_outputs) and rows (b,), both on the device, that gives one value
        per row; ``rows`` index into ``images``. It must not wait for the device or copy to it: the
        step may be recorded as a CUDA graph.
    seed : for the first weights, the order of the images and the crops
    flip : whether a mirror image means the same
    checkpoint : file that is written at most every ``checkpoint_seconds``, and at the end of a
        training of more than that, and continued from; a damaged one is told of in a warning, and the
        training starts over; one that cannot be written is, too, and the training goes on
    identity : what a checkpoint must have been made with, beside images, protocol and seed, to be
        continued; JSON-ready
    progress : called with epochs done, epochs in all and a message
    evaluate : called after every epoch with a function that scores images; what it returns is added
        to the epoch's record

    Departs from the paper: bfloat16 with float32 weights on a GPU; float32 elsewhere.
    """
    check_images("images", images)
    if len(images) < 2:
        raise InvalidInputError(
            "images must be at least 2 to train on: batch normalisation knows no spread of one; got 1."
        )
    place = torch.device(device)
    feed = ImageFeed(images, protocol.augment, flip, place)

    def start() -> tuple[Network, torch.optim.Optimizer]:
        network = make_network(feed.channels, n_outputs, protocol.width, seed).to(place)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network, make_optimizer(network, protocol)

    network, optimizer = start()
    store = None
    run = Run()
    if checkpoint is not None:
        options = _identity(images, n_outputs, protocol, seed, identity)
        store = Checkpoint(checkpoint, options, True, "mild", "delete it to start over")
        try:
            run = store.read(network, optimizer, protocol.epochs)
        except ArtifactError as error:
            if _is_full(error):
                _warn_unwritten(checkpoint, error)
            # One of another run is sound, and not ours to lose: only damage has a cause.
            elif error.__cause__ is None or not checkpoint.is_file():
                raise
            else:
                warnings.warn(
                    f"checkpoint {checkpoint} is damaged or does not fit; its training starts over.",
                    MildWarning,
                    stacklevel=2,
                )
                # Some of its weights may have been taken over.
                network, optimizer = start()
    batch_size = min(protocol.batch_size, feed.n_images)
    steps = feed.n_images // batch_size
    if run.epoch < protocol.epochs:
        network.train()
        with _repeatable():
            stepper = make_stepper(network, optimizer, feed, loss, batch_size, protocol.width)
            judge = None if evaluate is None else partial(evaluate, partial(_scores, network, feed))
            _train(stepper, protocol, seed, run, steps, store, progress, checkpoint_seconds, judge)
    return TrainedNetwork(network, feed, run, steps * batch_size)


def _train(
    stepper: Stepper,
    protocol: Protocol,
    seed: int,
    run: Run,
    steps: int,
    store: Checkpoint | None,
    progress: Callable[[int, int, str], Any] | None,
    checkpoint_seconds: float,
    judge: Callable[[], dict[str, float]] | None = None,
) -> None:
    """The epochs that are left; each record says how long its epoch took."""
    network = stepper.network
    batch_size = min(protocol.batch_size, stepper.feed.n_images)
    start = written = time.monotonic()
    warned = False
    while run.epoch < protocol.epochs:
        record = _epoch(stepper, protocol, seed, run.epoch, batch_size, steps)
        if not is_finite(network, record):
            raise DivergedError(
                f"training diverged in epoch {run.epoch + 1}: loss or weights are not finite. "
                f"Lower the learning rate {protocol.lr:g}."
            )
        now = time.monotonic()
        record["seconds"] = now - start
        if judge is not None:
            record |= judge()
            network.train()
        run.add(record, network)
        over = run.epoch == protocol.epochs
        # What comes after the last epoch may fail, too: a long training is kept until it is safe.
        due = _seconds(run) >= checkpoint_seconds if over else now - written >= checkpoint_seconds
        if store is not None and due:
            try:
                store.write(run, network, stepper.optimizer)
            except ArtifactError as error:
                # The result may lie on another disk; and there may be room again at the next one.
                if not warned:
                    _warn_unwritten(store.path, error)
                warned = True
            written = time.monotonic()
        if progress is not None:
            progress(run.epoch, protocol.epochs, f"loss {record['loss']:.4f}")
        start = time.monotonic()


def _is_full(error: ArtifactError) -> bool:
    """Whether the disk of a checkpoint has no room."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def _warn_unwritten(checkpoint: Path, error: ArtifactError) -> None:
    """Say what a kill would lose, in words that are the same for all trainings of a folder."""
    cause = error.__cause__
    reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else error
    warnings.warn(
        f"checkpoints cannot be written to {checkpoint.parent} ({reason}): trainings go on, but a kill "
        f"would now lose the one under way. Make room there, or name another folder "
        f"(--checkpoint-dir; for experts --cache-dir).",
        MildWarning,
        stacklevel=2,
    )


def _seconds(run: Run) -> float:
    """Time of all epochs of a run; one that another version began has none for its first ones."""
    return math.fsum(record.get("seconds", 0.0) for record in run.history)


def _epoch(
    stepper: Stepper, protocol: Protocol, seed: int, epoch: int, batch_size: int, steps: int
) -> dict[str, Any]:
    plans = stepper.feed.plan(seed, epoch, batch_size).to(stepper.device, non_blocking=True)
    stepper.total.zero_()
    rate = protocol.lr
    for step in range(steps):
        if protocol.schedule == "one-cycle":
            rate = protocol.lr * learning_rate(epoch * steps + step, protocol.epochs * steps)
        stepper(plans[step], rate)
    return {"epoch": epoch + 1, "loss": float(stepper.total) / steps, "learning_rate": rate}


def _identity(
    images: NDArray[np.uint8],
    n_outputs: int,
    protocol: Protocol,
    seed: int,
    more: Mapping[str, Any] | None,
) -> dict[str, Any]:
    options = protocol.as_dict()
    options |= {"seed": seed, "images": list(images.shape), "n_outputs": n_outputs}
    options |= recipe()
    return options | dict(more or {})


@contextmanager
def _repeatable() -> Iterator[None]:
    """The quickest of those convolutions that give the same bits each time they are called.

    Which is quickest is measured once per process and shape, so that two processes may take different
    ones. torch's settings come back at the end.
    """
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=True):
        yield


def best_device() -> str:
    """ "cuda" where there is a GPU that torch can use, otherwise "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"
