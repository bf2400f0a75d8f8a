"""``python -m experiments.defer.cifar10``: CIFAR-10 and an expert that knows the first k classes, on a GPU.

A ResNet-18 with a score for every class and one for the expert is trained by each loss. The expert is
right on the first k classes and guesses among all ten on the others. Nine tenths of the training images
are learned from; the other tenth, and the test images where there are some, are only judged: nothing is
chosen on either.

Every finished training is one line of OUT/cifar10.jsonl, and a finished one is not repeated. It needs
torch, NumPy, SciPy and Pillow.

python -m experiments.defer.cifar10 --data cifar --losses cross_entropy ova --k 2 6 --seeds 5
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from experiments.defer.cifar10_data import N_CLASSES, Cifar10, load_cifar10
from experiments.images.network import Network, make_network
from experiments.images.training import ImageFeed, Images, Loss, Scores, Stepper, best_device
from experiments.records import content_key, surroundings
from mild.core.arrays import FloatArray
from mild.core.decisions import stationary_distribution
from mild.core.margins import expert_mass, theory_margins
from mild.datasets.simulated_experts import expert_on_first_classes
from mild.metrics.deferral import (
    accuracy_coverage_curve,
    deferral_summary,
    expected_calibration_error,
)
from mild.metrics.intervals import resampled_intervals
from mild.nn.defer import (
    cross_entropy_defer_loss,
    mild_defer_loss,
    one_stage_costs,
    one_versus_all_loss,
)
from mild.nn.tensors import check_margins
from mild.routers.neural.training import learning_rate

EXPERT = N_CLASSES
HELD_OUT = 0.1
#: Coverages at which records have the accuracy of the system.
COVERAGES = np.linspace(0, 1, 21)


@dataclass(frozen=True)
class Settings:
    """How a network is trained.

    Attributes
    ----------
    epochs, batch_size : every epoch is a new order of the images in full batches
    lr : AdamW's largest learning rate, of one cycle: up for 30 % of the steps, then down to nothing
    weight_decay : decoupled, of the weights of convolutions alone
    width : channels of the first stage of the ResNet-18
    """

    epochs: int = 25
    batch_size: int = 1024
    lr: float = 1e-3
    weight_decay: float = 8.0
    width: int = 64


@dataclass(frozen=True, eq=False)
class Rows:
    """Images with their classes and the expert's answers."""

    images: Images
    y: NDArray[np.int64]
    answers: NDArray[np.intp]

    @property
    def expert_is_right(self) -> NDArray[np.bool_]:
        """Whether the expert is right, (n,)."""
        is_right: NDArray[np.bool_] = self.answers == self.y
        return is_right


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a trained system does on some rows."""

    predicted: NDArray[np.intp]  # (n,) the classifier's classes
    margin: FloatArray  # (n,) the row is deferred where it is positive
    expert_probability: FloatArray  # (n,) estimate of P(expert is right)


class Method:
    """A way to train a network and to decide by its scores. Subclasses say how."""

    name: str
    n_outputs = N_CLASSES + 1

    def loss(self, y: Tensor, is_right: Tensor) -> Loss:
        """Loss of scores (b, n_outputs) and rows (b,), for classes (n,) and correctness (n, 1)."""
        raise NotImplementedError

    def decide(self, scores: Scores, train: Rows) -> Decisions:
        """Decisions by the scores (m, n_outputs) of new rows."""
        raise NotImplementedError


class CrossEntropy(Method):
    """L_CE of Mozannar and Sontag; the same as MILD with complement rewards and equal margins."""

    name = "cross_entropy"

    def loss(self, y: Tensor, is_right: Tensor) -> Loss:
        return lambda scores, rows: cross_entropy_defer_loss(scores, y[rows], is_right[rows])

    def decide(self, scores: Scores, train: Rows) -> Decisions:
        shares = _softmax(scores)
        class_shares = shares[:, :EXPERT]
        probability = shares[:, EXPERT] / class_shares.sum(axis=1)
        margin = shares[:, EXPERT] - class_shares.max(axis=1)
        return Decisions(class_shares.argmax(axis=1), margin, probability)


class OneVersusAll(Method):
    """OvA of Verma and Nalisnick."""

    name = "ova"

    def loss(self, y: Tensor, is_right: Tensor) -> Loss:
        return lambda scores, rows: one_versus_all_loss(scores, y[rows], is_right[rows])

    def decide(self, scores: Scores, train: Rows) -> Decisions:
        probabilities = 1 / (1 + np.exp(-scores.astype(np.float64)))
        classes = probabilities[:, :EXPERT]
        expert = probabilities[:, EXPERT]
        return Decisions(classes.argmax(axis=1), expert - classes.max(axis=1), expert)


class Mild(Method):
    """MILD in one stage: classes and the expert are alternatives of one problem with costs."""

    def __init__(self, name: str, rewards: str, by_theory: bool) -> None:
        self.name = name
        self.rewards = rewards
        self.by_theory = by_theory

    def margins(self, y: Tensor, is_right: Tensor) -> FloatArray:
        """Margins (K + 1,) of mean 1: all 1, or those of theory from the mass of the rewards."""
        if not self.by_theory:
            return np.ones(self.n_outputs)
        costs = one_stage_costs(y, is_right, N_CLASSES).cpu().numpy()
        return theory_margins(expert_mass(costs, self.rewards))

    def loss(self, y: Tensor, is_right: Tensor) -> Loss:
        # Prepared, because a step of a recorded graph must copy nothing to the device.
        like = torch.zeros(1, self.n_outputs, device=y.device)
        margins = check_margins(torch.as_tensor(self.margins(y, is_right)), like)
        return lambda scores, rows: mild_defer_loss(
            scores, y[rows], is_right[rows], margins=margins, rewards=self.rewards
        )

    def decide(self, scores: Scores, train: Rows) -> Decisions:
        y = torch.as_tensor(train.y)
        is_right = torch.as_tensor(train.expert_is_right)[:, None]
        shares = stationary_distribution(scores, self.margins(y, is_right))
        values = self._expected_rewards(shares)
        classes = values[:, :EXPERT]
        expert = values[:, EXPERT]
        return Decisions(classes.argmax(axis=1), expert - classes.max(axis=1), expert)

    def _expected_rewards(self, shares: FloatArray) -> FloatArray:
        """P(y = k) and P(expert is right), (n, K + 1), from the shares of the rewards.

        The probabilities q of the classes sum to 1, which gives the factor between shares and rewards.
        ``complement``: the rewards are q. ``others``: they are q - 1 + the sum S of the costs, so that
        ``share_k = (q_k - 1 + S) / (K S)`` for the K + 1 alternatives, and with A the sum of the
        shares of the classes, ``1 = K S A - K S + K``.
        """
        class_share = shares[:, :EXPERT].sum(axis=1, keepdims=True)
        if self.rewards == "complement":
            return shares / class_share
        total_cost = (N_CLASSES - 1) / (N_CLASSES * (1 - class_share))
        return N_CLASSES * total_cost * shares + 1 - total_cost


class Confidence(Method):
    """A classifier alone; deferred where its confidence is below the expert's mean accuracy (Chow)."""

    name = "confidence"
    n_outputs = N_CLASSES

    def loss(self, y: Tensor, is_right: Tensor) -> Loss:
        cross_entropy = partial(nn.functional.cross_entropy, reduction="none")
        return lambda scores, rows: cross_entropy(scores, y[rows])

    def decide(self, scores: Scores, train: Rows) -> Decisions:
        probabilities = _softmax(scores)
        mean_accuracy = float(train.expert_is_right.mean())
        expert = np.full(len(scores), mean_accuracy)
        margin = mean_accuracy - probabilities.max(axis=1)
        return Decisions(probabilities.argmax(axis=1), margin, expert)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        CrossEntropy(),
        OneVersusAll(),
        Mild("mild_margins", "complement", by_theory=True),
        Mild("mild_others", "others", by_theory=False),
        Mild("mild_others_margins", "others", by_theory=True),
        Confidence(),
    )
}


