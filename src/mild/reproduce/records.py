"""What a record of a results file must hold, and the first rule that one breaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

__all__ = ["DECISIONS", "SCHEMA", "record_problem"]

#: Version of the record's shape; raised when a field changes its meaning.
SCHEMA = 1

DECISIONS = ("argmax", "stationary")

# Shares are counts divided by the number of rows: nothing but rounding keeps them from 1.
SHARES_TOLERANCE = 1e-6

Rule = tuple[str, Callable[[Any], bool]]


def record_problem(record: object) -> str | None:
    """First rule that a record breaks, as "must ...; got ..."; None for a good record.

    Examples
    --------
    >>> record_problem({"schema": 1, "key": 7})
    'must have a text as key; got 7'
    """
    if not isinstance(record, Mapping):
        return f"must be a JSON object; got {_short(record)}"
    problem = _fields_problem(record, _RECORD, "")
    if problem is None:
        problem = _fields_problem(record["cell"], _CELL, "cell.")
    if problem is None:
        problem = _fields_problem(record["cell"]["protocol"], _PROTOCOL, "cell.protocol.")
    if problem is None:
        problem = _fields_problem(record["cell"]["method"], _METHOD, "cell.method.")
    if problem is None:
        problem = _fields_problem(record["reference"], _REFERENCE, "reference.")
    if problem is None:
        problem = _fields_problem(record["training"], _TRAINING, "training.")
    return problem or _outcomes_problem(record)


def _fields_problem(entry: Mapping[str, Any], rules: Mapping[str, Rule], where: str) -> str | None:
    for name, (what, holds) in rules.items():
        if name not in entry:
            return f"must have {what} as {where}{name}; it is missing"
        if not holds(entry[name]):
            return f"must have {what} as {where}{name}; got {_short(entry[name])}"
    return None


def _outcomes_problem(record: Mapping[str, Any]) -> str | None:
    outcomes = record["outcomes"]
    if not outcomes or not set(outcomes) <= set(DECISIONS):
        rule = " or ".join(DECISIONS)
        return f"must have outcomes by {rule}; got {_short(sorted(outcomes))}"
    if record["cell"]["method"]["name"] == "tdef" and "argmax" not in outcomes:
        return "must have the outcome by argmax for TDEF; it is missing"
    sizes = {len(record["reference"]["oracle_shares"])}
    for decision, outcome in outcomes.items():
        where = f"outcomes.{decision}."
        if not isinstance(outcome, Mapping):
            return f"must have outcomes.{decision} an object; got {_short(outcome)}"
        problem = _fields_problem(outcome, _OUTCOME, where)
        if problem is not None:
            return problem
        sizes |= {len(outcome["shares"]), len(outcome["recall"])}
    if len(sizes) > 1:
        return f"must have as many shares and recalls everywhere; got {sorted(sizes)}"
    if not 0 <= record["reference"]["constant_expert"] < min(sizes):
        got = record["reference"]["constant_expert"]
        return f"must have reference.constant_expert from 0 to {min(sizes) - 1}; got {got}"
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return _whole(value) and value >= 0


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _cost(value: Any) -> bool:
    return _number(value) and value >= 0


def _numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_number, value))


def _shares(value: Any) -> bool:
    return (
        _numbers(value)
        and len(value) > 0
        and min(value) >= 0
        and abs(math.fsum(value) - 1) <= SHARES_TOLERANCE
    )


def _recalls(value: Any) -> bool:
    # None: an expert that is never the cheapest has no recall.
    return isinstance(value, (list, tuple)) and all(
        entry is None or (_number(entry) and 0 <= entry <= 1) for entry in value
    )


def _object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _moment(value: Any) -> bool:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True


def _or_none(rule: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or rule(value)


TEXT: Rule = ("a text", _text)
TEXT_OR_NONE: Rule = ("a text or null", _or_none(_text))
OBJECT: Rule = ("an object", _object)
LOSS: Rule = ("a finite number of at least 0", _cost)
SHARES: Rule = ("a list of shares that sum to 1", _shares)
FLAG: Rule = ("true or false", lambda value: isinstance(value, bool))
COUNT: Rule = ("a whole number of at least 0", _count)

_RECORD: dict[str, Rule] = {
    "schema": (f"the number {SCHEMA}", lambda value: _whole(value) and value == SCHEMA),
    "key": TEXT,
    "cell": OBJECT,
    "margins": ("a list of numbers or null", _or_none(_numbers)),
    "outcomes": OBJECT,
    "reference": OBJECT,
    "training": OBJECT,
    "versions": OBJECT,
    "hardware": TEXT,
    "commit": TEXT_OR_NONE,
    "finished": ("a moment in ISO format", _moment),
    "note": TEXT,
}
_CELL: dict[str, Rule] = {
    "table": TEXT,
    "dataset": TEXT,
    "data": TEXT,
    "setup": TEXT,
    "coverage": ("a list of numbers", _numbers),
    "experts": TEXT,
    "cost": ("'error' or 'cost'", lambda value: value in ("error", "cost")),
    "holdout": FLAG,
    "expert_seed": ("a whole number or null", _or_none(_count)),
    "protocol": OBJECT,
    "method": OBJECT,
    "seed": COUNT,
}
_PROTOCOL: dict[str, Rule] = {"name": TEXT, "epochs": COUNT, "augment": FLAG}
_METHOD: dict[str, Rule] = {"name": TEXT}
_OUTCOME: dict[str, Rule] = {
    "loss": LOSS,
    "shares": SHARES,
    "recall": ("a list of numbers from 0 to 1 or null", _recalls),
}
_REFERENCE: dict[str, Rule] = {
    "oracle": LOSS,
    "oracle_shares": SHARES,
    "constant": LOSS,
    "constant_expert": COUNT,
}
_TRAINING: dict[str, Rule] = {"seconds": LOSS}
