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
from mild.errors import DataFileError, counted, listed

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
        """The same columns by their new names."""

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
    """An empty layout if there are a model's name and its performance."""
    if {MODEL, PERFORMANCE} <= set(schema.names):
        return Layout("llmrouter", {})
    return None


def detect_long(schema: Any) -> Layout | None:
    """An empty layout if there are columns of models and of scores with usual names."""
    if model_columns(schema) and usual_columns(_scorable(schema), SCORE_NAMES):
        return Layout("long", {})
    return None


def model_columns(schema: Any) -> list[str]:
    """Columns of text that are named as those of models."""
    return usual_columns(columns_of_type(schema, is_string), MODEL_NAMES)


def _scorable(schema: Any) -> list[str]:
    """Columns that may hold scores."""
    return columns_of_type(schema, is_scalar)


def widen_long(
    table: Any, options: ReadArguments, form: str = "long"
) -> tuple[Any, Layout, list[Finding]]:
    """The table in the wide format, its layout, and findings.

    Rows with the same query, choices and id are one query. A column of ids that differs in every row
    numbers the rows and is not the id of a query.
    """
    columns = long_columns(table, options)
    query = choose_query(table.schema, options.query, options.choices)
    if query is None:
        raise DataFileError(
            f"a row per query and model must have a column of the query, by query=COLUMN or named query; "
            f"found {listed(list(table.column_names))}.",
            parameter="query",
        )
    table, row_numbers, findings = named_rows(table, [*query.columns, columns.model])
    id_columns = _id_columns(table, options, columns.model, form)
    queries = _query_numbers(table, query, id_columns)
    table, layout, more_findings = widen_rows(table, queries, row_numbers, columns, form)
    if id_columns:
        layout = layout.with_notes(f"queries are told apart by {listed(id_columns)}, too")
    return table, layout, findings + more_findings


def _id_columns(table: Any, options: ReadArguments, model: str, form: str) -> list[str]:
    """Columns that tell equal queries apart: the one named, or in a long table the usual ones."""
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
    """Number (n_rows,) of the query of each row: rows with the same text, choices and ids are one query."""
    names = [*query.columns, *query.choices, *id_columns]
    return _joint_codes([_value_codes(table[name]) for name in names])


