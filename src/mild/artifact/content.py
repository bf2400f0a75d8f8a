"""The parts of a saved router: everything is checked before it is used, and nothing is unpickled."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from mild.artifact.info import RouterInfo
from mild.artifact.manifest import MANIFEST_FILE, TENSORS_FILE, read_manifest
from mild.artifact.novelty import Novelty
from mild.artifact.schemas import (
    CALIBRATION_PREFIX,
    HASHES_TENSOR,
    NOVELTY_PREFIX,
    TEXT_PREFIX,
    check_estimates,
    check_policy,
    check_query_hashes,
    check_text,
    described_tensor,
    split,
)
from mild.artifact.versions import find_version
from mild.errors import ArtifactError, DataFileError, InvalidInputError
from mild.features import FEATURES, TextFeatures
from mild.policies import POLICIES

PICKLE_SUFFIXES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".ckpt", ".dill")
BINARY_PICKLE = re.compile(rb"\x80[\x02-\x05]")
# Text pickles start with a global's module and name, or with a container, and end with a full stop.
TEXT_PICKLE = re.compile(rb"c[A-Za-z_][\w.]*\n[A-Za-z_]\w*\n|[(][dlti][p\n0-9(]")
# Types of tensors in the file: of policies, of the hashes, of text features.
DTYPES = {"F32": "<f4", "F64": "<f8"}
HASHES_DTYPES = {"U64": "<u8"}
TEXT_DTYPES = {"F16": "<f2", "F32": "<f4", "I32": "<i4", "I8": "i1", "U8": "u1"}

MAX_MANIFEST_BYTES = 64 * 1024**2
# Files from this size on are checked before they are read.
LARGE_BYTES = 1024**3

# safetensors has no types for it.
_unpack: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = deserialize


def read_parts(folder: str | os.PathLike[str], version: int | None = None) -> dict[str, Any]:
    """The fields of the ``Router`` in a folder, by name; ``mild.load`` says more."""
    if not isinstance(folder, (str, os.PathLike)):
        raise InvalidInputError(parameter="folder", rule=f"must be a path; got {folder!r}.")
    path = Path(folder)
    try:
        place, number = find_version(path, version)
        parts = _read(place)
        return {**parts, "info": replace(parts["info"], version=number)}
    except (ArtifactError, OSError) as error:
        reason = f"{error.strerror or error}." if isinstance(error, OSError) else error
        code = getattr(error, "code", None)
        raise ArtifactError(f"cannot load a router from {path}: {reason}", code=code) from error


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ArtifactError("there is no such folder.")
    if not path.is_dir():
        _refuse_pickle(path)
        raise ArtifactError(
            f"it must be a folder with {MANIFEST_FILE} and {TENSORS_FILE}; got a file."
        )
    for entry in sorted(path.iterdir()):
        if entry.is_file():
            _refuse_pickle(entry)
    for name in (MANIFEST_FILE, TENSORS_FILE):
        _check_present(path / name)
    size = (path / MANIFEST_FILE).stat().st_size
    if size > MAX_MANIFEST_BYTES:
        raise ArtifactError(
            f"{MANIFEST_FILE} must have at most {MAX_MANIFEST_BYTES:,} bytes; got {size:,}."
        )
    try:
        manifest = read_manifest((path / MANIFEST_FILE).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{MANIFEST_FILE} is not UTF-8 text, so it is not JSON.") from error
    kind, settings, text = manifest["kind"], manifest["settings"], manifest["text"]
    content = _content(path / TENSORS_FILE, manifest["sha256"])
    tensors = _tensors(content, manifest["tensors"], text is not None)
    hashes = check_query_hashes(tensors.pop(HASHES_TENSOR, None))
    of_text, of_policy = ({}, tensors) if text is None else split(tensors, TEXT_PREFIX)
    of_novelty, of_policy = split(of_policy, NOVELTY_PREFIX)
    of_calibration, of_policy = split(of_policy, CALIBRATION_PREFIX)
    sizes = {name: manifest[name] for name in ("n_features", "n_experts")}
    check_policy(kind, settings, of_policy, dict(sizes))
    check_estimates(of_novelty, of_calibration, sizes)
    return {
        "policy": POLICIES[kind].from_state(settings, of_policy),
        "expert_names": manifest["expert_names"],
        "feature_names": manifest["feature_names"],
        "info": RouterInfo.from_manifest(manifest),
        "text": None if text is None else _text(path, text, of_text, sizes["n_features"]),
        "query_hashes": hashes,
        "novelty": Novelty(**of_novelty) if of_novelty else None,
        "calibration": tuple(of_calibration[name] for name in ("slopes", "offsets"))
        if of_calibration
        else None,
    }


def _text(
    path: Path, described: dict[str, Any], tensors: Mapping[str, NDArray[Any]], n_features: int
) -> TextFeatures:
    kind, settings = described["kind"], described["settings"]
    check_text(kind, settings, tensors, n_features)
    files = {}
    for name, key in FEATURES[kind].FILES.items():
        _check_present(path / name)
        files[name] = _content(path / name, settings[key])
    try:
        step = FEATURES[kind].from_state(settings, tensors)
    except DataFileError as error:
        raise ArtifactError(str(error)) from error
    step.take_files(files)
    return step


def _check_present(file: Path) -> None:
    if not file.is_file():
        raise ArtifactError(f"{file.name} is missing.")


def _content(file: Path, sha256: str) -> bytes:
    _check_size(file.name, file.stat())
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ArtifactError(
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
        raise ArtifactError(f"{name} has {size:,} bytes, of which most were never written.")
    if hasattr(os, "sysconf") and size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise ArtifactError(f"{name} has {size:,} bytes, more than the memory of this machine.")


def _refuse_pickle(file: Path) -> None:
    if file.suffix.lower() in PICKLE_SUFFIXES or _looks_pickled(file):
        raise ArtifactError(
            f"{file.name} is a pickle, which could run any code, and is never loaded. Remove it if "
            f"you trust the rest, or save the router again with mild.save."
        )


def _looks_pickled(file: Path) -> bool:
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


def _tensors(content: bytes, listed: dict[str, Any], has_text: bool) -> dict[str, NDArray[Any]]:
    """Tensors of the file, which must be those that the manifest lists."""
    try:
        entries = _unpack(content)
    except SafetensorError as error:
        raise ArtifactError(f"{TENSORS_FILE} is not a safetensors file ({error}).") from error
    tensors = {}
    for name, entry in entries:
        of_text = has_text and name.startswith(TEXT_PREFIX)
        dtypes = TEXT_DTYPES if of_text else HASHES_DTYPES if name == HASHES_TENSOR else DTYPES
        if entry["dtype"] not in dtypes:
            allowed = "float32 or float64" if dtypes is DTYPES else f"one of {', '.join(dtypes)}"
            raise ArtifactError(f"tensor {name!r} must be {allowed}; got {entry['dtype']}.")
        array = np.frombuffer(entry["data"], dtype=dtypes[entry["dtype"]])
        try:
            tensors[name] = array.reshape(entry["shape"])
        except ValueError as error:
            raise ArtifactError(
                f"tensor {name!r} must have a shape that an array can have; got {entry['shape']}."
            ) from error
    for name in sorted(set(listed) - set(tensors)):
        raise ArtifactError(f"tensor {name!r} is listed in {MANIFEST_FILE} but missing.")
    for name, array in sorted(tensors.items()):
        found = described_tensor(array)
        if name not in listed:
            raise ArtifactError(f"tensor {name!r} is not listed in {MANIFEST_FILE}.")
        if listed[name] != found:
            raise ArtifactError(
                f"tensor {name!r} must be {listed[name]} as {MANIFEST_FILE} says; got {found}."
            )
    return tensors
