"""Tables of outcomes: queries, several experts, the score of each, and what each cost."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from mild.artifact.expert_names import match_experts
from mild.artifact.frames import library_of
from mild.core.answers import KINDS
from mild.core.arrays import BoolArray, FloatArray, IntArray
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
from mild.data.number_tables import is_number_source, is_number_table, read_number_columns
from mild.data.outcome_table import OutcomeTable, number_table, without_answers
from mild.data.queries import Recipe, choose_query, no_text, query_texts, usual_numbers
from mild.data.selection import PARTS, Where, kept_rows
from mild.data.tables import names_except, naming, numbers, read_table, text_columns
from mild.data.vectors import find_vectors, read_vectors
from mild.errors import DataFileError, check_arguments, check_option, counted, listed

# If no two answers agree in this many rows with several answers, answer_kind is probably wrong.
MIN_ROWS_TO_AGREE = 20
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
    features: str | Sequence[str] | None = None,
    costs: str | Sequence[str] | None = None,
) -> OutcomeTable:
    """Read a table of outcomes in one of the known formats.

    Parameters
    ----------
    source : str, path-like, list of path-like or frame
        Path of a .parquet, .csv, .tsv, .json, .jsonl, .ndjson, .feather or .xlsx file, also with .gz; a
        .npz file of arrays ``X`` and ``costs``, perhaps with ``feature_names`` and ``expert_names``; a
        folder, a pattern or a list of files, which are one table; "-" for the standard input; or a frame:
        anything with ``__arrow_c_stream__`` (pandas, polars, DuckDB, pyarrow).
    form : str or None, default=None
        Format of the table: "wide", "endings", "long", "records", "nested", "routerbench", "routellm",
        "llmrouter", "ledger", "plain" or "numbers"; None detects it.

        - "wide": ``correct__<model>`` (0, 1) or ``score__<model>`` ([0, 1]; preferred where both are
          there), ``cost__<model>`` in dollars, ``latency_ms__<model>``
        - "routerbench": ``<model>`` holds the score, ``<model>|total_cost`` the dollars
        - "endings": ``<model>_correct`` or ``<model>_score``, ``<model>_cost``, ``<model>_latency_ms``
        - "long": a row per query and model: the query, ``model``, ``score``, perhaps ``cost``,
          ``latency`` and ``response``, by these or other usual names
        - "records": ``responses: [{model, score, cost}]``, ``models: {model: {score, cost}}``, or a field
          ``{score, cost}`` per model
        - "routellm": a query, and every true-or-false column is a model
        - "llmrouter": a row per query and model, with ``model_name`` and ``performance`` and perhaps
          ``cost`` and ``response_time``
        - "nested": ``scores: {model: score}`` (RouterDC), or lists ``llm_name_list`` and ``perf_list``
        - "ledger": what ``mild ledger export`` writes
        - "plain": the columns named by ``scores``
        - "numbers": columns of numbers, the features, and the whole cost of each expert in
          ``cost__<model>``, without queries and scores

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
        Whether the choices of a column ``question``, in columns A, B, C, ..., or in a column options
        or choices, are appended to it, one per line as ``A. ...``: a router must see what the experts saw.
    tokens : str or None, default=None
        Columns of tokens in and out, for prices per token: ``"in_*,out_*"`` with ``*`` for the expert;
        None takes ``tokens_in__<model>`` and ``tokens_out__<model>``.
    where : str, list of str or None, default=None
        Conditions ``"column=value"`` on the rows, a value may be a pattern; those on one column are
        alternatives, and all columns must fit.
    model_column : str or None, default=None
        Column of the model, where there is a row per query and model; None takes a usual one.
        There, ``scores``, ``prices`` and ``latencies`` name one column each. A pair of query and model that
        appears more than once counts by its mean, which is a finding.
    answer_column : str or None, default=None
        Column of the answer in such a table, which becomes columns ``answer__<model>``.
    answer_kind : str or None, default=None
        How the answers in columns ``answer__<model>`` are compared: "number", "choice", "json",
        "code", "short_text" or "free_text"; None detects it.
    features : str, list of str or None, default=None
        Features of a table of numbers, names and patterns separated by commas, such as "age,f_*";
        None takes all columns of numbers but the costs and identifiers (``id``, ``query_id``, ``index``);
        in Python also a list.
    costs : str, list of str or None, default=None
        Whole cost of each expert in a table of numbers, given like ``features``; None takes
        ``cost__<model>``.

    Returns
    -------
    OutcomeTable
        The rows in which at least one expert was asked; the source itself if it is a table already.

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
    >>> table.explanation
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
        features=features,
        costs=costs,
    )
    return read_with_options(source, options)


