"""Records: one object per answer of a model, ``{"model": "large", "score": 1, "cost": 0.01}``.

A query has a list of records, an object that maps models to records, or a field per model.
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
from mild.data.formats.long import (
    LongColumns,
    answer_columns,
    complete_rows,
    long_columns,
    widen_rows,
)
from mild.data.tables import (
    columns_of_type,
    is_list,
    is_scalar,
    names_except,
    table_of_objects,
)
from mild.errors import DataFileError, listed


def detect_records(schema: Any) -> Layout | None:
    """Return an empty layout if there are columns of records."""
    if _record_columns(schema):
        return Layout("records", {})
    return None


def _record_columns(schema: Any) -> list[str]:
    """Return the columns of lists of records, or else of objects of records, or else of single records."""
    lists = []
    objects = []
    records = []
    for field in schema:
        kind = field.type
        if (
            is_list(kind)
            and _is_record(kind.value_type)
            and _has_field(kind.value_type, MODEL_NAMES)
        ):
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
    """Return whether an Arrow type is an object with a score."""
    return kinds.is_struct(kind) and _has_field(kind, SCORE_NAMES)


def _has_field(kind: Any, usual_names: Sequence[str]) -> bool:
    """Return whether an Arrow type has a field of numbers or texts with one of the usual names."""
    return bool(usual_columns(columns_of_type(kind, is_scalar), usual_names))


@dataclass(frozen=True)
class _Record:
    """An answer of a model."""

    row: int  # of the table
    model: str  # key or column of the record; "" in a list, where the record has a field for it
    fields: dict[str, Any]


def widen_records(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """Turn columns of records into one column per expert and outcome; every row stays one query.

    The records become a long table first, with a row per record, which is then widened like any other.

    Returns
    -------
    wide : pyarrow.Table
        One row per query that has a record.
    layout : Layout
        Which of its columns hold outcomes.
    findings : list of Finding
    """
    record_columns = _checked_record_columns(table)
    record_type = table.schema.field(record_columns[0]).type
    records = _records_of(table, record_columns)
    answers, columns = _read_answers(records, record_type, options)
    row_of_record = np.array([record.row for record in records], np.intp)
    queries = table.drop_columns(record_columns)
    long, new_names = _long_table(queries, answers, row_of_record, record_columns[0])
    columns = columns.renamed(new_names)
    long, complete_records, findings = complete_rows(long, [columns.model])
    row_numbers = row_of_record[complete_records]
    asked_rows, query_of_record = np.unique(row_numbers, return_inverse=True)
    wide, layout, more_findings = widen_rows(long, query_of_record, row_numbers, columns, "records")
    n_unasked = table.num_rows - len(asked_rows)
    if n_unasked:
        findings.append(unasked_rows(n_unasked))
    note = _record_layout_note(record_type, record_columns)
    layout = replace(layout, notes=(note, *layout.notes))
    return wide, layout, findings + more_findings


def _checked_record_columns(table: Any) -> list[str]:
    """Return the columns of records, which must be one column, or one column per model."""
    names = _record_columns(table.schema)
    if not names:
        raise DataFileError(f"it cannot be read as {RECORDS.rule}.", parameter="form")
    if len(names) > 1 and not _is_record(table.schema.field(names[0]).type):
        raise DataFileError(
            f"records must be in one column; found {listed(names)}. Leave out one of them.",
            parameter="form",
        )
    return names


def _read_answers(
    records: Sequence[_Record], record_type: Any, options: ReadArguments
) -> tuple[Any, LongColumns]:
    """Return an Arrow table with a row per record, and which of its columns hold what."""
    answers = table_of_objects([record.fields for record in records])
    if not is_list(record_type):
        # The records do not name their models: they are the keys of an object, or names of columns.
        model_column = names_except((*MODEL_NAMES, "key"), answers.column_names)[0]
        models = pa.array([record.model for record in records], pa.string())
        answers = answers.append_column(model_column, models)
        options = replace(options, model_column=model_column)
    columns = long_columns(answers, options)
    if columns.answer is None:
        # In a long table, ``answer`` may be the right answer to the query; in a record it never is.
        columns = replace(columns, answer=next(iter(answer_columns(answers)), None))
    return answers, columns


def _records_of(table: Any, names: Sequence[str]) -> list[_Record]:
    """Collect the records of all rows, from one column of lists or objects or from a column per model."""
    column_per_model = _is_record(table.schema.field(names[0]).type)
    records = []
    for row, cells in enumerate(table.select(names).to_pylist()):
        content = cells
        if not column_per_model:
            content = cells[names[0]] or {}
        if isinstance(content, dict):
            by_model = list(content.items())
        else:
            by_model = [("", fields) for fields in content]
        for model, fields in by_model:
            # A missing answer is None; a text or a number beside the records is not a record.
            if isinstance(fields, dict):
                records.append(_Record(row, model, fields))
    return records


def _long_table(
    queries: Any, answers: Any, row_of_record: IntArray, record_column: str
) -> tuple[Any, dict[str, str]]:
    """Join the fields of each record and the other columns of its query, in a row per record.

    A field that is also a column of the queries is renamed ``<record_column>.<field>``; the second result
    maps all fields to their new names.
    """
    columns = {}
    for name in queries.column_names:
        columns[name] = queries[name].take(pa.array(row_of_record))
    new_names = {}
    for field in answers.column_names:
        new_name = field
        if field in queries.column_names:
            new_name = f"{record_column}.{field}"
        new_names[field] = new_name
        columns[new_name] = answers[field]
    return pa.table(columns), new_names


def _record_layout_note(kind: Any, names: Sequence[str]) -> str:
    """Say where the records of a query are, for the explanation."""
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
