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
from mild.errors import DataFileError, count_noun

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
    """Return an empty layout if the columns of a ledger are there."""
    if set(schema.names) >= COLUMNS:
        return Layout("ledger", {})
    return None


def widen_ledger(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """Turn a ledger into one row per request, with its text as the query.

    Requests that no expert answered are left out. In a ledger without scores, an expert that answered has
    a score of 1, and one that failed a score of 0.

    Returns
    -------
    wide : pyarrow.Table
        One row per request, one column per expert and outcome.
    layout : Layout
        Which of these columns hold outcomes.
    findings : list of Finding
    """
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
    table, more_findings = _answered_requests(table)
    findings += more_findings
    if "calls" in table.column_names:
        table = _with_answering_calls(table)
    ledger_columns = replace(
        options,
        query=options.query or "text",
        model_column=options.model_column or "expert",
        scores=options.scores or SCORE,
        id_column=options.id_column or "request_id",
    )
    wide, layout, more_findings = widen_long(table, ledger_columns, "ledger")
    return wide, layout, findings + more_findings


def _answered_requests(table: Any) -> tuple[Any, list[Finding]]:
    """Keep the requests that an expert answered, and report how many others there were."""
    is_answered = np.array([bool(name) for name in table["expert"].to_pylist()])
    answered = table.filter(pa.array(is_answered))
    if answered.num_rows == 0:
        raise DataFileError("no request was answered by an expert.")
    n_unanswered = table.num_rows - answered.num_rows
    if n_unanswered == 0:
        return answered, []
    requests = count_noun(n_unanswered, "request was", "requests were")
    sentence = f"{requests} answered by no expert and left out."
    return answered, [Finding("unanswered", n_unanswered, sentence)]


def _score_outcomes(table: Any) -> tuple[Any, Finding]:
    """Add scores that say whether an expert answered, and the finding that they say nothing else."""
    scores = [ANSWERED.get(outcome) for outcome in table["outcome"].to_pylist()]
    n_scores = len(scores) - scores.count(None)
    sentence = (
        "scores say only whether an expert answered, not whether its answer was right: judge the "
        "answers, and export the ledger with them (`mild ledger export`)."
    )
    table = table.append_column(SCORE, pa.array(scores, pa.float64()))
    return table, Finding("unjudged", n_scores, sentence)


def _with_answering_calls(table: Any) -> Any:
    """Replace price, tokens and latency of a request by those of the call that answered it.

    A cascade calls several experts for a request, whose row has the total of all calls.
    """
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
    """Return the first call that this expert answered; ``text`` holds the calls of a request as JSON."""
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
