"""The data sets by name: load them, fetch them."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mild.exceptions import DataFileError, MildWarning, check_option
from mild.reproduce.data.cifar import load_cifar10, load_cifar100
from mild.reproduce.data.digits import load_embedded_digits
from mild.reproduce.data.download import download, is_official, unwritable
from mild.reproduce.data.fashion_mnist import load_fashion_mnist
from mild.reproduce.data.images import ImageData
from mild.reproduce.data.places import Place
from mild.reproduce.data.sources import SOURCES, Source
from mild.reproduce.data.svhn import load_svhn, load_svhn5000
from mild.reproduce.data.tiny_imagenet import load_tiny_imagenet
from mild.reproduce.data.unpack import unpack

if TYPE_CHECKING:
    from mild.reproduce.turns import Progress

__all__ = ["DATASETS", "Dataset", "fetch_images", "load_images"]


@dataclass(frozen=True)
class Dataset:
    """A data set that experiments can name.

    Attributes
    ----------
    title : name for tables
    load : reads it from a place; None for the embedded digits, which need none
    n_train, n_test : numbers of images of the official files
    digest : ``ImageData.digest`` of the official files, where we know it
    """

    title: str
    load: Callable[[Place], ImageData] | None
    n_train: int
    n_test: int
    digest: str | None = None


DATASETS = {
    "cifar10": Dataset("CIFAR-10", load_cifar10, 50_000, 10_000, "0059ba55d27f12df"),
    "cifar100": Dataset("CIFAR-100", load_cifar100, 50_000, 10_000, "53f99156aa5f80bd"),
    "svhn": Dataset("SVHN", load_svhn, 73_257, 26_032),
    "svhn5000": Dataset("SVHN, 5,000 images", load_svhn5000, 4_000, 1_000),
    "tiny-imagenet": Dataset("Tiny ImageNet", load_tiny_imagenet, 100_000, 10_000),
    "fashion-mnist": Dataset("Fashion-MNIST", load_fashion_mnist, 60_000, 10_000),
    "digits": Dataset("digits", None, 898, 899),
}


def load_images(name: str, data_dir: str | os.PathLike[str] | None = None) -> ImageData:
    """Images and labels of a data set, from its official files under ``data_dir``.

    Parameters
    ----------
    name : one of DATASETS
    data_dir : folder that holds the data set's folder or files, or that folder itself; not needed
        for "digits"

    Examples
    --------
    >>> data = load_images("digits")
    >>> data.n_classes, data.train_images.dtype
    (10, dtype('uint8'))
    """
    dataset = DATASETS[check_option("dataset", name, DATASETS)]
    if dataset.load is None:
        return load_embedded_digits()
    if data_dir is None:
        raise DataFileError(
            f"{name} needs a folder to be read from; name it (--data-dir, data_dir=...), and "
            f"{Place(name, Path('DIR')).remedy}"
        )
    data = _read(dataset.load, Place(name, Path(data_dir)))
    sizes = _sizes(data)
    if sizes != (dataset.n_train, dataset.n_test):
        # A part of a data set is welcome, but its results must not pass for those of the whole.
        note = (
            f"{sizes[0]:,} training and {sizes[1]:,} test images; {dataset.title} has "
            f"{dataset.n_train:,} and {dataset.n_test:,}"
        )
        return dataclasses.replace(data, note=note)
    if dataset.digest not in (None, data.digest()):
        warnings.warn(
            f"{dataset.title} in {data_dir} has as many images as the official files, but other "
            f"content (digest {data.digest()}, not {dataset.digest}): results may differ for that "
            f"reason. To have the official files: mild reproduce fetch {name}.",
            MildWarning,
            stacklevel=2,
        )
    return data


def fetch_images(
    name: str,
    data_dir: str | os.PathLike[str],
    progress: Progress | None = None,
    *,
    source: Source | None = None,
    timeout: float = 30.0,
) -> Path:
    """Fetch a data set from its official source, unless it is there as a whole and can be read.

    Each file is checked against its md5; archives are unpacked. A file or archive that was placed by
    hand is not fetched again. Damaged files are replaced once sound ones are here.

    Parameters
    ----------
    name : one of DATASETS
    data_dir : folder to put it in; made if it is not there
    progress : called with bytes done, bytes in all, and what is being done
    source : another server than the official one
    timeout : seconds without a byte after which a connection counts as cut

    Returns
    -------
    Path
        The folder that ``load_images`` can be given as ``data_dir``.
    """
    dataset = DATASETS[check_option("dataset", name, DATASETS)]
    place = Place(name, Path(data_dir))
    if dataset.load is None:
        return place.data_dir
    if place.data_dir.exists():
        if not place.data_dir.is_dir():
            raise DataFileError(
                f"data_dir must be a folder; {data_dir} is a file. Name another one."
            )
        try:
            data = _read(dataset.load, place)
            # A part can be loaded, but whoever fetches wants all of it.
            if _sizes(data) == (dataset.n_train, dataset.n_test):
                return place.data_dir
        except DataFileError:
            if name not in SOURCES:
                raise
    if name not in SOURCES:
        raise DataFileError(
            f"{name} has no official source; place its file in {place.data_dir} by hand, or use "
            f"'svhn', which has one."
        )
    _fetch(place.home, source or SOURCES[name], progress, timeout)
    return place.home


def _sizes(data: ImageData) -> tuple[int, int]:
    return len(data.train_labels), len(data.test_labels)


def _read(load: Callable[[Place], ImageData], place: Place) -> ImageData:
    try:
        return load(place)
    except OSError as error:
        raise DataFileError(
            f"{error.filename or place.data_dir} cannot be read ({error.strerror or error})."
        ) from error


def _fetch(home: Path, source: Source, progress: Progress | None, timeout: float) -> None:
    folder = home if source.archive else home / source.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in source.files:
            target = folder / file.name
            if not is_official(target, file):
                download(file, source.url + file.name, target, progress, timeout)
    except OSError as error:
        raise unwritable(folder, error) from error
    if source.archive:
        archive = source.files[0]
        if progress is not None:
            progress(archive.size, archive.size, f"unpacking {archive.name}")
        unpack(folder / archive.name, source.folder, home)
