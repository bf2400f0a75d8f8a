"""The image data sets: read their official files, fetch them, check them."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import tarfile
import urllib.request
import warnings
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mild.core.arrays import check_labels
from mild.errors import DataFileError, InvalidInputError, MildWarning, check_option

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Progress = Callable[[int, int, str], Any]

# What readers raise on a damaged or a missing file.
DAMAGE = (OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, MemoryError)
DIGITS = tuple("0123456789")
CLOTHES = (
    *("t-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
# How often each digit occurs in the training half of MNIST, whose files have the names of Fashion-MNIST's.
MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
#: Data sets that have annotators: prefix of their arrays, and number of classes.
PEOPLE = {"cifar10": ("c10", 10), "cifar100": ("c100", 100)}


@dataclass(frozen=True, eq=False)
class ImageData:
    """Training and test images (n, height, width, channels) uint8, with their classes (n,) int64.

    ``flip`` says whether a mirror image means the same; ``note`` is what a reader of results must know.
    """

    name: str
    train_images: Pixels
    train_labels: Labels
    test_images: Pixels
    test_labels: Labels
    class_names: tuple[str, ...]
    flip: bool
    note: str = ""

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images = check_images(f"{part}_images", getattr(self, f"{part}_images"))
            labels = check_labels(getattr(self, f"{part}_labels"), (len(images), self.n_classes))
            object.__setattr__(self, f"{part}_labels", labels.astype(np.int64, copy=False))

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def digest(self) -> str:
        """16 hexadecimal digits that change with any pixel, label or name."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        arrays = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        head = [self.name, self.class_names, [array.shape for array in arrays]]
        hashed = hashlib.sha256(json.dumps(head).encode())
        for array in arrays:
            hashed.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
        return hashed.hexdigest()[:16]


def check_images(name: str, images: Any) -> Pixels:
    """Refuse what is not a uint8 array (n, height, width, channels) of at least one image."""
    array = isinstance(images, np.ndarray)
    if not array or images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
        got = f"{images.dtype} of shape {images.shape}" if array else type(images).__name__
        raise InvalidInputError(
            f"{name} must be a uint8 array of shape (n, height, width, channels) with at least one "
            f"image; got {got}."
        )
    return images


