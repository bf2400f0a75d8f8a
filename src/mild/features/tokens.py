"""Texts to token numbers, the same in training and in serving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.errors import DataFileError
from mild.features.model_files import import_extra

__all__ = ["Ids", "Tokens", "batches_by_length", "cut_texts", "open_tokenizer", "padded"]

# Characters read for each token that is kept: bounds the time of a text of a million characters.
CHARACTERS_PER_TOKEN = 16
# Tokens in a batch, padding included.
BATCH_TOKENS = 8192

Ids: TypeAlias = NDArray[np.int64]


class Tokens:
    """A tokenizer of the ``tokenizers`` library: special tokens added, truncated.

    Parameters
    ----------
    content : its JSON
    max_length : tokens that are read of a text, special ones included
    pad : number of the padding token
    """

    def __init__(self, content: bytes, max_length: int, pad: int = 0) -> None:
        self._tokenizer = open_tokenizer(content, "onnx features", "onnx")
        self._tokenizer.enable_truncation(max_length)
        self.max_length = max_length
        self.pad = pad

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """Token numbers of each text, at least one."""
        cut = cut_texts(texts, self.max_length)
        found = self._tokenizer.encode_batch_fast(cut, add_special_tokens=True)
        # A tokenizer without special tokens gives no token for an empty text.
        return [np.array(tokens.ids or [self.pad], np.int64) for tokens in found]


def open_tokenizer(content: bytes, user: str, extra: str) -> Any:
    """A tokenizer from its JSON, without padding and truncation."""
    (tokenizers,) = import_extra(user, extra, "tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(content.decode())
    except Exception as error:  # tokenizers raises nothing narrower
        raise DataFileError(f"the tokenizer cannot be read ({error}).") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def cut_texts(texts: Sequence[str], max_length: int) -> list[str]:
    """Texts cut to what ``max_length`` tokens can hold; lone surrogates become question marks."""
    longest = max_length * CHARACTERS_PER_TOKEN
    return [text[:longest].encode("utf-8", "replace").decode() for text in texts]


def padded(rows: Sequence[Ids], pad: int) -> tuple[Ids, Ids]:
    """Token numbers (n, longest) filled up with ``pad``, and a mask that is 0 there.

    Examples
    --------
    >>> padded([np.array([5, 6]), np.array([7])], 0)
    (array([[5, 6],
           [7, 0]]), array([[1, 1],
           [1, 0]]))
    """
    longest = max(len(row) for row in rows)
    ids = np.full((len(rows), longest), pad, np.int64)
    mask = np.zeros((len(rows), longest), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return ids, mask


def batches_by_length(rows: Sequence[Ids], most: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Indices of rows of similar length, the longest first, at most ``most`` tokens at a time.

    Examples
    --------
    >>> rows = [np.zeros(length, np.int64) for length in (1, 4, 2, 3)]
    >>> list(batches_by_length(rows, most=8))
    [[1, 3], [2, 0]]
    """
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    start = 0
    while start < len(order):
        size = max(1, most // len(rows[order[start]]))
        yield order[start : start + size]
        start += size
