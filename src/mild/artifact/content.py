"""The parts of a saved router: everything is checked before it is used, and nothing is unpickled."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from mild.artifact.info import RouterInfo
from mild.artifact.manifest import MANIFEST_FILE, TENSORS_FILE, read_manifest
from mild.artifact.novelty import Novelty
from mild.artifact.parts import RouterParts
from mild.artifact.schemas import (
    HASHES_TENSOR,
    NOVELTY_PREFIX,
    TEXT_PREFIX,
    Tensors,
    check_novelty,
    check_policy,
    check_query_hashes,
    check_text,
    described_tensor,
    split,
)
from mild.artifact.served import served_folder
from mild.errors import DataFileError, InvalidInputError, RouterFileError
from mild.features import FEATURES, TextFeatures
from mild.policies import POLICIES

PICKLE_SUFFIXES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".ckpt", ".dill")
BINARY_PICKLE = re.compile(rb"\x80[\x02-\x05]")
# Text pickles start with a global's module and name, or with a container, and end with a full stop.
TEXT_PICKLE = re.compile(rb"c[A-Za-z_][\w.]*\n[A-Za-z_]\w*\n|[(][dlti][p\n0-9(]")
RouterType = TypeVar("RouterType", bound=RouterParts)

# Types of tensors in the file: of policies, of the hashes, of text features.
DTYPES = {"F32": "<f4", "F64": "<f8"}
HASHES_DTYPES = {"U64": "<u8"}
TEXT_DTYPES = {"F32": "<f4", "I32": "<i4", "I8": "i1"}

MAX_MANIFEST_BYTES = 64 * 1024**2
# Files from this size on are checked before they are read.
LARGE_BYTES = 1024**3

# safetensors has no types for it.
_unpack: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = deserialize


def read_router(folder: str | os.PathLike[str], router_class: type[RouterType]) -> RouterType:
    """The router in a folder; ``mild.load`` says more."""
    if not isinstance(folder, (str, os.PathLike)):
        raise InvalidInputError(parameter="folder", rule=f"must be a path; got {folder!r}.")
    path = Path(folder)
    try:
        path = served_folder(path)
        return _read(path, router_class)
    except OSError as error:
        reason = error.strerror or error
        raise RouterFileError(f"cannot load a router from {path}: {reason}.") from error
    except RouterFileError as error:
        raise RouterFileError(f"cannot load a router from {path}: {error}") from error


def _read(folder: Path, router_class: type[RouterType]) -> RouterType:
    """The router in a folder without versions."""
    _check_folder(folder)
    manifest = _read_manifest_file(folder)
    tensor_content = _read_checked(folder / TENSORS_FILE, manifest["sha256"])
    has_text = manifest["text"] is not None
    tensors = _tensors(tensor_content, manifest["tensors"], has_text)

    query_hashes = check_query_hashes(tensors.pop(HASHES_TENSOR, None))
    text_tensors: Tensors = {}
    if has_text:
        text_tensors, tensors = split(tensors, TEXT_PREFIX)
    novelty_tensors, policy_tensors = split(tensors, NOVELTY_PREFIX)

    kind = manifest["kind"]
    sizes = {"n_features": manifest["n_features"], "n_experts": manifest["n_experts"]}
    check_policy(kind, manifest["settings"], policy_tensors, dict(sizes))

    text = None
    if has_text:
        text = _read_text_features(folder, manifest["text"], text_tensors, sizes["n_features"])
    novelty = None
    if novelty_tensors:
        check_novelty(novelty_tensors, sizes)
        novelty = Novelty(**novelty_tensors)
    return router_class(
        policy=POLICIES[kind].from_state(manifest["settings"], policy_tensors),
        experts=manifest["experts"],
        feature_names=manifest["feature_names"],
        info=RouterInfo.from_manifest(manifest),
        text=text,
        query_hashes=query_hashes,
        novelty=novelty,
    )


def _check_folder(folder: Path) -> None:
    """Refuse what is not a folder with the two files, and any pickle in it."""
    if not folder.exists():
        raise RouterFileError("there is no such folder.")
    if not folder.is_dir():
        _refuse_pickle(folder)
        raise RouterFileError(
            f"it must be a folder with {MANIFEST_FILE} and {TENSORS_FILE}; got a file."
        )
    for entry in sorted(folder.iterdir()):
        if entry.is_file():
            _refuse_pickle(entry)
    _check_present(folder / MANIFEST_FILE)
    _check_present(folder / TENSORS_FILE)


def _read_manifest_file(folder: Path) -> dict[str, Any]:
    """The content of ``router.json``, checked."""
    file = folder / MANIFEST_FILE
    size = file.stat().st_size
    if size > MAX_MANIFEST_BYTES:
        raise RouterFileError(
            f"{MANIFEST_FILE} must have at most {MAX_MANIFEST_BYTES:,} bytes; got {size:,}."
        )
    try:
        return read_manifest(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise RouterFileError(f"{MANIFEST_FILE} is not UTF-8 text, so it is not JSON.") from error


def _read_text_features(
    folder: Path, description: Mapping[str, Any], tensors: Tensors, n_features: int
) -> TextFeatures:
    """The text features of the router, with the files beside it that they need."""
    kind = description["kind"]
    settings = description["settings"]
    check_text(kind, settings, tensors, n_features)
    files = {}
    for name, digest_setting in FEATURES[kind].FILES.items():
        _check_present(folder / name)
        files[name] = _read_checked(folder / name, settings[digest_setting])
    try:
        features = FEATURES[kind].from_state(settings, tensors)
    except DataFileError as error:
        raise RouterFileError(str(error)) from error
    features.take_files(files)
    return features


def _check_present(file: Path) -> None:
    """Refuse a folder in which a file is missing."""
    if not file.is_file():
        raise RouterFileError(f"{file.name} is missing.")


def _read_checked(file: Path, sha256: str) -> bytes:
    """The content of a file, which must have this checksum."""
    _check_size(file.name, file.stat())
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise RouterFileError(
            f"{file.name} does not match the checksum in {MANIFEST_FILE}: one of them was changed or "
            f"cut off."
        )
    return content


def _check_size(name: str, status: os.stat_result) -> None:
    """Refuse, before it is read, a large file that is mostly holes, or that memory cannot hold."""
    size = status.st_size
    if size < LARGE_BYTES:
        return
    # Blocks of 512 bytes; systems that do not count them have no such field.
    if getattr(status, "st_blocks", size) * 512 < size // 2:
        raise RouterFileError(f"{name} has {size:,} bytes, of which most were never written.")
    if hasattr(os, "sysconf") and size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise RouterFileError(f"{name} has {size:,} bytes, more than the memory of this machine.")


def _refuse_pickle(file: Path) -> None:
    """Refuse a pickle, whatever its name is."""
    if file.suffix.lower() in PICKLE_SUFFIXES or _looks_pickled(file):
        raise RouterFileError(
            f"{file.name} is a pickle, which could run any code, and is never loaded. Remove it if "
            f"you trust the rest, or save the router again with mild.save."
        )


def _looks_pickled(file: Path) -> bool:
    """Whether a file begins, and a text also ends, as pickles do."""
    with open(file, "rb") as stream:
        start = stream.read(256)
        stream.seek(-min(1, len(start)), os.SEEK_END)
        end = stream.read(1)
    if start.startswith(b"PK\x03\x04"):
        return b"data.pkl" in start
    if BINARY_PICKLE.match(start):
        # The length of a safetensors header, such as 1152, can begin with the same two bytes.
        length = int.from_bytes(start[:8], "little")
        return not (start[8:9] == b"{" and 8 + length <= file.stat().st_size)
    return bool(end == b"." and TEXT_PICKLE.match(start))


def _tensors(
    content: bytes, listed_tensors: Mapping[str, Any], has_text: bool
) -> dict[str, NDArray[Any]]:
    """Tensors of the file, which must be those that the manifest lists."""
    try:
        entries = _unpack(content)
    except SafetensorError as error:
        raise RouterFileError(f"{TENSORS_FILE} is not a safetensors file ({error}).") from error
    tensors = {}
    for name, entry in entries:
        tensors[name] = _tensor(name, entry, _allowed_dtypes(name, has_text))
    for name in sorted(set(listed_tensors) - set(tensors)):
        raise RouterFileError(f"tensor {name!r} is listed in {MANIFEST_FILE} but missing.")
    for name, array in sorted(tensors.items()):
        if name not in listed_tensors:
            raise RouterFileError(f"tensor {name!r} is not listed in {MANIFEST_FILE}.")
        description = described_tensor(array)
        if listed_tensors[name] != description:
            raise RouterFileError(
                f"tensor {name!r} must be {listed_tensors[name]} as {MANIFEST_FILE} says; got "
                f"{description}."
            )
    return tensors


def _allowed_dtypes(name: str, has_text: bool) -> Mapping[str, str]:
    """The types that a tensor of this name may have, by their names in safetensors."""
    if has_text and name.startswith(TEXT_PREFIX):
        return TEXT_DTYPES
    if name == HASHES_TENSOR:
        return HASHES_DTYPES
    return DTYPES


def _tensor(name: str, entry: Mapping[str, Any], dtypes: Mapping[str, str]) -> NDArray[Any]:
    """The array of an entry of the file."""
    if entry["dtype"] not in dtypes:
        allowed = f"one of {', '.join(dtypes)}"
        if dtypes is DTYPES:
            allowed = "float32 or float64"
        raise RouterFileError(f"tensor {name!r} must be {allowed}; got {entry['dtype']}.")
    array = np.frombuffer(entry["data"], dtype=dtypes[entry["dtype"]])
    try:
        return array.reshape(entry["shape"])
    except ValueError as error:
        raise RouterFileError(
            f"tensor {name!r} must have a shape that an array can have; got {entry['shape']}."
        ) from error
