"""Long tables: one row per query and model, turned into one row per query. LLMRouter writes such tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from mild.core.arrays import FloatArray, IntArray
from mild.data.data_quality import RESCALE, Finding, check_range
from mild.data.formats.base import (
    ANSWER,
    ANSWER_NAMES,
    LATENCY,
    LATENCY_NAMES,
    MODEL_NAMES,
    PRICE,
    PRICE_NAMES,
    SCORE,
    SCORE_NAMES,
    TOKEN_NAMES,
    TOKENS_IN,
    TOKENS_OUT,
    Format,
    Layout,
    Named,
    ReadArguments,
    read_with,
    seconds_per,
    text_notes,
    usual_columns,
)
from mild.data.formats.tokens import is_price_file
from mild.data.queries import choose_query, plain_name
from mild.data.tables import choose_columns, is_numeric, is_string, numbers, parse_numbers
from mild.errors import DataFileError, counted, listed

# Names of the columns of LLMRouter.
MODEL, PERFORMANCE = "model_name", "performance"
#: Columns that tell equal queries apart.
ID_NAMES = (
    *("id", "query_id", "question_id", "prompt_id", "sample_id", "example_id", "instance_id"),
    *("item_id", "task_id", "qid"),
)
# A column that differs within at most this share of the queries describes the query.
SPREAD = 0.05
# An id with answers of at least so many models, on average, is the id of a query.
MODELS_PER_ID = 1.5


@dataclass(frozen=True)
class LongColumns:
    """Which columns of a long table hold what; tokens are tokens in and out."""

    model: str
    score: str
    price: str | None = None
    latency: str | None = None
    tokens: tuple[str | None, str | None] = (None, None)
    answer: str | None = None  # as named; None takes a usual one

    def renamed(self, names: Mapping[str, str]) -> LongColumns:
        def now(name: str | None) -> str | None:
            return None if name is None else names[name]

        tokens = (now(self.tokens[0]), now(self.tokens[1]))
        model, score = names[self.model], names[self.score]
        return LongColumns(
            model, score, now(self.price), now(self.latency), tokens, now(self.answer)
        )

    @property
    def outcomes(self) -> tuple[str | None, ...]:
        """Columns that become columns of outcomes; tokens are kept beside them."""
        return self.model, self.score, self.price, self.latency


def detect_llmrouter(schema: Any) -> Layout | None:
    """An empty layout if there are a model's name and its performance."""
    return Layout("llmrouter", {}) if {MODEL, PERFORMANCE} <= set(schema.names) else None


def detect_long(schema: Any) -> Layout | None:
    """An empty layout if there are columns of models and of scores with usual names."""
    there = model_columns(schema) and usual_columns(_scorable(schema), SCORE_NAMES)
    return Layout("long", {}) if there else None


def model_columns(schema: Any) -> list[str]:
    """Columns of text that are named as those of models."""
    texts = [field.name for field in schema if is_string(field.type)]
    return usual_columns(texts, MODEL_NAMES)


def _scorable(schema: Any) -> list[str]:
    return [field.name for field in schema if is_numeric(field.type) or is_string(field.type)]


def widen_long(
    table: Any, options: ReadArguments, form: str = "long"
) -> tuple[Any, Layout, list[Finding]]:
    """The table in the wide format, its layout, and findings.

    Rows with the same query, choices and id are one query. A column of ids that differs in every row
    numbers the rows and is no id of a query.
    """
    found = long_columns(table, options)
    query = choose_query(table.schema, options.query, options.choices)
    if query is None:
        raise DataFileError(
            f"a row per query and model must have a column of the query, by query=COLUMN or named query; "
            f"found {listed(list(table.column_names))}.",
            parameter="query",
        )
    table, row_numbers, findings = named_rows(table, [*query.columns, found.model])
    identity = [*query.columns, *query.choices]
    if options.id_column is not None:
        identity += choose_columns("id_column", [options.id_column], table.column_names)
    elif form == "long":
        models = _value_codes(table[found.model])
        for name in usual_columns(table.column_names, ID_NAMES):
            codes = _value_codes(table[name])
            # The id of a query has answers of several models; that of an answer has one.
            answers = _joint_codes([codes, models]).max(initial=0) + 1
            if answers >= MODELS_PER_ID * (codes.max(initial=0) + 1):
                identity.append(name)
    queries = _joint_codes([_value_codes(table[name]) for name in identity])
    table, layout, more = widen_rows(table, queries, row_numbers, found, form)
    if ids := identity[len(query.columns) + len(query.choices) :]:
        note = f"queries are told apart by {listed(ids)}, too"
        layout = replace(layout, notes=(*layout.notes, note))
    return table, layout, findings + more