def read_part(source: Any, part: str, **options: Any) -> OutcomeTable:
    """As ``read_outcomes``, but of a file that holds a split only its rows for one purpose.

    Parameters
    ----------
    source : str, path-like, list of path-like or frame
        What ``read_outcomes`` takes.
    part : {"train", "test"}
        Rows to keep where a column ``split``, ``partition`` or ``fold`` says what each is for, and
        ``where`` does not name it.
    **options : dict
        Arguments of ``read_outcomes``.

    Returns
    -------
    OutcomeTable
        All rows if no column says what they are for.
    """
    check_option("part", part, PARTS)
    return read_with_options(source, ReadArguments(**options), part)


def read_with_options(source: Any, options: ReadArguments, part: str | None = None) -> OutcomeTable:
    """Read a table as ``read_outcomes`` does, with its arguments as one object; of ``part`` only."""
    check_options(options)
    if isinstance(source, OutcomeTable):
        return source
    if isinstance(source, (str, os.PathLike)):
        with naming(Path(source)):
            table = _read_source(source, options, part)
    else:
        table = _read_source(source, options, part)
    return replace(table, library=library_of(source))


def _read_source(source: Any, options: ReadArguments, part: str | None) -> OutcomeTable:
    """A table with scores or a table of numbers, whichever the options or the columns say."""
    has_number_options = options.features is not None or options.costs is not None
    if has_number_options or options.form == "numbers":
        return number_table(read_number_columns(source, options, part))
    has_score_options = options.form or options.scores or options.query or options.model_column
    if not has_score_options and is_number_source(source):
        return number_table(read_number_columns(source, options, part))
    table = read_table(source, options.texts())
    if not has_score_options and is_number_table(table):
        return number_table(read_number_columns(source, options, part, table))
    return build_outcomes(table, options, part=part)


@dataclass(frozen=True, eq=False)
class _ScoredRows:
    """Rows with at least one score, and where they are in their file."""

    table: Any  # Arrow table of all columns
    layout: Layout  # columns of the experts that were asked at least once
    scores: FloatArray  # (n_rows, n_experts), NaN where an expert was not asked
    row_numbers: (
        IntArray | None
    )  # (n_rows,) row numbers in the file, from 0; None if 0 to n_rows - 1
    findings: list[Finding]  # about experts and rows that were left out

    @property
    def expert_names(self) -> list[str]:
        return list(self.layout.scores)

    def take(self, mask: BoolArray) -> _ScoredRows:
        """The rows of a mask."""
        row_numbers = np.flatnonzero(mask)
        if self.row_numbers is not None:
            row_numbers = self.row_numbers[mask]
        return replace(
            self, table=self.table.filter(mask), scores=self.scores[mask], row_numbers=row_numbers
        )


@dataclass(frozen=True, eq=False)
class _Contents:
    """What rows are routed by: the text of their query, their vectors, or both."""

    queries: list[str]  # empty texts where there is no query, or it was not read
    vectors: FloatArray | None
    recipe: Recipe  # which columns they are made of
    has_text: bool  # whether texts were read

    @property
    def single_column(self) -> str | None:
        """The column that is the query as it stands; None if the query is made of several."""
        if len(self.recipe.columns) == 1 and not self.recipe.choices:
            return self.recipe.columns[0]
        return None


def build_outcomes(
    table: Any,
    options: ReadArguments,
    part: str | None = None,
    contents: Recipe | None = None,
) -> OutcomeTable:
    """Outcomes of an Arrow table; ``part`` is as in ``read_outcomes``.

    ``contents`` says what queries and vectors are made of where a caller reads them itself. Their columns
    need not be in the table then, and all queries are empty.
    """
    selected, part_note = kept_rows(table, options.where, part)
    if selected is not None:
        table = table.filter(selected)
    n_selected = table.num_rows
    table, layout, findings = read_format(table, options)
    if part_note is not None:
        layout = layout.with_notes(part_note)
    outcome_columns = layout.taken
    _check_query_is_no_outcome(table.schema, options, outcome_columns)
    all_experts = list(layout.scores)
    row_numbers = None
    # A format with a row per query and model made new rows, which have no numbers in the file.
    if selected is not None and table.num_rows == n_selected:
        row_numbers = np.flatnonzero(selected)
    rows = _scored_rows(table, _choose_experts(layout, options), row_numbers)
    expert_names = rows.expert_names
    if contents is None:
        routed_by = _read_contents(rows, options, outcome_columns)
    else:
        routed_by = _Contents([""] * len(rows.scores), None, contents, has_text=False)
    prices = _read_prices(rows)
    latencies = _read_latencies(rows)
    findings += rows.findings
    findings += examine(
        routed_by.queries, expert_names, rows.scores, prices, routed_by.has_text, rows.row_numbers
    )
    used = {*outcome_columns, routed_by.recipe.vectors, routed_by.single_column}
    other_columns = names_except(rows.table.column_names, used)
    left_out_experts = names_except(all_experts, expert_names)
    outcomes = OutcomeTable(
        queries=routed_by.queries,
        expert_names=expert_names,
        scores=rows.scores,
        prices=prices,
        latencies=latencies,
        columns=without_answers(rows.table.select(other_columns), left_out_experts),
        vectors=routed_by.vectors,
        form=rows.layout.form,
        explanation=explanation(rows.layout, len(rows.scores), routed_by.recipe),
        findings=tuple(findings),
        recipe=routed_by.recipe,
        row_numbers=rows.row_numbers,
        answer_kind=options.answer_kind,
    )
    return _with_kind_of_answers(outcomes, options.answer_kind is None)


