"""Tiny ImageNet from its official folder of JPEG files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from mild.exceptions import DataFileError, MissingExtraError
from mild.reproduce.data.images import ImageData, Labels, Pixels
from mild.reproduce.data.places import Place

__all__ = ["load_tiny_imagenet"]

SIDE = 64
# Names from files become paths: only these characters, so that none leads out of the folder.
SAFE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
MAX_THREADS = 8
FILES_AT_ONCE = 256


def load_tiny_imagenet(place: Place) -> ImageData:
    """Tiny ImageNet: 200 classes, 500 training images each; the 10,000 validation images to test on.

    The official test images have no labels. Class k is the k-th of the sorted WordNet ids in
    ``wnids.txt``; images are taken in the sorted order of their names within each class, and
    validation images in the sorted order of theirs. Grey images are turned into colour.
    """
    wnids_file, train_folder, annotations_file = place.find(
        ["tiny-imagenet-200", ""], ["wnids.txt", "train", "val/val_annotations.txt"]
    )
    wnids = _wnids(place, wnids_file)
    train_files: list[Path] = []
    train_labels: list[int] = []
    for label, wnid in enumerate(wnids):
        files = _class_files(place, train_folder / wnid / "images")
        train_files += files
        train_labels += [label] * len(files)
    test_files, test_labels = _annotated(place, annotations_file, wnids)
    return ImageData(
        place.dataset,
        _decode_all(place, train_files),
        np.array(train_labels, dtype=np.int64),
        _decode_all(place, test_files),
        test_labels,
        _class_names(place, wnids_file.with_name("words.txt"), wnids),
        flip=True,
    )


def _lines(place: Place, file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise place.broken(file, f"cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise place.broken(file, f"must be text ({error})") from error


def _wnids(place: Place, file: Path) -> list[str]:
    wnids = [line.strip() for line in _lines(place, file) if line.strip()]
    if not wnids or len(set(wnids)) != len(wnids):
        raise place.broken(file, f"must list different WordNet ids; got {len(wnids)} lines")
    for wnid in wnids:
        if not SAFE_NAME.fullmatch(wnid):
            raise place.broken(file, f"must list WordNet ids such as n01443537; got {wnid!r:.40}")
    return sorted(wnids)


def _class_files(place: Place, folder: Path) -> list[Path]:
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix.upper() == ".JPEG")
    except OSError as error:
        raise place.broken(folder, f"cannot be read ({error.strerror or error})") from error
    if not files:
        raise place.broken(folder, "must hold .JPEG files; it holds none")
    return files


def _annotated(place: Place, file: Path, wnids: Sequence[str]) -> tuple[list[Path], Labels]:
    """Validation images and labels; each line names an image, its class, and a box not used here."""
    classes = {wnid: label for label, wnid in enumerate(wnids)}
    labels: dict[str, int] = {}
    for number, line in enumerate(_lines(place, file), start=1):
        if not line.strip():
            continue
        name, _, rest = line.partition("\t")
        wnid = rest.split("\t")[0].strip()
        if not SAFE_NAME.fullmatch(name) or wnid not in classes:
            raise place.broken(
                file,
                f"must name an image and a class of wnids.txt in each line, with a tab between; line "
                f"{number} is {line!r:.60}",
            )
        if name in labels:
            raise place.broken(file, f"must name each image once; line {number} repeats {name}")
        labels[name] = classes[wnid]
    if not labels:
        raise place.broken(file, "must name at least one image; it is empty")
    names = sorted(labels)
    images = file.with_name("images")
    return [images / name for name in names], np.array([labels[n] for n in names], dtype=np.int64)


def _class_names(place: Place, file: Path, wnids: Sequence[str]) -> tuple[str, ...]:
    """First word for each id, or the id itself where there are no words."""
    words: dict[str, str] = {}
    if file.exists():
        for line in _lines(place, file):
            wnid, _, text = line.partition("\t")
            words[wnid.strip()] = text.split(",")[0].strip()
    return tuple(words.get(wnid) or wnid for wnid in wnids)


def _decode_all(place: Place, files: Sequence[Path]) -> Pixels:
    images = np.empty((len(files), SIDE, SIDE, 3), np.uint8)

    def decode_from(start: int) -> None:
        for row in range(start, min(start + FILES_AT_ONCE, len(files))):
            images[row] = _decode(place, files[row])

    # The decoder runs outside Python's lock, so threads do help.
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        list(pool.map(decode_from, range(0, len(files), FILES_AT_ONCE)))
    return images


def _decode(place: Place, file: Path) -> Pixels:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(
            'Tiny ImageNet is a folder of JPEG files, which need Pillow: pip install "mild-learn[images]".'
        ) from error
    try:
        with Image.open(file, formats=["JPEG"]) as image:
            # Looked at before decoding: the size stands in the head of the file.
            if image.size != (SIDE, SIDE):
                raise place.broken(
                    file,
                    f"must have {SIDE} x {SIDE} pixels; it has {' x '.join(map(str, image.size))}",
                )
            return np.asarray(image.convert("RGB"))
    except DataFileError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise place.broken(file, f"is not a readable JPEG file ({error})") from error
