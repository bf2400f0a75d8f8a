"""What a record of a results file must hold, and the first rule that one breaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

__all__ = ["DECISIONS", "SCHEMA", "classifier_problem", "record_problem"]

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
        problem = _present_problem(record["cell"], _CELL_MORE, "cell.")
    if problem is None:
        problem = _protocol_problem(record["cell"]["protocol"], "cell.protocol.")
    if problem is None and record["cell"].get("expert_protocol") is not None:
        problem = _protocol_problem(record["cell"]["expert_protocol"], "cell.expert_protocol.")
    if problem is None:
        problem = _fields_problem(record["cell"]["method"], _METHOD, "cell.method.")
    if problem is None:
        problem = _present_problem(record["cell"]["method"], _METHOD_MORE, "cell.method.")
    if problem is None:
        problem = _fields_problem(record["reference"], _REFERENCE, "reference.")
    if problem is None:
        problem = _fields_problem(record["training"], _TRAINING, "training.")
    return problem or _outcomes_problem(record)


def classifier_problem(record: object) -> str | None:
    """The same for a record of a plain classifier.

    Examples
    --------
    >>> classifier_problem({"schema": 1})
    'must have a text as key; it is missing'
    """
    if not isinstance(record, Mapping):
        return f"must be a JSON object; got {_short(record)}"
    problem = _fields_problem(record, _CLASSIFIER, "")
    if problem is None:
        problem = _fields_problem(record["cell"], _CLASSIFIER_CELL, "cell.")
    if problem is None:
        problem = _protocol_problem(record["cell"]["protocol"], "cell.protocol.")
    if problem is None:
        rules = {**_TRAINING, "images_per_second": LOSS}
        problem = _fields_problem(record["training"], rules, "training.")
    return problem


def _protocol_problem(protocol: Mapping[str, Any], where: str) -> str | None:
    problem = _fields_problem(protocol, _PROTOCOL, where)
    return problem or _present_problem(protocol, _PROTOCOL_MORE, where)


def _present_problem(entry: Mapping[str, Any], rules: Mapping[str, Rule], where: str) -> str | None:
    """Fields that older records do without."""
    present = {name: rule for name, rule in rules.items() if name in entry}
    return _fields_problem(entry, present, where)


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
    if record["margins"] is not None:
        sizes.add(len(record["margins"]))
    if len(sizes) > 1:
        return f"must have as many shares, recalls and margins everywhere; got {sorted(sizes)}"
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
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        # An integer beyond every float.
        return False


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
_PROTOCOL_MORE: dict[str, Rule] = {
    "batch_size": COUNT,
    "lr": LOSS,
    "weight_decay": LOSS,
    "schedule": TEXT,
    "width": COUNT,
}
_CELL_MORE: dict[str, Rule] = {
    "scale": TEXT,
    "price": ("a finite number of at least 0 or null", _or_none(_cost)),
    "expert_protocol": ("an object or null", _or_none(_object)),
}
_METHOD: dict[str, Rule] = {"name": TEXT}
_METHOD_MORE: dict[str, Rule] = {
    "rewards": TEXT_OR_NONE,
    "counts": TEXT_OR_NONE,
    "margins": (
        "a text, a list of numbers or null",
        lambda value: value is None or _text(value) or _numbers(value),
    ),
    "total": TEXT_OR_NONE,
}
_CLASSIFIER: dict[str, Rule] = {
    "schema": _RECORD["schema"],
    "key": TEXT,
    "cell": OBJECT,
    "accuracy": LOSS,
    "training": OBJECT,
}
_CLASSIFIER_CELL: dict[str, Rule] = {
    "dataset": TEXT,
    "protocol": OBJECT,
    "seed": COUNT,
}
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
