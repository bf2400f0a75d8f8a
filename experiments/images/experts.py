"""The experts: who knows which classes, what they answer, and what asking them costs."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.images.data import ImageData, PeopleFile, read_npz
from experiments.images.training import RECIPE, Protocol, TrainedNetwork, train_network
from experiments.records import DivergedError, content_key, write_whole
from mild.core.costs import cheapest, cost_matrix
from mild.errors import InvalidInputError, MildWarning, OptionError, check_option

Progress = Callable[[int, int, str], Any]
Rows = NDArray[np.int64]

#: Kinds of experts, in the order in which tables list them.
EXPERTS = ("synthetic", "real", "people")
#: "error": wrong or right; "cost": the same plus what asking the expert costs.
COSTS = ("error", "cost")
# Tags keep random streams apart that are seeded with the same small number.
SYNTHETIC, HALVES, ROWS, NETWORK, SPLIT = 0x53594E54, 0x48414C46, 0x524F5753, 0x4E455457, 0x50454F50
#: Share of the rows of other classes that a trained expert learns from, in the paper.
OTHERS = 0.01
#: An expert of few classes sees few batches per epoch: it gets as many epochs as this many steps take.
LEAST_STEPS = 400
#: Share of the images with people that are for the test, and columns that hold answers of single people.
TEST_FRACTION = 0.2
PEOPLE_COLUMNS = {
    "cifar10": ("random_label1", "random_label2", "random_label3"),
    "cifar100": ("noisy_label",),
}
#: Seed and share of the rows that searches and the choice of the weight decay hold out.
HELD_OUT_SEED, HELD_OUT = 0, 0.1
SCHEMA = 1


@dataclass(frozen=True)
class Setup:
    """Experts by the share of the classes that each of them knows.

    >>> SETUPS["I"].owners(10)
    array([0, 0, 0, 0, 0, 0, 0, 1, 1, 2])
    """

    name: str
    coverage: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Setup:
        """One of the paper's setups by name, or a coverage such as "0.6-0.3-0.1"."""
        if text in SETUPS or not re.fullmatch(r"[\d.]+([-,][\d.]+)*", text):
            return SETUPS[check_option("setup", text, SETUPS)]
        try:
            shares = tuple(float(part) for part in re.split("[-,]", text))
        except ValueError:
            shares = ()
        if len(shares) < 2 or min(shares) <= 0 or abs(math.fsum(shares) - 1) > 1e-6:
            raise OptionError(
                f"a coverage must be at least two positive shares of the classes that sum to 1, such as "
                f"0.6,0.3,0.1; got {text!r}."
            )
        known = (setup for setup in SETUPS.values() if setup.coverage == shares)
        return next(known, cls("-".join(f"{share:g}" for share in shares), shares))

    @property
    def n_experts(self) -> int:
        """Number of experts."""
        return len(self.coverage)

    def owners(self, n_classes: int) -> Rows:
        """The expert that knows each class, (n_classes,): the first share, the next share, and so on."""
        ends = np.floor(np.cumsum(self.coverage) * n_classes + 0.5 + 1e-9).astype(np.int64)
        ends[-1] = n_classes
        counts = np.diff(ends, prepend=0)
        if (counts < 1).any():
            raise InvalidInputError(
                f"coverage must leave every expert at least one of {n_classes} classes; got {self.name}."
            )
        return np.repeat(np.arange(self.n_experts, dtype=np.int64), counts)


#: The paper's setups.
SETUPS = {
    "I": Setup("I", (0.7, 0.2, 0.1)),
    "II": Setup("II", (0.5, 0.2, 0.2, 0.1)),
    "III": Setup("III", (0.4, 0.2, 0.2, 0.1, 0.1)),
    "severe": Setup("severe", (0.9, 0.1)),
}


