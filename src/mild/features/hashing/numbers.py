"""A few plain numbers about a text: how long it is, and how much of it is digits, code, capitals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mild.features.hashing.buffer import Buffer

__all__ = ["NUMBER_NAMES", "count_numbers"]

NUMBER_NAMES = (
    "log_length",
    "log_lines",
    "log_questions",
    "digits",
    "capitals",
    "code",
    "arithmetic",
    "spaces",
    "not_ascii",
)

_GROUPS = {
    1: b"\n",
    2: b"?",
    3: b"0123456789",
    4: b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    5: b"{}[]();_`#\\|&@~",
    6: b"+-*/=<>^%$",
    7: b" \t\r",
    8: bytes(range(128, 256)),
}
_GROUP_OF = bytes(
    next((group for group, members in _GROUPS.items() if byte in members), 0) for byte in range(256)
)


def count_numbers(buffer: Buffer) -> NDArray[np.float64]:
    """Numbers (n_texts, 9): logarithms of characters, lines and question marks, then shares.

    Shares are of the bytes that are left after long texts were cut, and of one space behind them.
    """
    sizes = buffer.raw_ends[1:] - buffer.raw_ends[:-1]
    groups = np.frombuffer(buffer.raw[1:].tobytes().translate(_GROUP_OF), np.uint8)
    width = len(NUMBER_NAMES)
    one = buffer.n_texts == 1
    keys = groups if one else groups + (np.arange(sizes.size) * width).repeat(sizes)
    counts = np.bincount(keys, minlength=sizes.size * width).reshape(-1, width)
    counts[:, 0] = buffer.lengths
    numbers = counts / sizes[:, None]
    numbers[:, :3] = np.log1p(counts[:, :3])
    return numbers
