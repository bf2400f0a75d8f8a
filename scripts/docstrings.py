"""An extension of griffe: mild's docstrings as numpydoc has them.

mild writes ``name : meaning``, because types are in the signature. numpydoc would take the meaning for a
type, so it is moved to a line of its own.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

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
    """

    def rewrite(section: re.Match[str]) -> str:
        title, body = section[1], section[2]
        if title == "Returns":
            # The type is shown from the signature.
            body = re.sub(rf"^{re.escape(returned)}(?:[,;:] |$)", "", body) if returned else body
            lines = "\n".join(f"    {line}" for line in body.split("\n"))
            body = f"{returned}\n{lines}" if returned else body
        else:
            body = re.sub(r"^([\w*][\w*, ]*) : (.*)$", r"\1\n    \2", body, flags=re.M)
        return f"{title}\n{'-' * len(title)}\n{body}"

    return _SECTION.sub(rewrite, text)


class Sections(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            returned = str(getattr(obj, "returns", None) or "")
            text = inspect.cleandoc(obj.docstring.value)
            obj.docstring.value = as_numpydoc(text, returned)
