"""Long tables: one row per query and model, turned into one row per query. LLMRouter writes such tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
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
    prefixed_columns,
    read_with,
    seconds_per,
    text_notes,
    usual_columns,
)
from mild.data.formats.tokens import is_price_file
from mild.data.queries import Recipe, choose_query, plain_name
from mild.data.tables import (
    choose_columns,
    columns_of_type,
    is_numeric,
    is_scalar,
    is_string,
    names_except,
    numbers,
    parse_numbers,
)
from mild.errors import DataFileError, count_noun, listed

# Names of the columns of LLMRouter.
MODEL = "model_name"
PERFORMANCE = "performance"
#: Columns that tell equal queries apart.
# fmt: off
ID_NAMES = (
    "id", "query_id", "question_id", "prompt_id", "sample_id", "example_id", "instance_id",
    "item_id", "task_id", "qid",
)
# fmt: on
# A column that differs within at most this share of the queries describes the query.
SPREAD = 0.05
# Ids belong to queries if each has answers of at least this many models, on average.
MODELS_PER_ID = 1.5


@dataclass(frozen=True)
class LongColumns:
    """Names of the columns of a long table that hold models, their answers and outcomes; None if absent."""

    model: str
    score: str
    price: str | None = None
    latency: str | None = None
    tokens: tuple[str | None, str | None] = (None, None)  # tokens in, tokens out
    answer: str | None = None  # as the caller named it; None takes one with a usual name

    def renamed(self, names: Mapping[str, str]) -> LongColumns:
        """Return the same columns under the names that ``names`` gives them."""

        def new_name(name: str | None) -> str | None:
            if name is None:
                return None
            return names[name]

        return LongColumns(
            model=names[self.model],
            score=names[self.score],
            price=new_name(self.price),
            latency=new_name(self.latency),
            tokens=(new_name(self.tokens[0]), new_name(self.tokens[1])),
            answer=new_name(self.answer),
        )

    @property
    def outcomes(self) -> tuple[str | None, ...]:
        """Columns that become columns of outcomes; tokens are kept beside them."""
        return self.model, self.score, self.price, self.latency


def detect_llmrouter(schema: Any) -> Layout | None:
    """Return an empty layout if there are LLMRouter's columns of models and scores; None otherwise."""
    if {MODEL, PERFORMANCE} <= set(schema.names):
        return Layout("llmrouter", {})
    return None


def detect_long(schema: Any) -> Layout | None:
    """Return an empty layout if columns of models and scores have usual names; None otherwise."""
    if model_columns(schema) and usual_columns(_scorable(schema), SCORE_NAMES):
        return Layout("long", {})
    return None


def model_columns(schema: Any) -> list[str]:
    """Return the columns of text that have a usual name of models."""
    return usual_columns(columns_of_type(schema, is_string), MODEL_NAMES)


def _scorable(schema: Any) -> list[str]:
    """Return the columns that may hold scores."""
    return columns_of_type(schema, is_scalar)


def widen_long(
    table: Any, options: ReadArguments, form: str = "long"
) -> tuple[Any, Layout, list[Finding]]:
    """Turn a long table into one row per query, whatever its columns are called.

    Rows with the same text, choices and id are one query. An id counts only if several models share it:
    otherwise it is the id of an answer.

    Returns
    -------
    wide : pyarrow.Table
        One row per query, one column per expert and outcome.
    layout : Layout
        Which of these columns hold outcomes.
    findings : list of Finding
        What users should know about the table.
    """
    columns = long_columns(table, options)
    query = choose_query(table.schema, options.query, options.choices)
    if query is None:
        raise DataFileError(
            f"a row per query and model must have a column of the query, by query=COLUMN or named query; "
            f"found {listed(list(table.column_names))}.",
            parameter="query",
        )
    table, row_numbers, findings = complete_rows(table, [*query.columns, columns.model])
    id_columns = _id_columns(table, options, columns.model, form)
    query_of_row = _query_numbers(table, query, id_columns)
    wide, layout, more_findings = widen_rows(table, query_of_row, row_numbers, columns, form)
    if id_columns:
        layout = layout.with_notes(f"queries are told apart by {listed(id_columns)}, too")
    return wide, layout, findings + more_findings


