"""RouteLLM: a prompt, and one true-or-false column per model."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mild.tables.forms.layout import Layout

__all__ = ["find_routellm"]


def find_routellm(schema: Any) -> Layout | None:
    """Every true-or-false column is a model.

    Examples
    --------
    >>> kinds = [("prompt", pa.string()), ("weak", pa.bool_()), ("strong", pa.bool_())]
    >>> find_routellm(pa.schema(kinds)).scores
    {'weak': 'weak', 'strong': 'strong'}
    """
    experts = [field.name for field in schema if pa.types.is_boolean(field.type)]
    return Layout("routellm", {name: name for name in experts}) if experts else None
