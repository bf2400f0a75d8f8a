"""Loading: everything is checked before it is used, and nothing is unpickled."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from mild.artifact.feature_schemas import TEXT_DTYPES, TEXT_PREFIX, check_text_state
from mild.artifact.loaded import LoadedRouter
from mild.artifact.manifest import MANIFEST_FILE, TENSORS_FILE, Manifest
from mild.artifact.policy_schemas import check_policy_state
from mild.artifact.query_hashes import HASHES_DTYPES, HASHES_TENSOR, check_query_hashes
from mild.artifact.state import split
from mild.errors import ArtifactError, DataFileError
from mild.features import FEATURES, TextFeatures
from mild.policies import POLICIES

__all__ = ["load"]

PICKLE_SUFFIXES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".ckpt", ".dill")
BINARY_PICKLE = re.compile(rb"\x80[\x02-\x05]")
# Text pickles start with a global's module and name, or with a container, and end with a full stop.
TEXT_PICKLE = re.compile(rb"c[A-Za-z_][\w.]*\n[A-Za-z_]\w*\n|[(][dlti][p\n0-9(]")
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}

# safetensors has no types for it.
_unpack: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = deserialize


def load(folder: str | os.PathLike[str]) -> LoadedRouter:
    """Read a router that ``save`` wrote.

    Nothing in the folder is executed or unpickled. scikit-learn, scipy and torch are not imported. Models
    outside the folder (static embeddings by reference, a sentence encoder) are looked up and must be those
    that the router was fitted with; an encoder is looked up on first use.

    Parameters
    ----------
    folder : path of the artefact

    Raises
    ------
    ArtifactError
        missing or damaged files, a newer schema, tensors that do not fit, a pickle in the folder
    """
    path = Path(folder)
    try:
        return _load(path)
    except ArtifactError as error:
        raise ArtifactError(f"cannot load a router from {path}: {error}") from error
    except OSError as error:
        raise ArtifactError(
            f"cannot load a router from {path}: {error.strerror or error}."
        ) from error


def _load(path: Path) -> LoadedRouter:
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
        if not (path / name).is_file():
            raise ArtifactError(f"{name} is missing.")
    manifest = Manifest.from_json(_text(path / MANIFEST_FILE))
    tensors = _tensors(_checked(path / TENSORS_FILE, manifest.sha256), manifest)
    sizes = {"n_features": manifest.n_features, "n_experts": manifest.n_experts}
    hashes = check_query_hashes(tensors.pop(HASHES_TENSOR, None))
    of_text, of_policy = ({}, tensors) if manifest.text is None else split(tensors, TEXT_PREFIX)
    check_policy_state(manifest.kind, manifest.settings, of_policy, sizes)
    policy = POLICIES[manifest.kind].from_state(manifest.settings, of_policy)
    text = None if manifest.text is None else _text_features(path, manifest, of_text)
    return LoadedRouter(
        policy, manifest.expert_names, manifest.feature_names, manifest.as_dict(), text, hashes
    )


def _text_features(path: Path, manifest: Manifest, tensors: Mapping[str, Any]) -> TextFeatures:
    described = manifest.text or {}
    kind, settings = described["kind"], described["settings"]
    check_text_state(kind, settings, tensors, manifest.n_features)
    files = {}
    for name, key in FEATURES[kind].FILES.items():
        if not (path / name).is_file():
            raise ArtifactError(f"{name} is missing.")
        files[name] = _checked(path / name, settings[key])
    try:
        step = FEATURES[kind].from_state(settings, tensors)
    except DataFileError as error:
        raise ArtifactError(str(error)) from error
    step.take_files(files)
    return step


def _checked(file: Path, sha256: str) -> bytes:
    """Content of a file, if it is the one that was saved."""
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ArtifactError(
            f"{file.name} does not match the checksum in {MANIFEST_FILE}: one of them was changed or "
            f"cut off."
        )
    return content


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


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{file.name} is not UTF-8 text, so it is not JSON.") from error


def _tensors(content: bytes, manifest: Manifest) -> dict[str, np.ndarray[Any, Any]]:
    try:
        entries = _unpack(content)
    except SafetensorError as error:
        raise ArtifactError(f"{TENSORS_FILE} is not a safetensors file ({error}).") from error
    tensors = {}
    for name, entry in entries:
        of_text = manifest.text is not None and name.startswith(TEXT_PREFIX)
        dtypes = TEXT_DTYPES if of_text else HASHES_DTYPES if name == HASHES_TENSOR else DTYPES
        if entry["dtype"] not in dtypes:
            rule = "float32 or float64" if dtypes is DTYPES else f"one of {', '.join(dtypes)}"
            raise ArtifactError(f"tensor {name!r} must be {rule}; got {entry['dtype']}.")
        array = np.frombuffer(entry["data"], dtype=dtypes[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"])
    listed = manifest.tensors
    for name in sorted(set(listed) - set(tensors)):
        raise ArtifactError(f"tensor {name!r} is listed in {MANIFEST_FILE} but missing.")
    for name in sorted(set(tensors) - set(listed)):
        raise ArtifactError(f"tensor {name!r} is not listed in {MANIFEST_FILE}.")
    for name, array in tensors.items():
        found = {"shape": list(array.shape), "dtype": array.dtype.name}
        if listed[name] != found:
            raise ArtifactError(
                f"tensor {name!r} must be {listed[name]} as {MANIFEST_FILE} says; got {found}."
            )
    return tensors
