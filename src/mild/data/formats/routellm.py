"""RouteLLM: a prompt, and one true-or-false column per model."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from mild.data.formats.base import Format, Layout
from mild.errors import listed

# Names of columns that describe the row, not an answer.
_FLAG = re.compile(r"(is|has)_.*|.*_flag|test|train|valid|validation|dev|eval", re.IGNORECASE)


def detect_routellm(schema: Any) -> Layout | None:
    """Every true-or-false column is a model, unless it is named as a flag: is_*, has_*, test, ..."""
    truths = [field.name for field in schema if pa.types.is_boolean(field.type)]
    flags = [name for name in truths if _FLAG.fullmatch(name)]
    experts = [name for name in truths if name not in flags]
    if not experts:
        return None
    notes = [f"the experts are {listed(experts)}"]
    if flags:
        notes.append(f"not taken as experts, by their names: {listed(flags)}")
    return Layout("routellm", {name: name for name in experts}, notes=tuple(notes))


ROUTELLM = Format(
    "routellm",
    "RouteLLM",
    "RouteLLM (a prompt and a true-or-false column per model)",
    detect_routellm,
    unmarked=True,
)
