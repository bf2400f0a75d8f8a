"""Answers as an outcomes table: one row per question, a few columns per expert."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mild.collect.ledger import Ledger
from mild.collect.questions import Questions
from mild.collect.runs import ExpertRun
from mild.data import check_output
from mild.errors import DataFileError

__all__ = ["check_table", "outcome_columns"]

# Prefix of a column -> its Arrow type.
COLUMNS = {
    "correct__": "int8",
    "score__": "float64",
    "cost__": "float64",
    "latency_ms__": "float64",
    "tokens_in__": "int64",
    "tokens_out__": "int64",
    "tokens_estimated__": "bool",
    "response__": "string",
}


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
        price = run.expert.price
        answers = [run.answers.get(key) for key in run.keys]
        usages = [answer and answer.usage for answer in answers]
        made: dict[str, list[Any]] = {
            "score__": list(marks),
            "correct__": [None if mark is None else int(mark) for mark in marks],
            # By today's prices: a price that is mended in the file needs no new answers.
            "cost__": [price.of(a.usage) if a and price.known else None for a in answers],
            "latency_ms__": [a and round(a.latency_ms, 3) for a in answers],
            "tokens_in__": [usage and usage.tokens_in for usage in usages],
            "tokens_out__": [usage and usage.tokens_out for usage in usages],
            "tokens_estimated__": [usage and usage.estimated for usage in usages],
            "response__": [a and a.response for a in answers],
        }
        left_out = {
            "correct__": graded,
            "score__": not graded,
            "cost__": not priced,
            "tokens_in__": not any(usages),
            "tokens_out__": not any(usages),
            "tokens_estimated__": not any(made["tokens_estimated__"]),
            "response__": not responses,
        }
        for prefix, kind in COLUMNS.items():
            if not left_out.get(prefix):
                columns[prefix + run.expert.name] = pa.array(made[prefix], kind)
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
    made = [prefix + run.expert.name for run in runs for prefix in COLUMNS]
    taken = [name for name in made if name in questions.columns]
    if taken:
        raise DataFileError(f"the questions must not have a column {taken[0]}: it is made here.")
    return check_output(path, overwrite or ledger.wrote(Path(path)))


def _source(values: list[Any]) -> Any:
    """A column of the questions; as text where its values are of several kinds."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([v if isinstance(v, str | None) else json.dumps(v) for v in values])
