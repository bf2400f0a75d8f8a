"""``router.json``: what the folder says about itself, and the rules it must keep."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mild.errors import ArtifactError

__all__ = ["FORMAT", "MANIFEST_FILE", "SCHEMA_VERSION", "TENSORS_FILE", "Manifest", "names_problem"]

FORMAT = "mild-router"
# What is written is the oldest schema that can say it: 2 where there are a feature step or notes, else 1.
SCHEMA_VERSION = 2
PLAIN_SCHEMA = 1
# Keys that schema 1 does not have.
LATER_KEYS = ("text", "notes")
MANIFEST_FILE = "router.json"
TENSORS_FILE = "tensors.safetensors"

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Manifest:
    """The content of ``router.json``.

    Attributes
    ----------
    mild_version : version of mild that wrote it
    created : time of writing, UTC, ISO 8601
    kind : kind of policy, a key of ``mild.policies.POLICIES``
    settings : settings of the policy
    estimator : class and parameters of the router that was fitted; information only
    expert_names : one name per expert
    feature_names : one name per feature, or None
    n_features, n_experts : sizes
    data : fingerprint and rows of the training data, or None
    tensors : shape and dtype of each tensor
    sha256 : of the tensors file
    text : kind and settings of the step from texts to features, or None; schema 2
    notes : what whoever saved it wants to know later (what counted as a cost, which table), or None;
        information only; schema 2
    """

    mild_version: str
    created: str
    kind: str
    settings: dict[str, Any]
    estimator: dict[str, Any]
    expert_names: list[str]
    feature_names: list[str] | None
    n_features: int
    n_experts: int
    data: dict[str, Any] | None
    tensors: dict[str, dict[str, Any]]
    sha256: str
    text: dict[str, Any] | None = None
    notes: dict[str, Any] | None = None
    format: str = FORMAT

    @property
    def schema_version(self) -> int:
        """The oldest schema that can say this."""
        return PLAIN_SCHEMA if self.text is None and self.notes is None else SCHEMA_VERSION

    def as_dict(self) -> dict[str, Any]:
        """Plain values, format and version first."""
        fields = dataclasses.asdict(self)
        for name in LATER_KEYS:
            if fields[name] is None:
                del fields[name]
        return {"format": self.format, "schema_version": self.schema_version} | fields

    def to_json(self) -> str:
        """Text of ``router.json``."""
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read and check the text of ``router.json``; settings are checked with the tensors."""
        content = _parsed(text)
        _check_format(content)
        version = content.pop("schema_version")
        known = {field.name for field in dataclasses.fields(cls)}
        needed = known - set(LATER_KEYS)
        expected = needed if version == PLAIN_SCHEMA else known
        for name in sorted(needed - set(content)):
            raise ArtifactError(f"{MANIFEST_FILE} must have the key {name!r}; it is missing.")
        for name in sorted(set(content) - expected):
            raise ArtifactError(
                f"{MANIFEST_FILE} has the key {name!r}, unknown to schema {version}."
            )
        manifest = cls(**content)
        _check_fields(manifest)
        if "text" in content:
            _check_text(manifest.text)
        if "notes" in content and not isinstance(manifest.notes, dict):
            raise ArtifactError(f"notes must be an object; got {manifest.notes!r}.")
        return manifest


def names_problem(what: str, names: object, count: int) -> str | None:
    """What is wrong with a list of names, as a sentence; None if nothing is."""
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        return f"{what} must be a list of non-empty strings; got {names!r}."
    if len(names) != count:
        return f"{what} must have {count} name(s), one each; got {len(names)}."
    for place, name in enumerate(names):
        if name in names[:place]:
            return f"{what} must differ from each other; {name!r} appears twice."
    return None


