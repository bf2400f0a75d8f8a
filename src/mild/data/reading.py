"""From an Arrow table to outcomes: shape, experts, query, cells, findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mild.artifact.expert_names import match_experts
from mild.core.arrays import FloatArray, IntArray
from mild.data.arrow import numbers
from mild.data.columns import choose_columns
from mild.data.findings import (
    RESCALE,
    Finding,
    check_range,
    counted,
    examine,
    unasked_rows,
)
from mild.data.formats import TITLES, choose_form, lay_out
from mild.data.formats.layout import Layout, Named, seconds_per
from mild.data.formats.llmrouter import MODEL, PERFORMANCE, pivot
from mild.data.outcomes import OutcomeTable, Wanted
from mild.data.queries import choose_query, query_texts
from mild.data.recipe import Recipe
from mild.data.vectors import find_vectors, read_vectors
from mild.errors import DataFileError, listed

__all__ = ["build_outcomes", "explanation"]


def build_outcomes(
    table: Any, wanted: Wanted, first: int | None = None, contents: bool = True
) -> OutcomeTable:
    """Outcomes of an Arrow table.

    With ``first`` it is a piece of a larger one, and that the number of its first row there: it keeps
    experts that were asked elsewhere, may lose all its rows, and is not examined for what is odd about it.
    Without ``contents`` neither queries nor vectors are read.
    """
    table, layout, findings = _shaped(table, wanted)
    all_taken = layout.taken
    if wanted.experts is not None:
        layout = layout.of(match_experts(wanted.experts, list(layout.scores)))
    scores = _cells(table, layout, layout.scores)
    places = None if first is None else np.arange(first, first + len(scores))
    check_range("scores", scores, list(layout.scores.values()), 0, 1, RESCALE, places)
    layout, scores, dropped = _asked_experts(layout, scores, first is not None)
    rows = np.asarray(~np.isnan(scores).all(axis=1))
    if lost := len(rows) - int(rows.sum()):
        table, scores = table.filter(rows), scores[rows]
        places = np.flatnonzero(rows) if places is None else places[rows]
        dropped.append(unasked_rows(lost))
    # A piece may have lost all its rows.
    contents = contents and table.num_rows > 0
    query = vector_column = None
    if contents:
        query = choose_query(table.schema, wanted.query, wanted.choices, all_taken)
        vector_column = wanted.vectors or find_vectors(table)
    if contents and query is None and vector_column is None:
        raise DataFileError(
            f"there must be a query to route by: name its column with --query, or one of vectors with "
            f"--vectors; found {listed(list(table.column_names))}."
        )
    queries = [""] * table.num_rows if query is None else query_texts(table, query)
    prices = _costs("prices", table, layout, layout.prices, places)
    latencies = _costs("latencies", table, layout, layout.latencies, places)
    if latencies is not None:
        units = [seconds_per(layout.latencies.get(name, "")) for name in layout.scores]
        # To the nanosecond: milliseconds that were written and read again are the same.
        latencies = np.round(latencies * units, 9)
    names = list(layout.scores)
    if first is None:
        findings += [*dropped, *examine(queries, names, scores, prices, query is not None)]
    used = {*all_taken, *([vector_column] if vector_column else [])}
    if query is not None and not query.choices and len(query.columns) == 1:
        used.update(query.columns)
    return OutcomeTable(
        queries,
        names,
        scores,
        prices,
        latencies,
        table.select([name for name in table.column_names if name not in used]),
        None if vector_column is None else read_vectors(table, vector_column, places),
        layout.form,
        explanation(layout, len(queries), query, vector_column),
        tuple(findings),
        replace(query or Recipe(()), vectors=vector_column),
        places,
    )


def _shaped(table: Any, wanted: Wanted) -> tuple[Any, Layout, list[Finding]]:
    """A table with a row per query, and which of its columns hold outcomes."""
    schema = table.schema
    form = choose_form(schema, wanted.form, wanted.scores)
    if form != "llmrouter":
        return table, lay_out(schema, form, wanted.scores, wanted.prices, wanted.latencies), []
    for name in (MODEL, PERFORMANCE):
        if name not in schema.names:
            raise DataFileError(
                f"a row per query and model must have a column {name!r}; found "
                f"{listed(list(schema.names))}."
            )
    if wanted.scores is not None:
        raise DataFileError(
            f"a row per query and model has its scores in column {PERFORMANCE!r}; leave out --scores."
        )
    query = choose_query(schema, wanted.query)
    if query is None or len(query.columns) != 1:
        raise DataFileError(
            f"a row per query and model must have one column of the query, by --query or named query; "
            f"found {listed(list(schema.names))}."
        )
    return pivot(
        table,
        query.columns[0],
        _one_column("prices", wanted.prices, schema),
        _one_column("latencies", wanted.latencies, schema),
    )


def _one_column(what: str, named: Named, schema: Any) -> str | None:
    """The column that a caller named where all models share it."""
    if named is None:
        return None
    columns = [] if isinstance(named, Mapping) else choose_columns(what, named, list(schema.names))
    if len(columns) != 1:
        raise DataFileError(
            f"{what} must be one column where there is a row per query and model; got {named!r}."
        )
    return columns[0]


def _cells(table: Any, layout: Layout, columns: dict[str, str]) -> FloatArray:
    """Columns side by side, one per expert; NaN where an expert has none."""
    matrix = np.full((table.num_rows, len(layout.scores)), np.nan)
    for k, name in enumerate(layout.scores):
        if name in columns:
            matrix[:, k] = numbers(columns[name], table[columns[name]])
    return matrix


def _costs(
    what: str, table: Any, layout: Layout, columns: dict[str, str], places: IntArray | None
) -> FloatArray | None:
    if not columns:
        return None
    matrix = _cells(table, layout, columns)
    names = [columns.get(name, name) for name in layout.scores]
    check_range(what, matrix, names, 0, np.inf, "Leave out what is unknown.", places)
    return matrix


def _asked_experts(
    layout: Layout, scores: FloatArray, piece: bool
) -> tuple[Layout, FloatArray, list[Finding]]:
    """Without experts that were never asked, unless that may have been elsewhere."""
    asked = np.asarray(~np.isnan(scores).all(axis=0))
    if not piece and not asked.any():
        raise DataFileError(
            f"no score is known; columns {listed(list(layout.scores.values()))} are empty."
        )
    if piece or asked.all():
        return layout, scores, []
    silent = [name for name, known in zip(layout.scores, asked, strict=True) if not known]
    words = (
        f"{counted(len(silent), 'expert was', 'experts were')} never asked and left out: "
        f"{listed(silent, 6)}."
    )
    kept = layout.of([name for name in layout.scores if name not in silent])
    return kept, scores[:, asked], [Finding("unasked_experts", len(silent), words)]


def explanation(layout: Layout, rows: int, query: Recipe | None, vectors: str | None) -> str:
    """How a table was read, in one sentence."""
    costs = [
        word
        for word, columns in (("prices", layout.prices), ("latencies", layout.latencies))
        if columns
    ]
    start = (
        f"read as {TITLES[layout.form]}: {counted(len(layout.scores), 'expert')}, "
        f"{counted(rows, 'query', 'queries')}{' with ' + ' and '.join(costs) if costs else ''}"
    )
    parts = [start, "there is no query, only vectors" if query is None else query.words]
    if vectors is not None:
        parts.append(f"vectors are column {vectors!r}")
    return f"{'; '.join([*parts, *layout.words])}."
