"""Tables of outcomes: queries, several experts, the score of each, and what each cost."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mild.artifact.expert_names import match_experts
from mild.artifact.frames import library_of
from mild.core.answers import KINDS
from mild.core.arrays import FloatArray, IntArray
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
from mild.data.tables import (
    is_text,
    naming,
    numbers,
    read_table,
)
from mild.data.vectors import find_vectors, read_vectors
from mild.errors import DataFileError, check_arguments, check_option, counted, listed

# From so many rows with several answers on, it is odd that none agree.
ENOUGH = 20


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
    part: str | None = None,
    model_column: str | None = None,
    answer_column: str | None = None,
    id_column: str | None = None,
    answer_kind: str | None = None,
    features: str | Sequence[str] | None = None,
    costs: str | Sequence[str] | None = None,
) -> OutcomeTable:
    """Read a table of outcomes in one of the known formats.

    Parameters
    ----------
    source : path of a .parquet, .csv, .tsv, .json, .jsonl, .ndjson, .feather or .xlsx file, also with .gz;
        a .npz file of arrays ``X`` and ``costs``, perhaps with ``feature_names`` and ``expert_names``; a
        folder, a pattern or a list of files, which are one table; "-" for the standard input; or a frame:
        anything with ``__arrow_c_stream__`` (pandas, polars, DuckDB, pyarrow)
    form : format of the table: "wide", "endings", "long", "records", "nested", "routerbench", "routellm",
        "llmrouter", "ledger", "plain" or "numbers"; None detects it

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

        Scores are numbers in [0, 1], truth values, or words: yes and no, right and wrong, pass and fail
    query : column of the query, or several to be joined by line breaks; None takes the first of
        prompt, question, query, text, instruction, input that is text
    experts : experts to keep, by name, short name or shell pattern
    scores : score columns, instead of the usual ones: names and shell patterns separated by commas
        (``"acc_*"``), or ``"large=acc_large,small=acc_small"``; in Python also a list, or expert -> column
    prices : columns of dollars per query, given like ``scores``; or a file of prices per token (.json,
        .toml, .csv), or "litellm" for the table of that package
    latencies : columns of seconds per query, or of milliseconds if ``ms`` is a part of the column's name,
        given like ``scores``
    vectors : column of lists of numbers, or of float32 as fixed-size binary; None takes embedding,
        embeddings, vector or vectors
    choices : whether the choices of a column ``question``, in columns A, B, C, ..., or in a column options
        or choices, are appended to it, one per line as ``A. ...``: a router must see what the experts saw
    tokens : columns of tokens in and out, for prices per token: ``"in_*,out_*"`` with ``*`` for the expert;
        None takes ``tokens_in__<model>`` and ``tokens_out__<model>``
    where : conditions ``"column=value"`` on the rows, a value may be a pattern; those on one column are
        alternatives, and all columns must fit
    part : "train" or "test" for only these rows where a column ``split``, ``partition`` or ``fold`` says
        which they are, and ``where`` does not name it; None for all rows
    model_column : column of the model, where there is a row per query and model; None takes a usual one.
        There, ``scores``, ``prices`` and ``latencies`` name one column each. A pair of query and model that
        appears more than once counts by its mean, which is a finding
    answer_column : column of the answer in such a table, which becomes columns ``answer__<model>``
    id_column : column that tells equal queries apart in such a table; None takes ``id``, ``query_id``,
        ..., if one is there and does not number the rows
    answer_kind : how the answers in columns ``answer__<model>`` are compared: "number", "choice", "json",
        "code", "short_text" or "free_text"; None detects it
    features : features of a table of numbers, names and patterns separated by commas, such as "age,f_*";
        None takes all columns of numbers but the costs and identifiers (``id``, ``query_id``, ``index``);
        in Python also a list
    costs : whole cost of each expert in a table of numbers, given like ``features``; None takes
        ``cost__<model>``

    Returns
    -------
    OutcomeTable

    Raises
    ------
    DataFileError
        Unreadable, no format or several, no query, scores outside [0, 1], negative prices.

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
        *(form, query, experts, scores, prices, latencies, vectors, choices, tokens, where),
        *(model_column, answer_column, id_column, answer_kind, features, costs),
    )
    check_options(options)
    if part is not None:
        check_option("part", part, PARTS)
    if isinstance(source, OutcomeTable):
        return source
    is_path = isinstance(source, (str, os.PathLike))
    with naming(Path(source)) if is_path else nullcontext():
        table = _read_either(source, options, part)
    return replace(table, library=library_of(source))


