"""LLMRouter: one row per query and model, turned into one row per query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from mild.core.arrays import FloatArray, IntArray
from mild.data.data_quality import RESCALE, Finding, check_range
from mild.data.formats.base import (
    LATENCY,
    PRICE,
    SCORE,
    TOKENS_IN,
    TOKENS_OUT,
    Format,
    Layout,
    Named,
    ReadArguments,
    seconds_per,
)
from mild.data.formats.tokens import is_price_file
from mild.data.queries import choose_query
from mild.data.tables import choose_columns, is_numeric, is_string, numbers, parse_numbers
from mild.errors import DataFileError, counted, listed

MODEL = "model_name"
PERFORMANCE = "performance"
# The first of these that is there and holds numbers.
PRICES = ("cost", "total_cost", "price")
LATENCIES = ("response_time", "latency", "latency_s", "latency_ms")
TOKENS = (
    ("input_tokens", "prompt_tokens", "tokens_in"),
    ("output_tokens", "completion_tokens", "tokens_out"),
)
# A column that differs within at most this share of the queries describes the query.
SPREAD = 0.05


def detect_llmrouter(schema: Any) -> Layout | None:
    """An empty layout if there are a model's name and its performance."""
    return Layout("llmrouter", {}) if {MODEL, PERFORMANCE} <= set(schema.names) else None


