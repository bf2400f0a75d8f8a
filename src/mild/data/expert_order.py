"""The order of the experts of a table: by name, with numbers in names compared as numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DIGITS = re.compile("([0-9]+)")


def name_order(names: Sequence[str]) -> list[int]:
    """Return the indices that sort names naturally: ``expert_2`` comes before ``expert_10``.

    >>> names = ["Qwen-72B", "Qwen-0.5B", "Qwen-7B"]
    >>> [names[index] for index in name_order(names)]
    ['Qwen-0.5B', 'Qwen-7B', 'Qwen-72B']
    """
    return sorted(range(len(names)), key=lambda index: _natural_key(names[index]))


def _natural_key(name: str) -> tuple[list[str | tuple[int, str]], str]:
    """Return the texts and numbers of a name in turn, then the name, in case names differ in zeros only."""
    key: list[str | tuple[int, str]] = []
    for index, piece in enumerate(_DIGITS.split(name)):
        # Pieces at even indices are texts, those between them digits.
        if index % 2 == 0:
            key.append(piece)
        else:
            # Of numbers without leading zeros, the longer one is the larger one.
            digits = piece.lstrip("0")
            key.append((len(digits), digits))
    return key, name