def _read_either(source: Any, options: ReadArguments, part: str | None) -> OutcomeTable:
    """A table with scores, or a table of numbers, as its columns say or the options."""
    named = options.form or options.scores or options.query or options.model_column
    of_numbers = options.features is not None or options.costs is not None
    if of_numbers or options.form == "numbers":
        return number_table(read_number_columns(source, options, part))
    if not named and is_number_source(source):
        return number_table(read_number_columns(source, options, part))
    table = read_table(source, options.texts())
    if not named and is_number_table(table):
        return number_table(read_number_columns(source, options, part, table))
    return build_outcomes(table, options, part=part)


def build_outcomes(
    table: Any,
    options: ReadArguments,
    part: str | None = None,
    contents: Recipe | None = None,
) -> OutcomeTable:
    """Outcomes of an Arrow table; ``part`` is as in ``read_outcomes``.

    With ``contents``, which says what queries and vectors are made of, neither are read: they need not be
    in the table, and all queries are empty.
    """
    kept, split = kept_rows(table, options.where, part)
    if kept is not None:
        table = table.filter(kept)
    rows_before = table.num_rows
    table, layout, findings = read_format(table, options)
    if split is not None:
        layout = replace(layout, notes=(*layout.notes, split))
    all_taken = layout.taken
    named = [options.query] if isinstance(options.query, str) else options.query or ()
    outcome = next((name for name in named if name in all_taken), None)
    if outcome is not None:
        texts = [field.name for field in table.schema if is_text(field.type)]
        free = [name for name in texts if name not in all_taken]
        raise DataFileError(
            f"the query must be text; column {outcome!r} holds outcomes of an expert, and text is in "
            f"{listed(free)}.",
            parameter="query",
        )
    all_experts = list(layout.scores)
    if options.experts is not None:
        layout = layout.of(match_experts(options.experts, list(layout.scores)))
    found_names = list(layout.scores)
    layout = layout.of([found_names[index] for index in name_order(found_names)])
    row_numbers = None
    if table.num_rows == rows_before:
        row_numbers = None if kept is None else np.flatnonzero(kept)
    scores = _matrix("scores", table, layout, row_numbers)
    layout, scores, silent = _asked_experts(layout, scores)
    findings += silent
    rows = np.asarray(~np.isnan(scores).all(axis=1))
    if lost := len(rows) - int(rows.sum()):
        table, scores = table.filter(rows), scores[rows]
        row_numbers = np.flatnonzero(rows) if row_numbers is None else row_numbers[rows]
        findings.append(unasked_rows(lost))
    if contents is None:
        query, vectors = choose_contents(table, options, all_taken)
        queries = [""] * table.num_rows if query is None else query_texts(table, query)
        read = None if vectors is None else read_vectors(table, vectors, row_numbers)
    else:
        query = contents if contents.columns else None
        vectors = contents.vectors
        queries = [""] * table.num_rows
        read = None
    prices = _matrix("prices", table, layout, row_numbers) if layout.prices else None
    latencies = _matrix("latencies", table, layout, row_numbers) if layout.latencies else None
    if latencies is not None:
        units = [seconds_per(layout.latencies.get(name, "")) for name in layout.scores]
        # To the nanosecond: milliseconds that were written and read again are the same.
        latencies = np.round(latencies * units, 9)
    names = list(layout.scores)
    is_read = contents is None and query is not None
    findings += examine(queries, names, scores, prices, is_read, row_numbers)
    used = {*all_taken, vectors}
    if query is not None and not query.choices and len(query.columns) == 1:
        used.update(query.columns)
    columns = table.select([name for name in table.column_names if name not in used])
    outcomes = OutcomeTable(
        *(queries, names, scores, prices, latencies),
        columns=without_answers(columns, [name for name in all_experts if name not in names]),
        vectors=read,
        form=layout.form,
        explanation=explanation(layout, len(queries), query, vectors),
        findings=tuple(findings),
        recipe=replace(query or Recipe(()), vectors=vectors),
        row_numbers=row_numbers,
        answer_kind=options.answer_kind,
    )
    return _with_kind_of_answers(outcomes, options.answer_kind is None)


