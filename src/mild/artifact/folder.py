"""The folder of a router: it appears complete or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as to_safetensors

from mild._version import __version__
from mild.artifact.files import sync_folder, writing_problem
from mild.artifact.info import EstimatorInfo
from mild.artifact.manifest import (
    MANIFEST_FILE,
    TENSORS_FILE,
    manifest_json,
    names_problem,
)
from mild.artifact.parts import RouterParts
from mild.artifact.schemas import (
    HASHES_TENSOR,
    NOVELTY_PREFIX,
    TEXT_PREFIX,
    check_policy,
    check_query_hashes,
    check_text,
    described_tensor,
    with_prefix,
)
from mild.artifact.served import VERSION_FILES
from mild.errors import InvalidInputError, OutputExistsError, RouterFileError, count_noun
from mild.features import FEATURES, TextFeatures
from mild.policies import Policy


def write_folder(
    folder: str | os.PathLike[str],
    router: RouterParts,
    overwrite: bool,
    portable: bool = False,
) -> Path:
    """Write the folder of a router: JSON and safetensors.

    With ``portable``, paths on this machine, such as those of text encoders, are left out.

    The folder is written under a temporary name beside the target and then renamed. With ``overwrite``,
    the old one is first moved aside; a process killed between the two renames leaves the old router as
    ``.NAME.MARK.old`` (MARK is eight random digits) and the new one as ``.NAME.MARK.new``.
    """
    target = check_target(folder, overwrite)
    files = _files_of(router, portable)
    try:
        _write(target, files)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise OutputExistsError(f"{target} exists: it appeared during saving.") from error
        raise RouterFileError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target


def _files_of(router: RouterParts, portable: bool) -> dict[str, bytes]:
    """The content of each file of a router's folder."""
    policy = router.policy
    _check_names("experts", router.experts, policy.n_experts)
    if router.feature_names is not None:
        _check_names("feature_names", router.feature_names, policy.n_features)
    settings, tensors = _policy_state(policy)
    text_description = None
    text_files: Mapping[str, bytes] = {}
    if router.text is not None:
        text_description, text_tensors = _text_state(router.text, policy.n_features, portable)
        tensors.update(text_tensors)
        text_files = router.text.files()
    tensors.update(_other_tensors(router))
    packed_tensors = to_safetensors(tensors)
    data = None
    if router.info.data is not None:
        data = router.info.data.as_dict()
    estimator = router.info.estimator or EstimatorInfo("Router", {})
    manifest = {
        "mild_version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "kind": policy.kind,
        "settings": settings,
        "estimator": estimator.as_dict(),
        "experts": router.experts,
        "feature_names": router.feature_names,
        "n_features": policy.n_features,
        "n_experts": policy.n_experts,
        "data": data,
        "tensors": {name: described_tensor(array) for name, array in tensors.items()},
        "sha256": hashlib.sha256(packed_tensors).hexdigest(),
        "text": text_description,
        "notes": router.info.notes,
    }
    files = {TENSORS_FILE: packed_tensors, **text_files}
    files[MANIFEST_FILE] = manifest_json(manifest).encode()
    return files


def check_target(folder: str | os.PathLike[str], overwrite: bool) -> Path:
    """Resolve a folder to write to: a new one, an empty one, or with ``overwrite`` a router's.

    Called before a long fit, it raises the errors that ``save`` would raise at the end.
    """
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder).strip():
        raise InvalidInputError(
            f"the folder to write to must have a name; got {folder!r}.", parameter="folder"
        )
    target = Path(os.path.realpath(folder))
    exists = os.path.lexists(target)
    names: set[str] = set()
    if exists:
        names = _names_in(target)
    # Replacing the working directory would leave the process in a deleted one.
    is_working_directory = target == Path(os.path.realpath(os.curdir))
    if exists and not overwrite and (names or is_working_directory):
        raise OutputExistsError(
            f"{target} exists; choose another folder, or replace it with overwrite=True."
        )
    foreign_names = sorted(names - _names_of_mild())
    if foreign_names:
        raise OutputExistsError(
            f"{target} holds more than a router ({foreign_names[0]!r}), and replacing it would delete "
            f"that; choose another folder."
        )
    _check_writable(target)
    return target


