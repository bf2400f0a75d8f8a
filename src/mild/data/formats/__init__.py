"""Formats of outcome tables: one file each, and the list of them.

Formats are never guessed: where two fit, or none, the caller has to choose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mild.core.answers import KINDS
from mild.core.arrays import invalid
from mild.data.data_quality import Finding
from mild.data.formats.base import (
    CORRECT,
    PRICE,
    SCORE,
    Format,
    Layout,
    ReadArguments,
    as_pairs,
    named_columns,
    named_scores,
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
from mild.data.formats.tokens import add_prices, is_price_file
from mild.data.formats.wide import (
    ENDINGS,
    WIDE,
    check_endings,
    check_misspelt_scores,
    check_prefixes,
)
from mild.data.queries import usual_query
from mild.errors import DataFileError, check_option, counted, listed

DETECTED = (WIDE, ROUTERBENCH, LLMROUTER, NESTED, LEDGER, LONG, RECORDS, ENDINGS, ROUTELLM)
# Columns that the caller names.
PLAIN = Format("plain", "plain columns", "plain columns (named by scores)", lambda schema: None)
# Features and the whole cost of each expert; ``mild.data.number_tables`` detects and reads them.
NUMBERS = Format(
    "numbers",
    "numbers",
    "numbers (cost__<model> and columns of numbers, without queries)",
    lambda schema: None,
)
FORMATS = {format.name: format for format in (*DETECTED, PLAIN, NUMBERS)}
FORMS = tuple(FORMATS)


def check_options(options: ReadArguments) -> None:
    """Refuse options that no table could fit, before one is read."""
    if options.form is not None:
        check_option("form", options.form, FORMS)
    if options.answer_kind is not None:
        check_option("answer_kind", options.answer_kind, tuple(KINDS))
    for what in (
        *("query", "experts", "scores", "prices", "latencies", "vectors", "tokens", "where"),
        *("features", "costs"),
    ):
        value = getattr(options, what)
        if not isinstance(value, Iterable | None):
            raise invalid(what, f"must be a text or a list of texts; got {value!r}.")
    for what in ("model_column", "answer_column", "id_column"):
        value = getattr(options, what)
        if not isinstance(value, str | None):
            raise invalid(what, f"must be the name of a column; got {value!r}.")
    for what in ("scores", "prices", "latencies"):
        as_pairs(getattr(options, what), what)


def possible_forms(schema: Any, query: object = None) -> dict[str, str]:
    """Formats that fit the columns, each with what would be read; ``query`` is as the caller named it.

    A format whose columns say less counts only where no other fits, and there are a query, two or more
    experts, and no costs: features may be flags or scores, too.
    """
    for rank in sorted({format.rank for format in DETECTED}):
        layouts = {f.name: f.detect(schema) for f in DETECTED if f.rank == rank}
        found = {name: layout for name, layout in layouts.items() if layout is not None}
        if rank > 0:
            has_costs = any(name.startswith(PRICE) for name in schema.names)
            if has_costs or (query is None and usual_query(schema) is None):
                break
            found = {name: layout for name, layout in found.items() if len(layout.scores) != 1}
        if {"endings", "routellm"} <= set(found) and found["routellm"].taken <= found[
            "endings"
        ].taken:
            # gpt_correct is a column of gpt, and no model of this name.
            del found["routellm"]
        if found:
            return {
                name: counted(len(layout.scores), "expert")
                if layout.scores
                else "a row per query and model"
                for name, layout in found.items()
            }
    return {}


def choose_form(schema: Any, options: ReadArguments) -> str:
    """The format to read: the one asked for, the one that the named columns mean, or the only one."""
    if options.form is not None:
        return options.form
    if options.model_column is not None:
        return "long"
    if options.scores is not None:
        columns = list(named_scores(schema, options.scores).values())
        if all(name.startswith((CORRECT, SCORE)) for name in columns):
            return "wide"
        if len(columns) == 1 and as_pairs(options.scores, "scores") is None:
            # One score for all rows, and a column that says of which model.
            return "long" if model_columns(schema) else "plain"
        return "plain"
    possible = possible_forms(schema, options.query)
    if len(possible) == 1:
        return next(iter(possible))
    if possible:
        shown = [f"{FORMATS[name].title} ({what})" for name, what in possible.items()]
        forms = " or ".join(f"form={name!r}" for name in possible)
        raise DataFileError(
            f"it could be read as {' and as '.join(shown)}: choose with {forms}, as in "
            f"{read_with(f'form={next(iter(possible))!r}')}.",
            parameter="form",
        )
    names = list(schema.names)
    check_misspelt_scores(names)
    hint = ""
    if any(name.startswith(PRICE) for name in names):
        read_numbers = read_with("form='numbers'")
        hint = (
            " In a table with queries, cost__<model> are dollars, and the scores are missing. If they are "
            "the whole cost, and other columns are numbers to route by, write a table of numbers: "
            f"{read_numbers}."
        )
    elif model_columns(schema):
        hint = (
            f" If column {model_columns(schema)[0]!r} says of which model a row is, name the column of the "
            f"score and that of the query: {read_with('scores=COLUMN, query=COLUMN')}."
        )
    raise DataFileError(
        f"no shape fits: {'; '.join(format.rule for format in (*DETECTED, NUMBERS))}; name the columns of "
        f"the scores: {read_with('scores=NAMES')}. Found {listed(names)}.{hint}",
        parameter="form",
    )


def lay_out(schema: Any, form: str, options: ReadArguments) -> Layout:
    """Columns of a format with a row per query; those that the caller named go before the usual ones."""
    layout = Layout("plain", {}) if form == "plain" else FORMATS[form].detect(schema)
    names = list(schema.names)
    if layout is None:
        raise DataFileError(
            f"it cannot be read as {FORMATS[form].rule}; found {listed(names)}.",
            parameter="form",
        )
    if options.scores is not None or form == "plain":
        named = named_scores(schema, options.scores)
        layout = replace(layout.of(list(named)), scores=named)
    elif form == "wide":
        check_prefixes(names, list(layout.scores))
    elif form == "endings":
        check_endings(names, layout)
    experts = list(layout.scores)
    notes = list(layout.notes)
    for what, wanted in (("prices", options.prices), ("latencies", options.latencies)):
        if wanted is None or (what == "prices" and is_price_file(wanted, names)):
            continue
        found = named_columns(what, wanted, names, experts)
        units = {"ms" if seconds_per(column) < 1 else "seconds" for column in found.values()}
        unit = f" in {' and '.join(sorted(units))}" if what == "latencies" else ""
        pairs = listed([f"{column} for {name}" for name, column in found.items()], 4)
        notes.append(f"{what}{unit}: {pairs}")
        changed: dict[str, Any] = {what: found}
        layout = replace(layout, **changed)
    return replace(layout, notes=tuple(notes))


def read_format(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """A table with one row per query, which of its columns hold outcomes, and findings."""
    table = parse_objects(table)
    named = options.form or options.scores or options.model_column
    if options.form == "routellm" or not (named or possible_forms(table.schema, options.query)):
        table = parse_truths(table)
    format = FORMATS[choose_form(table.schema, options)]
    findings: list[Finding] = []
    if format.widen is not None:
        table, layout, findings = format.widen(table, options)
    else:
        layout = lay_out(table.schema, format.name, options)
    table, layout = add_prices(table, layout, options)
    taken = [name for name in table.column_names if name in layout.taken]
    layout = replace(layout, notes=(*layout.notes, *text_notes(table, taken)))
    return table, layout, findings
