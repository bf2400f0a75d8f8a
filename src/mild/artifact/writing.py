"""Saving: a folder appears complete or not at all."""

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
from mild.artifact.files import sync_folder, writing_problem
from mild.artifact.fingerprints import fingerprint
from mild.artifact.manifest import MANIFEST_FILE, TENSORS_FILE, manifest_json, names_problem
from mild.artifact.reading import HASHES_TENSOR, check_query_hashes, described_tensor
from mild.artifact.schemas import (
    CALIBRATION_PREFIX,
    NOVELTY_PREFIX,
    TEXT_PREFIX,
    check_policy,
    check_text,
)
from mild.artifact.sources import source_of
from mild.errors import ArtifactError, InvalidInputError, OutputExistsError, counted
from mild.features import FEATURES, TextFeatures
from mild.policies import Policy

#: Other files of mild in a router's folder; they are deleted when the router is replaced.
COMPANIONS = ("evaluation.json",)


def save(
    router: Any,
    folder: str | os.PathLike[str],
    *,
    expert_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    data: tuple[Any, Any] | Mapping[str, Any] | None = None,
    text: TextFeatures | None = None,
    notes: Mapping[str, Any] | None = None,
    marks: NDArray[np.uint64] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a fitted router to a folder, as JSON and safetensors.

    The folder is written under a temporary name beside the target and then renamed. On ``overwrite`` the
    old one is first renamed away; a process killed between the two renames leaves the old router as
    ``.NAME.MARK.old`` (MARK is eight random digits) and the new one as ``.NAME.MARK.new``.

    Parameters
    ----------
    router : fitted router, Pipeline of StandardScaler steps and a router, RouterCV, Router
    folder : target; must not exist or be empty, unless ``overwrite``
    expert_names : one name per expert; None for those of the router
    feature_names : one name per feature; None for those of the router, if any
    data : (X, costs) of the training data, for the fingerprint, or a mapping with "fingerprint" and "rows"
    text : fitted text features, saved with the router; None for those of the router, if any
    notes : JSON-ready facts to keep with the router, such as what counted as a cost
    marks : (n,) uint64, ascending, distinct: hashes of the training queries, to recognise them later
    overwrite : whether an existing router may be replaced

    Returns
    -------
    Path of the folder

    Examples
    --------
    >>> import tempfile
    >>> from mild.artifact import load
    >>> from mild.routers.linear import LinearRouter
    >>> router = LinearRouter().fit([[0.0], [1.0], [2.0]], [[0, 1], [0, 1], [1, 0]])
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     load(save(router, parent + "/router", expert_names=["small", "large"]))
    Router(linear, 1 features, experts small, large)
    """
    source = source_of(router)
    policy = source.policy
    target = check_target(folder, overwrite)
    names = _names("expert_names", expert_names, source.expert_names, policy.n_experts)
    features = _names("feature_names", feature_names, source.feature_names, policy.n_features)
    settings, tensors = _policy_state(policy)
    step = source.text if text is None else text
    described = None if step is None else _text_state(step, policy, tensors)
    hashes = check_query_hashes(source.marks if marks is None else marks)
    if hashes is not None:
        tensors[HASHES_TENSOR] = hashes
    if source.novelty is not None:
        for name, array in source.novelty.tensors().items():
            tensors[f"{NOVELTY_PREFIX}{name}"] = np.ascontiguousarray(array)
    if source.calibration is not None:
        for name, array in zip(("slopes", "offsets"), source.calibration, strict=True):
            tensors[f"{CALIBRATION_PREFIX}{name}"] = np.ascontiguousarray(array)
    if data is None:
        data = source.metadata.get("data")
    elif isinstance(data, Mapping):
        data = {"fingerprint": str(data["fingerprint"]), "rows": int(data["rows"])}
    else:
        data = {"fingerprint": fingerprint(*data), "rows": int(np.shape(data[1])[0])}
    packed = to_safetensors(tensors)
    manifest = {
        "mild_version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "kind": policy.kind,
        "settings": settings,
        "estimator": source.metadata.get("estimator") or {"class": "Router", "params": {}},
        "expert_names": names or [],
        "feature_names": features,
        "n_features": policy.n_features,
        "n_experts": policy.n_experts,
        "data": data,
        "tensors": {name: described_tensor(array) for name, array in tensors.items()},
        "sha256": hashlib.sha256(packed).hexdigest(),
        "text": described,
        "notes": source.metadata.get("notes") if notes is None else dict(notes),
    }
    try:
        beside = {} if step is None else step.files()
        content = {TENSORS_FILE: packed, **beside, MANIFEST_FILE: manifest_json(manifest).encode()}
        _write(target, content)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise OutputExistsError(f"{target} exists: it appeared during saving.") from error
        raise ArtifactError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target


def check_target(folder: str | os.PathLike[str], overwrite: bool) -> Path:
    """Resolve a folder to write to: a new one, an empty one, or with ``overwrite`` a router's.

    Called before a long fit, it raises the errors that ``save`` would raise at the end.
    """
    if not os.fspath(folder).strip():
        raise InvalidInputError(
            f"the folder to write to must have a name; got {os.fspath(folder)!r}.",
            parameter="folder",
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
            f"{target} exists; choose another folder, or replace it (--overwrite, overwrite=True)."
        )
    beside = {name for features in FEATURES.values() for name in features.FILES}
    foreign = sorted(present - {MANIFEST_FILE, TENSORS_FILE, *beside, *COMPANIONS})
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


def _names(
    what: str, given: Sequence[str] | None, known: list[str] | None, count: int
) -> list[str] | None:
    names = known if given is None else list(given)
    problem = None if names is None else names_problem(what, names, count)
    if problem is not None:
        raise InvalidInputError(problem, parameter=what)
    return names


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
    text: TextFeatures, policy: Policy, tensors: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Kind and settings of the text features; their arrays join ``tensors``, behind a prefix."""
    if not isinstance(text, TextFeatures) or FEATURES.get(text.kind) is not type(text):
        raise InvalidInputError(
            f"text must be a feature step of mild.features ({', '.join(FEATURES)}); got "
            f"{type(text).__name__}.",
            parameter="text",
        )
    settings, arrays = text.state()
    if text.n_features != policy.n_features:
        raise InvalidInputError(
            f"text must give {counted(policy.n_features, 'feature')}, as many as the router was "
            f"fitted with; these {text.kind} features are {text.n_features}.",
            parameter="text",
        )
    own = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        check_text(text.kind, settings, own, policy.n_features)
    except ArtifactError as error:
        raise ArtifactError(f"these {text.kind} features cannot be saved: {error}") from error
    tensors.update({f"{TEXT_PREFIX}{name}": array for name, array in own.items()})
    return {"kind": text.kind, "settings": settings}


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
