"""Formats of outcome tables: one file each, and the list of them.

A format is read if it is the only one that fits: where two fit, or none, the caller has to choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mild.core.answers import KINDS
from mild.core.arrays import invalid
from mild.data.data_quality import Finding
from mild.data.formats.base import (
    CORRECT,
    SCORE,
    Format,
    Layout,
    ReadArguments,
    as_pairs,
    named_columns,
    named_scores,
    price_columns,
    read_with,
    seconds_per,
    text_notes,
)
from mild.data.formats.ledger import LEDGER
from mild.data.formats.long import LLMROUTER, LONG, model_columns
from mild.data.formats.nested import NESTED, parse_objects
from mild.data.formats.records import RECORDS
from mild.data.formats.routellm import ROUTELLM, parse_truths
from mild.data.formats.routerbench import ROUTERBENCH
from mild.data.formats.tokens import add_prices, check_token_patterns, is_price_file
from mild.data.formats.wide import (
    ENDINGS,
    WIDE,
    check_endings,
    check_misspelt_scores,
    check_prefixes,
)
from mild.data.queries import usual_query
from mild.errors import DataFileError, check_option, count_noun, listed

DETECTED = (WIDE, ROUTERBENCH, LLMROUTER, NESTED, LEDGER, LONG, RECORDS, ENDINGS, ROUTELLM)

# Columns that the caller names.
PLAIN = Format("plain", "plain columns", "plain columns (named by scores)", lambda schema: None)
FORMATS = {format.name: format for format in (*DETECTED, PLAIN)}
FORMS = tuple(FORMATS)


# Arguments that name columns, as a text or as a list.
_NAMING_ARGUMENTS = (
    "query",
    "experts",
    "scores",
    "prices",
    "latencies",
    "vectors",
    "tokens",
    "where",
)


def check_options(options: ReadArguments) -> None:
    """Raise an error for options that no table could fit, before a table is read."""
    if options.form is not None:
        check_option("form", options.form, FORMS)
    if options.answer_kind is not None:
        check_option("answer_kind", options.answer_kind, tuple(KINDS))
    for parameter in _NAMING_ARGUMENTS:
        value = getattr(options, parameter)
        if not isinstance(value, Iterable | None):
            raise invalid(parameter, f"must be a text or a list of texts; got {value!r}.")
    for parameter in ("model_column", "answer_column", "id_column"):
        value = getattr(options, parameter)
        if not isinstance(value, str | None):
            raise invalid(parameter, f"must be the name of a column; got {value!r}.")
    for parameter in ("scores", "prices", "latencies"):
        as_pairs(getattr(options, parameter), parameter)


def possible_forms(schema: Any, query: object = None) -> dict[str, str]:
    """Return the formats that fit the columns, each with a description of what would be read.

    A format whose columns say less counts only where no other fits, and there are a query, two or more
    experts, and no costs: features may be flags or scores, too.
    """
    for rank in sorted({format.rank for format in DETECTED}):
        layouts = _fitting_layouts(schema, rank)
        if rank > 0:
            has_costs = bool(price_columns(schema.names))
            has_query = query is not None or usual_query(schema) is not None
            if has_costs or not has_query:
                return {}
        contents_by_format = {}
        for name, layout in layouts.items():
            if rank == 0 or len(layout.scores) != 1:
                contents_by_format[name] = _what_is_read(layout)
        # gpt_correct is a column of gpt, not a model of this name.
        if (
            contents_by_format.keys() >= {"endings", "routellm"}
            and layouts["routellm"].outcome_columns <= layouts["endings"].outcome_columns
        ):
            del contents_by_format["routellm"]
        if contents_by_format:
            return contents_by_format
    return {}


def _fitting_layouts(schema: Any, rank: int) -> dict[str, Layout]:
    """Return the layouts, by format, of the formats of a rank that fit the columns."""
    layouts = {}
    for format in DETECTED:
        if format.rank == rank:
            layout = format.detect(schema)
            if layout is not None:
                layouts[format.name] = layout
    return layouts


def _what_is_read(layout: Layout) -> str:
    """Say what a layout reads; it is empty if the table has a row per query and model."""
    if layout.scores:
        return count_noun(len(layout.scores), "expert")
    return "a row per query and model"


def choose_form(schema: Any, options: ReadArguments) -> str:
    """Return the format to read: the one asked for, the one implied by named columns, or the only one."""
    if options.form is not None:
        return options.form
    if options.model_column is not None:
        return "long"
    if options.scores is not None:
        return _form_of_named_scores(schema, options)
    possible = possible_forms(schema, options.query)
    if not possible:
        check_misspelt_scores(list(schema.names))
        raise _no_form(schema)
    if len(possible) > 1:
        raise _several_forms(possible)
    return next(iter(possible))


def _form_of_named_scores(schema: Any, options: ReadArguments) -> str:
    """Return the format that the score columns which the caller named imply."""
    columns = list(named_scores(schema, options.scores).values())
    if all(name.startswith((CORRECT, SCORE)) for name in columns):
        return "wide"
    names_experts = as_pairs(options.scores, "scores") is not None
    if len(columns) == 1 and not names_experts and model_columns(schema):
        # One score for all rows, and a column that says of which model.
        return "long"
    return "plain"


def _several_forms(possible: Mapping[str, str]) -> DataFileError:
    """Return the error for a table that several formats fit."""
    titles = [f"{FORMATS[name].title} ({contents})" for name, contents in possible.items()]
    choices = " or ".join(f"form={name!r}" for name in possible)
    example = read_with(f"form={next(iter(possible))!r}")
    return DataFileError(
        f"it could be read as {' and as '.join(titles)}: choose with {choices}, as in {example}.",
        parameter="form",
    )


def _no_form(schema: Any) -> DataFileError:
    """Return the error for a table that no format fits."""
    names = list(schema.names)
    hint = ""
    if price_columns(names):
        hint = (
            " cost__<model> are dollars, and the scores are missing. If they are the whole cost, and other "
            "columns are numbers to route by, use mild.data.Outcomes.from_arrays(X, costs)."
        )
    elif model_columns(schema):
        hint = (
            f" If column {model_columns(schema)[0]!r} says of which model a row is, name the column of the "
            f"score and that of the query: {read_with('scores=COLUMN, query=COLUMN')}."
        )
    rules = [format.rule for format in DETECTED]
    return DataFileError(
        f"no shape fits: {'; '.join(rules)}; name the columns of the scores: "
        f"{read_with('scores=NAMES')}. Found {listed(names)}.{hint}",
        parameter="form",
    )


def lay_out(schema: Any, form: str, options: ReadArguments) -> Layout:
    """Return the layout of a format with one row per query; columns that the caller named come first."""
    names = list(schema.names)
    layout: Layout | None = Layout("plain", {})
    if form != "plain":
        layout = FORMATS[form].detect(schema)
    if layout is None:
        raise DataFileError(
            f"it cannot be read as {FORMATS[form].rule}; found {listed(names)}.",
            parameter="form",
        )
    if options.scores is not None or form == "plain":
        scores = named_scores(schema, options.scores)
        layout = replace(layout.select_experts(list(scores)), scores=scores)
    elif form == "wide":
        check_prefixes(names, list(layout.scores))
    elif form == "endings":
        check_endings(names, layout)
    experts = list(layout.scores)
    if options.prices is not None and not is_price_file(options.prices, names):
        prices = named_columns("prices", options.prices, names, experts)
        note = f"prices: {_columns_in_words(prices)}"
        layout = replace(layout, prices=prices).with_notes(note)
    if options.latencies is not None:
        latencies = named_columns("latencies", options.latencies, names, experts)
        note = f"latencies in {_latency_units(latencies)}: {_columns_in_words(latencies)}"
        layout = replace(layout, latencies=latencies).with_notes(note)
    return layout


def _columns_in_words(columns: Mapping[str, str]) -> str:
    return listed([f"{column} for {expert}" for expert, column in columns.items()], 4)


def _latency_units(columns: Mapping[str, str]) -> str:
    """Return the units of latency columns: ms, seconds, or both."""
    units = set()
    for expert, column in columns.items():
        if seconds_per(column, expert) < 1:
            units.add("ms")
        else:
            units.add("seconds")
    return " and ".join(sorted(units))


def read_format(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """Return the table with one row per query, the layout of its outcomes, and findings."""
    table = parse_objects(table)
    is_named = options.form or options.scores or options.model_column
    if options.form == "routellm":
        table = parse_truths(table)
    elif not is_named and not possible_forms(table.schema, options.query):
        table = parse_truths(table)
    format = FORMATS[choose_form(table.schema, options)]
    findings: list[Finding] = []
    if format.widen is not None:
        table, layout, findings = format.widen(table, options)
    else:
        layout = lay_out(table.schema, format.name, options)
        check_token_patterns(options.tokens)
    table, layout = add_prices(table, layout, options)
    outcome_columns = [name for name in table.column_names if name in layout.outcome_columns]
    layout = layout.with_notes(*text_notes(table, outcome_columns))
    return table, layout, findings
