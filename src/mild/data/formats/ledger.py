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


def detect_ledger(schema: Any) -> Layout | None:
    return Layout("ledger", {}) if set(schema.names) >= COLUMNS else None


def widen_ledger(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """A row per request with its text. Without scores, an expert that answered has a score of 1."""
    findings = []
    if not any(table["text"].to_pylist()):
        raise DataFileError(
            "a ledger must have the texts of its requests to be learned from; it has none. Keep them: "
            "keep_text = true under [ledger] in mild.toml.",
            parameter="query",
        )
    if options.scores is None and SCORE not in table.column_names:
        outcomes = table["outcome"].to_pylist()
        scores = [ANSWERED.get(outcome) for outcome in outcomes]
        table = table.append_column(SCORE, pa.array(scores, pa.float64()))
        words = (
            "scores say only whether an expert answered, not whether its answer was right: judge the "
            "answers, and export the ledger with them (`mild ledger export`)."
        )
        findings.append(Finding("unjudged", sum(score is not None for score in scores), words))
    rows = table.num_rows
    answered = np.array([bool(name) for name in table["expert"].to_pylist()])
    table = table.filter(pa.array(answered))
    if lost := rows - table.num_rows:
        words = (
            f"{counted(lost, 'request was', 'requests were')} answered by no expert and left out."
        )
        findings.append(Finding("unanswered", lost, words))
    if table.num_rows == 0:
        raise DataFileError("no request was answered by an expert.")
    if "calls" in table.column_names:
        table = _of_own_calls(table)
    named = replace(
        options,
        query=options.query or "text",
        model_column=options.model_column or "expert",
        scores=options.scores or SCORE,
        id_column=options.id_column or "request_id",
    )
    table, layout, more = widen_long(table, named, "ledger")
    return table, layout, findings + more


def _of_own_calls(table: Any) -> Any:
    """Of a request that a cascade served, only what the expert that answered took."""
    fields = {
        "price": "dollars",
        **{name: name for name in ("tokens_in", "tokens_out", "latency_ms")},
    }
    experts, found = table["expert"].to_pylist(), table["calls"].to_pylist()
    columns = {name: table[name].to_pylist() for name in fields if name in table.column_names}
    for row, (expert, text) in enumerate(zip(experts, found, strict=True)):
        for call in json.loads(text) if isinstance(text, str) and text else ():
            if call["outcome"] == "ok" and call["expert"].partition("#")[0] == expert:
                for name, values in columns.items():
                    values[row] = call[fields[name]]
                break
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
    return table


LEDGER = Format(
    "ledger",
    "a ledger of the gateway",
    "a ledger (rows of request_id, text, expert, price)",
    detect_ledger,
    widen_ledger,
)
