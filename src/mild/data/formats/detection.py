"""The known formats, and which of them a table has.

Formats are never guessed: where two fit, or none, the caller has to choose.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mild.data.data_quality import Finding, counted
from mild.data.formats.layout import (
    CORRECT,
    SCORE,
    Layout,
    Named,
    ReadOptions,
    named_columns,
    seconds_per,
)
from mild.data.formats.llmrouter import LLMROUTER, read_llmrouter
from mild.data.formats.plain import PLAIN, named_scores
from mild.data.formats.routellm import ROUTELLM
from mild.data.formats.routerbench import ROUTERBENCH
from mild.data.formats.wide import WIDE
from mild.data.queries import usual_query
from mild.errors import DataFileError, check_option, listed

__all__ = ["FORMATS", "FORMS", "choose_form", "lay_out", "possible_forms", "read_format"]

FORMATS = {format.name: format for format in (WIDE, ROUTERBENCH, ROUTELLM, LLMROUTER, PLAIN)}
FORMS = tuple(FORMATS)


def possible_forms(schema: Any) -> dict[str, str]:
    """Formats that fit the columns, each with what would be read.

    RouteLLM has no mark of its own, so it counts only where no other format fits, there are a query and
    two or more true-or-false columns, and no costs: features may be flags too.
    """
    found = {}
    for format in (WIDE, ROUTERBENCH, LLMROUTER):
        layout = format.detect(schema)
        if layout is not None:
            experts = counted(len(layout.scores), "expert")
            found[format.name] = experts if layout.scores else "a row per query and model"
    has_costs = any(name.startswith("cost__") for name in schema.names)
    if not found and usual_query(schema) is not None and not has_costs:
        flags = ROUTELLM.detect(schema)
        if flags is not None and len(flags.scores) > 1:
            found["routellm"] = counted(len(flags.scores), "expert")
    return found


def choose_form(schema: Any, form: str | None, scores: Named) -> str:
    """The format to read: the one asked for, the one that the named scores mean, or the only one."""
    if form is not None:
        return check_option("form", form, FORMS)
    if scores is not None:
        columns = named_scores(schema, scores).scores.values()
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
    rules = "; ".join(format.rule for format in (WIDE, ROUTERBENCH, ROUTELLM, LLMROUTER))
    raise DataFileError(
        f"no shape fits: {rules}; name the columns with --scores, or the shape with --form. "
        f"Found {listed(list(schema.names))}.",
        parameter="form",
    )


def lay_out(schema: Any, form: str, scores: Named, prices: Named, latencies: Named) -> Layout:
    """Columns of a format with a row per query; those that the caller named go before the usual ones."""
    layout = named_scores(schema, scores) if form == "plain" else FORMATS[form].detect(schema)
    if layout is None:
        raise DataFileError(
            f"it cannot be read as {FORMATS[form].rule}; found {listed(list(schema.names))}.",
            parameter="form",
        )
    if scores is not None and form != "plain":
        named = named_scores(schema, scores).scores
        layout = replace(layout.of(list(named)), scores=named)
    names, experts = list(schema.names), list(layout.scores)
    notes = list(layout.notes)
    if prices is not None:
        found = named_columns("prices", prices, names, experts)
        layout = replace(layout, prices=found)
        notes.append(f"prices: {_pairs(found)}")
    if latencies is not None:
        found = named_columns("latencies", latencies, names, experts)
        layout = replace(layout, latencies=found)
        units = {"ms" if seconds_per(column) < 1 else "seconds" for column in found.values()}
        notes.append(f"latencies in {' and '.join(sorted(units))}: {_pairs(found)}")
    return replace(layout, notes=tuple(notes))


def read_format(table: Any, options: ReadOptions) -> tuple[Any, Layout, list[Finding]]:
    """A table with one row per query, which of its columns hold outcomes, and findings."""
    form = choose_form(table.schema, options.form, options.scores)
    if form == "llmrouter":
        return read_llmrouter(table, options)
    layout = lay_out(table.schema, form, options.scores, options.prices, options.latencies)
    return table, layout, []


def _pairs(columns: dict[str, str]) -> str:
    return listed([f"{column} for {name}" for name, column in columns.items()], 4)