def widen_rows(
    table: Any, queries: IntArray, row_numbers: IntArray, found: LongColumns, form: str
) -> tuple[Any, Layout, list[Finding]]:
    """A row for each of the numbers ``queries``, which say to what query a row of the table belongs.

    Models and queries keep the order of their first row. Where a (query, model) appears more than once
    its mean counts. A column that differs within more than 5 % of the queries describes answers and becomes
    ``<column>__<model>``; others describe queries and keep the value of the first row. Answers become
    ``answer__<model>``.
    """
    findings: list[Finding] = []
    models, model = _codes(table[found.model].cast(pa.large_string()))
    experts = models.to_pylist()
    first_of_query = np.unique(queries, return_index=True)[1]
    size = len(first_of_query)
    cells = queries * len(experts) + model
    cell, first_of_cell, sizes = np.unique(cells, return_index=True, return_counts=True)
    scores = numbers(found.score, table[found.score], truths=True).astype(np.float64)
    check_range("scores", scores[:, None], [found.score], 1, RESCALE, row_numbers)
    if count := int((sizes > 1).sum()):
        known = ~np.isnan(scores)
        values = np.unique(scores[known], return_inverse=True)[1]
        conflicts = _differing(values, cells[known])
        words = (
            f"{counted(count, 'pair')} of query and model {'appears' if count == 1 else 'appear'} more "
            f"than once and {'is' if count == 1 else 'are'} averaged; "
            f"{counted(conflicts, 'of them differs', 'of them differ')} in {found.score}."
        )
        kind = "conflicts" if conflicts else "repeats"
        findings.append(Finding(kind, conflicts or count, words))
    columns: dict[str, Any] = {}
    others = [name for name in table.column_names if name not in found.outcomes]
    differing = {name: _differing(_value_codes(table[name]), queries) for name in others}
    spread = [name for name in others if differing[name] > SPREAD * size]
    answer = found.answer or next(
        (name for name in answer_columns(table) if name in spread or plain_name(name) != "answer"),
        None,
    )
    for name in others:
        column = table[name]
        if name == answer or name in spread:
            rows = np.full(size * len(experts), -1)
            rows[cell] = first_of_cell
            prefix = ANSWER if name == answer else f"{name}__"
            for k, expert in enumerate(experts):
                taken = rows[k :: len(experts)]
                columns[prefix + expert] = column.take(pa.array(taken, mask=taken < 0))
            continue
        columns[name] = column.take(first_of_query)
        if differing[name]:
            words = (
                f"{counted(differing[name], 'query has', 'queries have')} several values of {name!r}; "
                f"the value of the first row is kept."
            )
            findings.append(Finding("differing_column", differing[name], words))
    outcomes = {SCORE: scores}
    notes = [f"models are column {found.model!r}, scores {found.score!r}"]
    notes += text_notes(table, [found.score])
    for prefix, column in zip((TOKENS_IN, TOKENS_OUT), found.tokens, strict=True):
        if column:
            outcomes[prefix] = numbers(column, table[column])
    if found.price:
        outcomes[PRICE] = numbers(found.price, table[found.price])
        notes.append(f"prices are column {found.price!r}")
    if found.latency:
        per = seconds_per(found.latency)
        outcomes[LATENCY] = numbers(found.latency, table[found.latency]) * (per * 1e3)
        unit = "milliseconds" if per < 1 else "seconds"
        notes.append(f"latencies are column {found.latency!r}, in {unit}")
    if answer:
        notes.append(f"answers are column {answer!r}")
    for prefix, values in outcomes.items():
        means = _means(cells, values, size * len(experts))
        for k, expert in enumerate(experts):
            columns[prefix + expert] = pa.array(means[k :: len(experts)], from_pandas=True)
    by_score, by_price, by_latency = (
        {name: prefix + name for name in experts if prefix in outcomes}
        for prefix in (SCORE, PRICE, LATENCY)
    )
    layout = Layout(form, by_score, by_price, by_latency, tuple(notes))
    return pa.table(columns), layout, findings


