"""People as experts: what human annotators said of the CIFAR training images."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mild.exceptions import DataFileError, InvalidInputError, check_option
from mild.reproduce.data.images import ImageData, Labels
from mild.reproduce.data.npz import read_npz
from mild.tables.columns import listed

__all__ = ["PEOPLE", "PeopleFile", "check_people", "read_people"]

#: Data sets that have annotators: prefix of their arrays, and number of classes.
PEOPLE = {"cifar10": ("c10", 10), "cifar100": ("c100", 100)}


@dataclass(frozen=True, eq=False)
class PeopleFile:
    """Answers of annotators to the training images of a data set.

    Attributes
    ----------
    dataset : name in the registry
    truth : (n,) int64 array, the true classes, by which the order of the images is checked
    columns : answers by name, each an (n,) int64 array; the names are those of the file without the
        data set's prefix: ``random_label1``, ``aggre_label``, ``noisy_label`` ...
    file : where they were read from, for messages
    """

    dataset: str
    truth: Labels
    columns: Mapping[str, Labels]
    file: Path | None = None


def read_people(path: str | os.PathLike[str], dataset: str = "cifar10") -> PeopleFile:
    """Annotations from a .npz file of CIFAR-N labels.

    For CIFAR-10 the array ``c10_clean_label`` holds the true classes, and every other
    ``c10_..._label`` (with a number, perhaps) holds one answer per training image; for CIFAR-100 they
    begin with ``c100_``. Coarse labels are left out.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "people.npz"
    ...     np.savez(file, c10_clean_label=[3, 5], c10_random_label1=[3, 4])
    ...     people = read_people(file, "cifar10")
    >>> people.truth, dict(people.columns)
    (array([3, 5]), {'random_label1': array([3, 4])})
    """
    prefix, n_classes = PEOPLE[check_option("dataset", dataset, PEOPLE)]
    file = Path(path)
    pattern = re.compile(rf"{prefix}_(?!.*coarse)(\w+_label\d*)")
    if not file.exists():
        raise DataFileError(
            f"{file} is not there; a .npz file with {prefix}_clean_label and {prefix}_..._label "
            f"arrays of annotators is needed."
        )
    try:
        arrays = read_npz(file, lambda name: pattern.fullmatch(name) is not None)
    except DataFileError as error:
        raise DataFileError(f"{file} {error}.") from error
    columns = {name.removeprefix(f"{prefix}_"): array for name, array in arrays.items()}
    if "clean_label" not in columns or len(columns) < 2:
        raise DataFileError(
            f"{file} must hold {prefix}_clean_label and at least one other {prefix}_..._label array "
            f"of answers; found {listed(sorted(arrays)) or 'none of them'}."
        )
    n_images = len(columns["clean_label"]) if columns["clean_label"].ndim else 0
    for name, array in columns.items():
        if array.dtype.kind not in "iu" or array.shape != (n_images,) or not n_images:
            raise DataFileError(
                f"{file} must hold integers, one per image, in every array; {prefix}_{name} is "
                f"{array.dtype} of shape {array.shape}, and the truth has {n_images} image(s)."
            )
        if array.min() < 0 or array.max() >= n_classes:
            bad = array[(array < 0) | (array >= n_classes)][0]
            raise DataFileError(
                f"{file} must hold classes in [0, {n_classes}); {prefix}_{name} holds {bad}."
            )
    numbers = {name: array.astype(np.int64) for name, array in columns.items()}
    return PeopleFile(dataset, numbers.pop("clean_label"), numbers, file)


def check_people(people: PeopleFile, data: ImageData) -> None:
    """Refuse annotations that are not of these training images, in this order."""
    source = "" if people.file is None else f"{people.file}: "
    remedy = "Name the annotations of these images (--people), or the images (--data-dir)."
    if people.dataset != data.name:
        raise InvalidInputError(
            f"{source}the annotations must be of the images: they are of {people.dataset}, the images "
            f"are of {data.name}. {remedy}"
        )
    if len(people.truth) != len(data.train_labels):
        raise InvalidInputError(
            f"{source}labels do not match images: there are {len(people.truth):,} labels and "
            f"{len(data.train_labels):,} training images. {remedy}"
        )
    different = np.flatnonzero(people.truth != data.train_labels)
    if different.size:
        row = int(different[0])
        raise InvalidInputError(
            f"{source}labels do not match images: order differs at row {row} (the annotations say "
            f"class {people.truth[row]}, the images class {data.train_labels[row]}). {remedy}"
        )
