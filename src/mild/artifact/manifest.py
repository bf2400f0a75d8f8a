"""``router.json``: its content and its rules."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mild.artifact.schemas import Rule, check_values, digest, rule
from mild.errors import ArtifactError

__all__ = ["MANIFEST_FILE", "TENSORS_FILE", "Manifest", "names_problem"]

FORMAT = "mild-router"
# The oldest schema that fits is written: 2 where there are text features or notes, else 1.
SCHEMA_VERSION = 2
# Keys that schema 1 does not have.
LATER_KEYS = ("text", "notes")
MANIFEST_FILE = "router.json"
TENSORS_FILE = "tensors.safetensors"

TEXT = rule("be a string", lambda value: isinstance(value, str))
OBJECT = rule("be an object", lambda value: isinstance(value, dict))
COUNT = rule("be a positive integer", lambda value: type(value) is int and value >= 1)
RULES: dict[str, Rule] = {
    **dict.fromkeys(("mild_version", "created", "kind"), TEXT),
    **dict.fromkeys(("settings", "tensors", "notes"), OBJECT),
    **dict.fromkeys(("n_features", "n_experts", "data.rows"), COUNT),
    **dict.fromkeys(("sha256", "data.fingerprint"), digest),
    "estimator": rule(
        "have the keys class and params",
        lambda value: isinstance(value, dict) and {"class", "params"} <= set(value),
    ),
    "data": rule(
        "be null or have fingerprint and rows",
        lambda value: (
            value is None or (isinstance(value, dict) and set(value) == {"fingerprint", "rows"})
        ),
    ),
    "text": rule(
        "have kind, a string, and settings",
        lambda value: (
            isinstance(value, dict)
            and set(value) == {"kind", "settings"}
            and isinstance(value["kind"], str)
        ),
    ),
    "text.settings": OBJECT,
}


@dataclass(frozen=True)
class Manifest:
    """The content of ``router.json``.

    ``estimator`` and ``notes`` are information only. ``data`` is the fingerprint and the number of rows of
    the training data, ``tensors`` shape and dtype of each tensor, ``sha256`` that of the tensors file.
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

    def as_dict(self) -> dict[str, Any]:
        """Plain values, format and version first."""
        fields = dataclasses.asdict(self)
        for name in LATER_KEYS:
            if fields[name] is None:
                del fields[name]
        version = SCHEMA_VERSION if set(LATER_KEYS) & set(fields) else 1
        return {"format": self.format, "schema_version": version} | fields

    def to_json(self) -> str:
        """Text of ``router.json``."""
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read and check the text of ``router.json``; settings are checked with the tensors."""
        content = _parse(text)
        if content.get("format") != FORMAT:
            raise ArtifactError(
                f"format in {MANIFEST_FILE} must be {FORMAT!r}; got {content.get('format')!r}."
            )
        version = content.pop("schema_version", None)
        if type(version) is not int or version < 1:
            raise ArtifactError(
                f"schema_version in {MANIFEST_FILE} must be a positive integer; got {version!r}."
            )
        if version > SCHEMA_VERSION:
            raise ArtifactError(
                f"written by a newer mild: schema {version}, this one reads {SCHEMA_VERSION}; upgrade "
                f"with pip install --upgrade mild-learn."
            )
        known = {field.name for field in dataclasses.fields(cls)}
        needed = known - set(LATER_KEYS)
        for name in sorted(needed - set(content)):
            raise ArtifactError(f"{MANIFEST_FILE} must have the key {name!r}; it is missing.")
        for name in sorted(set(content) - (needed if version == 1 else known)):
            raise ArtifactError(
                f"{MANIFEST_FILE} has the key {name!r}, unknown to schema {version}."
            )
        _check(content)
        for name in ("data", "text"):
            _check({f"{name}.{key}": value for key, value in (content.get(name) or {}).items()})
        for what, count in (("expert_names", "n_experts"), ("feature_names", "n_features")):
            problem = names_problem(what, content[what], content[count])
            if problem is not None and (what == "expert_names" or content[what] is not None):
                raise ArtifactError(problem)
        return cls(**content)


def _check(values: dict[str, Any]) -> None:
    check_values("%s", values, {name: RULES[name] for name in values if name in RULES}, {})


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


def _parse(text: str) -> dict[str, Any]:
    def refuse_constant(constant: str) -> Any:
        raise ArtifactError(f"{MANIFEST_FILE} must hold finite numbers; got {constant}.")

    def refuse_twice(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            raise ArtifactError(f"{MANIFEST_FILE} has a key twice in one object.")
        return content

    if not text.strip():
        raise ArtifactError(f"{MANIFEST_FILE} is empty.")
    try:
        content = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=refuse_twice)
    except ArtifactError:
        raise
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{MANIFEST_FILE} is not valid JSON ({error}).") from error
    if not isinstance(content, dict):
        raise ArtifactError(
            f"{MANIFEST_FILE} must hold a JSON object; got {type(content).__name__}."
        )
    return content
