"""Texts to bytes: cut to a bounded length, folded, laid end to end with one space between them.

Case is folded by ``str.lower`` where a text has other than ASCII letters and by the ASCII table otherwise,
which is the same thing, faster. Control characters count as spaces. What follows works on the UTF-8
bytes, so any Unicode text can be hashed, lone surrogates included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["MARK", "SPACE", "WORD", "Buffer", "lay_out", "shorten"]

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.signedinteger[Any]]

# Classes of bytes. A word is a run of ASCII letters, digits and bytes of other alphabets; a mark is one
# byte of ASCII punctuation.
SPACE, WORD, MARK = 0, 1, 2


def _fold(byte: int) -> int:
    if byte < 33 or byte == 127:
        return 32
    return byte + 32 if 65 <= byte <= 90 else byte


def _class(byte: int) -> int:
    if byte < 33 or byte == 127:
        return SPACE
    return WORD if byte > 127 or chr(byte).isalnum() else MARK


FOLD = bytes(_fold(byte) for byte in range(256))
CLASSES = bytes(_class(byte) for byte in range(256))


@dataclass(frozen=True)
class Buffer:
    """Several texts in one run of bytes, each followed by a space, and a space before the first.

    Attributes
    ----------
    raw : (size,) uint8, as they were written
    folded : (length,) uint8, in lower case; not always as long as ``raw``
    classes : (length,) uint8, SPACE, WORD or MARK for each folded byte
    raw_ends, ends : (n_texts + 1,) places of the spaces in ``raw`` and ``folded``
    lengths : (n_texts,) characters of the whole texts, before they were cut
    """

    raw: Bytes
    folded: Bytes
    classes: Bytes
    raw_ends: Ints
    ends: Ints
    lengths: Ints

    @property
    def n_texts(self) -> int:
        """Number of texts."""
        return self.lengths.size


def shorten(text: str, first: int, last: int) -> str:
    """The first and the last so many characters of a longer text, a space between them.

    Examples
    --------
    >>> shorten("abcdefgh", 3, 2), shorten("abcde", 3, 2)
    ('abc gh', 'abcde')
    """
    if len(text) <= first + last:
        return text
    return f"{text[:first]} {text[len(text) - last :]}"


def lay_out(texts: Sequence[str], first: int, last: int) -> Buffer:
    """Cut, encode and fold the texts."""
    cut = [text if len(text) <= first + last else shorten(text, first, last) for text in texts]
    written = [text.encode("utf-8", "surrogatepass") for text in cut]
    joined = b" ".join((b"", *written, b""))
    raw_ends = _ends(written)
    if joined.isascii():
        lowered, ends = joined, raw_ends
    else:
        small = [text.lower().encode("utf-8", "surrogatepass") for text in cut]
        lowered, ends = b" ".join((b"", *small, b"")), _ends(small)
    folded = lowered.translate(FOLD)
    return Buffer(
        raw=np.frombuffer(joined, np.uint8),
        folded=np.frombuffer(folded, np.uint8),
        classes=np.frombuffer(folded.translate(CLASSES), np.uint8),
        raw_ends=raw_ends,
        ends=ends,
        lengths=np.array([len(text) for text in texts], np.int64),
    )


def _ends(written: Sequence[bytes]) -> Ints:
    return np.fromiter(accumulate((len(text) + 1 for text in written), initial=0), np.int64)