def train(
    images: Images, n_outputs: int, loss: Loss, settings: Settings, seed: int, device: str
) -> Callable[[Images], Scores]:
    """Train a ResNet-18; returns the function from images to scores (m, n_outputs)."""
    torch_device = torch.device(device)
    feed = ImageFeed(images, augment=True, flip=True, device=torch_device)
    network = make_network(feed.channels, n_outputs, settings.width, seed).to(torch_device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.train()
    size = min(settings.batch_size, feed.n_images)
    stepper = Stepper(network, _optimizer(network, settings, torch_device), feed, loss, size)
    steps = settings.epochs * (feed.n_images // size)
    done = 0
    for epoch in range(settings.epochs):
        for plan in feed.plan(seed, epoch, size).to(torch_device):
            stepper(plan, settings.lr * learning_rate(done, steps))
            done += 1
    return partial(_scores, network, feed)


def _optimizer(network: Network, settings: Settings, device: torch.device) -> torch.optim.Optimizer:
    """AdamW that decays the weights of convolutions, whose scale batch normalisation takes out.

    Decay would bound biases and the head, which one-versus-all needs to be large.
    """
    decayed = []
    free = []
    for parameter in network.parameters():
        if parameter.ndim == 4:
            decayed.append(parameter)
        else:
            free.append(parameter)
    on_gpu = device.type == "cuda"
    rate: Any = settings.lr
    if on_gpu:
        rate = torch.tensor(settings.lr, device=device)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, rate, fused=True, capturable=on_gpu)


def _scores(network: Network, feed: ImageFeed, images: Images) -> Scores:
    kind = feed.pixels.device.type
    network.eval()
    blocks = []
    with torch.no_grad():
        for batch in feed.batches(images):
            with torch.autocast(kind, torch.bfloat16, kind == "cuda"):
                features = network.backbone(batch)
            blocks.append(network.head(features.float()).cpu())
    return torch.cat(blocks).numpy()


def _softmax(scores: Scores) -> FloatArray:
    shifted = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def split_rows(data: Cifar10, k: int, seed: int) -> dict[str, Rows]:
    """Training, validation and (where there are some) test rows, with the answers of the expert.

    Split and answers depend on the seed. The answers are drawn once: the network sees the same ones in
    every epoch.
    """
    rng = np.random.default_rng([seed, k])
    order = np.random.default_rng(seed).permutation(len(data.train_labels))
    n_held_out = round(HELD_OUT * len(order))
    rows_of_part = {
        "train": (data.train_images, data.train_labels, np.sort(order[n_held_out:])),
        "validation": (data.train_images, data.train_labels, np.sort(order[:n_held_out])),
        "test": (data.test_images, data.test_labels, np.arange(len(data.test_labels))),
    }
    result = {}
    for name, (images, labels, rows) in rows_of_part.items():
        if len(rows):
            y = labels[rows]
            answers = expert_on_first_classes(y, k, N_CLASSES, rng)
            result[name] = Rows(np.ascontiguousarray(images[rows]), y, answers)
    return result


def judge(decisions: Decisions, rows: Rows) -> dict[str, Any]:
    """The four numbers, the classifier alone, calibration, and the accuracy over coverage."""
    deferred_to = np.where(decisions.margin > 0, 0, -1)
    summary = deferral_summary(rows.y, decisions.predicted, deferred_to, rows.answers)
    classifier_is_right = decisions.predicted == rows.y
    curve = accuracy_coverage_curve(classifier_is_right, rows.expert_is_right, decisions.margin)
    error = expected_calibration_error(rows.expert_is_right, decisions.expert_probability)
    return {
        **summary.as_dict(),
        "classifier_alone": float(classifier_is_right.mean()),
        "expert_alone": float(rows.expert_is_right.mean()),
        "expert_calibration_error": error,
        "curve": [round(curve.at(coverage), 4) for coverage in COVERAGES],
    }


def run(
    data: Cifar10,
    out: Path,
    methods: Sequence[Method],
    ks: Iterable[int],
    seeds: Iterable[int],
    settings: Settings,
    device: str,
    say: Callable[[str], Any] = print,
) -> list[dict[str, Any]]:
    """Records of all trainings; those that OUT/cifar10.jsonl has are not repeated.

    All methods are trained on one seed before the next, so that what is cut off can be compared.
    """
    out.mkdir(parents=True, exist_ok=True)
    file = out / "cifar10.jsonl"
    finished = {}
    if file.exists():
        for line in file.read_text().splitlines():
            record = json.loads(line)
            finished[record["key"]] = record
    records = []
    ks = list(ks)
    for seed in seeds:
        for method in methods:
            trained: Callable[[Images], Scores] | None = None
            for k in ks:
                cell = {
                    "loss": method.name,
                    "k": k,
                    "seed": seed,
                    "settings": asdict(settings),
                    "n_images": len(data.train_labels),
                }
                key = content_key(cell)[:16]
                if key not in finished:
                    start = time.monotonic()
                    rows = split_rows(data, k, seed)
                    # A classifier alone is the same for every k.
                    if trained is None or method.n_outputs > N_CLASSES:
                        trained = _train_method(method, rows["train"], settings, seed, device)
                    record = _record(cell, key, method, trained, rows, start, device)
                    with file.open("a") as lines:
                        lines.write(json.dumps(record, allow_nan=False) + "\n")
                    finished[key] = record
                    say(_line(record))
                records.append(finished[key])
    return records


def _train_method(
    method: Method, rows: Rows, settings: Settings, seed: int, device: str
) -> Callable[[Images], Scores]:
    """Train a network by a method; cuDNN takes the quickest convolutions that give the same bits."""
    y = torch.as_tensor(rows.y, device=device)
    is_right = torch.as_tensor(rows.expert_is_right, device=device)[:, None]
    loss = method.loss(y, is_right)
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=True):
        return train(rows.images, method.n_outputs, loss, settings, seed, device)


