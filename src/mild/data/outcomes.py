"""Tables of outcomes: queries, several experts, the score of each, and what each cost."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from mild.artifact.expert_names import match_experts
from mild.artifact.frames import library_of
from mild.core.answers import KINDS
from mild.core.arrays import BoolArray, FloatArray, IntArray, invalid
from mild.data.cost_terms import LARGEST
from mild.data.data_quality import (
    RESCALE,
    Finding,
    check_range,
    examine,
    unasked_rows,
)
from mild.data.expert_order import name_order
from mild.data.formats import FORMATS, check_options, read_format
from mild.data.formats.base import (
    ANSWER,
    LOGPROB,
    Layout,
    Named,
    ReadArguments,
    read_with,
    seconds_per,
)
from mild.data.outcome_table import Outcomes, without_answers
from mild.data.queries import Recipe, choose_query, no_text, query_texts, usual_numbers
from mild.data.selection import Where, matching_rows
from mild.data.tables import names_except, naming, numbers, read_table, text_columns
from mild.data.vectors import find_vectors, read_vectors
from mild.errors import DataFileError, check_arguments, count_noun, listed

# If no two answers agree in this many rows with several answers, answer_kind is probably wrong.
MIN_ROWS_TO_AGREE = 20
# Arguments that say nothing.
DEFAULTS = asdict(ReadArguments())
# What to do about prices and latencies out of range.
LEAVE_OUT = "Leave out what is unknown."


@check_arguments
def read_outcomes(
    source: Any,
    *,
    form: str | None = None,
    query: str | Sequence[str] | None = None,
    experts: str | Sequence[str] | None = None,
    scores: Named = None,
    prices: Named = None,
    latencies: Named = None,
    vectors: str | None = None,
    choices: bool = True,
    tokens: str | None = None,
    where: Where = None,
    model_column: str | None = None,
    answer_column: str | None = None,
    answer_kind: str | None = None,
) -> Outcomes:
    """Read a table of outcomes: for each query the score that each expert's answer got, and its cost.

    The format is detected from the names and types of the columns; arguments name columns that do not
    have one of the usual names. An expert that was not asked has no score.

    Parameters
    ----------
    source : str, path-like, list of path-like or frame
        Path of a .parquet, .csv, .tsv, .json, .jsonl, .ndjson, .feather or .xlsx file, also with .gz; a
        folder, a pattern or a list of files, whose rows are joined; "-" for the standard input; or a
        frame: anything with ``__arrow_c_stream__`` (pandas, polars, DuckDB, pyarrow).
    form : str or None, default=None
        Format of the table: "wide", "endings", "long", "records", "nested", "routerbench", "routellm",
        "llmrouter", "ledger" or "plain"; None detects it.

        - "wide": ``correct__<model>`` (0, 1) or ``score__<model>`` ([0, 1]; preferred where both are
          there), ``cost__<model>`` in dollars, ``latency_ms__<model>``
        - "routerbench": ``<model>`` holds the score, ``<model>|total_cost`` the dollars
        - "endings": ``<model>_correct`` or ``<model>_score``, ``<model>_cost``, ``<model>_latency_ms``
        - "long": a row per query and model, with columns of the query, ``model``, ``score``, perhaps
          ``cost``, ``latency`` and ``response``, by these or other usual names
        - "records": ``responses: [{model, score, cost}]``, ``models: {model: {score, cost}}``, or a field
          ``{score, cost}`` per model
        - "routellm": a query, and every true-or-false column is a model
        - "llmrouter": a row per query and model, with ``model_name`` and ``performance`` and perhaps
          ``cost`` and ``response_time``
        - "nested": ``scores: {model: score}`` (RouterDC), or lists ``llm_name_list`` and ``perf_list``
        - "ledger": what ``mild ledger export`` writes
        - "plain": the columns named by ``scores``

        Scores are numbers in [0, 1], truth values, or words: yes and no, right and wrong, pass and fail.
    query : str, list of str or None, default=None
        Column of the query, or several to be joined by line breaks; None takes the first of
        prompt, question, query, text, instruction, input that is text.
    experts : str, list of str or None, default=None
        Experts to keep, by name, short name or shell pattern.
    scores : str, list of str, dict of str to str or None, default=None
        Score columns, instead of the usual ones: names and shell patterns separated by commas
        (``"acc_*"``), or ``"large=acc_large,small=acc_small"``; in Python also a list, or expert -> column.
    prices : str, list of str, dict of str to str or None, default=None
        Columns of dollars per query, given like ``scores``; or a file of prices per token (.json,
        .toml, .csv), or "litellm" for the table of that package.
    latencies : str, list of str, dict of str to str or None, default=None
        Columns of seconds per query, or of milliseconds if ``ms`` is a part of the column's name,
        given like ``scores``.
    vectors : str or None, default=None
        Column of lists of numbers, or of float32 as fixed-size binary; None takes embedding,
        embeddings, vector or vectors.
    choices : bool, default=True
        Whether to append answer choices to a column ``question``, one per line as ``A. ...``: a router
        must see what the experts saw. They are in columns A, B, C, ..., or in options or choices.
    tokens : str or None, default=None
        Columns of input and output tokens for token prices: ``"in_*,out_*"`` with ``*`` for the expert;
        None takes ``tokens_in__<model>`` and ``tokens_out__<model>``.
    where : str, list of str or None, default=None
        Conditions ``"column=value"`` that rows must meet; a value may be a pattern. Of several conditions
        on one column, at least one must hold.
    model_column : str or None, default=None
        Column of the model, where there is a row per query and model; None takes a usual one.
        There, ``scores``, ``prices`` and ``latencies`` name one column each. If a pair of query and model
        appears more than once, its outcomes are averaged, and a finding says so.
    answer_column : str or None, default=None
        Column of the answer in such a table, which becomes columns ``answer__<model>``.
    answer_kind : str or None, default=None
        How the answers in columns ``answer__<model>`` are compared: "number", "choice", "json",
        "code", "short_text" or "free_text"; None detects it.

    Returns
    -------
    Outcomes
        The rows in which at least one expert was asked; ``source`` itself if already an Outcomes, which
        takes no other argument.

    Raises
    ------
    DataFileError
        If the source cannot be read, no format fits or several do, there is no query, scores are outside
        [0, 1], or prices are negative.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["2 + 2?", "Who wrote Faust?"],
    ...     "correct__small": [1, 0],
    ...     "correct__large": [1, None],
    ... }))
    >>> table.layout
    "read as wide: 2 experts, 2 queries; the query is column 'prompt'."
    >>> table.scores
    array([[ 1.,  1.],
           [nan,  0.]])
    """
    options = ReadArguments(
        form=form,
        query=query,
        experts=experts,
        scores=scores,
        prices=prices,
        latencies=latencies,
        vectors=vectors,
        choices=choices,
        tokens=tokens,
        where=where,
        model_column=model_column,
        answer_column=answer_column,
        answer_kind=answer_kind,
    )
    return read_with_options(source, options)


def read_with_options(source: Any, options: ReadArguments) -> Outcomes:
    """Read a table as ``read_outcomes`` does, but with all arguments in one object."""
    check_options(options)
    if isinstance(source, Outcomes):
        given = [name for name, value in asdict(options).items() if value != DEFAULTS[name]]
        if given:
            raise invalid(
                given[0],
                "is for reading a file or a frame; got a table that has been read. Choose its rows with "
                "table[rows], and its experts with table.select.",
            )
        return source
    if isinstance(source, (str, os.PathLike)):
        with naming(Path(source)):
            table = build_outcomes(read_table(source, options.texts()), options)
    else:
        table = build_outcomes(read_table(source, options.texts()), options)
    return replace(table, library=library_of(source))


@dataclass(frozen=True, eq=False)
class _WideRows:
    """The selected rows of a source, one per query, before any number is read from them."""

    table: Any  # Arrow table of all columns
    layout: Layout  # which column holds which outcome of which expert
    row_numbers: IntArray | None  # (n_rows,) numbers in the file, from 0; None if 0 to n_rows - 1
    findings: list[Finding]  # about how the source was turned into one row per query


@dataclass(frozen=True, eq=False)
class _ScoredRows:
    """Rows with at least one score, and where they are in their file."""

    table: Any  # Arrow table of all columns
    layout: Layout  # columns of the experts that were asked at least once
    scores: FloatArray  # (n_rows, n_experts), NaN where an expert was not asked
    row_numbers: IntArray | None  # (n_rows,) numbers in the file, from 0; None if 0 to n_rows - 1
    findings: list[Finding]  # about experts and rows that were left out

    @property
    def expert_names(self) -> list[str]:
        return list(self.layout.scores)

    def take(self, mask: BoolArray) -> _ScoredRows:
        """Return the rows that a mask (n_rows,) selects."""
        row_numbers = np.flatnonzero(mask)
        if self.row_numbers is not None:
            row_numbers = self.row_numbers[mask]
        return replace(
            self, table=self.table.filter(mask), scores=self.scores[mask], row_numbers=row_numbers
        )


@dataclass(frozen=True, eq=False)
class _RouterInputs:
    """What a router will read of each row: the text of the query, a vector, or both."""

    queries: list[str]  # n_rows texts; all empty if there is no query
    vectors: FloatArray | None  # (n_rows, n_features)
    recipe: Recipe  # the columns that texts and vectors come from
    has_text: bool  # whether texts were read

    @property
    def single_query_column(self) -> str | None:
        """The column whose values are the queries, unchanged; None if several columns are joined."""
        if len(self.recipe.columns) == 1 and not self.recipe.choices:
            return self.recipe.columns[0]
        return None


def build_outcomes(table: Any, options: ReadArguments) -> Outcomes:
    """Build an Outcomes from an Arrow table in one of the known formats.

    Parameters
    ----------
    table : pyarrow.Table
        All rows and columns of the source.
    options : ReadArguments
        The arguments of ``read_outcomes``.

    Returns
    -------
    Outcomes
        The rows in which at least one expert was asked.
    """
    source = _select_and_widen(table, options)
    _check_query_is_no_outcome(source, options)
    rows = _read_scores(source, _choose_experts(source.layout, options))
    inputs = _read_router_inputs(rows, options, source.layout.outcome_columns)
    prices = _read_prices(rows)
    latencies = _read_latencies(rows)
    quality_findings = examine(
        inputs.queries, rows.expert_names, rows.scores, prices, inputs.has_text, rows.row_numbers
    )
    outcomes = Outcomes(
        queries=inputs.queries,
        experts=rows.expert_names,
        scores=rows.scores,
        prices=prices,
        latencies=latencies,
        columns=_other_columns(source, rows, inputs),
        vectors=inputs.vectors,
        form=rows.layout.form,
        layout=explanation(rows.layout, len(rows.scores), inputs.recipe),
        findings=(*source.findings, *rows.findings, *quality_findings),
        recipe=inputs.recipe,
        row_numbers=rows.row_numbers,
        answer_kind=options.answer_kind,
    )
    return _with_kind_of_answers(outcomes, options.answer_kind is None)


def _select_and_widen(table: Any, options: ReadArguments) -> _WideRows:
    """Select rows, find out the format of the table, and turn it into one row per query."""
    selected = None
    if options.where:
        selected = matching_rows(table, options.where)
        table = table.filter(selected)
    n_selected = table.num_rows
    table, layout, findings = read_format(table, options)
    row_numbers = None
    # A format with a row per query and model made new rows, which have no numbers in the file.
    if selected is not None and table.num_rows == n_selected:
        row_numbers = np.flatnonzero(selected)
    return _WideRows(table, layout, row_numbers, findings)


def _other_columns(source: _WideRows, rows: _ScoredRows, inputs: _RouterInputs) -> Any:
    """Return the columns that hold neither outcomes nor queries nor vectors, as an Arrow table.

    Answers of experts that were left out are left out, too.
    """
    read_columns = {
        *source.layout.outcome_columns,
        inputs.recipe.vectors,
        inputs.single_query_column,
    }
    other_names = names_except(rows.table.column_names, read_columns)
    left_out_experts = names_except(source.layout.scores, rows.expert_names)
    return without_answers(rows.table.select(other_names), left_out_experts)


def _check_query_is_no_outcome(source: _WideRows, options: ReadArguments) -> None:
    """Raise an error if the query column that the caller named holds outcomes of an expert."""
    query_columns = options.query
    if query_columns is None:
        return
    if isinstance(query_columns, str):
        query_columns = [query_columns]
    outcome_columns = source.layout.outcome_columns
    for name in query_columns:
        if name in outcome_columns:
            free_columns = names_except(text_columns(source.table.schema), outcome_columns)
            raise DataFileError(
                f"the query must be text; column {name!r} holds outcomes of an expert, and text is in "
                f"{listed(free_columns)}.",
                parameter="query",
            )


def _choose_experts(layout: Layout, options: ReadArguments) -> Layout:
    """Return the layout of the experts that the caller chose, or of all, sorted by name."""
    names = list(layout.scores)
    if options.experts is not None:
        names = match_experts(options.experts, names)
    return layout.select_experts([names[index] for index in name_order(names)])


def _read_scores(source: _WideRows, layout: Layout) -> _ScoredRows:
    """Read the scores of the experts in ``layout``.

    Experts that were asked in no row, and rows in which no expert was asked, are left out.
    """
    scores = _expert_matrix(source.table, layout, layout.scores, truths=True)
    check_range("scores", scores, list(layout.scores.values()), 1, RESCALE, source.row_numbers)
    rows = _ScoredRows(source.table, layout, scores, source.row_numbers, [])
    rows = _without_unasked_experts(rows)
    is_asked = np.asarray(~np.isnan(rows.scores).all(axis=1))
    n_unasked = len(is_asked) - int(is_asked.sum())
    if n_unasked == 0:
        return rows
    return replace(rows.take(is_asked), findings=[*rows.findings, unasked_rows(n_unasked)])


def _without_unasked_experts(rows: _ScoredRows) -> _ScoredRows:
    """Leave out experts that were asked in no row; raise an error if no expert was ever asked."""
    is_asked = np.asarray(~np.isnan(rows.scores).all(axis=0))
    if is_asked.all():
        return rows
    layout = rows.layout
    if not is_asked.any():
        raise DataFileError(
            f"no score is known; columns {listed(list(layout.scores.values()))} are empty."
        )
    unasked = list(compress(layout.scores, ~is_asked))
    sentence = (
        f"{count_noun(len(unasked), 'expert was', 'experts were')} never asked and left out: "
        f"{listed(unasked, 6)}."
    )
    return replace(
        rows,
        layout=layout.select_experts(names_except(layout.scores, unasked)),
        scores=rows.scores[:, is_asked],
        findings=[*rows.findings, Finding("unasked_experts", len(unasked), sentence)],
    )


def _read_router_inputs(
    rows: _ScoredRows, options: ReadArguments, outcome_columns: Collection[str]
) -> _RouterInputs:
    """Read the queries and the vectors of the rows."""
    query, vector_column = choose_contents(rows.table, options, outcome_columns)
    queries = [""] * len(rows.scores)
    if query is not None:
        queries = query_texts(rows.table, query)
    vectors = None
    if vector_column is not None:
        vectors = read_vectors(rows.table, vector_column, rows.row_numbers)
    recipe = replace(query or Recipe(()), vectors=vector_column)
    return _RouterInputs(queries, vectors, recipe, has_text=query is not None)


def _read_prices(rows: _ScoredRows) -> FloatArray | None:
    """Read dollars (n_rows, n_experts); None if no expert has a column of them."""
    if not rows.layout.prices:
        return None
    return _read_amounts("prices", rows, rows.layout.prices, "dollars")


def _read_latencies(rows: _ScoredRows) -> FloatArray | None:
    """Read seconds (n_rows, n_experts); None if no expert has a column of them."""
    columns = rows.layout.latencies
    if not columns:
        return None
    latencies = _read_amounts("latencies", rows, columns, "seconds or milliseconds")
    seconds_per_unit = [seconds_per(columns.get(name, ""), name) for name in rows.expert_names]
    # Rounded to the nanosecond, so that writing milliseconds and reading them again changes nothing.
    return np.round(latencies * seconds_per_unit, 9)


def _read_amounts(
    parameter: str, rows: _ScoredRows, columns: Mapping[str, str], unit: str
) -> FloatArray:
    """Read and check prices or latencies (n_rows, n_experts), in the unit of their columns."""
    amounts = _expert_matrix(rows.table, rows.layout, columns)
    names = [columns.get(name, name) for name in rows.expert_names]
    check_range(parameter, amounts, names, np.inf, LEAVE_OUT, rows.row_numbers)
    # A number that is finite and not negative may still be too large to be learned from.
    remedy = f"They are {unit} per query. {LEAVE_OUT}"
    check_range(parameter, amounts, names, LARGEST, remedy, rows.row_numbers)
    return amounts


def _expert_matrix(
    table: Any, layout: Layout, columns: Mapping[str, str], truths: bool = False
) -> FloatArray:
    """Return a matrix (n_rows, n_experts) with the column of each expert; NaN where it has none.

    ``columns`` maps experts to column names; with ``truths``, words such as "yes" count as numbers.
    """
    matrix = np.full((table.num_rows, len(layout.scores)), np.nan)
    for index, name in enumerate(layout.scores):
        if name in columns:
            matrix[:, index] = numbers(columns[name], table[columns[name]], truths)
    return matrix


def _with_kind_of_answers(table: Outcomes, detected: bool) -> Outcomes:
    """Add the kind of the answers to a table and its explanation, and findings about the answers.

    ``detected`` is False where the caller set the kind, which is an error in a table without answers.
    """
    if not table.has_answers:
        if detected:
            return table
        rule = "is for tables with answers in columns answer__<model>; there are none"
        raise DataFileError(f"answer_kind {rule}.", parameter="answer_kind", rule=rule)
    kind = table.kind_of_answers()
    kind_and_origin = kind
    if detected:
        kind_and_origin = f"{kind}, detected"
    clause = f"answers are compared {KINDS[kind]} ({kind_and_origin})"
    layout = f"{table.layout.removesuffix('.')}; {clause}."
    table = replace(table, answer_kind=kind, kind_detected=detected, layout=layout)
    return replace(table, findings=(*table.findings, *_answer_findings(table, kind)))


def _answer_findings(table: Outcomes, kind: str) -> list[Finding]:
    """Report that all answers are missing, or that no two of them agree in a sample of the rows."""
    sample = table.sample_rows()
    sampled_answers = table[sample].answers
    if sampled_answers is None:
        if table.answers is not None:
            return []
        sentence = "all answers are missing: what the experts said cannot be compared."
        return [Finding("no_answers", len(table), sentence)]
    n_comparable = int(((sampled_answers.codes >= 0).sum(axis=1) > 1).sum())
    if n_comparable < MIN_ROWS_TO_AGREE or sampled_answers.ever_agree:
        return []
    sentence = (
        f"no two answers agree in {n_comparable} rows of {len(sample)}, compared {KINDS[kind]}; set "
        f"answer_kind=KIND if another kind fits: {', '.join(KINDS)}."
    )
    return [Finding("answers_never_agree", n_comparable, sentence)]


def choose_contents(
    table: Any, options: ReadArguments, taken: Collection[str]
) -> tuple[Recipe | None, str | None]:
    """Choose the columns that a router will read; columns ``taken`` by outcomes are left out.

    Returns
    -------
    query : Recipe or None
        The columns that make the text of a query; None if there are only vectors.
    vectors : str or None
        The column of the vectors; None if there is only text.
    """
    query = choose_query(table.schema, options.query, options.choices, taken)
    vectors = options.vectors or find_vectors(table)
    if query is not None:
        for name in query.columns:
            if name.startswith((ANSWER, LOGPROB)):
                rule = (
                    f"the query must be what the experts were asked; column {name!r} holds answers"
                )
                raise DataFileError(f"{rule}. Name another one.", parameter="query")
    if query is None and vectors is None:
        raise _nothing_to_route_by(table, taken)
    return query, vectors


def _nothing_to_route_by(table: Any, outcome_columns: Collection[str]) -> DataFileError:
    """Return the error for a table that has neither a query nor vectors."""
    number_column = usual_numbers(table.schema)
    if number_column is not None and number_column not in outcome_columns:
        return no_text(table.schema, number_column)
    return DataFileError(
        "there must be a query to route by: name its column with query=COLUMN, or one of vectors with "
        f"{read_with('vectors=COLUMN')}; found {listed(list(table.column_names))}.",
        parameter="query",
    )


def explanation(layout: Layout, n_queries: int, recipe: Recipe) -> str:
    """Say in one sentence how a table was read."""
    optional_outcomes = [name for name in ("prices", "latencies") if getattr(layout, name)]
    contents = (
        f"{count_noun(len(layout.scores), 'expert')}, {count_noun(n_queries, 'query', 'queries')}"
    )
    if optional_outcomes:
        contents += f" with {' and '.join(optional_outcomes)}"
    clauses = [f"read as {FORMATS[layout.form].title}: {contents}"]
    if recipe.columns:
        clauses.append(recipe.description)
    else:
        clauses.append("there is no query, only vectors")
    if recipe.vectors is not None:
        clauses.append(f"vectors are column {recipe.vectors!r}")
    return f"{'; '.join([*clauses, *layout.notes])}."
