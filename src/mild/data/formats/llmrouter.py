"""LLMRouter: one row per query and model, turned into one row per query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mild.core.arrays import FloatArray, IntArray
from mild.data.arrow import is_numeric, numbers
from mild.data.findings import RESCALE, Finding, check_range, counted
from mild.data.formats.layout import LATENCY, PRICE, SCORE, Layout, seconds_per
from mild.data.queries import is_string
from mild.errors import DataFileError

__all__ = ["MODEL", "PERFORMANCE", "find_llmrouter", "pivot"]

MODEL = "model_name"
PERFORMANCE = "performance"
# The first of these that is there and holds numbers.
PRICES = ("cost", "total_cost", "price")
LATENCIES = ("response_time", "latency", "latency_s", "latency_ms")
# Share of the queries within which a column may differ and still tell of the query.
SPREAD = 0.05


def find_llmrouter(schema: Any) -> bool:
    """Whether there are a model's name and its performance."""
    return {MODEL, PERFORMANCE} <= set(schema.names)


def pivot(
    table: Any, query: str, price: str | None = None, latency: str | None = None
) -> tuple[Any, Layout, list[Finding]]:
    """The table in the wide shape, its columns, and what was found on the way.

    Models and queries keep the order of their first row. Where a (query, model) appears more than once
    its mean counts. A column that differs within more than 5 % of the queries tells of answers and becomes
    ``<column>__<model>``; others tell of queries and keep the value of the first row.

    Parameters
    ----------
    table : Arrow table, one row per query and model
    query : column of the text that tells queries apart
    price, latency : columns of dollars and of seconds (milliseconds if ``ms`` is a part of the name);
        None takes the first of PRICES and of LATENCIES that is there
    """
    table, findings = _usable(table, query)
    texts, queries = _codes(table[query])
    models_found, models = _codes(table[MODEL].cast(pa.large_string()))
    experts = models_found.to_pylist()
    cells = queries * len(experts) + models
    order = np.argsort(cells, kind="stable")
    grid = _Grid(order, cells[order], len(texts), len(experts))
    performance = numbers(PERFORMANCE, table[PERFORMANCE]).astype(np.float64)
    check_range("scores", performance[:, None], [PERFORMANCE], 0, 1, RESCALE)
    findings += _repeats(grid, performance)
    columns: dict[str, Any] = {query: texts}
    first = np.full(len(texts), table.num_rows, np.intp)
    np.minimum.at(first, queries, np.arange(table.num_rows))
    price = price or _first_numeric(table, PRICES)
    latency = latency or _first_numeric(table, LATENCIES)
    for name in table.column_names:
        if name in (query, MODEL, PERFORMANCE, price, latency):
            continue
        differing = _differing(table[name], queries)
        if differing <= SPREAD * len(texts):
            columns[name] = table[name].take(pa.array(first))
            if differing:
                findings.append(_kept_first(name, differing))
        else:
            places = grid.first_rows()
            for k, expert in enumerate(experts):
                columns[f"{name}__{expert}"] = table[name].take(
                    pa.array(places[:, k], mask=places[:, k] < 0)
                )
    _add(columns, SCORE, experts, grid.means(performance))
    words = []
    if price:
        _add(columns, PRICE, experts, grid.means(numbers(price, table[price])))
        words.append(f"prices are column {price!r}")
    if latency:
        milliseconds = numbers(latency, table[latency]) * (seconds_per(latency) * 1e3)
        _add(columns, LATENCY, experts, grid.means(milliseconds))
        unit = "milliseconds" if seconds_per(latency) < 1 else "seconds"
        words.append(f"latencies are column {latency!r}, in {unit}")
    layout = Layout(
        "llmrouter",
        {name: SCORE + name for name in experts},
        {name: PRICE + name for name in experts} if price else {},
        {name: LATENCY + name for name in experts} if latency else {},
        tuple(words),
    )
    return pa.table(columns), layout, findings