def _id_columns(table: Any, options: ReadArguments, model: str, form: str) -> list[str]:
    """Return the columns that tell equal queries apart: the one named, or in a long table usual ones."""
    if options.id_column is not None:
        return choose_columns("id_column", [options.id_column], table.column_names)
    if form != "long":
        return []
    id_columns = []
    model_codes = _value_codes(table[model])
    for name in usual_columns(table.column_names, ID_NAMES):
        id_codes = _value_codes(table[name])
        n_ids = id_codes.max(initial=0) + 1
        n_answers = _joint_codes([id_codes, model_codes]).max(initial=0) + 1
        # The id of a query has answers of several models; that of an answer has one.
        if n_answers >= MODELS_PER_ID * n_ids:
            id_columns.append(name)
    return id_columns


def _query_numbers(table: Any, query: Recipe, id_columns: Sequence[str]) -> IntArray:
    """Return the number (n_rows,) of the query of each row; equal text, choices and ids are one query."""
    names = [*query.columns, *query.choices, *id_columns]
    return _joint_codes([_value_codes(table[name]) for name in names])


@dataclass(frozen=True, eq=False)
class _Cells:
    """The cells of a wide table, one per query and expert, and the rows of a long table that fill them.

    The cell of query q and expert k has the number ``q * n_experts + k``.
    """

    experts: list[str]  # in the order of their first rows
    query_of_row: IntArray  # (n_rows,) queries are numbered from 0 without gaps
    cell_of_row: IntArray  # (n_rows,)
    n_queries: int

    @classmethod
    def from_rows(cls, models: Any, query_of_row: IntArray) -> _Cells:
        """Return the cells of a long table, from its column of models and the query of each row."""
        names, expert_of_row = _codes(models.cast(pa.large_string()))
        cell_of_row = query_of_row * len(names) + expert_of_row
        n_queries = int(query_of_row.max(initial=-1)) + 1
        return cls(names.to_pylist(), query_of_row, cell_of_row, n_queries)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of queries and of experts."""
        return self.n_queries, len(self.experts)

    def row_counts(self) -> IntArray:
        """Return the number of rows of each cell that has any."""
        return np.unique(self.cell_of_row, return_counts=True)[1]

    @cached_property
    def first_rows_of_queries(self) -> IntArray:
        """First row (n_queries,) of each query."""
        return np.unique(self.query_of_row, return_index=True)[1]

    @cached_property
    def first_rows(self) -> IntArray:
        """First row (n_queries, n_experts) of each cell; -1 where it has none."""
        filled, first = np.unique(self.cell_of_row, return_index=True)
        rows = np.full(self.n_queries * len(self.experts), -1)
        rows[filled] = first
        return rows.reshape(self.shape)

    def means(self, values: FloatArray) -> FloatArray:
        """Average values (n_rows,) within each cell: (n_queries, n_experts), NaN where none is known."""
        size = self.n_queries * len(self.experts)
        is_known = ~np.isnan(values)
        totals = np.bincount(self.cell_of_row[is_known], values[is_known], size)
        counts = np.bincount(self.cell_of_row[is_known], minlength=size)
        means = np.divide(totals, counts, out=np.full(size, np.nan), where=counts > 0)
        return means.reshape(self.shape)


def widen_rows(
    table: Any, query_of_row: IntArray, row_numbers: IntArray, columns: LongColumns, form: str
) -> tuple[Any, Layout, list[Finding]]:
    """Turn a table with one row per query and model into a table with one row per query.

    If a query and a model have several rows, their outcomes are averaged. Other columns describe either
    the query or the model's answer, see ``_widen_other_columns``.

    Parameters
    ----------
    table : pyarrow.Table of n_rows rows
    query_of_row : ndarray of shape (n_rows,)
        Row of the result into which each row goes; numbered from 0 without gaps.
    row_numbers : ndarray of shape (n_rows,)
        Numbers of the rows in the file, for messages.
    columns : LongColumns
        The columns of models, scores, prices, latencies, tokens and answers.
    form : str
        Name of the format, for the layout.

    Returns
    -------
    wide : pyarrow.Table of n_queries rows
        Experts are in the order of their first row.
    layout : Layout
        The columns of ``wide`` that hold outcomes.
    findings : list of Finding
        What users should know about repeated rows and differing values.
    """
    cells = _Cells.from_rows(table[columns.model], query_of_row)
    scores = numbers(columns.score, table[columns.score], truths=True).astype(np.float64)
    check_range(
        "scores", scores[:, None], [columns.score], high=1, remedy=RESCALE, row_numbers=row_numbers
    )
    findings = _repeated_cells(cells, scores, columns.score)
    wide, answer_column, more_findings = _widen_other_columns(table, cells, columns)
    outcomes = _outcomes_of_rows(table, columns, scores)
    for prefix, values in outcomes.items():
        means = cells.means(values)
        for index, expert in enumerate(cells.experts):
            # from_pandas turns NaN into null.
            wide[prefix + expert] = pa.array(means[:, index], from_pandas=True)
    layout = _wide_layout(form, cells.experts, list(outcomes))
    layout = layout.with_notes(*_notes(table, columns, answer_column))
    return pa.table(wide), layout, findings + more_findings


def _widen_other_columns(
    table: Any, cells: _Cells, columns: LongColumns
) -> tuple[dict[str, Any], str | None, list[Finding]]:
    """Widen the columns that hold no outcomes.

    A column with several values within more than 5 % of the queries describes the answers: the column of
    the answers themselves becomes ``answer__<model>``, any other ``<column>__<model>``. The rest describe
    the query and keep the value of its first row; a finding says where they have several.

    Returns
    -------
    wide : dict of str to pyarrow.Array
        Columns of one row per query, by name.
    answer_column : str or None
        The column that holds the answers; None if there is none.
    findings : list of Finding
    """
    names = names_except(table.column_names, columns.outcomes)
    n_differing = {}
    for name in names:
        n_differing[name] = _n_differing(_value_codes(table[name]), cells.query_of_row)
    describe_answers = [name for name in names if n_differing[name] > SPREAD * cells.n_queries]
    answer_column = columns.answer or _usual_answer(table, describe_answers)
    wide: dict[str, Any] = {}
    findings = []
    for name in names:
        if name == answer_column:
            wide |= _columns_per_expert(table[name], cells, ANSWER)
        elif name in describe_answers:
            wide |= _columns_per_expert(table[name], cells, f"{name}__")
        else:
            wide[name] = table[name].take(cells.first_rows_of_queries)
            if n_differing[name]:
                findings.append(_several_values(name, n_differing[name]))
    return wide, answer_column, findings


def _repeated_cells(cells: _Cells, scores: FloatArray, score_column: str) -> list[Finding]:
    """Report that queries and models have several rows, and in how many cells their scores differ."""
    n_repeated = int((cells.row_counts() > 1).sum())
    if n_repeated == 0:
        return []
    is_known = ~np.isnan(scores)
    score_codes = np.unique(scores[is_known], return_inverse=True)[1]
    n_conflicts = _n_differing(score_codes, cells.cell_of_row[is_known])
    verbs = "appear more than once and are averaged"
    if n_repeated == 1:
        verbs = "appears more than once and is averaged"
    sentence = (
        f"{count_noun(n_repeated, 'pair')} of query and model {verbs}; "
        f"{count_noun(n_conflicts, 'of them differs', 'of them differ')} in {score_column}."
    )
    if n_conflicts:
        return [Finding("conflicts", n_conflicts, sentence)]
    return [Finding("repeats", n_repeated, sentence)]


def _several_values(name: str, n_queries: int) -> Finding:
    """Report that a column which describes queries has several values within some of them."""
    sentence = (
        f"{count_noun(n_queries, 'query has', 'queries have')} several values of {name!r}; "
        f"the value of the first row is kept."
    )
    return Finding("differing_column", n_queries, sentence)


def _usual_answer(table: Any, describe_answers: Sequence[str]) -> str | None:
    """Return the first column with a usual name of answers; ``answer`` only if it varies within queries."""
    for name in answer_columns(table):
        # An ``answer`` that is the same for all models is the right answer to the query.
        if plain_name(name) != "answer" or name in describe_answers:
            return name
    return None


def _columns_per_expert(column: Any, cells: _Cells, prefix: str) -> dict[str, Any]:
    """Divide a column of a long table into one column per expert, with the first value of each cell."""
    by_name = {}
    for index, expert in enumerate(cells.experts):
        rows = cells.first_rows[:, index]
        by_name[prefix + expert] = column.take(pa.array(rows, mask=rows < 0))
    return by_name


def _outcomes_of_rows(
    table: Any, columns: LongColumns, scores: FloatArray
) -> dict[str, FloatArray]:
    """Return the outcomes (n_rows,) of a long table, by the prefix of their columns in the wide format."""
    outcomes = {SCORE: scores}
    for prefix, column in zip((TOKENS_IN, TOKENS_OUT), columns.tokens, strict=True):
        if column:
            outcomes[prefix] = numbers(column, table[column])
    if columns.price:
        outcomes[PRICE] = numbers(columns.price, table[columns.price])
    if columns.latency:
        milliseconds = seconds_per(columns.latency) * 1e3
        outcomes[LATENCY] = numbers(columns.latency, table[columns.latency]) * milliseconds
    return outcomes


def _wide_layout(form: str, experts: Sequence[str], prefixes: Sequence[str]) -> Layout:
    """Return the layout of columns ``<prefix><expert>``; every expert has one of each prefix."""

    def by_expert(prefix: str) -> dict[str, str]:
        if prefix not in prefixes:
            return {}
        return prefixed_columns(prefix, experts)

    return Layout(form, by_expert(SCORE), by_expert(PRICE), by_expert(LATENCY))


def _notes(table: Any, columns: LongColumns, answer: str | None) -> list[str]:
    """Say how the columns of a long table were read."""
    notes = [f"models are column {columns.model!r}, scores {columns.score!r}"]
    notes += text_notes(table, [columns.score])
    if columns.price:
        notes.append(f"prices are column {columns.price!r}")
    if columns.latency:
        unit = "seconds"
        if seconds_per(columns.latency) < 1:
            unit = "milliseconds"
        notes.append(f"latencies are column {columns.latency!r}, in {unit}")
    if answer:
        notes.append(f"answers are column {answer!r}")
    return notes


def answer_columns(table: Any) -> list[str]:
    """Return the columns of texts or objects, such as tool calls, that have a usual name of answers."""
    names = []
    for field in table.schema:
        kind = field.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if is_text or pa.types.is_nested(kind):
            names.append(field.name)
    return usual_columns(names, ANSWER_NAMES)


def long_columns(table: Any, options: ReadArguments) -> LongColumns:
    """Choose the columns of a long table: those that the caller named, else those with usual names."""
    named_prices = options.prices
    if is_price_file(options.prices, table.column_names):
        named_prices = None
    answer = None
    if options.answer_column is not None:
        answer = choose_columns("answer_column", [options.answer_column], table.column_names)[0]
    return LongColumns(
        model=_model_column(table, options.model_column),
        score=_score_column(table, options.scores),
        price=_amount_column("prices", named_prices, table, PRICE_NAMES),
        latency=_amount_column("latencies", options.latencies, table, LATENCY_NAMES),
        tokens=_token_columns(options.tokens, table),
        answer=answer,
    )


def _model_column(table: Any, named: str | None) -> str:
    """Return the column of the models: the one named, or the only one with a usual name."""
    names = list(table.column_names)
    if named is not None:
        return choose_columns("model_column", [named], names)[0]
    usual = usual_columns(names, MODEL_NAMES)
    if MODEL in usual and PERFORMANCE in names:
        return MODEL
    if len(usual) != 1:
        got = f"found {listed(usual or names)}"
        raise DataFileError(
            f"a row per query and model must have one column of models; {got}. Name it: "
            f"{read_with('model_column=COLUMN')}.",
            parameter="model_column",
        )
    return usual[0]


def _score_column(table: Any, named: Named) -> str:
    """Return the column of the scores: the one named, or the only one with a usual name."""
    names = list(table.column_names)
    if named is not None:
        return _named_column("scores", named, names)
    if {MODEL, PERFORMANCE} <= set(names):
        return PERFORMANCE
    usual = usual_columns(names, SCORE_NAMES)
    if len(usual) != 1:
        raise DataFileError(
            f"a row per query and model must have one column of scores; found "
            f"{listed(usual or names)}. Name it: {read_with('scores=COLUMN')}.",
            parameter="scores",
        )
    return usual[0]


def _holds_numbers(column: Any) -> bool:
    """Return whether a column holds numbers, perhaps as text."""
    if is_string(column.type):
        return parse_numbers(column) is not None
    return is_numeric(column.type)


def _amount_column(
    parameter: str, named: Named, table: Any, usual_names: Sequence[str]
) -> str | None:
    """Return the column of an outcome: the one named, or the first usual one that holds numbers."""
    if named is not None:
        return _named_column(parameter, named, table.column_names)
    for name in usual_columns(table.column_names, usual_names):
        if _holds_numbers(table[name]):
            return name
    return None


def _named_column(parameter: str, named: Named, names: Sequence[str]) -> str:
    """Return the column that the caller named, which must be a single one."""
    columns = []
    if not isinstance(named, Mapping):
        columns = choose_columns(parameter, named or (), names)
    if len(columns) != 1:
        rule = f"must be one column where there is a row per query and model; got {named!r}."
        raise DataFileError(parameter=parameter, rule=rule)
    return columns[0]


def _token_columns(named: str | None, table: Any) -> tuple[str | None, str | None]:
    """Return the columns of tokens in and out; None for both if one is missing."""
    if named is None:
        tokens_in = _amount_column("tokens", None, table, TOKEN_NAMES[0])
        tokens_out = _amount_column("tokens", None, table, TOKEN_NAMES[1])
        if tokens_in is None or tokens_out is None:
            return None, None
        return tokens_in, tokens_out
    columns = choose_columns("tokens", named, table.column_names)
    if len(columns) != 2:
        raise DataFileError(
            parameter="tokens", rule=f"must be two columns, tokens in and out; got {named!r}."
        )
    return columns[0], columns[1]


def complete_rows(table: Any, names: Sequence[str]) -> tuple[Any, IntArray, list[Finding]]:
    """Keep the rows with a non-empty text in each of these columns, such as the query and the model.

    Returns
    -------
    table : pyarrow.Table
        These rows.
    row_numbers : ndarray of int
        Their numbers in the given table, from 0.
    findings : list of Finding
        How many rows were dropped.
    """
    is_complete = np.ones(table.num_rows, dtype=bool)
    for name in names:
        kind = table.schema.field(name).type
        if not is_string(kind):
            raise DataFileError(f"column {name!r} must hold text; it holds {kind}.")
        is_complete &= np.array([bool(text) for text in table[name].to_pylist()], dtype=bool)
    n_incomplete = int((~is_complete).sum())
    if n_incomplete == table.num_rows:
        raise DataFileError(f"every row lacks {' or '.join(map(repr, names))}.")
    findings = []
    if n_incomplete:
        verb = "were"
        if n_incomplete == 1:
            verb = "was"
        rows = count_noun(n_incomplete, "row lacks", "rows lack")
        sentence = f"{rows} a query or a model and {verb} dropped."
        findings.append(Finding("nameless", n_incomplete, sentence))
    return table.filter(pa.array(is_complete)), np.flatnonzero(is_complete), findings


def _codes(column: Any) -> tuple[Any, IntArray]:
    """Return the distinct values of a column in the order of their first row, and the code of each row.

    The code of a row is the index of its value among the distinct ones.
    """
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return coded.dictionary, coded.indices.to_numpy().astype(np.intp)


def _joint_codes(codes: Sequence[IntArray]) -> IntArray:
    """Number the combinations of several codes, each (n_rows,), in the order of their first row."""
    _, first_rows, sorted_codes = np.unique(
        np.stack(codes), axis=1, return_index=True, return_inverse=True
    )
    # np.unique numbers the combinations by their values; the rank of its first row renumbers each.
    order_of_appearance = np.argsort(np.argsort(first_rows))
    return order_of_appearance[sorted_codes.reshape(-1)]


def _value_codes(column: Any) -> IntArray:
    """Return a code (n_rows,) for the value of each row; equal values have equal codes."""
    try:
        return _codes(column)[1]
    except pa.ArrowException:
        # Arrow cannot encode lists and structures.
        texts = np.array([repr(value) for value in column.to_pylist()])
        return np.unique(texts, return_inverse=True)[1]


def _n_differing(codes: IntArray, groups: IntArray) -> int:
    """Count the groups in which rows have different codes; both arrays are (n_rows,)."""
    n_codes = codes.max(initial=0) + 1
    # A number for each (group, value) that occurs; a group with several of them differs.
    pairs = np.unique(groups * n_codes + codes)
    return int((np.bincount(pairs // n_codes) > 1).sum())


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
