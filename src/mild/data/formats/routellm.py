"""RouteLLM: a prompt, and one true-or-false column per model."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from mild.data.formats.base import Format, Layout
from mild.data.queries import QUERY_NAMES
from mild.data.tables import TRUTHS, is_string, parse_numbers
from mild.errors import listed

# Names of columns that describe the row, not an answer.
_FLAG = re.compile(r"(is|has)_.*|.*_flag|test|train|valid|validation|dev|eval", re.IGNORECASE)

# Names of columns that hold the right answer of a query, which may be yes or no.
_GOLD = ("answer", "label", "gold", "target", "ground_truth", "expected", *QUERY_NAMES)


def parse_truths(table: Any) -> Any:
    """Replace columns that hold only yes and no, or such words, by truth values."""
    for index, name in enumerate(table.column_names):
        column = table[name]
        if not is_string(column.type) or name.lower() in _GOLD:
            continue
        words = {text.strip().lower() for text in column.drop_null().to_pylist()} - {""}
        if words and words <= set(TRUTHS):
            truths = parse_numbers(column, truths=True).cast(pa.bool_())
            table = table.set_column(index, name, truths)
    return table


def detect_routellm(schema: Any) -> Layout | None:
    """Return a layout whose models are the true-or-false columns, except flags: is_*, has_*, test, ..."""
    scores = {}
    flags = []
    for field in schema:
        if not pa.types.is_boolean(field.type):
            continue
        if _FLAG.fullmatch(field.name):
            flags.append(field.name)
        else:
            scores[field.name] = field.name
    if not scores:
        return None
    notes = [f"the experts are {listed(list(scores))}"]
    if flags:
        notes.append(f"not taken as experts, by their names: {listed(flags)}")
    return Layout("routellm", scores, notes=tuple(notes))


ROUTELLM = Format(
    "routellm",
    "RouteLLM",
    "RouteLLM (a prompt and a true-or-false column per model)",
    detect_routellm,
    rank=2,
)