def _record(
    cell: dict[str, Any],
    key: str,
    method: Method,
    trained: Callable[[Images], Scores],
    rows: dict[str, Rows],
    start: float,
    device: str,
) -> dict[str, Any]:
    record: dict[str, Any] = {"key": key, "cell": cell}
    for part in ("validation", "test"):
        if part in rows:
            scores = trained(rows[part].images)
            if not np.isfinite(scores).all():
                record[part] = None
                continue
            record[part] = judge(method.decide(scores, rows["train"]), rows[part])
    record["n_train"] = len(rows["train"].y)
    record["seconds"] = round(time.monotonic() - start, 2)
    return record | surroundings(device)


def _line(record: dict[str, Any]) -> str:
    cell = record["cell"]
    numbers = record["validation"]
    title = f"{cell['loss']}, k = {cell['k']}, seed {cell['seed']}, {record['seconds']:.0f} s"
    if numbers is None:
        return f"{title}: the training diverged"
    return (
        f"{title}: system {100 * numbers['system_accuracy']:.2f}, "
        f"coverage {100 * numbers['coverage']:.1f}, "
        f"classifier alone {100 * numbers['classifier_alone']:.2f}"
    )


#: Logged by the authors of one-versus-all: mean and standard deviation of system accuracy, and coverage,
#: over five seeds on their validation images. In their public code the expert of k knows the classes 0 to
#: k, k + 1 of them, so their figures stand beside our k, which is harder, and beside our k + 1.
AUTHORS = {
    "cross_entropy": {2: (87.37, 1.74, 75.2), 4: (89.50, 0.50, 58.4), 6: (93.30, 0.65, 45.2),
                      8: (97.28, 0.55, 22.2)},
    "ova": {2: (85.69, 0.66, 86.8), 4: (89.00, 1.02, 64.3), 6: (94.05, 0.40, 40.1),
            8: (98.18, 0.15, 18.5)},
}  # fmt: skip


