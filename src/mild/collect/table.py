"""Answers as an outcomes table: one row per question, a few columns per expert."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mild.collect.ledger import Answer, Ledger
from mild.collect.questions import Questions
from mild.collect.runs import ExpertRun
from mild.data import check_output, write_columns
from mild.errors import DataFileError

__all__ = ["check_table", "outcome_columns", "write_outcomes"]

PREFIXES = (
    "correct__",
    "score__",
    "cost__",
    "latency_ms__",
    "tokens_in__",
    "tokens_out__",
    "tokens_estimated__",
    "response__",
)


def outcome_columns(
    questions: Questions,
    runs: Sequence[ExpertRun],
    scores: Sequence[Sequence[float | None]],
    responses: bool = False,
) -> dict[str, Any]:
    """Columns of the table, as Arrow arrays; null where an expert has not answered.

    The file's own columns, with the question as ``query`` and its answer as ``answer``, then per expert:
    ``correct__`` (0 or 1; ``score__`` where a command scored), ``cost__`` (dollars, by the prices of the
    experts' file), ``latency_ms__``, ``tokens_in__`` and ``tokens_out__`` (with ``tokens_estimated__``
    where the expert did not tell all of them) and ``response__`` if wanted.
    """
    import pyarrow as pa

    columns = {name: _source(values) for name, values in questions.columns.items()}
    graded = any(question.kind == "command" for question in questions.items)
    priced = any(run.expert.price.known for run in runs)
    for run, marks in zip(runs, scores, strict=True):
        name = run.expert.name
        answers = [run.answers.get(key) for key in run.keys]
        made: dict[str, Any] = {}
        if graded:
            made["score__"] = pa.array(marks, pa.float64())
        else:
            made["correct__"] = pa.array([_whole(mark) for mark in marks], pa.int8())
        if priced:
            made["cost__"] = pa.array([_dollars(run, answer) for answer in answers], pa.float64())
        made["latency_ms__"] = pa.array(
            [a and round(a.latency_ms, 3) for a in answers], pa.float64()
        )
        made |= _token_columns(answers)
        if responses:
            made["response__"] = pa.array([a and a.response for a in answers], pa.string())
        columns |= {prefix + name: values for prefix, values in made.items()}
    return columns


def check_table(
    path: str | os.PathLike[str],
    ledger: Ledger,
    questions: Questions,
    runs: Sequence[ExpertRun],
    overwrite: bool,
) -> Path:
    """Refuse, before anything is asked, a table that could not be written at the end.

    A table that was written from the same ledger, and not changed since, may be replaced.
    """
    for run in runs:
        taken = [prefix for prefix in PREFIXES if prefix + run.expert.name in questions.columns]
        if taken:
            raise DataFileError(
                f"the questions must not have a column {taken[0]}{run.expert.name}: it is made here."
            )
    return check_output(path, overwrite or ledger.wrote(Path(path)))


def write_outcomes(columns: dict[str, Any], path: Path, ledger: Ledger) -> Path:
    """Write the table, complete or not at all, and remember that it came from this ledger."""
    if path.suffix.lower() == ".csv":
        columns = {name: _flat(values) for name, values in columns.items()}
    written = write_columns(columns, path, overwrite=True)
    ledger.record_output(written)
    return written


def _token_columns(answers: Sequence[Answer | None]) -> dict[str, Any]:
    import pyarrow as pa

    usages = [answer.usage if answer else None for answer in answers]
    if not any(usages):
        return {}
    made = {
        "tokens_in__": pa.array([usage and usage.tokens_in for usage in usages], pa.int64()),
        "tokens_out__": pa.array([usage and usage.tokens_out for usage in usages], pa.int64()),
    }
    if any(usage and usage.estimated for usage in usages):
        told = [usage and usage.estimated for usage in usages]
        made["tokens_estimated__"] = pa.array(told, pa.bool_())
    return made


def _dollars(run: ExpertRun, answer: Answer | None) -> float | None:
    """By today's prices: a price that is mended in the file needs no new answers."""
    if answer is None or not run.expert.price.known:
        return None
    return run.expert.price.of(answer.usage)


def _whole(mark: float | None) -> int | None:
    return None if mark is None else int(mark)


def _source(values: list[Any]) -> Any:
    """A column of the questions; as text where its values are of several kinds."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([v if isinstance(v, str | None) else json.dumps(v) for v in values])


def _flat(values: Any) -> Any:
    """A column that CSV can hold: lists and structures as JSON."""
    import pyarrow as pa

    if pa.types.is_nested(values.type):
        return pa.array([None if v is None else json.dumps(v) for v in values.to_pylist()])
    return values