@dataclass(frozen=True)
class RemoteFile:
    """A file on the official server."""

    url: str
    md5: str
    size: int

    @property
    def name(self) -> str:
        """Its name there and here."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Dataset:
    """A data set: how it is read from its folder, and its official files with their numbers of images."""

    title: str
    load: Callable[[Path], ImageData]
    folder: str
    n_train: int
    n_test: int
    files: tuple[RemoteFile, ...] = ()
    digest: str | None = None

    @property
    def archive(self) -> RemoteFile | None:
        """The archive that holds the files, if there is one."""
        first = self.files[0] if len(self.files) == 1 else None
        return first if first and first.name.endswith((".tar.gz", ".zip")) else None


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles what the official CIFAR files hold: dictionaries, lists, text and uint8 arrays."""

    ALLOWED: ClassVar = {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is never loaded")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _unpickle(file: Path) -> dict[str, Any]:
    content = _ArrayUnpickler(io.BytesIO(file.read_bytes()), encoding="latin1").load()
    if not isinstance(content, dict):
        raise ValueError(f"it must hold a dictionary; it holds {type(content).__name__}")
    return {key.decode() if isinstance(key, bytes) else str(key): v for key, v in content.items()}


def _load_cifar(
    name: str, folder: Path, train: tuple[str, ...], test: str, meta: str, prefix: str
) -> ImageData:
    def read(file: str) -> tuple[Pixels, Labels]:
        content = _unpickle(folder / file)
        images = np.asarray(content["data"], np.uint8).reshape(-1, 3, 32, 32)
        labels = np.array(content["fine_labels" if prefix else "labels"], np.int64)
        return np.ascontiguousarray(images.transpose(0, 2, 3, 1)), labels

    parts = [read(file) for file in train]
    images, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    names = _unpickle(folder / meta)[f"{prefix}label_names"]
    names = tuple(n.decode() if isinstance(n, bytes) else str(n) for n in names)
    return ImageData(name, images, labels, *read(test), names, flip=True)


def _load_cifar10(folder: Path) -> ImageData:
    train = tuple(f"data_batch_{number}" for number in range(1, 6))
    return _load_cifar("cifar10", folder, train, "test_batch", "batches.meta", "")


def _load_cifar100(folder: Path) -> ImageData:
    return _load_cifar("cifar100", folder, ("train",), "test", "meta", "fine_")


def _load_svhn(folder: Path) -> ImageData:
    from scipy.io import loadmat

    parts: list[Any] = []
    for file in ("train_32x32.mat", "test_32x32.mat"):
        content = loadmat(folder / file, variable_names=["X", "y"])
        digits = content["y"][:, 0].astype(np.int64)
        if digits.min() < 1 or digits.max() > 10:
            raise ValueError("digits must be 1 to 10, with 10 for the digit 0")
        # Images come last in the file, and the digit 0 is written as 10.
        parts += [np.ascontiguousarray(content["X"].transpose(3, 0, 1, 2)), digits % 10]
    return ImageData("svhn", parts[0], parts[1], parts[2], parts[3], DIGITS, flip=False)


def _load_svhn5000(folder: Path) -> ImageData:
    arrays = read_npz(folder / "svhn_test_first5000.npz", lambda name: name in ("x", "y"))
    images, labels = arrays["x"], arrays["y"]
    note = "first 5,000 official test digits, split 4,000/1,000: a small stand-in for SVHN"
    halves = (images[:4000], labels[:4000], images[4000:], labels[4000:])
    return ImageData("svhn5000", *halves, DIGITS, flip=False, note=note)


def _load_fashion_mnist(folder: Path) -> ImageData:
    def read(name: str, dimensions: int) -> NDArray[np.uint8]:
        packed, plain = folder / f"{name}.gz", folder / name
        content = gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
        # IDX: two zero bytes, the type 8 (unsigned byte), the number of dimensions, then each size.
        if content[:4] != bytes([0, 0, 8, dimensions]):
            raise ValueError(f"{name} must be an IDX file of {dimensions} dimension(s)")
        head = 4 + 4 * dimensions
        return np.frombuffer(content[head:], np.uint8).reshape(
            np.frombuffer(content[4:head], ">u4")
        )

    parts: list[Any] = []
    for part in ("train", "t10k"):
        parts += [
            read(f"{part}-images-idx3-ubyte", 3)[..., None],
            read(f"{part}-labels-idx1-ubyte", 1),
        ]
    if np.bincount(parts[1], minlength=10).tolist() == MNIST_COUNTS:
        raise ValueError("it holds the digits of MNIST, whose files have the same names")
    return ImageData("fashion-mnist", parts[0], parts[1], parts[2], parts[3], CLOTHES, flip=True)


def _load_tiny_imagenet(folder: Path) -> ImageData:
    """Class k is the k-th of the sorted WordNet ids; the validation images are the test images."""
    from PIL import Image

    wnids = sorted((folder / "wnids.txt").read_text().split())
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    train = [
        (file, label)
        for wnid, label in labels.items()
        for file in sorted((folder / "train" / wnid / "images").glob("*.JPEG"))
    ]
    rows = [
        line.split("\t") for line in (folder / "val/val_annotations.txt").read_text().splitlines()
    ]
    test = sorted((folder / "val/images" / Path(row[0]).name, labels[row[1]]) for row in rows)

    def decode(file: Path) -> Pixels:
        with Image.open(file, formats=["JPEG"]) as image:
            if image.size != (64, 64):
                raise ValueError(f"{file} must have 64 x 64 pixels; it has {image.size}")
            return np.asarray(image.convert("RGB"))

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        parts: list[Any] = []
        for each in (train, test):
            parts.append(np.stack(list(pool.map(decode, [file for file, _ in each]))))
            parts.append(np.array([label for _, label in each], np.int64))
    words = dict(line.split("\t", 1) for line in (folder / "words.txt").read_text().splitlines())
    names = tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids)
    return ImageData("tiny-imagenet", parts[0], parts[1], parts[2], parts[3], names, flip=True)


def _load_digits(folder: Path) -> ImageData:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = digits.target.astype(np.int64)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=0.5, stratify=labels, random_state=0
    )
    note = "1,797 digits of 8 x 8 pixels, split in half: for trying out, not in the paper"
    halves = (images[train], labels[train], images[test], labels[test])
    return ImageData("digits", *halves, DIGITS, flip=False, note=note)