@dataclass(frozen=True, eq=False)
class ExpertAnswers:
    """Answers (n, n_experts) of all experts on the images of one data set.

    ``prices`` (n_experts,) are what the cost type "cost" adds; ``router_rows`` are the training images that
    a router may train on.
    """

    train: Rows
    test: Rows
    names: tuple[str, ...]
    prices: NDArray[np.float64]
    router_rows: Rows
    notes: Mapping[str, Any] = field(default_factory=dict)

    def costs(self, part: str, labels: Rows, cost: str) -> NDArray[np.float32]:
        """Costs (n, n_experts): ``1[answer != y]``, plus the price for the cost type "cost"."""
        charged = self.charged(cost)
        return cost_matrix(getattr(self, part), labels, charged).astype(np.float32)

    def charged(self, cost: str) -> NDArray[np.float64]:
        """What asking each expert adds to its error: its price for the cost type "cost"."""
        priced = check_option("cost", cost, COSTS) == "cost"
        return self.prices if priced else np.zeros_like(self.prices)

    def largest(self, cost: str) -> float:
        """The largest cost that can occur: the scale of complement rewards."""
        return 1.0 + float(self.charged(cost).max())


def stratified_order(labels: Rows, rng: np.random.Generator) -> Rows:
    """A random permutation of the rows of which every stretch is stratified by label."""
    place = np.empty(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        place[rng.permutation(rows)] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.lexsort((rng.random(len(labels)), place)).astype(np.int64)


def held_out_rows(costs: NDArray[np.float32]) -> tuple[Rows, Rows]:
    """Rows to train on, and a tenth to judge on, stratified by the cheapest expert."""
    order = stratified_order(cheapest(costs), np.random.default_rng(HELD_OUT_SEED))
    size = max(1, round(HELD_OUT * len(order)))
    return np.sort(order[size:]), np.sort(order[:size])


def _class_names(owners: Rows) -> tuple[str, ...]:
    names = []
    for expert in range(int(owners.max()) + 1):
        classes = np.flatnonzero(owners == expert)
        first, last = int(classes[0]), int(classes[-1])
        names.append(f"class {first}" if first == last else f"classes {first}-{last}")
    return tuple(names)


def synthetic_answers(
    data: ImageData, setup: Setup, seed: int, ambiguous: float | None = None
) -> ExpertAnswers:
    """The paper's synthetic experts: right on their own classes, guessing elsewhere.

    A guess is drawn uniformly from all classes, fresh for every seed, so it is right one time in
    ``n_classes``. With ``ambiguous`` guesses are right with the probability that makes at least one of
    them right on that share of the rows.
    """
    owners = setup.owners(data.n_classes)
    luck = None if ambiguous is None else 1 - (1 - ambiguous) ** (1 / max(1, setup.n_experts - 1))

    def answers(part: int, labels: Rows) -> Rows:
        columns = []
        for expert in range(setup.n_experts):
            classes = np.flatnonzero(owners == expert)
            rng = np.random.default_rng([SYNTHETIC, seed, part, data.n_classes, *map(int, classes)])
            guesses = rng.integers(0, data.n_classes, size=len(labels), dtype=np.int64)
            if luck is not None:
                wrong = (
                    labels + rng.integers(1, data.n_classes, size=len(labels))
                ) % data.n_classes
                guesses = np.where(rng.random(len(labels)) < luck, labels, wrong)
            columns.append(np.where(np.isin(labels, classes), labels, guesses))
        return np.column_stack(columns)

    return ExpertAnswers(
        train=answers(0, data.train_labels),
        test=answers(1, data.test_labels),
        names=_class_names(owners),
        prices=np.array(setup.coverage),
        router_rows=np.arange(len(data.train_labels), dtype=np.int64),
        notes={"seed": int(seed)} | ({} if ambiguous is None else {"ambiguous": ambiguous}),
    )


def trained_answers(
    data: ImageData,
    setup: Setup,
    protocol: Protocol,
    *,
    seed: int = 0,
    holdout: bool = False,
    others: float = OTHERS,
    cache_dir: Path | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> ExpertAnswers:
    """The paper's real experts: networks trained on their own classes and on a share of the others.

    Without ``holdout`` the router trains on the images that the experts were trained on, as in the
    paper; with it, experts and router learn from disjoint stratified halves. ``cache_dir`` keeps trained
    experts, each named by everything that its answers depend on.
    """
    owners = setup.owners(data.n_classes)
    names = _class_names(owners)
    pool = router_rows = np.arange(len(data.train_labels), dtype=np.int64)
    if holdout:
        order = stratified_order(data.train_labels, np.random.default_rng([HALVES, seed]))
        middle = (len(order) + 1) // 2
        pool, router_rows = np.sort(order[:middle]), np.sort(order[middle:])
    experts = []
    for expert, name in enumerate(names):
        classes = np.flatnonzero(owners == expert)
        rows = expert_rows(data.train_labels, pool, classes, seed, others)
        experts.append(
            _trained_expert(
                data, rows, protocol, name, classes, seed, holdout, cache_dir, device, progress
            )
        )
    return ExpertAnswers(
        train=np.column_stack([train for train, _, _ in experts]),
        test=np.column_stack([test for _, test, _ in experts]),
        names=names,
        prices=np.array(setup.coverage),
        router_rows=router_rows,
        notes={"seed": seed, "holdout": holdout, "experts": [facts for _, _, facts in experts]},
    )


def expert_rows(labels: Rows, pool: Rows, classes: Rows, seed: int, others: float = OTHERS) -> Rows:
    """Training rows of the expert that knows ``classes``: theirs, and a share of every other class.

    >>> labels = np.repeat([0, 1, 2], [3, 200, 50])
    >>> np.bincount(labels[expert_rows(labels, np.arange(253), np.array([0]), seed=0)])
    array([3, 2, 1])
    """
    rng = np.random.default_rng([ROWS, seed, *map(int, classes)])
    kept = []
    for label in np.unique(labels[pool]):
        rows = pool[labels[pool] == label]
        if label not in classes:
            rows = rng.choice(rows, max(1, round(others * len(rows))), replace=False)
        kept.append(rows)
    return np.sort(np.concatenate(kept)).astype(np.int64)


def _trained_expert(
    data: ImageData,
    rows: Rows,
    protocol: Protocol,
    name: str,
    classes: Rows,
    seed: int,
    holdout: bool,
    cache_dir: Path | None,
    device: str,
    progress: Progress | None,
) -> tuple[Rows, Rows, dict[str, Any]]:
    """Answers on training and test images, and facts; from the cache if they are there."""
    steps = max(1, len(rows) // protocol.batch_size)
    protocol = protocol.changed(epochs=max(protocol.epochs, math.ceil(LEAST_STEPS / steps)))
    settings = {key: value for key, value in protocol.as_dict().items() if key != "name"}
    key = content_key(
        {
            "schema": SCHEMA,
            "recipe": RECIPE,
            "data": data.digest(),
            "classes": classes.tolist(),
            "rows": hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest(),
            "protocol": settings,
            "seed": int(seed),
            "holdout": bool(holdout),
        }
    )
    file = None if cache_dir is None else Path(cache_dir) / f"expert-{key[:16]}.npz"
    known = _read_expert(file, key)
    if known is not None:
        return known
    entropy = [NETWORK, int(seed), *map(int, classes)]
    network = train_classifier(
        data.train_images[rows],
        data.train_labels[rows],
        data,
        protocol,
        int(np.random.SeedSequence(entropy).generate_state(1)[0]),
        device=device,
        progress=progress
        and (lambda done, total, message: progress(done, total, f"expert {name}: {message}")),
    )
    answers = []
    for images in (data.train_images, data.test_images):
        scores = network.scores(images)
        if not np.isfinite(scores).all():
            raise DivergedError(f"the training of expert {name} diverged; lower the learning rate.")
        answers.append(np.argmax(scores, axis=1).astype(np.int64))
    facts = {
        "name": name,
        "key": key[:16],
        "rows": len(rows),
        "epochs": protocol.epochs,
        "protocol": protocol.name,
        "seconds": round(network.seconds, 3),
        "accuracy": {
            part: _accuracy(answered, labels, classes)
            for part, answered, labels in zip(
                ("train", "test"), answers, (data.train_labels, data.test_labels), strict=True
            )
        },
    }
    if file is not None:
        _write_expert(file, key, answers, facts)
    return answers[0], answers[1], facts


def train_classifier(
    images: NDArray[np.uint8],
    labels: Rows,
    data: ImageData,
    protocol: Protocol,
    seed: int,
    **options: Any,
) -> TrainedNetwork:
    """Train a network with the cross-entropy on labels."""
    truth = torch.as_tensor(labels, dtype=torch.int64, device=options["device"])

    def loss(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(scores, truth[rows], reduction="none")

    return train_network(images, data.n_classes, loss, protocol, seed, flip=data.flip, **options)


def _accuracy(answers: Rows, labels: Rows, classes: Rows) -> dict[str, float | None]:
    right = answers == labels
    own = np.isin(labels, classes)
    parts = {"overall": right, "own": right[own], "others": right[~own]}
    return {name: float(part.mean()) if part.size else None for name, part in parts.items()}


def _read_expert(file: Path | None, key: str) -> tuple[Rows, Rows, dict[str, Any]] | None:
    if file is None or not file.exists():
        return None
    try:
        arrays = read_npz(file, lambda name: name in ("train", "test", "header"))
        header = json.loads(arrays["header"].tobytes())
        train, test = (arrays[name].astype(np.int64) for name in ("train", "test"))
        if header["key"] != key:
            raise ValueError("it belongs to another expert")
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        warnings.warn(
            f"{file} cannot be used ({error}); the expert is trained again.",
            MildWarning,
            stacklevel=2,
        )
        return None
    return train, test, dict(header["facts"])


def _write_expert(file: Path, key: str, answers: list[Rows], facts: dict[str, Any]) -> None:
    header = json.dumps({"schema": SCHEMA, "key": key, "facts": facts}).encode()
    train, test = (answered.astype(np.int32) for answered in answers)
    content = io.BytesIO()
    np.savez(content, train=train, test=test, header=np.frombuffer(header, np.uint8))
    write_whole(file, content.getvalue())


def people_columns(people: PeopleFile) -> tuple[str, ...]:
    """Columns of single people, or all there are."""
    usual = PEOPLE_COLUMNS.get(people.dataset, ())
    return tuple(name for name in usual if name in people.columns) or tuple(people.columns)


def people_scenario(
    data: ImageData,
    people: PeopleFile,
    protocol: Protocol,
    *,
    seed: int = 0,
    price: float = 0.1,
    cache_dir: Path | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> tuple[ImageData, ExpertAnswers]:
    """Images with people, and a small classifier, as their experts.

    People labelled the official training images alone, so these are divided, stratified by class: the last
    20 % are the test images, up to 4,000 of the rest train the classifier (a network of a quarter of the
    width), and what remains trains the router.
    """
    columns = people_columns(people)
    n_small = classifier_rows(data)
    order = stratified_order(data.train_labels, np.random.default_rng([SPLIT, seed]))
    n_train = len(order) - round(TEST_FRACTION * len(order))
    train, test = order[:n_train], order[n_train:]
    note = (
        f"{len(train)} and {len(test)} of the official training images, for training and test: people "
        f"labelled no others"
    )
    part = dataclasses.replace(
        data,
        train_images=data.train_images[train],
        train_labels=data.train_labels[train],
        test_images=data.train_images[test],
        test_labels=data.train_labels[test],
        note=f"{data.note}; {note}" if data.note else note,
    )
    answered = np.column_stack([people.columns[column] for column in columns])
    small = protocol.changed(width=max(1, protocol.width // 4))
    rows, classes = np.arange(n_small, dtype=np.int64), np.arange(data.n_classes)
    known, new, facts = _trained_expert(
        part, rows, small, "classifier", classes, seed, True, cache_dir, device, progress
    )
    numbered = [re.fullmatch(r"random_label(\d+)|noisy_label", column) for column in columns]
    names = [
        f"annotator {match.group(1) or 1}" if match else column
        for match, column in zip(numbered, columns, strict=True)
    ]
    return part, ExpertAnswers(
        train=np.column_stack([answered[train], known]),
        test=np.column_stack([answered[test], new]),
        names=(*names, "classifier"),
        prices=np.array([float(price)] * len(columns) + [0.0]),
        router_rows=np.arange(n_small, len(train), dtype=np.int64),
        notes={"seed": seed, "columns": list(columns), "price": price, "classifier": facts},
    )


def classifier_rows(data: ImageData) -> int:
    """How many images the classifier beside people learns from."""
    return min(4000, len(data.train_labels) // 10)
