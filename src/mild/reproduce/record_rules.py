"""The fields of a record: what each must be, in words and as a test."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

__all__ = [
    "CELL",
    "CELL_MORE",
    "CLASSIFIER",
    "CLASSIFIER_CELL",
    "LOSS",
    "METHOD",
    "METHOD_MORE",
    "MODELS_CELL",
    "MODELS_PROTOCOL",
    "OBJECT",
    "OUTCOME",
    "OUTCOME_MORE",
    "PROTOCOL",
    "PROTOCOL_MORE",
    "RECORD",
    "REFERENCE",
    "ROWS",
    "SCHEMA",
    "TRAINING",
    "Rule",
]

#: Version of the record's shape; raised when a field changes its meaning.
SCHEMA = 1

# Shares are counts divided by the number of rows: nothing but rounding keeps them from 1.
SHARES_TOLERANCE = 1e-6

#: What a value must be, and whether it is.
Rule = tuple[str, Callable[[Any], bool]]


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
ROWS: Rule = ("a whole number of at least 1", lambda value: _count(value) and value > 0)
NUMBERS_OR_NONE: Rule = ("a list of numbers or null", _or_none(_numbers))
OBJECT_OR_NONE: Rule = ("an object or null", _or_none(_object))

RECORD: dict[str, Rule] = {
    "schema": (f"the number {SCHEMA}", lambda value: _whole(value) and value == SCHEMA),
    "key": TEXT,
    "cell": OBJECT,
    "margins": NUMBERS_OR_NONE,
    "outcomes": OBJECT,
    "reference": OBJECT,
    "training": OBJECT,
    "versions": OBJECT,
    "hardware": TEXT,
    "commit": TEXT_OR_NONE,
    "finished": ("a moment in ISO format", _moment),
    "note": TEXT,
}
CELL: dict[str, Rule] = {
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
PROTOCOL: dict[str, Rule] = {"name": TEXT, "epochs": COUNT, "augment": FLAG}
PROTOCOL_MORE: dict[str, Rule] = {
    "batch_size": COUNT,
    "lr": LOSS,
    "weight_decay": LOSS,
    "schedule": TEXT,
    "width": COUNT,
    "decay": ("'coupled' or 'decoupled'", lambda value: value in ("coupled", "decoupled")),
}
CELL_MORE: dict[str, Rule] = {
    "scale": TEXT,
    "price": ("a finite number of at least 0 or null", _or_none(_cost)),
    "expert_protocol": OBJECT_OR_NONE,
    "recipe": COUNT,
    "ambiguous": LOSS,
    "validation": FLAG,
}
MODELS_CELL: dict[str, Rule] = {
    "models": (
        "a list of names",
        lambda value: isinstance(value, (list, tuple)) and all(map(_text, value)),
    ),
    "beta": NUMBERS_OR_NONE,
    "noise": OBJECT_OR_NONE,
    "skew": OBJECT_OR_NONE,
    "test_share": LOSS,
}
MODELS_PROTOCOL: dict[str, Rule] = {"name": TEXT, "features": OBJECT}
METHOD: dict[str, Rule] = {"name": TEXT}
METHOD_MORE: dict[str, Rule] = {
    "rewards": TEXT_OR_NONE,
    "counts": TEXT_OR_NONE,
    "margins": (
        "a text, a list of numbers or null",
        lambda value: value is None or _text(value) or _numbers(value),
    ),
    "total": TEXT_OR_NONE,
    "strength": LOSS,
}
CLASSIFIER: dict[str, Rule] = {
    "schema": RECORD["schema"],
    "key": TEXT,
    "cell": OBJECT,
    "accuracy": LOSS,
    "training": OBJECT,
}
CLASSIFIER_CELL: dict[str, Rule] = {
    "dataset": TEXT,
    "protocol": OBJECT,
    "seed": COUNT,
}
OUTCOME: dict[str, Rule] = {
    "loss": LOSS,
    "shares": SHARES,
    "recall": ("a list of numbers from 0 to 1 or null", _recalls),
}
OUTCOME_MORE: dict[str, Rule] = {"control": LOSS, "margins": NUMBERS_OR_NONE}
REFERENCE: dict[str, Rule] = {
    "oracle": LOSS,
    "oracle_shares": SHARES,
    "constant": LOSS,
    "constant_expert": COUNT,
}
TRAINING: dict[str, Rule] = {"seconds": LOSS}