def _check_query_is_no_outcome(
    schema: Any, options: ReadArguments, outcome_columns: Collection[str]
) -> None:
    """Refuse a query that the caller named and that is a column of outcomes."""
    named = options.query
    if named is None:
        return
    if isinstance(named, str):
        named = [named]
    for name in named:
        if name in outcome_columns:
            free = names_except(text_columns(schema), outcome_columns)
            raise DataFileError(
                f"the query must be text; column {name!r} holds outcomes of an expert, and text is in "
                f"{listed(free)}.",
                parameter="query",
            )


def _choose_experts(layout: Layout, options: ReadArguments) -> Layout:
    """The experts that the caller chose, or all of them, sorted by name."""
    names = list(layout.scores)
    if options.experts is not None:
        names = match_experts(options.experts, names)
    return layout.of([names[index] for index in name_order(names)])


def _scored_rows(table: Any, layout: Layout, row_numbers: IntArray | None) -> _ScoredRows:
    """The scores, without experts that were never asked and rows in which none was asked."""
    scores = _expert_columns(table, layout, layout.scores, truths=True)
    check_range("scores", scores, list(layout.scores.values()), 1, RESCALE, row_numbers)
    rows = _ScoredRows(table, layout, scores, row_numbers, [])
    rows = _without_unasked_experts(rows)
    asked = np.asarray(~np.isnan(rows.scores).all(axis=1))
    n_unasked = len(asked) - int(asked.sum())
    if n_unasked == 0:
        return rows
    return replace(rows.take(asked), findings=[*rows.findings, unasked_rows(n_unasked)])


def _without_unasked_experts(rows: _ScoredRows) -> _ScoredRows:
    """The same without experts that were asked in no row; an error if that is true of all."""
    asked = np.asarray(~np.isnan(rows.scores).all(axis=0))
    if asked.all():
        return rows
    layout = rows.layout
    if not asked.any():
        raise DataFileError(
            f"no score is known; columns {listed(list(layout.scores.values()))} are empty."
        )
    unasked = list(compress(layout.scores, ~asked))
    words = (
        f"{counted(len(unasked), 'expert was', 'experts were')} never asked and left out: "
        f"{listed(unasked, 6)}."
    )
    return replace(
        rows,
        layout=layout.of(names_except(layout.scores, unasked)),
        scores=rows.scores[:, asked],
        findings=[*rows.findings, Finding("unasked_experts", len(unasked), words)],
    )


def _read_contents(
    rows: _ScoredRows, options: ReadArguments, outcome_columns: Collection[str]
) -> _Contents:
    """Queries and vectors of the rows."""
    query, vector_column = choose_contents(rows.table, options, outcome_columns)
    queries = [""] * len(rows.scores)
    if query is not None:
        queries = query_texts(rows.table, query)
    vectors = None
    if vector_column is not None:
        vectors = read_vectors(rows.table, vector_column, rows.row_numbers)
    recipe = replace(query or Recipe(()), vectors=vector_column)
    return _Contents(queries, vectors, recipe, has_text=query is not None)


def _read_prices(rows: _ScoredRows) -> FloatArray | None:
    """Dollars (n_rows, n_experts); None if no expert has a column of them."""
    if not rows.layout.prices:
        return None
    return _read_amounts("prices", rows, rows.layout.prices, "dollars")


