"""What a record of a results file must hold, and the first rule that one breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mild.reproduce.record_rules import (
    CELL,
    CELL_MORE,
    CLASSIFIER,
    CLASSIFIER_CELL,
    LOSS,
    METHOD,
    METHOD_MORE,
    MODELS_CELL,
    MODELS_PROTOCOL,
    OBJECT,
    OUTCOME,
    OUTCOME_MORE,
    PROTOCOL,
    PROTOCOL_MORE,
    RECORD,
    REFERENCE,
    ROWS,
    SCHEMA,
    TRAINING,
    Rule,
)

__all__ = ["DECISIONS", "MODELS", "SCHEMA", "classifier_problem", "record_problem"]

DECISIONS = ("argmax", "stationary")

#: What the cell of a record calls language models as experts.
MODELS = "language models"


def record_problem(record: object) -> str | None:
    """First rule that a record breaks, as "must ...; got ..."; None for a good record.

    Examples
    --------
    >>> record_problem({"schema": 1, "key": 7})
    'must have a text as key; got 7'
    """
    if not isinstance(record, Mapping):
        return f"must be a JSON object; got {_short(record)}"
    problem = _fields_problem(record, RECORD, "")
    if problem is None:
        problem = _fields_problem(record["cell"], CELL, "cell.")
    if problem is None:
        problem = _present_problem(record["cell"], CELL_MORE, "cell.")
    if problem is None and record["cell"]["experts"] == MODELS:
        problem = _models_problem(record)
    elif problem is None:
        problem = _protocol_problem(record["cell"]["protocol"], "cell.protocol.")
    if problem is None and record["cell"].get("expert_protocol") is not None:
        problem = _protocol_problem(record["cell"]["expert_protocol"], "cell.expert_protocol.")
    if problem is None:
        problem = _fields_problem(record["cell"]["method"], METHOD, "cell.method.")
    if problem is None:
        problem = _present_problem(record["cell"]["method"], METHOD_MORE, "cell.method.")
    if problem is None:
        problem = _fields_problem(record["reference"], REFERENCE, "reference.")
    if problem is None:
        problem = _fields_problem(record["training"], TRAINING, "training.")
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
    problem = _fields_problem(record, CLASSIFIER, "")
    if problem is None:
        problem = _fields_problem(record["cell"], CLASSIFIER_CELL, "cell.")
    if problem is None:
        problem = _protocol_problem(record["cell"]["protocol"], "cell.protocol.")
    if problem is None:
        rules = {**TRAINING, "images_per_second": LOSS}
        problem = _fields_problem(record["training"], rules, "training.")
    return problem


def _protocol_problem(protocol: Mapping[str, Any], where: str) -> str | None:
    problem = _fields_problem(protocol, PROTOCOL, where)
    return problem or _present_problem(protocol, PROTOCOL_MORE, where)


def _models_problem(record: Mapping[str, Any]) -> str | None:
    """What records of language models have besides, or in place of what images have."""
    problem = _fields_problem(record["cell"], MODELS_CELL, "cell.")
    if problem is None:
        problem = _fields_problem(record["cell"]["protocol"], MODELS_PROTOCOL, "cell.protocol.")
    if problem is None:
        problem = _fields_problem(record, {"rows": OBJECT}, "")
    return problem or _fields_problem(record["rows"], {"train": ROWS, "test": ROWS}, "rows.")


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
        problem = _fields_problem(outcome, OUTCOME, where)
        problem = problem or _present_problem(outcome, OUTCOME_MORE, where)
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
