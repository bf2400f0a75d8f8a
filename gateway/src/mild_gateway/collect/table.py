"""The table of outcomes that a collection writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mild.errors import DataFileError
from mild_gateway.collect.ledger import StoredAnswer
from mild_gateway.collect.questions import Questions
from mild_gateway.collect.runs import ExpertRun
from mild_gateway.learning.tables import infer_array

# Prefix of a column -> its Arrow type, in the order of the table.
COLUMNS = {
    "correct__": "int8",
    "score__": "float64",
    "cost__": "float64",
    "latency_ms__": "float64",
    "tokens_in__": "int64",
    "tokens_out__": "int64",
    "tokens_estimated__": "bool",
    "answer__": "string",
    "logprob__": "float64",
}


def outcome_columns(
    questions: Questions,
    runs: Sequence[ExpertRun],
    scores: Sequence[Sequence[float | None]],
) -> dict[str, Any]:
    """Columns of the table, as Arrow arrays; null where an expert has not answered.

    The file's own columns, with the question as ``query`` and its answer as ``answer``, then per expert:
    ``correct__`` (0 or 1; ``score__`` where a command scored), ``cost__`` (dollars, by the prices of the
    experts' file), ``latency_ms__``, ``tokens_in__`` and ``tokens_out__`` (with ``tokens_estimated__``
    where the expert did not tell all of them), ``answer__`` (what it said) and ``logprob__`` (mean over
    its tokens, where the endpoint tells it).
    """
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, values in questions.columns.items():
        columns[name] = infer_array(values)
    is_graded = any(question.kind == "command" for question in questions.items)
    has_prices = any(run.expert.price.known for run in runs)
    for run, run_scores in zip(runs, scores, strict=True):
        rows = _answer_rows(run)
        left_out = _columns_to_leave_out(rows, is_graded, has_prices)
        for row, score in zip(rows, run_scores, strict=True):
            row["correct__"] = score
            row["score__"] = score
        for prefix, kind in COLUMNS.items():
            if prefix not in left_out:
                values = [row.get(prefix) for row in rows]
                columns[prefix + run.name] = pa.array(values, kind)
    return columns


def check_columns(questions: Questions, runs: Sequence[ExpertRun]) -> None:
    """Refuse, before anything is asked, questions with a column that the table would have twice."""
    for run in runs:
        for prefix in COLUMNS:
            column = prefix + run.name
            if column in questions.columns:
                raise DataFileError(
                    f"the questions must not have a column {column}, which mild collect adds. Rename it."
                )


def _answer_rows(run: ExpertRun) -> list[dict[str, Any]]:
    """Per question the values of an answer by the prefixes of their columns; empty without an answer."""
    rows = []
    for key in run.keys:
        row: dict[str, Any] = {}
        if key in run.answers:
            row = _answer_row(run, run.answers[key])
        rows.append(row)
    return rows


def _answer_row(run: ExpertRun, answer: StoredAnswer) -> dict[str, Any]:
    row: dict[str, Any] = {
        "latency_ms__": round(answer.latency_ms, 3),
        "answer__": answer.response,
        "logprob__": answer.log_probability,
    }
    price = run.expert.price
    if price.known:
        # By today's prices: a price that is mended in the file needs no new answers.
        row["cost__"] = price.of(answer.usage)
    if answer.usage is not None:
        row["tokens_in__"] = answer.usage.tokens_in
        row["tokens_out__"] = answer.usage.tokens_out
        row["tokens_estimated__"] = answer.usage.estimated
    return row


def _columns_to_leave_out(
    rows: Sequence[Mapping[str, Any]], is_graded: bool, has_prices: bool
) -> set[str]:
    """Prefixes of columns that would say nothing about this expert."""
    left_out = {"score__"}
    if is_graded:
        left_out = {"correct__"}
    if not has_prices:
        left_out.add("cost__")
    if not any("tokens_in__" in row for row in rows):
        left_out.update(("tokens_in__", "tokens_out__"))
    if not any(row.get("tokens_estimated__") for row in rows):
        left_out.add("tokens_estimated__")
    if all(row.get("logprob__") is None for row in rows):
        left_out.add("logprob__")
    return left_out