KRIZHEVSKY = "https://www.cs.toronto.edu/~kriz/"
ZALANDO = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
NETZER = "http://ufldl.stanford.edu/housenumbers/"
STANFORD = "http://cs231n.stanford.edu/"


def _files(server: str, *rows: tuple[str, str, int]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(server + name, md5, size) for name, md5, size in rows)


DATASETS = {
    "cifar10": Dataset(
        *("CIFAR-10", _load_cifar10, "cifar-10-batches-py", 50_000, 10_000),
        _files(
            KRIZHEVSKY,
            ("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),
        ),
        "0059ba55d27f12df",
    ),
    "cifar100": Dataset(
        *("CIFAR-100", _load_cifar100, "cifar-100-python", 50_000, 10_000),
        _files(
            KRIZHEVSKY,
            ("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
        ),
        "53f99156aa5f80bd",
    ),
    "svhn": Dataset(
        *("SVHN", _load_svhn, "svhn", 73_257, 26_032),
        _files(
            NETZER,
            ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
            ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64_275_384),
        ),
    ),
    "svhn5000": Dataset("SVHN, 5,000 images", _load_svhn5000, "svhn", 4_000, 1_000),
    "tiny-imagenet": Dataset(
        *("Tiny ImageNet", _load_tiny_imagenet, "tiny-imagenet-200", 100_000, 10_000),
        _files(
            STANFORD, ("tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043)
        ),
    ),
    "fashion-mnist": Dataset(
        *("Fashion-MNIST", _load_fashion_mnist, "fashion-mnist", 60_000, 10_000),
        _files(
            ZALANDO,
            ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
    ),
    "digits": Dataset("digits", _load_digits, "", 898, 899),
}


def load_images(name: str, data_dir: str | os.PathLike[str] | None = None) -> ImageData:
    """Images and labels of a data set, from its official files.

    ``data_dir`` is the folder that holds the data set's folder, or that folder itself; digits need none.

    >>> load_images("digits").n_classes
    10
    """
    dataset = DATASETS[check_option("dataset", name, DATASETS)]
    base = Path(data_dir) if data_dir is not None else Path()
    folder = base / dataset.folder if (base / dataset.folder).is_dir() else base
    try:
        data = dataset.load(folder)
    except DAMAGE as error:
        remedy = "place its file there by hand."
        if dataset.files:
            remedy = f"fetch it with: python -m experiments.images fetch {name} --data-dir {base}"
        reason = f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else error
        raise DataFileError(f"{name} cannot be read from {folder} ({reason}); {remedy}") from error
    except (pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise DataFileError(
            f"{name} in {folder} is damaged or is not the official file ({error})."
        ) from error
    sizes = (len(data.train_labels), len(data.test_labels))
    if sizes != (dataset.n_train, dataset.n_test):
        # A part of a data set is welcome, but its results must not pass for those of the whole.
        note = (
            f"{sizes[0]:,} training and {sizes[1]:,} test images; {dataset.title} has "
            f"{dataset.n_train:,} and {dataset.n_test:,}"
        )
        return dataclasses.replace(data, note=note)
    if dataset.digest not in (None, data.digest()):
        warnings.warn(
            f"{dataset.title} in {folder} has other content than the official files (digest "
            f"{data.digest()}, not {dataset.digest}): results may differ for that reason.",
            MildWarning,
            stacklevel=2,
        )
    return data


def fetch_images(
    name: str,
    data_dir: str | os.PathLike[str],
    progress: Progress | None = None,
    timeout: float = 30.0,
) -> Path:
    """Fetch a data set from its official source, check its md5 sums, and unpack it.

    A file that is there with the right md5 is not fetched again; a partial one is continued.
    """
    dataset = DATASETS[check_option("dataset", name, DATASETS)]
    base = Path(data_dir)
    folder = base / dataset.folder
    if not dataset.files:
        if name != "digits":
            raise DataFileError(f"{name} has no official source; place its file in {base} by hand.")
        return base
    try:
        target = base if dataset.archive else folder
        target.mkdir(parents=True, exist_ok=True)
        for file in dataset.files:
            if _md5(target / file.name) != file.md5:
                _download(file, target / file.name, progress, timeout)
        if dataset.archive:
            if progress is not None:
                progress(1, 1, f"unpacking {dataset.archive.name}")
            _unpack(base / dataset.archive.name, dataset.folder, base)
    except OSError as error:
        raise DataFileError(f"cannot fetch {name} to {base}: {error.strerror or error}.") from error
    return base


def _download(file: RemoteFile, target: Path, progress: Progress | None, timeout: float) -> None:
    part = target.with_name(f"{target.name}.part")
    done = part.stat().st_size if part.exists() else 0
    if done > file.size:
        done = 0
    request = urllib.request.Request(file.url, headers={"Range": f"bytes={done}-"} if done else {})
    if done < file.size:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            if response.status != 206:
                done = 0
            with open(part, "ab" if done else "wb") as stream:
                while block := response.read1(1 << 18):
                    stream.write(block)
                    done += len(block)
                    if progress is not None:
                        progress(done, file.size, file.name)
    found = _md5(part)
    if found != file.md5:
        if done >= file.size:
            part.unlink()
        raise DataFileError(
            f"{file.url} could not be fetched whole: {done:,} of {file.size:,} bytes, md5 {found}, not "
            f"{file.md5}. Run the same command again, or place the official file at {target}."
        )
    os.replace(part, target)


def _md5(path: Path) -> str:
    if not path.is_file():
        return ""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _unpack(archive: Path, folder: str, into: Path) -> None:
    """Unpack to a temporary folder and rename, so that an interrupted run leaves nothing behind."""
    fresh = into / f".{folder}.part"
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped:
                zipped.extractall(fresh)
        else:
            with tarfile.open(archive, "r:gz") as tar:
                tar.extractall(fresh, filter="data")
        shutil.rmtree(into / folder, ignore_errors=True)
        os.rename(fresh / folder, into / folder)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise DataFileError(
            f"{archive} is damaged ({error}); delete it and fetch it again."
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read_npz(path: Path, keep: Callable[[str], bool]) -> dict[str, NDArray[Any]]:
    """Arrays of an archive whose names ``keep`` accepts; pickled objects are refused."""
    with open(path, "rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        return {name: archive[name] for name in archive.files if keep(name)}


@dataclass(frozen=True, eq=False)
class PeopleFile:
    """Answers (n,) of annotators to the training images, by name, and the true classes (n,)."""

    dataset: str
    truth: Labels
    columns: Mapping[str, Labels]

    def digest(self, columns: tuple[str, ...]) -> str:
        """16 hexadecimal digits of these columns."""
        hashed = hashlib.sha256()
        for name in columns:
            answered = self.columns[name]
            hashed.update(f"{name} {answered.size};".encode() + answered.astype("<i8").tobytes())
        return hashed.hexdigest()[:16]


def read_people(path: str | os.PathLike[str], data: ImageData) -> PeopleFile:
    """Annotations of the training images from a .npz file of CIFAR-N labels.

    For CIFAR-10 the array ``c10_clean_label`` holds the true classes and every other ``c10_..._label``
    one answer per training image; for CIFAR-100 the names begin with ``c100_``.
    """
    prefix, n_classes = PEOPLE[check_option("dataset", data.name, PEOPLE)]
    pattern = re.compile(rf"{prefix}_(?!.*coarse)(\w+_label\d*)")
    try:
        arrays = read_npz(Path(path), lambda name: pattern.fullmatch(name) is not None)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataFileError(f"{path} must be a .npz file of annotations; {error}.") from error
    columns = {name.removeprefix(f"{prefix}_"): array for name, array in arrays.items()}
    if "clean_label" not in columns or len(columns) < 2:
        raise DataFileError(
            f"{path} must hold {prefix}_clean_label and at least one other {prefix}_..._label array; "
            f"found {', '.join(sorted(arrays)) or 'none of them'}."
        )
    n_images = len(data.train_labels)
    for name, array in columns.items():
        whole = array.dtype.kind in "iu" and array.shape == (n_images,)
        if not whole or array.min() < 0 or array.max() >= n_classes:
            raise DataFileError(
                f"{path} must hold classes in [0, {n_classes}), one per training image ({n_images:,}); "
                f"{prefix}_{name} is {array.dtype} of shape {array.shape}."
            )
    numbers = {name: array.astype(np.int64) for name, array in columns.items()}
    truth = numbers.pop("clean_label")
    different = np.flatnonzero(truth != data.train_labels)
    if different.size:
        raise DataFileError(
            f"{path} must be in the order of the images; its true class differs at row {different[0]}."
        )
    return PeopleFile(data.name, truth, numbers)
