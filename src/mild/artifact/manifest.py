"""``router.json``: its content and its rules."""

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
# The oldest schema that fits is written: 2 where there are text features or notes, else 1.
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
    text : kind and settings of the text features, or None; schema 2
    notes : facts kept with the router (what counted as a cost, which table), or None; information only;
        schema 2
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
        """The oldest schema that has all the keys."""
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
        _check_fields(content)
        return cls(**content)


def names_problem(what: str, names: object, count: int) -> str | None:
    """Why a list of names is refused, as a sentence; None if it is not."""
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        return f"{what} must be a list of non-empty strings; got {names!r}."
    if len(names) != count:
        return f"{what} must have {count} name(s), one each; got {len(names)}."
    for i, name in enumerate(names):
        if name in names[:i]:
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


def _check_fields(content: dict[str, Any]) -> None:
    for name in ("mild_version", "created", "kind"):
        _check(name, content[name], isinstance(content[name], str), "be a string")
    for name in ("settings", "estimator", "tensors", *({"notes"} & set(content))):
        _check(name, content[name], isinstance(content[name], dict), "be an object")
    for name in ("n_features", "n_experts"):
        _check(name, content[name], _is_count(content[name]), "be a positive integer")
    if not {"class", "params"} <= set(content["estimator"]):
        raise ArtifactError("estimator must have the keys class and params.")
    problem = names_problem("expert_names", content["expert_names"], content["n_experts"])
    if problem is None and content["feature_names"] is not None:
        problem = names_problem("feature_names", content["feature_names"], content["n_features"])
    if problem is not None:
        raise ArtifactError(problem)
    data = content["data"]
    if data is not None:
        right = isinstance(data, dict) and set(data) == {"fingerprint", "rows"}
        _check("data", data, right, "be null or have fingerprint and rows")
        _check_digest("data.fingerprint", data["fingerprint"])
        _check("data.rows", data["rows"], _is_count(data["rows"]), "be a positive integer")
    _check_digest("sha256", content["sha256"])
    if "text" in content:
        text = content["text"]
        right = isinstance(text, dict) and set(text) == {"kind", "settings"}
        right = right and isinstance(text["kind"], str)
        _check("text", text, right, "have kind, a string, and settings")
        settings = text["settings"]
        _check("text.settings", settings, isinstance(settings, dict), "be an object")


def _check(name: str, value: object, right: bool, rule: str) -> None:
    if not right:
        raise ArtifactError(f"{name} must {rule}; got {value!r}.")


def _check_digest(name: str, value: object) -> None:
    right = isinstance(value, str) and _SHA256.fullmatch(value) is not None
    _check(name, value, right, "be 64 hexadecimal digits")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1