def widen_llmrouter(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """The table in the wide format, its layout, and findings.

    Models and queries keep the order of their first row. Where a (query, model) appears more than once
    its mean counts. A column that differs within more than 5 % of the queries describes answers and becomes
    ``<column>__<model>``; others describe queries and keep the value of the first row.
    """
    query = _query_column(table, options)
    named = None if is_price_file(options.prices, table.column_names) else options.prices
    price = _one_column("prices", named, table, PRICES)
    latency = _one_column("latencies", options.latencies, table, LATENCIES)
    tokens = _token_columns(options.tokens, table)
    table, row_numbers, findings = _named_rows(table, query)
    texts, queries = _codes(table[query])
    models, model = _codes(table[MODEL].cast(pa.large_string()))
    experts = models.to_pylist()
    cells = queries * len(experts) + model
    found, first_rows, sizes = np.unique(cells, return_index=True, return_counts=True)
    performance = numbers(PERFORMANCE, table[PERFORMANCE]).astype(np.float64)
    check_range("scores", performance[:, None], [PERFORMANCE], 1, RESCALE, row_numbers)
    if count := int((sizes > 1).sum()):
        known = ~np.isnan(performance)
        values = np.unique(performance[known], return_inverse=True)[1]
        conflicts = _differing(values, cells[known])
        words = (
            f"{counted(count, 'pair')} of query and model {'appears' if count == 1 else 'appear'} more "
            f"than once and {'is' if count == 1 else 'are'} averaged; "
            f"{counted(conflicts, 'of them differs', 'of them differ')} in performance."
        )
        kind = "conflicts" if conflicts else "repeats"
        findings.append(Finding(kind, conflicts or count, words))
    columns: dict[str, Any] = {query: texts}
    for name in table.column_names:
        if name in (query, MODEL, PERFORMANCE, price, latency):
            continue
        column = table[name]
        differing = _differing(_value_codes(column), queries)
        if differing > SPREAD * len(texts):
            rows = np.full(len(texts) * len(experts), -1)
            rows[found] = first_rows
            for k, expert in enumerate(experts):
                taken = rows[k :: len(experts)]
                columns[f"{name}__{expert}"] = column.take(pa.array(taken, mask=taken < 0))
            continue
        columns[name] = column.take(np.unique(queries, return_index=True)[1])
        if differing:
            words = (
                f"{counted(differing, 'query has', 'queries have')} several values of {name!r}; "
                f"the value of the first row is kept."
            )
            findings.append(Finding("differing_column", differing, words))
    outcomes = {SCORE: performance}
    notes = []
    for prefix, column in zip((TOKENS_IN, TOKENS_OUT), tokens, strict=True):
        if column:
            outcomes[prefix] = numbers(column, table[column])
    if price:
        outcomes[PRICE] = numbers(price, table[price])
        notes.append(f"prices are column {price!r}")
    if latency:
        outcomes[LATENCY] = numbers(latency, table[latency]) * (seconds_per(latency) * 1e3)
        unit = "milliseconds" if seconds_per(latency) < 1 else "seconds"
        notes.append(f"latencies are column {latency!r}, in {unit}")
    for prefix, values in outcomes.items():
        means = _means(cells, values, len(texts) * len(experts))
        for k, expert in enumerate(experts):
            columns[prefix + expert] = pa.array(means[k :: len(experts)], from_pandas=True)
    scores, prices, latencies = (
        {name: prefix + name for name in experts if prefix in outcomes}
        for prefix in (SCORE, PRICE, LATENCY)
    )
    layout = Layout("llmrouter", scores, prices, latencies, tuple(notes))
    return pa.table(columns), layout, findings


def _query_column(table: Any, options: ReadArguments) -> str:
    names = list(table.column_names)
    for name in (MODEL, PERFORMANCE):
        if name not in names:
            raise DataFileError(
                f"a row per query and model must have a column {name!r}; found {listed(names)}."
            )
    if options.scores is not None:
        raise DataFileError(
            f"a row per query and model has its scores in column {PERFORMANCE!r}; leave out --scores.",
            parameter="scores",
        )
    query = choose_query(table.schema, options.query)
    if query is None or len(query.columns) != 1:
        raise DataFileError(
            f"a row per query and model must have one column of the query, by --query or named query; "
            f"found {listed(names)}.",
            parameter="query",
        )
    return query.columns[0]


def _holds_numbers(column: Any) -> bool:
    if is_string(column.type):
        return parse_numbers(column) is not None
    return is_numeric(column.type)


def _one_column(what: str, named: Named, table: Any, usual: tuple[str, ...]) -> str | None:
    """The column that all models share: the one named, or the first usual one that holds numbers."""
    if named is None:
        present = [name for name in usual if name in table.column_names]
        return next((name for name in present if _holds_numbers(table[name])), None)
    columns = [] if isinstance(named, Mapping) else choose_columns(what, named, table.column_names)
    if len(columns) != 1:
        raise DataFileError(
            parameter=what,
            rule=f"must be one column where there is a row per query and model; got {named!r}.",
        )
    return columns[0]


def _token_columns(named: str | None, table: Any) -> tuple[str | None, str | None]:
    """Columns of tokens in and out; None where one is missing."""
    if named is None:
        found = [_one_column("tokens", None, table, usual) for usual in TOKENS]
        return (found[0], found[1]) if all(found) else (None, None)
    columns = choose_columns("tokens", named, table.column_names)
    if len(columns) != 2:
        raise DataFileError(
            parameter="tokens", rule=f"must be two columns, tokens in and out; got {named!r}."
        )
    return columns[0], columns[1]


def _named_rows(table: Any, query: str) -> tuple[Any, IntArray, list[Finding]]:
    """Rows that name a query and a model, and their numbers in the file."""
    import pyarrow.compute as pc

    for name in (query, MODEL):
        if not is_string(table.schema.field(name).type):
            raise DataFileError(
                f"column {name!r} must hold text; it holds {table.schema.field(name).type}."
            )
    named = pc.and_(*(pc.not_equal(table[name].fill_null(""), "") for name in (query, MODEL)))
    kept = table.filter(named)
    nameless = table.num_rows - kept.num_rows
    if nameless == table.num_rows:
        raise DataFileError(f"every row lacks {query!r} or {MODEL!r}.")
    words = (
        f"{counted(nameless, 'row lacks', 'rows lack')} a query or a model and "
        f"{'was' if nameless == 1 else 'were'} dropped."
    )
    findings = [Finding("nameless", nameless, words)] if nameless else []
    return kept, np.flatnonzero(named), findings


def _codes(column: Any) -> tuple[Any, IntArray]:
    """Distinct values in the order of their first row, and the code of each row."""
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return coded.dictionary, coded.indices.to_numpy().astype(np.intp)


def _means(cells: IntArray, values: FloatArray, size: int) -> FloatArray:
    """Mean of the known values of each (query, model); NaN where nothing is known."""
    known = ~np.isnan(values)
    total = np.bincount(cells[known], values[known], size)
    count = np.bincount(cells[known], minlength=size)
    return np.divide(total, count, out=np.full(size, np.nan), where=count > 0)


def _value_codes(column: Any) -> IntArray:
    try:
        return _codes(column)[1]
    except pa.ArrowException:
        # Arrow cannot encode lists and structures.
        texts = np.array([repr(value) for value in column.to_pylist()])
        return np.unique(texts, return_inverse=True)[1]


def _differing(codes: IntArray, groups: IntArray) -> int:
    """Number of groups with more than one value."""
    width = codes.max(initial=0) + 1
    pairs = np.unique(groups * width + codes)
    return int((np.bincount(pairs // width) > 1).sum())


LLMROUTER = Format(
    "llmrouter",
    "LLMRouter",
    "LLMRouter (rows of query, model_name, performance)",
    detect_llmrouter,
    widen_llmrouter,
)
