"""Records: an answer of a model in one object, ``{"model": "large", "score": 1, "cost": 0.01}``.

A query has a list of records, an object of models -> record, or a field per model that holds its record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from mild.core.arrays import IntArray
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
from mild.data.tables import (
    columns_of_type,
    is_list,
    is_scalar,
    names_except,
    table_of_objects,
)
from mild.errors import DataFileError, listed


def detect_records(schema: Any) -> Layout | None:
    """An empty layout if there are columns of records."""
    if _record_columns(schema):
        return Layout("records", {})
    return None


def _record_columns(schema: Any) -> list[str]:
    """Columns of lists, or else of objects of records; or else two or more columns of records."""
    lists = []
    objects = []
    records = []
    for field in schema:
        kind = field.type
        if is_list(kind) and _is_record(kind.value_type) and _has(kind.value_type, MODEL_NAMES):
            lists.append(field.name)
        elif _is_record(kind):
            records.append(field.name)
        elif kinds.is_struct(kind) and any(_is_record(entry.type) for entry in kind):
            objects.append(field.name)
    if lists:
        return lists
    if objects:
        return objects
    # A single record per row says nothing about other models.
    if len(records) > 1:
        return records
    return []


def _is_record(kind: Any) -> bool:
    """Whether an Arrow type is an object with a score."""
    return kinds.is_struct(kind) and _has(kind, SCORE_NAMES)


def _has(kind: Any, usual_names: Sequence[str]) -> bool:
    """Whether an object has a number or a text by one of the usual names."""
    return bool(usual_columns(columns_of_type(kind, is_scalar), usual_names))


@dataclass(frozen=True)
class _Record:
    """An answer of a model."""

    row: int  # of the table
    model: str  # key or column of the record; "" in a list, where the record has a field for it
    fields: dict[str, Any]


def widen_records(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """One row per record, and then one row per query: every row of the table is a query."""
    names = _record_columns(table.schema)
    if not names:
        raise DataFileError(f"it cannot be read as {RECORDS.rule}.", parameter="form")
    kind = table.schema.field(names[0]).type
    if len(names) > 1 and not _is_record(kind):
        raise DataFileError(
            f"records must be in one column; found {listed(names)}. Leave out one of them.",
            parameter="form",
        )
    records = _records_of(table, names)
    answers = table_of_objects([record.fields for record in records])
    if not is_list(kind):
        # The key, or the column, of a record is its model.
        model_column = names_except((*MODEL_NAMES, "key"), answers.column_names)[0]
        models = pa.array([record.model for record in records], pa.string())
        answers = answers.append_column(model_column, models)
        options = replace(options, model_column=model_column)
    columns = long_columns(answers, options)
    if columns.answer is None:
        # Unlike in a long table, an answer is never the right one of the query.
        columns = replace(columns, answer=next(iter(answer_columns(answers)), None))
    rows = np.array([record.row for record in records], np.intp)
    long, new_names = _long_table(table.drop_columns(names), answers, rows, names[0])
    columns = columns.renamed(new_names)
    long, named, findings = named_rows(long, [columns.model])
    row_numbers = rows[named]
    asked_rows, queries = np.unique(row_numbers, return_inverse=True)
    wide, layout, more_findings = widen_rows(long, queries, row_numbers, columns, "records")
    n_unasked = table.num_rows - len(asked_rows)
    if n_unasked:
        findings.append(unasked_rows(n_unasked))
    note = _how_records_are_held(kind, names)
    layout = replace(layout, notes=(note, *layout.notes))
    return wide, layout, findings + more_findings


def _records_of(table: Any, names: Sequence[str]) -> list[_Record]:
    """The records of all rows: those of a column of lists or objects, or one in each of several columns."""
    column_per_model = _is_record(table.schema.field(names[0]).type)
    records = []
    for row, cells in enumerate(table.select(names).to_pylist()):
        held = cells
        if not column_per_model:
            held = cells[names[0]] or {}
        if isinstance(held, dict):
            by_model = list(held.items())
        else:
            by_model = [("", fields) for fields in held]
        for model, fields in by_model:
            # A missing answer is None; a text or a number beside the records is not one.
            if isinstance(fields, dict):
                records.append(_Record(row, model, fields))
    return records


def _long_table(
    others: Any, answers: Any, rows: IntArray, column: str
) -> tuple[Any, dict[str, str]]:
    """A row per record with the other columns of its query, and the new names of the fields.

    Of a field that the query has, too, both are kept: that of the record as ``<column>.<field>``.
    """
    columns = {}
    for name in others.column_names:
        columns[name] = others[name].take(pa.array(rows))
    new_names = {}
    for field in answers.column_names:
        new_name = field
        if field in others.column_names:
            new_name = f"{column}.{field}"
        new_names[field] = new_name
        columns[new_name] = answers[field]
    return pa.table(columns), new_names


def _how_records_are_held(kind: Any, names: Sequence[str]) -> str:
    """Where the records of a query are, for the explanation."""
    if _is_record(kind):
        return f"an object per query and model in columns {listed(names, 4)}"
    if is_list(kind):
        return f"a list per query in column {names[0]!r}"
    return f"an object per query in column {names[0]!r}"


RECORDS = Format(
    "records",
    "records of answers",
    "records (responses: [{model, score, cost}], or models: {model: {score, cost}})",
    detect_records,
    widen_records,
    rank=1,
)
