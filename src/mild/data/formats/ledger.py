"""What ``mild ledger export`` writes: one row per request, and the expert that answered it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from mild.data.data_quality import Finding
from mild.data.formats.base import Format, Layout, ReadArguments
from mild.data.formats.long import widen_long
from mild.errors import DataFileError, counted

COLUMNS = {"request_id", "expert", "chosen", "propensity", "outcome", "text"}
SCORE = "score"
#: Outcomes of a request that say something about the expert -> whether it answered.
ANSWERED = {"ok": 1.0, "cut": 0.0, "failed": 0.0}
#: Columns of a request -> fields of each of its calls, which say the same of one expert.
FIELDS_OF_CALLS = {
    "price": "dollars",
    "tokens_in": "tokens_in",
    "tokens_out": "tokens_out",
    "latency_ms": "latency_ms",
}


def detect_ledger(schema: Any) -> Layout | None:
    """An empty layout if the columns of a ledger are there."""
    if set(schema.names) >= COLUMNS:
        return Layout("ledger", {})
    return None


def widen_ledger(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """A row per request with its text. Without scores, an expert that answered has a score of 1."""
    if not any(table["text"].to_pylist()):
        raise DataFileError(
            "a ledger must have the texts of its requests to be learned from; it has none. Keep them: "
            "keep_text = true under [ledger] in mild.toml.",
            parameter="query",
        )
    findings = []
    if options.scores is None and SCORE not in table.column_names:
        table, finding = _score_outcomes(table)
        findings.append(finding)
    n_requests = table.num_rows
    is_answered = np.array([bool(name) for name in table["expert"].to_pylist()])
    table = table.filter(pa.array(is_answered))
    if table.num_rows == 0:
        raise DataFileError("no request was answered by an expert.")
    n_unanswered = n_requests - table.num_rows
    if n_unanswered:
        requests = counted(n_unanswered, "request was", "requests were")
        words = f"{requests} answered by no expert and left out."
        findings.append(Finding("unanswered", n_unanswered, words))
    if "calls" in table.column_names:
        table = _with_answering_calls(table)
    usual_columns = replace(
        options,
        query=options.query or "text",
        model_column=options.model_column or "expert",
        scores=options.scores or SCORE,
        id_column=options.id_column or "request_id",
    )
    table, layout, more_findings = widen_long(table, usual_columns, "ledger")
    return table, layout, findings + more_findings


def _score_outcomes(table: Any) -> tuple[Any, Finding]:
    """The table with a score that says whether an expert answered, and the finding that it says no more."""
    scores = [ANSWERED.get(outcome) for outcome in table["outcome"].to_pylist()]
    n_scores = len(scores) - scores.count(None)
    words = (
        "scores say only whether an expert answered, not whether its answer was right: judge the "
        "answers, and export the ledger with them (`mild ledger export`)."
    )
    table = table.append_column(SCORE, pa.array(scores, pa.float64()))
    return table, Finding("unjudged", n_scores, words)


def _with_answering_calls(table: Any) -> Any:
    """The table in which a request that a cascade served has the price of the answering expert only."""
    values = {}
    for name in FIELDS_OF_CALLS:
        if name in table.column_names:
            values[name] = table[name].to_pylist()
    experts = table["expert"].to_pylist()
    for row, text in enumerate(table["calls"].to_pylist()):
        call = _answering_call(text, experts[row])
        if call is not None:
            for name, column in values.items():
                column[row] = call[FIELDS_OF_CALLS[name]]
    for name, column in values.items():
        index = table.column_names.index(name)
        table = table.set_column(index, name, pa.array(column, table.schema.field(name).type))
    return table


def _answering_call(text: Any, expert: str) -> dict[str, Any] | None:
    """The first of the calls of a request, as JSON, in which the expert answered."""
    if not isinstance(text, str) or not text:
        return None
    for call in json.loads(text):
        # "small#2" is a second call of "small".
        if call["outcome"] == "ok" and call["expert"].partition("#")[0] == expert:
            answering: dict[str, Any] = call
            return answering
    return None


LEDGER = Format(
    "ledger",
    "a ledger of the gateway",
    "a ledger (rows of request_id, text, expert, price)",
    detect_ledger,
    widen_ledger,
)