def _names_in(target: Path) -> set[str]:
    """Names of what is in a folder; a file in its place is refused."""
    if not target.is_dir():
        raise OutputExistsError(f"{target} must be a folder; a file is there.")
    try:
        return {entry.name for entry in target.iterdir()}
    except OSError as error:
        raise RouterFileError(f"cannot write to {target}: {error.strerror or error}.") from error


def _names_of_mild() -> set[str]:
    """Names of files and folders that mild may have written there, and may delete."""
    names = {MANIFEST_FILE, TENSORS_FILE, *VERSION_FILES}
    for features in FEATURES.values():
        names.update(features.FILES)
    return names


def _check_writable(target: Path) -> None:
    """Refuse a folder that cannot be made where it is to be."""
    parent = target.parent
    name = target.name
    while not os.path.lexists(parent):
        # Folders are made down to the target, and the first of them needs some name.
        parent = parent.parent
        name = "router"
    problem = writing_problem(parent, name)
    if problem is not None:
        raise RouterFileError(f"cannot write to {target}: {problem}.")


def _check_names(parameter: str, names: list[str], count: int) -> None:
    """Refuse names of the experts, or of the features, that are not ``count`` different texts."""
    problem = names_problem(parameter, names, count)
    if problem is not None:
        raise InvalidInputError(problem, parameter=parameter)


def _policy_state(policy: Policy) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """State of the policy, checked as loading will check it."""
    settings, arrays = policy.state()
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sizes = {"n_features": policy.n_features, "n_experts": policy.n_experts}
    try:
        check_policy(policy.kind, settings, tensors, sizes)
    except RouterFileError as error:
        raise RouterFileError(f"this router cannot be saved: {error}") from error
    return settings, tensors


def _text_state(
    text: TextFeatures, n_features: int, portable: bool
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Kind and settings of the text features, and their tensors among those of the router."""
    if not isinstance(text, TextFeatures) or FEATURES.get(text.kind) is not type(text):
        raise InvalidInputError(
            f"text must be a feature step of mild.features ({', '.join(FEATURES)}); got "
            f"{type(text).__name__}.",
            parameter="text",
        )
    if not text.__sklearn_is_fitted__():
        raise InvalidInputError("text must be fitted before it is saved; call fit(texts) first.")
    settings, arrays = text.state()
    if portable:
        settings = _without_paths(settings)
    if text.n_features_ != n_features:
        raise InvalidInputError(
            f"text must give {count_noun(n_features, 'feature')}, as many as the router was "
            f"fitted with; these {text.kind} features are {text.n_features_}.",
            parameter="text",
        )
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        check_text(text.kind, settings, tensors, n_features)
    except RouterFileError as error:
        raise RouterFileError(f"these {text.kind} features cannot be saved: {error}") from error
    return {"kind": text.kind, "settings": settings}, with_prefix(tensors, TEXT_PREFIX)


def _without_paths(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of text features, and of their parts, without folders of this machine."""
    portable: dict[str, Any] = {}
    for name, value in settings.items():
        portable[name] = value
        if name == "path":
            portable[name] = None
        elif isinstance(value, Mapping):
            portable[name] = _without_paths(value)
    return portable


def _other_tensors(router: RouterParts) -> dict[str, NDArray[Any]]:
    """Tensors that are neither of the policy nor of the text features."""
    tensors: dict[str, NDArray[Any]] = {}
    hashes = check_query_hashes(router.query_hashes)
    if hashes is not None:
        tensors[HASHES_TENSOR] = hashes
    if router.novelty is not None:
        tensors.update(with_prefix(router.novelty.tensors(), NOVELTY_PREFIX))
    return tensors


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    """Write beside the target, make it durable, then rename."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mark = secrets.token_hex(4)
    fresh = target.with_name(f".{target.name}.{mark}.new")
    old = target.with_name(f".{target.name}.{mark}.old")
    try:
        fresh.mkdir()
        for name, content in files.items():
            with open(fresh / name, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        sync_folder(fresh)
        if os.path.lexists(target):
            target.rename(old)
        try:
            fresh.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        sync_folder(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if os.path.lexists(target):
            shutil.rmtree(old, ignore_errors=True)