def _parsed(text: str) -> dict[str, Any]:
    def refuse_constant(constant: str) -> Any:
        raise ArtifactError(f"{MANIFEST_FILE} must hold finite numbers; got {constant}.")

    def read_integer(digits: str) -> int:
        try:
            return int(digits)
        except ValueError as error:
            raise ArtifactError(
                f"{MANIFEST_FILE} must hold integers of ordinary size; got one of {len(digits)} "
                f"characters."
            ) from error

    def refuse_twice(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            raise ArtifactError(f"{MANIFEST_FILE} has a key twice in one object.")
        return content

    if not text.strip():
        raise ArtifactError(f"{MANIFEST_FILE} is empty.")
    try:
        content = json.loads(
            text,
            parse_int=read_integer,
            parse_constant=refuse_constant,
            object_pairs_hook=refuse_twice,
        )
    except json.JSONDecodeError as error:
        raise ArtifactError(
            f"{MANIFEST_FILE} is not valid JSON (line {error.lineno}, column {error.colno}: "
            f"{error.msg}); it may be cut off."
        ) from error
    except RecursionError as error:
        raise ArtifactError(f"{MANIFEST_FILE} is nested too deep to be a router.") from error
    if not isinstance(content, dict):
        raise ArtifactError(
            f"{MANIFEST_FILE} must hold a JSON object; got a {type(content).__name__}."
        )
    return content


def _check_format(content: dict[str, Any]) -> None:
    if content.get("format") != FORMAT:
        raise ArtifactError(
            f"format in {MANIFEST_FILE} must be {FORMAT!r}; got {content.get('format')!r}."
        )
    version = content.get("schema_version")
    if type(version) is not int or version < 1:
        raise ArtifactError(
            f"schema_version in {MANIFEST_FILE} must be a positive integer; got {version!r}."
        )
    if version > SCHEMA_VERSION:
        raise ArtifactError(
            f"written by a newer mild: schema {version}, this one reads {SCHEMA_VERSION}; upgrade "
            f"with pip install --upgrade mild-learn."
        )


def _check_fields(manifest: Manifest) -> None:
    for name in ("mild_version", "created", "kind"):
        if not isinstance(getattr(manifest, name), str):
            raise ArtifactError(f"{name} must be a string; got {getattr(manifest, name)!r}.")
    for name in ("settings", "estimator", "tensors"):
        if not isinstance(getattr(manifest, name), dict):
            raise ArtifactError(f"{name} must be an object; got {getattr(manifest, name)!r}.")
    for name in ("n_features", "n_experts"):
        value = getattr(manifest, name)
        if type(value) is not int or value < 1:
            raise ArtifactError(f"{name} must be a positive integer; got {value!r}.")
    if not {"class", "params"} <= set(manifest.estimator):
        raise ArtifactError("estimator must have the keys class and params.")
    problem = names_problem("expert_names", manifest.expert_names, manifest.n_experts)
    if problem is None and manifest.feature_names is not None:
        problem = names_problem("feature_names", manifest.feature_names, manifest.n_features)
    if problem is not None:
        raise ArtifactError(problem)
    _check_data(manifest.data)
    if not isinstance(manifest.sha256, str) or not _SHA256.fullmatch(manifest.sha256):
        raise ArtifactError(f"sha256 must be 64 hexadecimal digits; got {manifest.sha256!r}.")


def _check_text(text: object) -> None:
    right = isinstance(text, dict) and set(text) == {"kind", "settings"}
    if not right or not isinstance(text, dict) or not isinstance(text["kind"], str):
        raise ArtifactError(f"text must have kind, a string, and settings; got {text!r}.")
    if not isinstance(text["settings"], dict):
        raise ArtifactError(f"text.settings must be an object; got {text['settings']!r}.")


def _check_data(data: object) -> None:
    if data is None:
        return
    if not isinstance(data, dict) or set(data) != {"fingerprint", "rows"}:
        raise ArtifactError(f"data must be null or have fingerprint and rows; got {data!r}.")
    mark, rows = data["fingerprint"], data["rows"]
    if not isinstance(mark, str) or not _SHA256.fullmatch(mark):
        raise ArtifactError(f"data.fingerprint must be 64 hexadecimal digits; got {mark!r}.")
    if type(rows) is not int or rows < 1:
        raise ArtifactError(f"data.rows must be a positive integer; got {rows!r}.")
