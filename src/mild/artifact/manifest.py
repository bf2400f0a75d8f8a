"""``router.json``: its content and its rules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mild.artifact.rules import Rule, check_values, digest, json_object, rule, text
from mild.errors import RouterFileError, count_noun

FORMAT = "mild-router"
# The one schema that is written and read.
SCHEMA_VERSION = 3
MANIFEST_FILE = "router.json"
TENSORS_FILE = "tensors.safetensors"


def _has_keys(value: Any, *keys: str) -> bool:
    """Whether a value is an object with these keys and no others."""
    return isinstance(value, dict) and set(value) == set(keys)


is_count = rule("be a positive integer", lambda value: type(value) is int and value >= 1)
# ``estimator`` and ``notes`` are information only. The lists of names are checked with their lengths.
RULES: dict[str, Rule] = {
    **dict.fromkeys(("format", "mild_version", "created", "kind", "text.kind"), text),
    **dict.fromkeys(("settings", "tensors", "text.settings"), json_object),
    **dict.fromkeys(("n_features", "n_experts", "data.rows"), is_count),
    **dict.fromkeys(("sha256", "data.fingerprint"), digest),
    "estimator": rule(
        "have the keys class and params",
        lambda value: isinstance(value, dict) and {"class", "params"} <= set(value),
    ),
    "data": rule(
        "be null or have fingerprint and rows",
        lambda value: value is None or _has_keys(value, "fingerprint", "rows"),
    ),
    "notes": rule("be null or an object", lambda value: value is None or isinstance(value, dict)),
    "text": rule(
        "be null or have kind, a string, and settings",
        lambda value: value is None or _has_keys(value, "kind", "settings"),
    ),
}
KEYS = {name for name in RULES if "." not in name} | {"experts", "feature_names"}


def manifest_json(fields: Mapping[str, Any]) -> str:
    """Text of ``router.json``."""
    content = {"format": FORMAT, "schema_version": SCHEMA_VERSION, **fields}
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_manifest(content: str) -> dict[str, Any]:
    """Read and check the text of ``router.json``; settings are checked with the tensors."""
    fields = _parse(content)
    if fields.get("format") != FORMAT:
        raise RouterFileError(
            f"format in {MANIFEST_FILE} must be {FORMAT!r}; got {fields.get('format')!r}."
        )
    version = fields.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise RouterFileError(
            f"schema_version in {MANIFEST_FILE} must be {SCHEMA_VERSION}; got {version!r}. Load it with "
            "the version of mild that wrote it."
        )
    for name in sorted(KEYS - set(fields)):
        raise RouterFileError(f"{MANIFEST_FILE} must have the key {name!r}; it is missing.")
    for name in sorted(set(fields) - KEYS):
        raise RouterFileError(f"{MANIFEST_FILE} has the key {name!r}, unknown to schema {version}.")
    _check(fields)
    for name in ("data", "text"):
        if fields[name]:
            _check({f"{name}.{key}": value for key, value in fields[name].items()})
    _check_names("experts", fields["experts"], fields["n_experts"])
    if fields["feature_names"] is not None:
        _check_names("feature_names", fields["feature_names"], fields["n_features"])
    return {"format": FORMAT, "schema_version": version, **fields}


def _check(values: Mapping[str, Any]) -> None:
    """Refuse values that break their rules."""
    rules = {name: RULES[name] for name in values if name in RULES}
    check_values("%s", values, rules, {})


def _check_names(key: str, names: object, count: int) -> None:
    """Refuse a list of names that is not ``count`` different texts."""
    problem = names_problem(key, names, count)
    if problem is not None:
        raise RouterFileError(problem)


def names_problem(key: str, names: object, count: int) -> str | None:
    """Why a list of names is refused, as a sentence; None if it is not."""
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        return f"{key} must be a list of non-empty strings; got {names!r}."
    if len(names) != count:
        return f"{key} must have {count_noun(count, 'name')}, one each; got {len(names)}."
    seen = set()
    for name in names:
        if name in seen:
            return f"{key} must differ from each other; {name!r} appears twice."
        seen.add(name)
    return None


def _refuse_constant(constant: str) -> Any:
    """Refuse NaN and infinities, which Python's JSON reader would take."""
    raise RouterFileError(f"{MANIFEST_FILE} must hold finite numbers; got {constant}.")


def _object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object in JSON; one with a key twice is refused."""
    content = dict(pairs)
    if len(content) != len(pairs):
        raise RouterFileError(f"{MANIFEST_FILE} has a key twice in one object.")
    return content


def _parse(text: str) -> dict[str, Any]:
    """The object in the text of ``router.json``."""
    if not text.strip():
        raise RouterFileError(f"{MANIFEST_FILE} is empty.")
    try:
        content = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object_of)
    except RouterFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise RouterFileError(f"{MANIFEST_FILE} is not valid JSON ({error}).") from error
    if not isinstance(content, dict):
        raise RouterFileError(
            f"{MANIFEST_FILE} must hold a JSON object; got {type(content).__name__}."
        )
    return content
