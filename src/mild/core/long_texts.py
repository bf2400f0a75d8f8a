"""What is kept of long texts. It does without NumPy because the gateway's ledger uses it, too."""

from __future__ import annotations

import re

# Characters that features keep of a longer text, from its beginning and from its end.
FIRST, LAST = 6144, 2048
_OMITTED = re.compile(r" \[(\d{1,12}) characters omitted\] ")


def shorten(text: str, first: int, last: int) -> str:
    """The first and the last characters of a longer text, with a space between them."""
    if len(text) <= first + last:
        return text
    return f"{text[:first]} {text[len(text) - last :]}"


def abridge(text: str) -> str:
    """A long text without its middle; its hashed features are those of the whole text.

    Examples
    --------
    >>> abridge("a" * 1_000_000)[6140:6175]
    'aaaa [991808 characters omitted] aa'
    """
    note = f" [{whole_length(text) - FIRST - LAST} characters omitted] "
    if len(text) <= FIRST + LAST + len(note):
        return text
    return f"{text[:FIRST]}{note}{text[len(text) - LAST :]}"


def whole_length(text: str) -> int:
    """Characters of a text before it was abridged."""
    if len(text) > FIRST + LAST:
        omitted = _OMITTED.fullmatch(text, FIRST, len(text) - LAST)
        if omitted:
            return FIRST + LAST + int(omitted[1])
    return len(text)
