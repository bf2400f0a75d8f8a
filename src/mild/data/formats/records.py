"""Records: an answer of a model in one object, ``{"model": "large", "score": 1, "cost": 0.01}``.

A query has a list of records, an object of models -> record, or a field per model that holds its record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from mild.data.data_quality import Finding, unasked_rows
from mild.data.formats.base import (
    MODEL_NAMES,
    SCORE_NAMES,
    Format,
    Layout,
    ReadArguments,
    usual_columns,
)
from mild.data.formats.long import answer_columns, long_columns, named_rows, widen_rows
from mild.data.tables import infer_array, is_list, is_numeric, is_string
from mild.errors import DataFileError, listed


def detect_records(schema: Any) -> Layout | None:
    return Layout("records", {}) if _record_columns(schema) else None


def _record_columns(schema: Any) -> list[str]:
    """Columns of lists, or else of objects of records; or else two or more columns of records."""
    lists, objects, records = [], [], []
    for field in schema:
        kind = field.type
        if is_list(kind) and _is_record(kind.value_type) and _has(kind.value_type, MODEL_NAMES):
            lists.append(field.name)
        elif _is_record(kind):
            records.append(field.name)
        elif kinds.is_struct(kind) and any(_is_record(entry.type) for entry in kind):
            objects.append(field.name)
    return lists or objects or (records if len(records) > 1 else [])


def _is_record(kind: Any) -> bool:
    return kinds.is_struct(kind) and _has(kind, SCORE_NAMES)


def _has(kind: Any, usual: Sequence[str]) -> bool:
    plain = [entry.name for entry in kind if is_numeric(entry.type) or is_string(entry.type)]
    return bool(usual_columns(plain, usual))


def widen_records(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """One row per record, and then one row per query: every row of the table is a query."""
    names = _record_columns(table.schema)
    if not names:
        raise DataFileError(f"it cannot be read as {RECORDS.rule}.", parameter="form")
    kind = table.schema.field(names[0]).type
    per_model = _is_record(kind)
    if len(names) > 1 and not per_model:
        raise DataFileError(
            f"records must be in one column; found {listed(names)}. Leave out one of them.",
            parameter="form",
        )
    numbered: list[int] = []
    records: list[dict[str, Any]] = []
    models: list[str] = []
    for number, cells in enumerate(table.select(names).to_pylist()):
        cell = cells if per_model else cells[names[0]] or {}
        pairs = cell.items() if isinstance(cell, dict) else [("", entry) for entry in cell]
        for model, record in pairs:
            if record is not None:
                numbered.append(number)
                models.append(model)
                records.append(record)
    fields = dict.fromkeys(name for record in records for name in record)
    columns = {name: infer_array([record.get(name) for record in records]) for name in fields}
    if not is_list(kind):
        key = next(name for name in (*MODEL_NAMES, "key") if name not in fields)
        columns[key] = pa.array(models, pa.string())
        options = replace(options, model_column=key)
    fields_table = pa.table(columns)
    found = long_columns(fields_table, options)
    # Here an answer is never the right one of the query.
    answer = found.answer or next(iter(answer_columns(fields_table)), None)
    # Of a field that the query has, too, both are kept.
    others = [name for name in table.column_names if name not in names]
    new = {name: f"{names[0]}.{name}" if name in others else name for name in columns}
    rest = table.select(others).take(pa.array(numbered, pa.int64()))
    long = pa.table(
        {name: rest[name] for name in others} | {new[n]: array for n, array in columns.items()}
    )
    found = replace(found, answer=answer).renamed(new)
    long, kept, findings = named_rows(long, [found.model])
    row_numbers = np.array(numbered, np.intp)[kept]
    rows, queries = np.unique(row_numbers, return_inverse=True)
    table_rows = table.num_rows
    table, layout, more = widen_rows(long, queries, row_numbers, found, "records")
    if lost := table_rows - len(rows):
        findings.append(unasked_rows(lost))
    note = f"{'a list' if is_list(kind) else 'an object'} per query in column {names[0]!r}"
    if per_model:
        note = f"an object per query and model in columns {listed(names, 4)}"
    return table, replace(layout, notes=(note, *layout.notes)), findings + more


RECORDS = Format(
    "records",
    "records of answers",
    "records (responses: [{model, score, cost}], or models: {model: {score, cost}})",
    detect_records,
    widen_records,
    rank=1,
)
