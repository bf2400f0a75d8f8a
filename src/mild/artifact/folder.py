"""The folder of a router: it appears complete or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as to_safetensors

from mild._version import __version__
from mild.artifact.card import CARD_FILE, is_card
from mild.artifact.files import sync_folder, writing_problem
from mild.artifact.info import EstimatorInfo, RouterInfo
from mild.artifact.manifest import (
    MANIFEST_FILE,
    TENSORS_FILE,
    manifest_json,
    names_problem,
    refuse_old_folder,
)
from mild.artifact.novelty import Novelty
from mild.artifact.schemas import (
    CALIBRATION_PREFIX,
    HASHES_TENSOR,
    NOVELTY_PREFIX,
    TEXT_PREFIX,
    check_policy,
    check_query_hashes,
    check_text,
    described_tensor,
)
from mild.artifact.versions import VERSION_FILES, VERSIONS_FOLDER, adding_version
from mild.core.arrays import FloatArray
from mild.errors import ArtifactError, InvalidInputError, OutputExistsError, counted
from mild.features import FEATURES, TextFeatures
from mild.policies import Policy

#: Other files of mild in a router's folder; they are deleted when the router is replaced.
COMPANIONS = ("evaluation.json",)


def write_folder(
    folder: str | os.PathLike[str],
    overwrite: bool,
    policy: Policy,
    expert_names: Sequence[str],
    feature_names: Sequence[str] | None,
    info: RouterInfo,
    text: TextFeatures | None,
    query_hashes: NDArray[np.uint64] | None,
    novelty: Novelty | None,
    calibration: tuple[FloatArray, FloatArray] | None,
    card: str | None = None,
    portable: bool = False,
) -> Path:
    """Write a router, as JSON and safetensors; its parts are those of ``Router``.

    With a ``card``, it is written beside them. A ``portable`` folder does not name the folders of models
    outside it, which are of this machine.

    The folder is written under a temporary name beside the target and then renamed. On ``overwrite`` the
    old one is first renamed away; a process killed between the two renames leaves the old router as
    ``.NAME.MARK.old`` (MARK is eight random digits) and the new one as ``.NAME.MARK.new``. In a folder with
    versions, the router becomes the next one instead, which serves: nothing is deleted.
    """
    target = check_target(folder, overwrite)
    _check_names("expert_names", expert_names, policy.n_experts)
    if feature_names is not None:
        _check_names("feature_names", feature_names, policy.n_features)
    settings, tensors = _policy_state(policy)
    described = None if text is None else _text_state(text, policy, tensors, portable)
    hashes = check_query_hashes(query_hashes)
    if hashes is not None:
        tensors[HASHES_TENSOR] = hashes
    if novelty is not None:
        for name, array in novelty.tensors().items():
            tensors[f"{NOVELTY_PREFIX}{name}"] = np.ascontiguousarray(array)
    if calibration is not None:
        for name, array in zip(("slopes", "offsets"), calibration, strict=True):
            tensors[f"{CALIBRATION_PREFIX}{name}"] = np.ascontiguousarray(array)
    packed = to_safetensors(tensors)
    manifest = {
        "mild_version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "kind": policy.kind,
        "settings": settings,
        "estimator": (info.estimator or EstimatorInfo("Router", {})).as_dict(),
        "expert_names": list(expert_names),
        "feature_names": None if feature_names is None else list(feature_names),
        "n_features": policy.n_features,
        "n_experts": policy.n_experts,
        "data": None if info.data is None else info.data.as_dict(),
        "tensors": {name: described_tensor(array) for name, array in tensors.items()},
        "sha256": hashlib.sha256(packed).hexdigest(),
        "text": described,
        "notes": info.notes,
    }
    try:
        beside = {} if text is None else text.files()
        if card is not None:
            beside = {**beside, CARD_FILE: card.encode()}
        content = {TENSORS_FILE: packed, **beside, MANIFEST_FILE: manifest_json(manifest).encode()}
        if os.path.lexists(target / VERSIONS_FOLDER):
            with adding_version(
                target, "saved", "saved in place of the router that served"
            ) as place:
                _write(place, content)
        else:
            _write(target, content)
    except OutputExistsError:
        raise
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise OutputExistsError(f"{target} exists: it appeared during saving.") from error
        raise ArtifactError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target


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
    if exists and not target.is_dir():
        raise OutputExistsError(f"{target} must be a folder; a file is there.")
    try:
        present = {entry.name for entry in target.iterdir()} if exists else set()
    except OSError as error:
        raise ArtifactError(f"cannot write to {target}: {error.strerror or error}.") from error
    # Replacing the working directory would leave the process in a deleted one.
    if exists and not overwrite and (present or target == Path(os.path.realpath(os.curdir))):
        raise OutputExistsError(
            f"{target} exists; choose another folder, or replace it with overwrite=True."
        )
    try:
        refuse_old_folder(target, "choose another folder")
    except ArtifactError as error:
        message = f"cannot write to {target}, where a router is: {error}"
        raise ArtifactError(message, code=error.code) from error
    beside = {name for features in FEATURES.values() for name in features.FILES}
    # A README.md that mild did not write is somebody's work.
    card = {CARD_FILE} if is_card(target / CARD_FILE) else set()
    ours = {MANIFEST_FILE, TENSORS_FILE, *beside, *COMPANIONS, *VERSION_FILES, *card}
    foreign = sorted(present - ours)
    if foreign:
        raise OutputExistsError(
            f"{target} holds more than a router ({foreign[0]!r}), and replacing it would delete "
            f"that; choose another folder."
        )
    parent = next(parent for parent in target.parents if os.path.lexists(parent))
    problem = writing_problem(parent, target.name if parent == target.parent else "router")
    if problem is not None:
        raise ArtifactError(f"cannot write to {target}: {problem}.")
    return target


def _check_names(what: str, names: Sequence[str], count: int) -> None:
    problem = names_problem(what, list(names), count)
    if problem is not None:
        raise InvalidInputError(problem, parameter=what)


def _policy_state(policy: Policy) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """State of the policy, checked as loading will check it."""
    settings, arrays = policy.state()
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sizes = {"n_features": policy.n_features, "n_experts": policy.n_experts}
    try:
        check_policy(policy.kind, settings, tensors, sizes)
    except ArtifactError as error:
        raise ArtifactError(f"this router cannot be saved: {error}") from error
    return settings, tensors


def _text_state(
    text: TextFeatures, policy: Policy, tensors: dict[str, NDArray[Any]], portable: bool
) -> dict[str, Any]:
    """Kind and settings of the text features; their arrays join ``tensors``, behind a prefix."""
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
    if text.n_features_ != policy.n_features:
        raise InvalidInputError(
            f"text must give {counted(policy.n_features, 'feature')}, as many as the router was "
            f"fitted with; these {text.kind} features are {text.n_features_}.",
            parameter="text",
        )
    own = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        check_text(text.kind, settings, own, policy.n_features)
    except ArtifactError as error:
        raise ArtifactError(f"these {text.kind} features cannot be saved: {error}") from error
    tensors.update({f"{TEXT_PREFIX}{name}": array for name, array in own.items()})
    return {"kind": text.kind, "settings": settings}


def _without_paths(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of text features, and of their parts, without folders of this machine."""
    return {
        name: None
        if name == "path"
        else _without_paths(value)
        if isinstance(value, Mapping)
        else value
        for name, value in settings.items()
    }


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
