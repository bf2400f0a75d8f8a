"""HTML and SVG from Python: every text is escaped unless it is markup already."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

__all__ = ["Child", "Markup", "breakable", "clean", "join", "tag"]

#: Tags that have no content.
VOID = frozenset({"br", "hr", "meta", "link", "input", "img", "wbr"})
# What no page may hold, and marks that turn the reading direction of what follows.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")


class Markup(str):
    """Text that is HTML already. Only ``tag`` and ``join`` make it."""

    __slots__ = ()


Child: TypeAlias = "Markup | str | Iterable[Markup | str | None] | None"


def clean(text: str) -> str:
    """The text without what HTML forbids.

    Examples
    --------
    >>> clean("a\\x00b\\u202ec")
    'a�bc'
    """
    return TURNING.sub("", FORBIDDEN.sub("�", text))


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element; attributes that are None or False are left out, a trailing underscore is dropped.

    Examples
    --------
    >>> print(tag("b", "1 < 2", class_="x", data_tip='say "no"'))
    <b class="x" data-tip="say &quot;no&quot;">1 &lt; 2</b>
    >>> print(tag("p", tag("i", "in"), ["a", None]))
    <p><i>in</i>a</p>
    """
    opening = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        opening.append(word if value is True else f'{word}="{_value(value)}"')
    start = f"<{' '.join(opening)}>"
    if name in VOID:
        return Markup(start)
    return Markup(f"{start}{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children side by side.

    Examples
    --------
    >>> print(join("<", tag("br"), None))
    &lt;<br>
    """
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, str):
            parts.append(child if isinstance(child, Markup) else html.escape(clean(child)))
        else:
            parts.append(join(*child))
    return Markup("".join(parts))


def breakable(name: str) -> Markup:
    """A name that may be broken behind its underscores.

    Examples
    --------
    >>> print(breakable("world_history"))
    world_<wbr>history
    """
    first, *others = name.split("_")
    return join(first, *(join("_", tag("wbr"), part) for part in others))


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return html.escape(clean(str(value)), quote=True)
    # Pixels and per cents: a hundredth is finer than any screen.
    return f"{float(value):.2f}".rstrip("0").rstrip(".") if value != 0 else "0"