def _with_kind_of_answers(table: OutcomeTable, detected: bool) -> OutcomeTable:
    """The table with the kind of its answers, which its explanation says, and findings about them."""
    if not table.has_answers:
        if detected:
            return table
        rule = "is for tables with answers in columns answer__<model>; there are none"
        raise DataFileError(f"answer_kind {rule}.", parameter="answer_kind", rule=rule)
    kind, some = table.kind_of_answers(), table.sample_rows()
    words = f"answers are compared {KINDS[kind]} ({kind}{', detected' if detected else ''})"
    explanation = f"{table.explanation.removesuffix('.')}; {words}."
    table = replace(table, answer_kind=kind, kind_detected=detected, explanation=explanation)
    answers, findings = table.take(some).answers, list(table.findings)
    if answers is None and table.answers is None:
        words = "all answers are missing: what the experts said cannot be compared."
        findings.append(Finding("no_answers", table.rows, words))
    several = 0 if answers is None else int(((answers.codes >= 0).sum(axis=1) > 1).sum())
    if answers is not None and several >= ENOUGH and not answers.ever_agree:
        words = (
            f"no two answers agree in {several} rows of {len(some)}, compared {KINDS[kind]}; set "
            f"answer_kind=KIND if another kind fits: {', '.join(KINDS)}."
        )
        findings.append(Finding("answers_never_agree", several, words))
    return replace(table, findings=tuple(findings))


def choose_contents(
    table: Any, options: ReadArguments, taken: Collection[str]
) -> tuple[Recipe | None, str | None]:
    """How the query is made, and the column of vectors; at least one of them is there."""
    query = choose_query(table.schema, options.query, options.choices, taken)
    vectors = options.vectors or find_vectors(table)
    said = [name for name in query.columns if name.startswith((ANSWER, LOGPROB))] if query else []
    if said:
        rule = f"the query must be what the experts were asked; column {said[0]!r} holds answers"
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


def explanation(layout: Layout, rows: int, query: Recipe | None, vectors: str | None) -> str:
    """How a table was read, in one sentence."""
    costs = [name for name in ("prices", "latencies") if getattr(layout, name)]
    parts = [
        f"read as {FORMATS[layout.form].title}: {counted(len(layout.scores), 'expert')}, "
        f"{counted(rows, 'query', 'queries')}{' with ' + ' and '.join(costs) if costs else ''}",
        "there is no query, only vectors" if query is None else query.description,
    ]
    if vectors is not None:
        parts.append(f"vectors are column {vectors!r}")
    return f"{'; '.join([*parts, *layout.notes])}."


def _matrix(what: str, table: Any, layout: Layout, row_numbers: IntArray | None) -> FloatArray:
    """Columns side by side, one per expert; NaN where an expert has none."""
    columns: dict[str, str] = getattr(layout, what)
    matrix = np.full((table.num_rows, len(layout.scores)), np.nan)
    for k, name in enumerate(layout.scores):
        if name in columns:
            matrix[:, k] = numbers(columns[name], table[columns[name]], truths=what == "scores")
    names = [columns.get(name, name) for name in layout.scores]
    high, remedy = (1, RESCALE) if what == "scores" else (np.inf, "Leave out what is unknown.")
    check_range(what, matrix, names, high, remedy, row_numbers)
    if what != "scores":
        # Where all is finite and not negative, a number may still be too large to be learned from.
        unit = "dollars" if what == "prices" else "seconds or milliseconds"
        remedy = f"They are {unit} per query. {remedy}"
        check_range(what, matrix, names, LARGEST, remedy, row_numbers)
    return matrix


def _asked_experts(layout: Layout, scores: FloatArray) -> tuple[Layout, FloatArray, list[Finding]]:
    """Without the experts that were never asked."""
    asked = np.asarray(~np.isnan(scores).all(axis=0))
    if asked.all():
        return layout, scores, []
    if not asked.any():
        raise DataFileError(
            f"no score is known; columns {listed(list(layout.scores.values()))} are empty."
        )
    silent = [name for name, known in zip(layout.scores, asked, strict=True) if not known]
    words = (
        f"{counted(len(silent), 'expert was', 'experts were')} never asked and left out: "
        f"{listed(silent, 6)}."
    )
    kept = layout.of([name for name in layout.scores if name not in silent])
    return kept, scores[:, asked], [Finding("unasked_experts", len(silent), words)]
