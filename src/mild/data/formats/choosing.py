"""Which shape is this? Said, never guessed: two that fit, or none, are a question to the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mild.data.findings import counted
from mild.data.formats.layout import CORRECT, SCORE, Layout, Named, named_columns, seconds_per
from mild.data.formats.llmrouter import find_llmrouter
from mild.data.formats.plain import find_plain
from mild.data.formats.routellm import find_routellm
from mild.data.formats.routerbench import find_routerbench
from mild.data.formats.wide import find_wide
from mild.data.outcomes import FORMS
from mild.data.queries import usual_query
from mild.errors import DataFileError, check_option, listed

__all__ = ["TITLES", "choose_form", "lay_out", "possible_forms"]

TITLES = {
    "wide": "wide",
    "routerbench": "RouterBench",
    "routellm": "RouteLLM",
    "llmrouter": "LLMRouter",
    "plain": "plain columns",
}
RULES = {
    "wide": "wide (columns correct__<model> or score__<model>)",
    "routerbench": "RouterBench (columns <model> and <model>|total_cost)",
    "routellm": "RouteLLM (a prompt and a true-or-false column per model)",
    "llmrouter": "LLMRouter (rows of query, model_name, performance)",
}
FINDERS: dict[str, Callable[[Any], Layout | None]] = {
    "wide": find_wide,
    "routerbench": find_routerbench,
    "routellm": find_routellm,
}


def possible_forms(schema: Any) -> dict[str, str]:
    """Shapes that fit the columns, each with what would be read.

    RouteLLM has no mark of its own, so it is thought of only where no other fits, there is a query
    and there are two or more true-or-false columns.
    """
    found = {}
    for form in ("wide", "routerbench"):
        layout = FINDERS[form](schema)
        if layout is not None:
            found[form] = counted(len(layout.scores), "expert")
    if find_llmrouter(schema):
        found["llmrouter"] = "a row per query and model"
    if not found and usual_query(schema) is not None and not _has_costs(schema):
        flags = find_routellm(schema)
        if flags is not None and len(flags.scores) > 1:
            found["routellm"] = counted(len(flags.scores), "expert")
    return found


def choose_form(schema: Any, form: str | None, scores: Named) -> str:
    """The shape to read: the one asked for, the one that the named scores mean, or the only one."""
    if form is not None:
        return check_option("form", form, FORMS)
    if scores is not None:
        columns = find_plain(schema, scores).scores.values()
        marked = all(column.startswith((CORRECT, SCORE)) for column in columns)
        return "wide" if marked else "plain"
    possible = possible_forms(schema)
    if len(possible) == 1:
        return next(iter(possible))
    if possible:
        shown = [f"{TITLES[name]} ({what})" for name, what in possible.items()]
        options = " or ".join(f"--form {name}" for name in possible)
        raise DataFileError(f"it could be read as {' and as '.join(shown)}: choose with {options}.")
    raise DataFileError(
        f"no shape fits: {'; '.join(RULES.values())}; name the columns with --scores, or the shape "
        f"with --form. Found {listed(list(schema.names))}."
    )


def lay_out(schema: Any, form: str, scores: Named, prices: Named, latencies: Named) -> Layout:
    """Columns of a shape with a row per query; those that the caller named go before the usual ones."""
    if form == "plain":
        layout: Layout | None = find_plain(schema, scores)
    else:
        layout = FINDERS[form](schema)
        if layout is not None and scores is not None:
            named = find_plain(schema, scores).scores
            layout = replace(layout.of(list(named)), scores=named)
    if layout is None:
        raise DataFileError(
            f"it cannot be read as {RULES[form]}; found {listed(list(schema.names))}."
        )
    return _name_costs(layout, schema, prices, latencies)


def _name_costs(layout: Layout, schema: Any, prices: Named, latencies: Named) -> Layout:
    """The layout with prices and latencies that the caller named."""
    names, experts = list(schema.names), list(layout.scores)
    words = list(layout.words)
    if prices is not None:
        found = named_columns("prices", prices, names, experts)
        layout = replace(layout, prices=found)
        words.append(f"prices: {_pairs(found)}")
    if latencies is not None:
        found = named_columns("latencies", latencies, names, experts)
        layout = replace(layout, latencies=found)
        units = {"ms" if seconds_per(column) < 1 else "seconds" for column in found.values()}
        words.append(f"latencies in {' and '.join(sorted(units))}: {_pairs(found)}")
    return replace(layout, words=tuple(words))


def _pairs(columns: dict[str, str]) -> str:
    return listed([f"{column} for {name}" for name, column in columns.items()], 4)


def _has_costs(schema: Any) -> bool:
    # A table of features and costs may have flags among its features.
    return any(name.startswith("cost__") for name in schema.names)
