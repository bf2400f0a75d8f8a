"""Real experts: networks trained on their own classes and on 1 % of the others.

Importing this does not import torch; training does.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mild.exceptions import MissingExtraError
from mild.reproduce.diverged import DivergedError
from mild.reproduce.experts.answers import ExpertAnswers, accuracy, class_names
from mild.reproduce.experts.cache import SCHEMA, ExpertCache, StoredExpert
from mild.reproduce.experts.setups import Setup
from mild.reproduce.experts.splits import check_seed, halves
from mild.reproduce.files import WAITING
from mild.reproduce.images.protocol import RECIPE
from mild.reproduce.keys import content_key

if TYPE_CHECKING:
    import torch

    from mild.reproduce.data.images import ImageData
    from mild.reproduce.images.protocol import Protocol
    from mild.reproduce.images.training import TrainedNetwork
    from mild.reproduce.turns import Progress

__all__ = ["LEAST_STEPS", "expert_protocol", "expert_rows", "trained_answers", "trained_expert"]

OTHERS_FRACTION = 0.01
#: An expert of few classes sees few batches in an epoch: it gets as many epochs as this takes.
LEAST_STEPS = 400
# Keep these streams apart from those of everything else that is seeded with the same small number.
ROWS, NETWORK = 0x524F5753, 0x4E455457


def trained_answers(
    data: ImageData,
    setup: Setup,
    protocol: Protocol,
    *,
    seed: int = 0,
    holdout: bool = False,
    cache_dir: Path | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> ExpertAnswers:
    """Answers of the paper's real experts on training and test images.

    Each expert is a network with one output per class, trained with the cross-entropy on all training
    images of its own classes and on 1 % of every other class (at least one image); it answers the
    class of the largest score. Seeds of an expert come from ``seed`` and its classes: an expert with the
    same classes in two setups is the same expert, trained once if there is a cache.

    Without ``holdout`` the router trains on the images that the experts were trained on, as in the
    paper: costs there are optimistic, since an expert errs less on what it has seen.

    Parameters
    ----------
    data : images with labels
    setup : who knows which classes
    protocol : how a network is trained; epochs are raised where they make fewer than 400 steps
    seed : non-negative int, for the 1 %, the halves and the networks
    holdout : whether experts train on one stratified half of the images and the router on the other
    cache_dir : folder of trained experts; None to train every time
        A kill during training loses a few epochs, not the training, if there is a folder; processes
        that share it train an expert once, and the others wait for it.
    device : where to train
    progress : called as ``progress(done, total, message)`` during each training

    Departs from the paper: it does not say how long or how its experts are trained; here they follow
    the router's protocol.
    """
    check_seed(seed)
    owners = setup.owners(data.n_classes)
    names = class_names(owners)
    rows = np.arange(len(data.train_labels), dtype=np.int64)
    pool, router_rows = halves(data.train_labels, seed) if holdout else (rows, rows)
    experts = []
    for expert, name in enumerate(names):
        classes = np.flatnonzero(owners == expert)
        experts.append(
            trained_expert(
                data,
                expert_rows(data.train_labels, pool, classes, seed),
                protocol,
                name=name,
                classes=classes,
                seed=seed,
                holdout=holdout,
                cache_dir=cache_dir,
                device=device,
                progress=progress,
            )
        )
    return ExpertAnswers(
        setup=setup,
        kind="real",
        train=np.column_stack([expert.train for expert in experts]),
        test=np.column_stack([expert.test for expert in experts]),
        names=names,
        prices=np.array(setup.coverage, dtype=np.float64),
        router_rows=router_rows,
        notes={
            "seed": int(seed),
            "holdout": bool(holdout),
            "experts": [dict(expert.facts) for expert in experts],
        },
    )


def expert_rows(
    labels: NDArray[np.int64], pool: NDArray[np.int64], classes: NDArray[np.int64], seed: int
) -> NDArray[np.int64]:
    """Training rows of the expert that knows ``classes``: theirs, and 1 % of every other class.

    Parameters
    ----------
    labels : (n_train,) classes
    pool : rows to take from
    classes : what the expert knows
    seed : non-negative int, for the 1 %; at least one row of every class that has one

    Examples
    --------
    >>> labels = np.repeat([0, 1, 2], [3, 200, 50])
    >>> rows = expert_rows(labels, np.arange(253), np.array([0]), seed=0)
    >>> np.bincount(labels[rows])
    array([3, 2, 1])
    """
    rng = np.random.default_rng([ROWS, seed, *map(int, classes)])
    own = set(map(int, classes))
    kept = []
    for label in np.unique(labels[pool]):
        rows = pool[labels[pool] == label]
        if int(label) not in own:
            rows = rng.choice(rows, max(1, round(OTHERS_FRACTION * len(rows))), replace=False)
        kept.append(rows)
    return np.sort(np.concatenate(kept)).astype(np.int64)


def expert_protocol(protocol: Protocol, n_rows: int) -> Protocol:
    """Return the protocol with as many epochs as make ``LEAST_STEPS`` steps on so many rows."""
    steps = max(1, n_rows // protocol.batch_size)
    epochs = max(protocol.epochs, math.ceil(LEAST_STEPS / steps))
    return protocol if epochs == protocol.epochs else protocol.changed(epochs=epochs)


def trained_expert(
    data: ImageData,
    rows: NDArray[np.int64],
    protocol: Protocol,
    *,
    name: str,
    classes: NDArray[np.int64],
    seed: int,
    holdout: bool,
    cache_dir: Path | None,
    device: str | torch.device,
    progress: Progress | None,
) -> StoredExpert:
    """One expert: from the cache if it is there, otherwise trained on ``rows`` and kept.

    Its key covers the data, the classes, the rows, the protocol with the epochs that are run (not its
    name), the recipe of trainings, the seed and ``holdout``. The device is left out: it changes
    rounding alone.
    """
    protocol = expert_protocol(protocol, len(rows))
    described = {field: value for field, value in protocol.as_dict().items() if field != "name"}
    key = content_key(
        {
            "schema": SCHEMA,
            "recipe": RECIPE,
            "data": data.digest(),
            "classes": classes.tolist(),
            "rows": hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest(),
            "protocol": described,
            "seed": int(seed),
            "holdout": bool(holdout),
        }
    )
    told = _named(progress, name)

    def train(checkpoint: Path | None) -> StoredExpert:
        network = train_classifier(
            data.train_images[rows],
            data.train_labels[rows],
            data.n_classes,
            # A checkpoint knows its protocol's name; this expert goes by any.
            protocol.changed(name="expert"),
            _network_seed(seed, classes),
            flip=data.flip,
            device=device,
            checkpoint=checkpoint,
            identity={"expert": key},
            progress=told,
        )
        known, new = (
            _answers(network, images, name) for images in (data.train_images, data.test_images)
        )
        facts = {
            "name": name,
            "key": key[:16],
            "rows": len(rows),
            "epochs": protocol.epochs,
            "protocol": protocol.name,
            "seconds": round(float(network.seconds), 3),
            "accuracy": {
                "train": accuracy(known, data.train_labels, classes).as_dict(),
                "test": accuracy(new, data.test_labels, classes).as_dict(),
            },
        }
        return StoredExpert(known, new, facts)

    if cache_dir is None:
        return train(None)
    cache = ExpertCache(cache_dir)
    # Another process may be at the same expert: two trainings of it may differ, so one serves both.
    with cache.claim(key, lambda: told and told(0, protocol.epochs, WAITING)):
        found = cache.read(key, len(data.train_labels), len(data.test_labels), data.n_classes)
        if found is None:
            found = train(cache.checkpoint(key))
            cache.write(key, found)
        return found


def train_classifier(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    n_classes: int,
    protocol: Protocol,
    seed: int,
    *,
    flip: bool,
    device: str | torch.device,
    checkpoint: Path | None,
    identity: Mapping[str, Any],
    progress: Progress | None,
) -> TrainedNetwork:
    """Train a network with the cross-entropy on labels."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "real experts need torch, which is not installed; "
            "install it with: pip install 'mild-learn[neural]'."
        ) from error
    from mild.reproduce.images.training import train_network

    truth = torch.as_tensor(labels, dtype=torch.int64, device=device)

    def loss(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(scores, truth[rows], reduction="none")

    return train_network(
        images,
        n_classes,
        loss,
        protocol,
        seed,
        flip=flip,
        device=device,
        checkpoint=checkpoint,
        identity=identity,
        progress=progress,
    )


def _answers(network: TrainedNetwork, images: NDArray[np.uint8], name: str) -> NDArray[np.int64]:
    scores = network.scores(images)
    if not np.isfinite(scores).all():
        raise DivergedError(
            f"scores of the expert '{name}' must be finite; its training diverged. Lower the "
            f"learning rate."
        )
    return np.argmax(scores, axis=1).astype(np.int64)


def _network_seed(seed: int, classes: NDArray[np.int64]) -> int:
    entropy = [NETWORK, int(seed), *map(int, classes)]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def _named(progress: Progress | None, name: str) -> Progress | None:
    if progress is None:
        return None
    tell = progress
    return lambda done, total, message: tell(done, total, f"expert for {name}: {message}")
