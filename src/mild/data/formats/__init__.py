"""Formats of outcome tables: one file each, and the list of them.

Formats are never guessed: where two fit, or none, the caller has to choose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mild.core.arrays import invalid
from mild.data.data_quality import Finding
from mild.data.formats.base import (
    CORRECT,
    PRICE,
    SCORE,
    Format,
    Layout,
    Named,
    ReadArguments,
    as_pairs,
    named_columns,
    named_scores,
    seconds_per,
)
from mild.data.formats.llmrouter import LLMROUTER
from mild.data.formats.nested import NESTED, parse_objects
from mild.data.formats.routellm import ROUTELLM
from mild.data.formats.routerbench import ROUTERBENCH
from mild.data.formats.tokens import add_prices, is_price_file
from mild.data.formats.wide import WIDE
from mild.data.queries import usual_query
from mild.data.tables import is_string
from mild.errors import DataFileError, check_option, counted, listed

DETECTED = (WIDE, ROUTERBENCH, ROUTELLM, LLMROUTER, NESTED)
# Columns that the caller names.
PLAIN = Format("plain", "plain columns", "plain columns (named with --scores)", lambda schema: None)
FORMATS = {format.name: format for format in (*DETECTED, PLAIN)}
FORMS = tuple(FORMATS)


def check_options(options: ReadArguments) -> None:
    """Refuse options that no table could fit, before one is read."""
    if options.form is not None:
        check_option("form", options.form, FORMS)
    for what in ("query", "experts", "scores", "prices", "latencies", "vectors", "tokens", "where"):
        value = getattr(options, what)
        if not isinstance(value, Iterable | None):
            raise invalid(what, f"must be a text or a list of texts; got {value!r}.")
    for what in ("scores", "prices", "latencies"):
        as_pairs(getattr(options, what), what)


def possible_forms(schema: Any) -> dict[str, str]:
    """Formats that fit the columns, each with what would be read.

    A format without marks of its own counts only where no other fits, there are a query and two or more
    experts, and no costs: features may be flags too.
    """
    layouts = {format.name: format.detect(schema) for format in DETECTED if not format.unmarked}
    found = {name: layout for name, layout in layouts.items() if layout is not None}
    has_costs = any(name.startswith("cost__") for name in schema.names)
    if not found and usual_query(schema) is not None and not has_costs:
        layouts = {format.name: format.detect(schema) for format in DETECTED if format.unmarked}
        found = {
            name: layout for name, layout in layouts.items() if layout and len(layout.scores) > 1
        }
    return {
        name: counted(len(layout.scores), "expert")
        if layout.scores
        else "a row per query and model"
        for name, layout in found.items()
    }


def choose_form(schema: Any, form: str | None, scores: Named) -> str:
    """The format to read: the one asked for, the one that the named scores mean, or the only one."""
    if form is not None:
        return form
    if scores is not None:
        columns = named_scores(schema, scores).values()
        return "wide" if all(name.startswith((CORRECT, SCORE)) for name in columns) else "plain"
    possible = possible_forms(schema)
    if len(possible) == 1:
        return next(iter(possible))
    if possible:
        shown = [f"{FORMATS[name].title} ({what})" for name, what in possible.items()]
        options = " or ".join(f"--form {name}" for name in possible)
        raise DataFileError(
            f"it could be read as {' and as '.join(shown)}: choose with {options}.",
            parameter="form",
        )
    names = list(schema.names)
    dollars = ""
    if any(name.startswith(PRICE) for name in names):
        dollars = (
            " In a table with queries, cost__<model> are dollars: name them with --prices 'cost__*', or "
            "with --costs 'cost__*' if they are the whole cost."
        )
    raise DataFileError(
        f"no shape fits: {'; '.join(format.rule for format in DETECTED)}; name the columns with "
        f"--scores, or the shape with --form. Found {listed(names)}.{dollars}",
        parameter="form",
    )


def lay_out(schema: Any, form: str, scores: Named, prices: Named, latencies: Named) -> Layout:
    """Columns of a format with a row per query; those that the caller named go before the usual ones."""
    layout = Layout("plain", {}) if form == "plain" else FORMATS[form].detect(schema)
    if layout is None:
        raise DataFileError(
            f"it cannot be read as {FORMATS[form].rule}; found {listed(list(schema.names))}.",
            parameter="form",
        )
    if scores is not None or form == "plain":
        named = named_scores(schema, scores)
        layout = replace(layout.of(list(named)), scores=named)
    names, experts = list(schema.names), list(layout.scores)
    notes = list(layout.notes)
    for what, wanted in (("prices", prices), ("latencies", latencies)):
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
    format = FORMATS[choose_form(table.schema, options.form, options.scores)]
    findings: list[Finding] = []
    if format.widen is not None:
        table, layout, findings = format.widen(table, options)
    else:
        named = (options.scores, options.prices, options.latencies)
        layout = lay_out(table.schema, format.name, *named)
    table, layout = add_prices(table, layout, options)
    texts = [name for name in layout.taken if is_string(table.schema.field(name).type)]
    if texts:
        layout = replace(layout, notes=(*layout.notes, f"numbers as text in {listed(texts, 4)}"))
    return table, layout, findings
