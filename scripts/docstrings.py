"""An extension of griffe: mild's docstrings as numpydoc has them.

Types are shown from the signature. So of ``name : type, default=...`` with an indented description only the
description is kept; and of ``name : description``, which numpydoc would take for a type, the description is
moved to a line of its own. Attributes, which are in no signature, keep their types.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

from mild.cli.function_help import is_type

_ENTRY = re.compile(r"([\w*][\w*, ]*) : (.*)")
_SECTION = re.compile(
    r"^(Parameters|Attributes|Returns)\n-+\n(.*?)(?=\n\n[A-Z]\w+\n-+\n|\Z)", re.M | re.S
)


def as_numpydoc(text: str, returned: str = "") -> str:
    """A docstring whose sections have the meaning of each entry on lines of their own.

    >>> print(as_numpydoc("Add.\\n\\nParameters\\n----------\\nx, y : numbers\\n    or texts"))
    Add.
    <BLANKLINE>
    Parameters
    ----------
    x, y
        numbers
        or texts
    >>> print(as_numpydoc("Add.\\n\\nParameters\\n----------\\nx : int, default=0\\n    A number."))
    Add.
    <BLANKLINE>
    Parameters
    ----------
    x
        A number.
    """

    def rewrite(section: re.Match[str]) -> str:
        title, body = section[1], section[2]
        if title == "Returns":
            # The type is shown from the signature.
            body = re.sub(rf"^{re.escape(returned)}(?:[,;:] |$)", "", body) if returned else body
            lines = "\n".join(f"    {line}" for line in body.split("\n"))
            body = f"{returned}\n{lines}" if returned else body
        else:
            body = _with_descriptions_below(body, keeps_types=title == "Attributes")
        return f"{title}\n{'-' * len(title)}\n{body}"

    return _SECTION.sub(rewrite, text)


def _with_descriptions_below(body: str, keeps_types: bool) -> str:
    """The entries of a section, each with its names on one line and its description below.

    Attributes keep their types: no signature shows them.
    """
    lines = body.split("\n")
    rewritten = []
    for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            rewritten.append(line)
            continue
        has_type = is_type(entry[2], next_line)
        if has_type and keeps_types:
            rewritten.append(line)
            continue
        rewritten.append(entry[1])
        if not has_type:
            rewritten.append(f"    {entry[2]}")
    return "\n".join(rewritten)


class Sections(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            returned = str(getattr(obj, "returns", None) or "")
            text = inspect.cleandoc(obj.docstring.value)
            obj.docstring.value = as_numpydoc(text, returned)
