"""Data sets of learning to defer: inputs, classes, and the answers of experts.

digits and breast_cancer come with scikit-learn, and their experts are simulated. The others are read from
an optional folder of public files: hate speech, CIFAR-10H, CIFAR-10N, ImageNet-16H, NIH readers, OpenL2D.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import conv2d, max_pool2d

from experiments.defer.cifar10_data import load_cifar10
from mild.core.arrays import FloatArray, IntArray
from mild.datasets.simulated_experts import (
    expert_on_first_classes,
    probabilistic_expert,
    random_annotator,
)
from mild.errors import DataFileError, check_option

#: Answers (n, p) of the experts for a seed, NaN where one has none.
Answers = Callable[[int], FloatArray]


@dataclass(frozen=True, eq=False)
class DeferralData:
    """Rows to classify, and experts to ask.

    Attributes
    ----------
    name : of the data set
    inputs : (n, d) numbers, or (n,) texts
    y : (n,) class indices
    answers : gives the answers (n, p) of the experts for a seed, NaN where one has none
    expert_names : names of the p experts
    groups : (n,) labels of rows that stay on one side of a split
    features : scikit-learn transformer from inputs to features, fitted on training rows
    note : what a reader of results must know
    """

    name: str
    inputs: Any
    y: IntArray
    answers: Answers
    expert_names: tuple[str, ...]
    groups: NDArray[Any]
    features: Any
    note: str

    def digest(self) -> str:
        """16 hexadecimal digits that change with any input, class or answer of seed 0."""
        hashed = hashlib.sha256(self.name.encode())
        if isinstance(self.inputs, np.ndarray) and self.inputs.dtype != object:
            hashed.update(np.ascontiguousarray(self.inputs).data)
        else:
            hashed.update("\0".join(self.inputs).encode())
        hashed.update(np.ascontiguousarray(self.y, dtype=np.int64).data)
        hashed.update(np.ascontiguousarray(self.answers(0), dtype=np.float64).data)
        return hashed.hexdigest()[:16]


def load(name: str, folder: Path, images: Path | None = None) -> DeferralData:
    """A data set of ``SOURCES``; ``folder`` has the public files, ``images`` those of CIFAR-10."""
    loader = SOURCES[check_option("data", name, SOURCES)]
    return loader(folder, images)


def _digits(folder: Path, images: Path | None) -> DeferralData:
    X, y = load_digits(return_X_y=True)

    def answers(seed: int) -> FloatArray:
        return expert_on_first_classes(y, 5, 10, seed)[:, None].astype(np.float64)

    return DeferralData(
        name="digits",
        inputs=X,
        y=y,
        answers=answers,
        expert_names=("knows 0 to 4",),
        groups=np.arange(len(y)),
        features=make_pipeline(StandardScaler(), PCA(10, random_state=0), StandardScaler()),
        note="The expert is right on the digits 0 to 4 and guesses on the others. The classifier sees "
        "ten principal components.",
    )


def _breast_cancer(folder: Path, images: Path | None) -> DeferralData:
    data = load_breast_cancer()
    is_coarse = data.data[:, 1] > np.median(data.data[:, 1])
    accuracy = np.where(is_coarse, 0.98, 0.6)

    def answers(seed: int) -> FloatArray:
        return probabilistic_expert(data.target, accuracy, 2, seed)[:, None].astype(np.float64)

    weak = ["mean texture", "mean smoothness", "mean symmetry", "mean fractal dimension"]
    columns = [list(data.feature_names).index(name) for name in weak]
    return DeferralData(
        name="breast_cancer",
        inputs=data.data[:, columns],
        y=data.target,
        answers=answers,
        expert_names=("coarse texture",),
        groups=np.arange(len(data.target)),
        features=StandardScaler(),
        note="The expert is right with 0.98 on tumours of coarse texture and with 0.6 on the others. The "
        "classifier sees four weak features, the texture among them.",
    )


def _hate_speech(folder: Path, images: Path | None) -> DeferralData:
    table = pd.read_csv(_file(folder, "field/hatespeech/labeled_data.csv"))
    votes = table[["hate_speech", "offensive_language", "neither"]].to_numpy(np.int64)

    def answers(seed: int) -> FloatArray:
        return random_annotator(votes, seed)[:, None].astype(np.float64)

    texts = table["tweet"].astype(str).to_numpy(object)
    _, groups = np.unique(texts.astype(str), return_inverse=True)
    words = TfidfVectorizer(min_df=5, ngram_range=(1, 2), sublinear_tf=True)
    return DeferralData(
        name="hatespeech",
        inputs=texts,
        y=table["class"].to_numpy(np.int64),
        answers=answers,
        expert_names=("annotator",),
        groups=groups,
        features=make_pipeline(words, TruncatedSVD(100, random_state=0), StandardScaler()),
        note="The expert is an annotator drawn from the votes (three or more per tweet), and the class is "
        "the majority, which contains the drawn vote: the expert looks better than a new annotator would.",
    )


def _cifar10h(folder: Path, images: Path | None) -> DeferralData:
    counts = np.load(_file(folder, "cifar10h.npz"))["counts"].astype(np.int64)
    data = load_cifar10(_images_folder(images))
    if len(data.test_labels) != len(counts):
        raise DataFileError(
            f"CIFAR-10H needs all {len(counts):,} test images of CIFAR-10; {images} has "
            f"{len(data.test_labels):,}."
        )

    def answers(seed: int) -> FloatArray:
        return random_annotator(counts, seed)[:, None].astype(np.float64)

    return DeferralData(
        name="cifar10h",
        inputs=patch_features(data.test_images, data.train_images[:N_PATCH_IMAGES]),
        y=data.test_labels.astype(np.int64),
        answers=answers,
        expert_names=("annotator",),
        groups=np.arange(len(counts)),
        features=_components(),
        note="The expert is an annotator drawn from the some 50 of each test image. The classifier "
        "sees 128 components of responses to random patches of training images: far weaker than a deep "
        "network.",
    )


def _cifar10n(folder: Path, images: Path | None) -> DeferralData:
    people = np.load(_file(folder, "cifar_n_human.npz"))
    data = load_cifar10(_images_folder(images))
    n_rows = min(CIFAR10N_ROWS, len(data.train_labels))
    y = people["c10_clean_label"][:n_rows].astype(np.int64)
    if (y != data.train_labels[:n_rows]).any():
        raise DataFileError(
            f"the labels of {images} must be those of CIFAR-10N, in the same order."
        )
    columns = [people[f"c10_random_label{number}"][:n_rows] for number in (1, 2, 3)]
    answers = np.column_stack(columns).astype(np.float64)
    pictures = data.train_images[:n_rows]
    return DeferralData(
        name="cifar10n",
        inputs=patch_features(pictures, data.train_images[-N_PATCH_IMAGES:]),
        y=y,
        answers=lambda seed: answers,
        expert_names=("first annotator", "second annotator", "third annotator"),
        groups=np.arange(n_rows),
        features=_components(),
        note=f"The first {n_rows:,} training images with three annotators each, who differ from image to "
        "image, so the columns differ by chance only. The classifier is as for CIFAR-10H.",
    )


def _imagenet16h(folder: Path, images: Path | None, noise: int, several: bool) -> DeferralData:
    data = np.load(_file(folder, "more/imagenet16h.npz"))
    y = data["y"].astype(np.int64)
    log_shares = np.log(np.clip(data[f"softmax{noise}"].astype(np.float64), 1e-6, None))
    votes = np.zeros((len(y), len(data["classes"])), np.int64)
    np.add.at(votes, (data[f"human_image{noise}"], data[f"human_answer{noise}"]), 1)
    networks = [str(name) for name in data["nets"]]
    own_network = networks.index("alexnet")
    others = [number for number in range(len(networks)) if number != own_network]
    if several:
        inputs = log_shares[own_network]
        names = ("person", *(networks[number] for number in others))
        head_and_experts = (
            "The classifier sees the outputs of AlexNet; the experts are a person and four "
            "networks."
        )
    else:
        inputs = np.concatenate(list(log_shares), axis=1)
        names = ("person",)
        head_and_experts = (
            "The classifier sees the outputs of five networks; the expert is a person."
        )

    def answers(seed: int) -> FloatArray:
        columns = [random_annotator(votes, seed)]
        if several:
            columns.extend(log_shares[number].argmax(axis=1) for number in others)
        return np.column_stack(columns).astype(np.float64)

    kind = "-nets" if several else ""
    return DeferralData(
        name=f"imagenet16h-{noise}{kind}",
        inputs=inputs,
        y=y,
        answers=answers,
        expert_names=names,
        groups=np.arange(len(y)),
        features=StandardScaler(),
        note=f"{head_and_experts} Phase noise {noise}; the person is drawn from the six or seven of each "
        "image.",
    )


FINDINGS = ("Fracture", "Pneumothorax", "Airspace_Opacity", "Nodule_Or_Mass")


def _nih(folder: Path, images: Path | None) -> DeferralData:
    table = pd.read_csv(_file(folder, "field/nih/nih_labels.csv"))
    # A few readings have no label for one of the findings.
    labels_of_reading = [f"{finding}_Expert_Label" for finding in FINDINGS]
    table = table.dropna(subset=labels_of_reading).drop_duplicates(["Image ID", "Reader ID"])
    first = table.drop_duplicates("Image ID")
    later = table.drop(first.index)
    readers = np.sort(table["Reader ID"].unique())
    reader_of_first = np.searchsorted(readers, first["Reader ID"].to_numpy())
    row_of_image = dict(zip(first["Image ID"], range(len(first)), strict=True))
    row_of_later = later["Image ID"].map(row_of_image).to_numpy()
    reader_of_later = np.searchsorted(readers, later["Reader ID"].to_numpy())
    own_labels = first[labels_of_reading].to_numpy(np.float64)
    inputs = []
    classes = []
    answers = []
    for number, finding in enumerate(FINDINGS):
        is_finding = np.zeros((len(first), len(FINDINGS)))
        is_finding[:, number] = 1
        label_of_finding = is_finding * own_labels[:, [number]]
        other_findings = (
            np.delete(own_labels, number, axis=1).sum(axis=1, keepdims=True) * is_finding
        )
        who_read_first = np.eye(len(readers))[reader_of_first]
        inputs.append(np.hstack([is_finding, label_of_finding, other_findings, who_read_first]))
        classes.append(first[f"{finding}_GT_Label"].to_numpy(np.int64))
        column = np.full((len(first), len(readers)), np.nan)
        column[row_of_later, reader_of_later] = later[f"{finding}_Expert_Label"].to_numpy(
            np.float64
        )
        answers.append(column)
    labels = np.concatenate(answers)
    known = (~np.isnan(labels)).sum(axis=0) >= FEWEST_READINGS
    labels = labels[:, known]
    # Rows that nobody else has read could not be deferred.
    asked = ~np.isnan(labels).all(axis=1)
    patients = np.tile(first["Patient ID"].to_numpy(), len(FINDINGS))
    return DeferralData(
        name="nih",
        inputs=np.concatenate(inputs)[asked],
        y=np.concatenate(classes)[asked],
        answers=lambda seed: labels[asked],
        expert_names=tuple(f"reader {number}" for number in np.flatnonzero(known)),
        groups=patients[asked],
        features=StandardScaler(),
        note="No images. A row is an image and one of four findings; the classifier sees the labels of the "
        "first reader and who that was; the experts are the other readers, of whom mostly two have read "
        "it.",
    )


def _openl2d(folder: Path, images: Path | None) -> DeferralData:
    rows = pd.read_parquet(_file(folder, "field/openl2d/preprocessed.parquet"))
    experts = pd.read_parquet(_file(folder, "field/openl2d/expert_predictions.parquet"))
    kept = np.sort(np.random.default_rng(0).permutation(len(rows))[:OPENL2D_ROWS])
    rows = rows.iloc[kept]
    names = [name for name in experts.columns if name.endswith("#0")]
    answers = experts.iloc[kept][names].to_numpy(np.float64)
    inputs = pd.get_dummies(rows.drop(columns="income")).to_numpy(np.float64)
    varies = inputs.std(axis=0) > 0
    return DeferralData(
        name="openl2d",
        inputs=inputs[:, varies],
        y=rows["income"].to_numpy(np.int64),
        answers=lambda seed: answers,
        expert_names=tuple(names),
        groups=np.arange(len(rows)),
        features=StandardScaler(),
        note=f"{len(rows):,} rows of Adult, and one synthetic expert of each of five kinds, some biased.",
    )


#: Rows of CIFAR-10N and OpenL2D; readings that a reader of NIH needs; images that patches are from.
CIFAR10N_ROWS = 10_000
OPENL2D_ROWS = 10_000
FEWEST_READINGS = 400
N_PATCH_IMAGES = 2_000
N_FILTERS = 256
N_COMPONENTS = 128
PATCH = 6
IMAGES_AT_ONCE = 250

#: Loaders of a folder of public files and a folder of images.
SOURCES: dict[str, Callable[[Path, Path | None], DeferralData]] = {
    "digits": _digits,
    "breast_cancer": _breast_cancer,
    "hatespeech": _hate_speech,
    "cifar10h": _cifar10h,
    "cifar10n": _cifar10n,
    "imagenet16h-110": partial(_imagenet16h, noise=110, several=False),
    "imagenet16h-125": partial(_imagenet16h, noise=125, several=False),
    "imagenet16h-110-nets": partial(_imagenet16h, noise=110, several=True),
    "nih": _nih,
    "openl2d": _openl2d,
}


def patch_features(
    images: NDArray[np.uint8], patch_images: NDArray[np.uint8], seed: int = 0
) -> NDArray[np.float32]:
    """Responses to random patches (Coates, Ng 2012): (n, 8 * N_FILTERS).

    Filters are patches of other images, less their mean, whitened (ZCA) and scaled to norm 1. The positive
    and negative parts of the responses, less the mean over the filters, are pooled over quarters of the
    image.
    """
    rng = np.random.default_rng(seed)
    filters = _filters(patch_images, rng)
    blocks = []
    with torch.no_grad():
        for start in range(0, len(images), IMAGES_AT_ONCE):
            part = torch.as_tensor(images[start : start + IMAGES_AT_ONCE]).permute(0, 3, 1, 2)
            responses = conv2d(part.float() / 255 - 0.5, filters)
            responses -= responses.mean(dim=1, keepdim=True)
            both = torch.cat([responses.clamp(min=0), (-responses).clamp(min=0)], dim=1)
            side = both.shape[-1] // 2
            blocks.append(max_pool2d(both, side).flatten(1))
    return torch.cat(blocks).numpy()


def _components() -> Any:
    return make_pipeline(StandardScaler(), PCA(N_COMPONENTS, random_state=0), StandardScaler())


def _filters(images: NDArray[np.uint8], rng: np.random.Generator) -> torch.Tensor:
    """Whitened patches (N_FILTERS, 3, PATCH, PATCH) as filters."""
    n_patches = 40 * N_FILTERS
    which = rng.integers(len(images), size=n_patches)
    top, left = rng.integers(images.shape[1] - PATCH + 1, size=(2, n_patches))
    patches = np.empty((n_patches, 3, PATCH, PATCH))
    for number in range(n_patches):
        rows = slice(top[number], top[number] + PATCH)
        columns = slice(left[number], left[number] + PATCH)
        patches[number] = images[which[number], rows, columns].transpose(2, 0, 1) / 255
    flat = patches.reshape(n_patches, -1)
    flat = flat - flat.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(np.cov(flat, rowvar=False))
    whitening = vectors @ np.diag(1 / np.sqrt(np.maximum(values, 0) + 1e-3)) @ vectors.T
    chosen = flat[:N_FILTERS] @ whitening
    chosen /= np.linalg.norm(chosen, axis=1, keepdims=True)
    # The whitening of an image's patches is moved into the filters.
    weights = (chosen @ whitening).reshape(N_FILTERS, 3, PATCH, PATCH)
    return torch.as_tensor(weights, dtype=torch.float32)


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise DataFileError(
            f"{path} is missing; name the folder of the public files with --folder."
        )
    return path


def _images_folder(images: Path | None) -> Path:
    if images is None:
        raise DataFileError(
            "this data set needs the images of CIFAR-10; name their folder with --images."
        )
    return images