class _Grid:
    """Rows sorted by their cell, query times model."""

    def __init__(self, order: IntArray, cells: IntArray, n_queries: int, n_experts: int) -> None:
        self.order = order
        self.starts = np.flatnonzero(np.diff(cells, prepend=-1))
        self.cells = cells[self.starts]
        self.shape = (n_queries, n_experts)

    def means(self, values: FloatArray) -> FloatArray:
        """Mean of what is known in each cell; NaN where nothing is."""
        sorted_values = np.asarray(values, np.float64)[self.order]
        known = ~np.isnan(sorted_values)
        total = np.add.reduceat(np.where(known, sorted_values, 0), self.starts)
        count = np.add.reduceat(known.astype(np.intp), self.starts)
        result = np.full(self.shape, np.nan)
        result.flat[self.cells] = np.divide(
            total, count, out=np.full(len(total), np.nan), where=count > 0
        )
        return result

    def first_rows(self) -> IntArray:
        """First row of each cell, -1 where there is none."""
        result = np.full(self.shape, -1, np.intp)
        result.flat[self.cells] = self.order[self.starts]
        return result


def _usable(table: Any, query: str) -> tuple[Any, list[Finding]]:
    """Rows that name a query and a model; the others would be taken for one query."""
    for name in (query, MODEL):
        if not is_string(table.schema.field(name).type):
            raise DataFileError(
                f"column {name!r} must hold text; it holds {table.schema.field(name).type}."
            )
    named = pc.and_(
        *(pc.greater(pc.utf8_length(table[name].fill_null("")), 0) for name in (query, MODEL))
    )
    nameless = table.num_rows - int(pc.sum(named).as_py() or 0)
    if not nameless:
        return table, []
    if nameless == table.num_rows:
        raise DataFileError(f"every row lacks {query!r} or {MODEL!r}.")
    return table.filter(named), [
        Finding(
            "nameless",
            nameless,
            f"{counted(nameless, 'row lacks', 'rows lack')} a query or a model and "
            f"{'was' if nameless == 1 else 'were'} dropped.",
        )
    ]


def _codes(column: Any) -> tuple[Any, IntArray]:
    """Different values in the order of their first row, and which of them each row holds."""
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return coded.dictionary, coded.indices.to_numpy().astype(np.intp)


def _repeats(grid: _Grid, performance: FloatArray) -> list[Finding]:
    sorted_values = performance[grid.order]
    sizes = np.diff(grid.starts, append=len(sorted_values))
    repeated = sizes > 1
    if not repeated.any():
        return []
    low = np.fmin.reduceat(sorted_values, grid.starts)
    high = np.fmax.reduceat(sorted_values, grid.starts)
    conflicts = int((repeated & (low < high)).sum())
    count = int(repeated.sum())
    apart = f"{counted(conflicts, 'of them differs', 'of them differ')} in performance"
    return [
        Finding(
            "conflicts" if conflicts else "repeats",
            conflicts or count,
            f"{counted(count, 'pair')} of query and model {'appears' if count == 1 else 'appear'} more "
            f"than once and {'counts' if count == 1 else 'count'} by the mean; {apart}.",
        )
    ]


def _first_numeric(table: Any, names: tuple[str, ...]) -> str | None:
    found = (n for n in names if n in table.column_names and is_numeric(table.schema.field(n).type))
    return next(found, None)


def _kept_first(name: str, differing: int) -> Finding:
    return Finding(
        "differing_column",
        differing,
        f"{counted(differing, 'query has', 'queries have')} several values of {name!r}; that of the "
        f"first row is kept.",
    )


def _differing(column: Any, queries: IntArray) -> int:
    """How many queries have more than one value of this column."""
    try:
        _, codes = _codes(column)
    except pa.ArrowException:
        # Lists and structures cannot be compared fast; by their text they can.
        texts = np.array([repr(value) for value in column.to_pylist()])
        codes = np.unique(texts, return_inverse=True)[1]
    width = codes.max() + 1
    pairs = np.unique(queries * width + codes)
    return int((np.bincount(pairs // width) > 1).sum())


def _add(columns: dict[str, Any], prefix: str, experts: list[str], values: FloatArray) -> None:
    for k, expert in enumerate(experts):
        columns[prefix + expert] = pa.array(values[:, k], from_pandas=True)
