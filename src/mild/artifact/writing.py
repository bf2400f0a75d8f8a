"""Router to folder: never half of one."""

from __future__ import annotations

import errno
import hashlib
import importlib
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

from mild.artifact.fingerprints import fingerprint
from mild.artifact.kinds import check_policy_state
from mild.artifact.manifest import MANIFEST_FILE, TENSORS_FILE, Manifest, names_problem
from mild.artifact.marks import MARKS_TENSOR, check_marks
from mild.artifact.sources import source_of
from mild.artifact.text_kinds import TEXT_PREFIX, check_text_state
from mild.errors import ArtifactError, InvalidInputError, OutputExistsError
from mild.features import FEATURES, TextFeatures
from mild.policies import Policy

__all__ = ["COMPANIONS", "check_target", "save"]

#: What mild puts beside a router about it; it goes when the router is replaced.
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

    The folder appears complete or not at all: it is written beside its place and then renamed. On
    ``overwrite`` the old one is first renamed away, so that for a moment neither is in place; a
    process killed there leaves the old router complete beside it, as ``.NAME.MARK.old`` (NAME the
    folder's, MARK eight random digits), and the new one as ``.NAME.MARK.new``.

    Parameters
    ----------
    router : fitted router, Pipeline of StandardScaler steps and a router, RouterCV, LoadedRouter
    folder : where to; must not exist or be empty, unless ``overwrite``
    expert_names : one name per expert; None for those the router knows
    feature_names : one name per feature; None for those the router knows, if any
    data : (X, costs) the router was fitted on, for the fingerprint, or a mapping of "fingerprint" and
        "rows" where they are known; None to leave it out
    text : fitted step from texts to the router's features, saved with it; None for the one that a loaded
        router already has, if any
    notes : JSON-ready facts to keep with the router, such as what counted as a cost
    marks : (n,) uint64, ascending, different: hashes of the training queries, to recognise them later
    overwrite : whether a router that is there may be replaced

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
    LoadedRouter(linear, 1 features, experts small, large)
    """
    source = source_of(router)
    target = check_target(folder, overwrite)
    names = _names("expert_names", expert_names, source.expert_names, source.policy.n_experts)
    features = _names(
        "feature_names", feature_names, source.feature_names, source.policy.n_features
    )
    settings, tensors = _state(source.policy)
    step = source.text if text is None else text
    described = _text_state(step, source.policy, tensors)
    seen = check_marks(source.marks if marks is None else marks)
    if seen is not None:
        tensors[MARKS_TENSOR] = seen
    packed = to_safetensors(tensors)
    manifest = Manifest(
        # Imported by name: the root package knows every room, this room must not.
        mild_version=importlib.import_module("mild").__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        kind=source.policy.kind,
        settings=settings,
        estimator=source.estimator,
        expert_names=names or [],
        feature_names=features,
        n_features=source.policy.n_features,
        n_experts=source.policy.n_experts,
        data=source.data if data is None else _described_data(data),
        tensors={
            name: {"shape": list(array.shape), "dtype": array.dtype.name}
            for name, array in tensors.items()
        },
        sha256=hashlib.sha256(packed).hexdigest(),
        text=described,
        notes=source.notes if notes is None else dict(notes),
    )
    try:
        beside = {} if step is None else step.files()
        content = {TENSORS_FILE: packed, **beside, MANIFEST_FILE: manifest.to_json().encode()}
        _write(target, content)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise OutputExistsError(f"{target} exists: it appeared during saving.") from error
        raise ArtifactError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target


def check_target(folder: str | os.PathLike[str], overwrite: bool) -> Path:
    """Resolve a folder to write to: a new one, an empty one, or with ``overwrite`` a router's.

    Call it before a long fit: it says at once what ``save`` would say at the end.
    """
    if not os.fspath(folder).strip():
        raise InvalidInputError(
            f"the folder to write to must have a name; got {os.fspath(folder)!r}."
        )
    target = Path(os.path.realpath(folder))
    if not os.path.lexists(target):
        parent = next(parent for parent in target.parents if os.path.lexists(parent))
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise ArtifactError(f"cannot write to {target}: {parent} is not a writable folder.")
        return target
    if not target.is_dir():
        raise OutputExistsError(f"{target} must be a folder; a file is there.")
    try:
        present = {entry.name for entry in target.iterdir()}
    except OSError as error:
        raise ArtifactError(f"cannot write to {target}: {error.strerror or error}.") from error
    # Whoever stands in a folder that is replaced is left in one that is gone.
    usable = not present and target != Path(os.path.realpath(os.curdir))
    if not overwrite and not usable:
        raise OutputExistsError(
            f"{target} exists; choose another folder, or replace it (--overwrite, overwrite=True)."
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise ArtifactError(f"cannot write to {target}: {target.parent} is not a writable folder.")
    beside = {name for features in FEATURES.values() for name in features.FILES}
    strangers = sorted(present - {MANIFEST_FILE, TENSORS_FILE, *beside, *COMPANIONS})
    if strangers:
        raise OutputExistsError(
            f"{target} holds more than a router ({strangers[0]!r}), and replacing it would delete "
            f"that; choose another folder."
        )
    return target


def _names(
    what: str, given: Sequence[str] | None, known: list[str] | None, count: int
) -> list[str] | None:
    names = known if given is None else list(given)
    problem = None if names is None else names_problem(what, names, count)
    if problem is not None:
        raise InvalidInputError(problem)
    return names


def _state(policy: Policy) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """State of the policy, held to the rules that loading will hold it to."""
    settings, arrays = policy.state()
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sizes = {"n_features": policy.n_features, "n_experts": policy.n_experts}
    try:
        check_policy_state(policy.kind, settings, tensors, sizes)
    except ArtifactError as error:
        raise ArtifactError(f"this router cannot be saved: {error}") from error
    return settings, tensors


def _text_state(
    text: TextFeatures | None, policy: Policy, tensors: dict[str, np.ndarray[Any, Any]]
) -> dict[str, Any] | None:
    """Kind and settings of the feature step; its arrays join the router's, behind a prefix."""
    if text is None:
        return None
    if not isinstance(text, TextFeatures) or FEATURES.get(text.kind) is not type(text):
        raise InvalidInputError(
            f"text must be a feature step of mild.features ({', '.join(FEATURES)}); got "
            f"{type(text).__name__}."
        )
    settings, arrays = text.state()
    if text.n_features != policy.n_features:
        raise InvalidInputError(
            f"text must give the {policy.n_features} feature(s) that the router was fitted with; these "
            f"{text.kind} features are {text.n_features}."
        )
    own = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        check_text_state(text.kind, settings, own, policy.n_features)
    except ArtifactError as error:
        raise ArtifactError(f"these {text.kind} features cannot be saved: {error}") from error
    tensors.update({f"{TEXT_PREFIX}{name}": array for name, array in own.items()})
    return {"kind": text.kind, "settings": settings}


def _described_data(data: tuple[Any, Any] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(data, Mapping):
        return {"fingerprint": str(data["fingerprint"]), "rows": int(data["rows"])}
    X, costs = data
    return {"fingerprint": fingerprint(X, costs), "rows": int(np.shape(costs)[0])}


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    """Write beside the target, make it durable, then rename.

    Readers see the old router, for a moment between two renames none, then the new one. A kill in
    that moment leaves the old one as ``.NAME.MARK.old`` and the new one as ``.NAME.MARK.new``.
    """
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
        _sync_folder(fresh)
        if os.path.lexists(target):
            target.rename(old)
        try:
            fresh.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        _sync_folder(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if os.path.lexists(target):
            shutil.rmtree(old, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the system can open folders."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