def _read_latencies(rows: _ScoredRows) -> FloatArray | None:
    """Seconds (n_rows, n_experts); None if no expert has a column of them."""
    columns = rows.layout.latencies
    if not columns:
        return None
    latencies = _read_amounts("latencies", rows, columns, "seconds or milliseconds")
    units = [seconds_per(columns.get(name, "")) for name in rows.expert_names]
    # To the nanosecond: milliseconds that were written and read again are the same.
    return np.round(latencies * units, 9)


def _read_amounts(
    parameter: str, rows: _ScoredRows, columns: Mapping[str, str], unit: str
) -> FloatArray:
    """Prices or latencies (n_rows, n_experts) in the unit of their columns, checked."""
    amounts = _expert_columns(rows.table, rows.layout, columns)
    names = [columns.get(name, name) for name in rows.expert_names]
    check_range(parameter, amounts, names, np.inf, LEAVE_OUT, rows.row_numbers)
    # A number that is finite and not negative may still be too large to be learned from.
    remedy = f"They are {unit} per query. {LEAVE_OUT}"
    check_range(parameter, amounts, names, LARGEST, remedy, rows.row_numbers)
    return amounts


def _expert_columns(
    table: Any, layout: Layout, columns: Mapping[str, str], truths: bool = False
) -> FloatArray:
    """Columns side by side, one per expert of the layout; NaN where an expert has none."""
    matrix = np.full((table.num_rows, len(layout.scores)), np.nan)
    for index, name in enumerate(layout.scores):
        if name in columns:
            matrix[:, index] = numbers(columns[name], table[columns[name]], truths)
    return matrix


def _with_kind_of_answers(table: OutcomeTable, detected: bool) -> OutcomeTable:
    """The table with the kind of its answers, which its explanation says, and findings about them."""
    if not table.has_answers:
        if detected:
            return table
        rule = "is for tables with answers in columns answer__<model>; there are none"
        raise DataFileError(f"answer_kind {rule}.", parameter="answer_kind", rule=rule)
    kind = table.kind_of_answers()
    spelled_kind = kind
    if detected:
        spelled_kind = f"{kind}, detected"
    words = f"answers are compared {KINDS[kind]} ({spelled_kind})"
    explanation = f"{table.explanation.removesuffix('.')}; {words}."
    table = replace(table, answer_kind=kind, kind_detected=detected, explanation=explanation)
    return replace(table, findings=(*table.findings, *_answer_findings(table, kind)))


def _answer_findings(table: OutcomeTable, kind: str) -> list[Finding]:
    """Findings where all answers are missing, or no two agree in the rows of a sample."""
    sample = table.sample_rows()
    answers = table.take(sample).answers
    if answers is None:
        if table.answers is not None:
            return []
        words = "all answers are missing: what the experts said cannot be compared."
        return [Finding("no_answers", table.rows, words)]
    n_comparable = int(((answers.codes >= 0).sum(axis=1) > 1).sum())
    if n_comparable < MIN_ROWS_TO_AGREE or answers.ever_agree:
        return []
    words = (
        f"no two answers agree in {n_comparable} rows of {len(sample)}, compared {KINDS[kind]}; set "
        f"answer_kind=KIND if another kind fits: {', '.join(KINDS)}."
    )
    return [Finding("answers_never_agree", n_comparable, words)]


def choose_contents(
    table: Any, options: ReadArguments, taken: Collection[str]
) -> tuple[Recipe | None, str | None]:
    """How the query is made, and the column of vectors; at least one of them is there."""
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
        numbers_name = usual_numbers(table.schema)
        if numbers_name is not None and numbers_name not in taken:
            raise no_text(table.schema, numbers_name)
        raise DataFileError(
            "there must be a query to route by: name its column with query=COLUMN, or one of vectors with "
            f"{read_with('vectors=COLUMN')}; found {listed(list(table.column_names))}.",
            parameter="query",
        )
    return query, vectors


def explanation(layout: Layout, n_queries: int, recipe: Recipe) -> str:
    """How a table was read, in one sentence."""
    known = [name for name in ("prices", "latencies") if getattr(layout, name)]
    contents = f"{counted(len(layout.scores), 'expert')}, {counted(n_queries, 'query', 'queries')}"
    if known:
        contents += f" with {' and '.join(known)}"
    clauses = [f"read as {FORMATS[layout.form].title}: {contents}"]
    if recipe.columns:
        clauses.append(recipe.description)
    else:
        clauses.append("there is no query, only vectors")
    if recipe.vectors is not None:
        clauses.append(f"vectors are column {recipe.vectors!r}")
    return f"{'; '.join([*clauses, *layout.notes])}."