@dataclass(frozen=True, eq=False)
class _Cells:
    """The cells of a wide table, one per query and expert, and the rows of a long table that fill them.

    The cell of query q and expert k has the number ``q * n_experts + k``.
    """

    experts: list[str]  # in the order of their first rows
    queries: IntArray  # (n_rows,) query of each row, numbered without gaps
    numbers: IntArray  # (n_rows,) cell of each row
    n_queries: int

    @classmethod
    def of(cls, models: Any, queries: IntArray) -> _Cells:
        """Cells of a column of models, and of the query of each row."""
        names, expert_of_row = _codes(models.cast(pa.large_string()))
        numbers = queries * len(names) + expert_of_row
        return cls(names.to_pylist(), queries, numbers, int(queries.max(initial=-1)) + 1)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of queries and of experts."""
        return self.n_queries, len(self.experts)

    def row_counts(self) -> IntArray:
        """Number of rows of each cell that has some."""
        return np.unique(self.numbers, return_counts=True)[1]

    @cached_property
    def first_rows_of_queries(self) -> IntArray:
        """First row (n_queries,) of each query."""
        return np.unique(self.queries, return_index=True)[1]

    @cached_property
    def first_rows(self) -> IntArray:
        """First row (n_queries, n_experts) of each cell; -1 where it has none."""
        filled, first = np.unique(self.numbers, return_index=True)
        rows = np.full(self.n_queries * len(self.experts), -1)
        rows[filled] = first
        return rows.reshape(self.shape)

    def means(self, values: FloatArray) -> FloatArray:
        """Mean (n_queries, n_experts) of the known values of each cell; NaN where nothing is known."""
        size = self.n_queries * len(self.experts)
        is_known = ~np.isnan(values)
        totals = np.bincount(self.numbers[is_known], values[is_known], size)
        counts = np.bincount(self.numbers[is_known], minlength=size)
        means = np.divide(totals, counts, out=np.full(size, np.nan), where=counts > 0)
        return means.reshape(self.shape)


def widen_rows(
    table: Any, queries: IntArray, row_numbers: IntArray, columns: LongColumns, form: str
) -> tuple[Any, Layout, list[Finding]]:
    """A row for each of the numbers ``queries``, which say to what query a row of the table belongs.

    Models and queries keep the order of their first row. Where a (query, model) appears more than once
    its mean counts. A column that differs within more than 5 % of the queries describes answers and becomes
    ``<column>__<model>``; others describe queries and keep the value of the first row. Answers become
    ``answer__<model>``.
    """
    cells = _Cells.of(table[columns.model], queries)
    scores = numbers(columns.score, table[columns.score], truths=True).astype(np.float64)
    check_range("scores", scores[:, None], [columns.score], 1, RESCALE, row_numbers)
    findings = _repeated_cells(cells, scores, columns.score)
    other_columns = names_except(table.column_names, columns.outcomes)
    n_differing = {}
    for name in other_columns:
        n_differing[name] = _differing(_value_codes(table[name]), queries)
    of_answers = [name for name in other_columns if n_differing[name] > SPREAD * cells.n_queries]
    answer = columns.answer or _usual_answer(table, of_answers)
    wide: dict[str, Any] = {}
    for name in other_columns:
        if name == answer:
            wide |= _columns_per_expert(table[name], cells, ANSWER)
        elif name in of_answers:
            wide |= _columns_per_expert(table[name], cells, f"{name}__")
        else:
            wide[name] = table[name].take(cells.first_rows_of_queries)
            if n_differing[name]:
                findings.append(_several_values(name, n_differing[name]))
    outcomes = _outcomes_of_rows(table, columns, scores)
    for prefix, values in outcomes.items():
        means = cells.means(values)
        for index, expert in enumerate(cells.experts):
            wide[prefix + expert] = pa.array(means[:, index], from_pandas=True)
    layout = _wide_layout(form, cells.experts, list(outcomes))
    layout = layout.with_notes(*_notes(table, columns, answer))
    return pa.table(wide), layout, findings


def _repeated_cells(cells: _Cells, scores: FloatArray, score_column: str) -> list[Finding]:
    """The finding that a query and a model have several rows, and how many of them conflict."""
    n_repeated = int((cells.row_counts() > 1).sum())
    if n_repeated == 0:
        return []
    is_known = ~np.isnan(scores)
    score_codes = np.unique(scores[is_known], return_inverse=True)[1]
    n_conflicts = _differing(score_codes, cells.numbers[is_known])
    appear = "appear"
    are = "are"
    if n_repeated == 1:
        appear = "appears"
        are = "is"
    words = (
        f"{counted(n_repeated, 'pair')} of query and model {appear} more than once and {are} averaged; "
        f"{counted(n_conflicts, 'of them differs', 'of them differ')} in {score_column}."
    )
    if n_conflicts:
        return [Finding("conflicts", n_conflicts, words)]
    return [Finding("repeats", n_repeated, words)]


def _several_values(name: str, n_queries: int) -> Finding:
    """The finding that a column of the queries has several values within some of them."""
    words = (
        f"{counted(n_queries, 'query has', 'queries have')} several values of {name!r}; "
        f"the value of the first row is kept."
    )
    return Finding("differing_column", n_queries, words)


def _usual_answer(table: Any, of_answers: Sequence[str]) -> str | None:
    """The first column named as that of answers; ``answer`` only if it differs within queries."""
    for name in answer_columns(table):
        # Where all models share it, it is the right answer of the query.
        if plain_name(name) != "answer" or name in of_answers:
            return name
    return None


def _columns_per_expert(column: Any, cells: _Cells, prefix: str) -> dict[str, Any]:
    """A column of a long table as one column per expert: the values of the first row of each cell."""
    by_name = {}
    for index, expert in enumerate(cells.experts):
        rows = cells.first_rows[:, index]
        by_name[prefix + expert] = column.take(pa.array(rows, mask=rows < 0))
    return by_name


def _outcomes_of_rows(
    table: Any, columns: LongColumns, scores: FloatArray
) -> dict[str, FloatArray]:
    """Prefix of the columns in the wide format -> numbers (n_rows,) of a long table."""
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
    """The columns of the outcomes with these prefixes; every expert has one."""

    def by_expert(prefix: str) -> dict[str, str]:
        if prefix not in prefixes:
            return {}
        return {expert: prefix + expert for expert in experts}

    return Layout(form, by_expert(SCORE), by_expert(PRICE), by_expert(LATENCY))


def _notes(table: Any, columns: LongColumns, answer: str | None) -> list[str]:
    """How the columns of a long table were read."""
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
    """Texts and objects, such as tool calls, that are named as answers."""
    names = []
    for field in table.schema:
        kind = field.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if is_text or pa.types.is_nested(kind):
            names.append(field.name)
    return usual_columns(names, ANSWER_NAMES)


def long_columns(table: Any, options: ReadArguments) -> LongColumns:
    """The columns that the caller named, and the usual ones."""
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
    """The column of the models: the one named, or the only usual one."""
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
    """The column of the scores: the one named, or the only usual one."""
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
    """Whether a column holds numbers, perhaps as text."""
    if is_string(column.type):
        return parse_numbers(column) is not None
    return is_numeric(column.type)


def _amount_column(
    parameter: str, named: Named, table: Any, usual_names: Sequence[str]
) -> str | None:
    """The column that all models share: the one named, or the first usual one that holds numbers."""
    if named is not None:
        return _named_column(parameter, named, table.column_names)
    for name in usual_columns(table.column_names, usual_names):
        if _holds_numbers(table[name]):
            return name
    return None


def _named_column(parameter: str, named: Named, names: Sequence[str]) -> str:
    """The one column that a caller named."""
    columns = []
    if not isinstance(named, Mapping):
        columns = choose_columns(parameter, named or (), names)
    if len(columns) != 1:
        rule = f"must be one column where there is a row per query and model; got {named!r}."
        raise DataFileError(parameter=parameter, rule=rule)
    return columns[0]


def _token_columns(named: str | None, table: Any) -> tuple[str | None, str | None]:
    """Columns of tokens in and out; None where one is missing."""
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


def named_rows(table: Any, names: Sequence[str]) -> tuple[Any, IntArray, list[Finding]]:
    """Rows that name a query and a model, and their numbers in the file."""
    is_named = np.ones(table.num_rows, dtype=bool)
    for name in names:
        kind = table.schema.field(name).type
        if not is_string(kind):
            raise DataFileError(f"column {name!r} must hold text; it holds {kind}.")
        is_named &= np.array([bool(text) for text in table[name].to_pylist()], dtype=bool)
    n_nameless = int((~is_named).sum())
    if n_nameless == table.num_rows:
        raise DataFileError(f"every row lacks {' or '.join(map(repr, names))}.")
    findings = []
    if n_nameless:
        was = "were"
        if n_nameless == 1:
            was = "was"
        words = (
            f"{counted(n_nameless, 'row lacks', 'rows lack')} a query or a model and {was} dropped."
        )
        findings.append(Finding("nameless", n_nameless, words))
    return table.filter(pa.array(is_named)), np.flatnonzero(is_named), findings


def _codes(column: Any) -> tuple[Any, IntArray]:
    """Distinct values in the order of their first row, and the code of each row."""
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return coded.dictionary, coded.indices.to_numpy().astype(np.intp)


def _joint_codes(codes: Sequence[IntArray]) -> IntArray:
    """Codes (n,) of the rows of several codes, numbered in the order of their first row."""
    _, first_rows, sorted_codes = np.unique(
        np.stack(codes), axis=1, return_index=True, return_inverse=True
    )
    # np.unique numbers the combinations by their values; the rank of its first row renumbers each.
    order_of_appearance = np.argsort(np.argsort(first_rows))
    return order_of_appearance[sorted_codes.reshape(-1)]


def _value_codes(column: Any) -> IntArray:
    """Code (n,) of the value of each row, from 0."""
    try:
        return _codes(column)[1]
    except pa.ArrowException:
        # Arrow cannot encode lists and structures.
        texts = np.array([repr(value) for value in column.to_pylist()])
        return np.unique(texts, return_inverse=True)[1]


def _differing(codes: IntArray, groups: IntArray) -> int:
    """Number of groups with more than one value."""
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