def answer_columns(table: Any) -> list[str]:
    """Texts and objects, such as tool calls, that are named as answers."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_nested)
    said = [field.name for field in table.schema if any(one(field.type) for one in kinds)]
    return usual_columns(said, ANSWER_NAMES)


def long_columns(table: Any, options: ReadArguments) -> LongColumns:
    """The columns that the caller named, and the usual ones."""
    named = None if is_price_file(options.prices, table.column_names) else options.prices
    answer = None
    if options.answer_column is not None:
        answer = choose_columns("answer_column", [options.answer_column], table.column_names)[0]
    return LongColumns(
        _model_column(table, options.model_column),
        _score_column(table, options.scores),
        _one_column("prices", named, table, PRICE_NAMES),
        _one_column("latencies", options.latencies, table, LATENCY_NAMES),
        _token_columns(options.tokens, table),
        answer,
    )


def _model_column(table: Any, named: str | None) -> str:
    names = list(table.column_names)
    if named is not None:
        return choose_columns("model_column", [named], names)[0]
    found = usual_columns(names, MODEL_NAMES)
    if MODEL in found and PERFORMANCE in names:
        return MODEL
    if len(found) != 1:
        got = f"found {listed(found or names)}"
        raise DataFileError(
            f"a row per query and model must have one column of models; {got}. Name it: "
            f"{read_with('model_column=COLUMN')}.",
            parameter="model_column",
        )
    return found[0]


def _score_column(table: Any, named: Named) -> str:
    names = list(table.column_names)
    if named is not None:
        return _named_column("scores", named, names)
    if {MODEL, PERFORMANCE} <= set(names):
        return PERFORMANCE
    found = usual_columns(names, SCORE_NAMES)
    if len(found) != 1:
        raise DataFileError(
            f"a row per query and model must have one column of scores; found "
            f"{listed(found or names)}. Name it: {read_with('scores=COLUMN')}.",
            parameter="scores",
        )
    return found[0]


def _holds_numbers(column: Any) -> bool:
    if is_string(column.type):
        return parse_numbers(column) is not None
    return is_numeric(column.type)


def _one_column(what: str, named: Named, table: Any, usual: Sequence[str]) -> str | None:
    """The column that all models share: the one named, or the first usual one that holds numbers."""
    if named is None:
        present = usual_columns(table.column_names, usual)
        return next((name for name in present if _holds_numbers(table[name])), None)
    return _named_column(what, named, table.column_names)


def _named_column(what: str, named: Named, names: Sequence[str]) -> str:
    columns = [] if isinstance(named, Mapping) else choose_columns(what, named or (), names)
    if len(columns) != 1:
        rule = f"must be one column where there is a row per query and model; got {named!r}."
        raise DataFileError(parameter=what, rule=rule)
    return columns[0]


def _token_columns(named: str | None, table: Any) -> tuple[str | None, str | None]:
    """Columns of tokens in and out; None where one is missing."""
    if named is None:
        found = [_one_column("tokens", None, table, usual) for usual in TOKEN_NAMES]
        return (found[0], found[1]) if all(found) else (None, None)
    columns = choose_columns("tokens", named, table.column_names)
    if len(columns) != 2:
        raise DataFileError(
            parameter="tokens", rule=f"must be two columns, tokens in and out; got {named!r}."
        )
    return columns[0], columns[1]


def named_rows(table: Any, names: Sequence[str]) -> tuple[Any, IntArray, list[Finding]]:
    """Rows that name a query and a model, and their numbers in the file."""
    for name in names:
        if not is_string(table.schema.field(name).type):
            raise DataFileError(
                f"column {name!r} must hold text; it holds {table.schema.field(name).type}."
            )
    named = np.array(
        [all(row) for row in zip(*(table[name].to_pylist() for name in names), strict=True)]
    )
    kept = table.filter(pa.array(named))
    nameless = table.num_rows - kept.num_rows
    if nameless == table.num_rows:
        raise DataFileError(f"every row lacks {' or '.join(map(repr, names))}.")
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


def _joint_codes(codes: Sequence[IntArray]) -> IntArray:
    """Codes (n,) of the rows of several codes, numbered in the order of their first row."""
    pairs = np.unique(np.stack(codes), axis=1, return_index=True, return_inverse=True)
    first, code = pairs[1], pairs[2].reshape(-1)
    return np.argsort(np.argsort(first))[code]


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
    partial(widen_long, form="llmrouter"),
)
LONG = Format(
    "long",
    "a long table",
    "long (rows of query, model, score)",
    detect_long,
    widen_long,
    rank=1,
)
