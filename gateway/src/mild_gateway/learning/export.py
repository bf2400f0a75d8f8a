"""The ledger as a file."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from mild_gateway.database.engine import Location
from mild_gateway.learning.importing import read_scores
from mild_gateway.learning.tables import write_batches
from mild_gateway.ledger.feedback import Feedback
from mild_gateway.ledger.reading import read_blocks, read_experts
from mild_gateway.ledger.records import COLUMNS, Record, from_row


def export(
    path: Location,
    out: str | os.PathLike[str],
    since: float | None = None,
    until: float | None = None,
    overwrite: bool = False,
    feedback: Any = None,
) -> int:
    """Write the rows with ``since <= time < until``; their number.

    The columns are those of ``Record``, time as a timestamp in UTC; ``experts`` beside ``probabilities``
    names them, and ``calls`` is JSON. With ``feedback``, as ``mild_gateway.replay`` takes it, ``score``
    follows: that of each judged request, whoever judged it. ``mild.read_outcomes`` reads the file if the
    ledger has texts. A file that ends in .csv or .jsonl is of that kind, any other is parquet. Rows go
    through block by block, and the file appears under its name when it is whole.
    """
    schema = _parquet_schema()
    if feedback is not None:
        schema = schema.append(pa.field("score", pa.float64()))

    def batches() -> Iterator[Any]:
        scores = read_scores(feedback, path)
        names = read_experts(path)
        for block in read_blocks(path, since, until):
            rows = [_fields(from_row(row), names, scores or {}) for row in block]
            yield pa.RecordBatch.from_pylist(rows, schema)

    return write_batches(out, schema, batches(), overwrite)


def _parquet_schema() -> Any:
    special = {
        "time": pa.timestamp("us", "UTC"),
        "probabilities": pa.list_(pa.float64()),
        "draws": pa.list_(pa.float64()),
        "calls": pa.string(),
    }
    # Of the values of a record: the ledger's table has other types, such as numbers for truth values.
    types = {"str": pa.string(), "float": pa.float64(), "int": pa.int64(), "bool": pa.bool_()}
    columns = []
    for field in dataclasses.fields(Record):
        if field.name == "probabilities":
            columns.append(("experts", pa.list_(pa.string())))
        kind = str(field.type).removesuffix(" | None")
        columns.append((field.name, special.get(field.name) or types[kind]))
    return pa.schema(columns)


def _fields(
    record: Record, names: Mapping[str, list[str]], scores: Mapping[str, Feedback]
) -> dict[str, Any]:
    """A record by the names of the schema."""
    fields = {name: getattr(record, name) for name in COLUMNS}
    fields["time"] = round(record.time * 1e6)
    fields["experts"] = None
    if record.probabilities is not None:
        fields["experts"] = names.get(record.router)
    if record.calls is not None:
        fields["calls"] = json.dumps(record.calls)
    fields["score"] = None
    if record.request_id in scores:
        fields["score"] = scores[record.request_id].score
    return fields