#: Numbers of a record, as columns of its table.
TABLE_NUMBERS = (
    "system_accuracy",
    "coverage",
    "classifier_accuracy",
    "expert_accuracy",
    "classifier_alone",
    "expert_calibration_error",
)


def table(records: Sequence[dict[str, Any]], part: str = "validation") -> list[str]:
    """Lines of a Markdown table: means and standard deviations over the seeds, beside the authors' logs."""
    lines = [
        "| loss | k | seeds | system accuracy | coverage | classifier on kept | expert on deferred | "
        "classifier alone | ECE of the expert | authors' k | system accuracy | coverage |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        if record.get(part) is not None:
            cell = (record["cell"]["loss"], record["cell"]["k"])
            groups.setdefault(cell, []).append(record[part])
    for (loss, k), numbers in sorted(groups.items(), key=lambda item: (item[0][1], item[0][0])):
        cells = [loss, str(k), str(len(numbers))]
        cells.extend(
            _mean_and_deviation([number[name] for number in numbers]) for name in TABLE_NUMBERS
        )
        cells += _authors_cells(loss, k)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def differences(records: Sequence[dict[str, Any]], part: str = "validation") -> list[str]:
    """Lines of a Markdown table: system accuracy minus that of L_CE on the same seeds, with intervals.

    The held-out rows of the seeds are random tenths of the same images, so the intervals have the
    correction of Nadeau and Bengio for the share of rows held out.
    """
    accuracies: dict[tuple[str, int], dict[int, float]] = {}
    for record in records:
        if record.get(part) is not None:
            cell = record["cell"]
            by_seed = accuracies.setdefault((cell["loss"], cell["k"]), {})
            by_seed[cell["seed"]] = record[part]["system_accuracy"]
    lines = ["| loss | k | seeds | minus L_CE | 95 % interval |", "|---|--:|--:|--:|--:|"]
    for (loss, k), by_seed in sorted(accuracies.items(), key=lambda item: (item[0][1], item[0][0])):
        reference = accuracies.get(("cross_entropy", k), {})
        seeds = sorted(set(by_seed) & set(reference))
        if loss == "cross_entropy" or len(seeds) < 2:
            continue
        gaps = np.array([[by_seed[seed] - reference[seed]] for seed in seeds])
        interval = resampled_intervals(100 * gaps, HELD_OUT / (1 - HELD_OUT))
        estimate, low, high = interval.row(0)
        numbers = f"{estimate:+.2f} | [{low:+.2f}, {high:+.2f}]"
        lines.append(f"| {loss} | {k} | {len(seeds)} | {numbers} |")
    return lines


def _authors_cells(loss: str, k: int) -> list[str]:
    """The authors' k, system accuracy and coverage; empty where they logged none."""
    logged = AUTHORS.get(loss, {})
    for their_k in (k, k - 1):
        if their_k in logged:
            system, deviation, coverage = logged[their_k]
            return [str(their_k), f"{system:.2f} ({deviation:.2f})", f"{coverage:.1f}"]
    return ["", "", ""]


def _mean_and_deviation(values: Sequence[float | None]) -> str:
    known = 100 * np.array([value for value in values if value is not None])
    if len(known) == 0:
        return ""
    if len(known) == 1:
        return f"{known[0]:.2f}"
    return f"{known.mean():.2f} ({known.std(ddof=1):.2f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, write the records, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--out", type=Path, default=Path("results/defer"), help="results folder")
    parser.add_argument("--losses", nargs="+", choices=METHODS, default=["cross_entropy", "ova"])
    parser.add_argument("--k", nargs="+", type=int, default=[2, 6], help="classes the expert knows")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0")
    parser.add_argument("--device", default=None, help="cuda or cpu")
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--width", type=int, default=Settings.width)
    parser.add_argument("--batch-size", type=int, default=Settings.batch_size)
    parser.add_argument("--lr", type=float, default=Settings.lr)
    parser.add_argument("--weight-decay", type=float, default=Settings.weight_decay)
    options = parser.parse_args(arguments)
    settings = Settings(
        epochs=options.epochs,
        batch_size=options.batch_size,
        lr=options.lr,
        weight_decay=options.weight_decay,
        width=options.width,
    )
    data = load_cifar10(options.data)
    records = run(
        data,
        options.out,
        [METHODS[name] for name in options.losses],
        options.k,
        range(options.seeds),
        settings,
        options.device or best_device(),
        say=partial(print, flush=True),
    )
    for part in ("validation", "test"):
        if any(record.get(part) for record in records):
            print(f"\n{part} images, in %")
            print("\n".join(table(records, part)))


if __name__ == "__main__":
    main()
