"""Texts to token numbers, alike where an encoder is trained and where it serves."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.errors import DataFileError, MissingExtraError

__all__ = ["Ids", "Tokens", "batches_by_length", "padded"]

# Characters read for each token that is kept: bounds the time of a text of a million characters.
CHARACTERS_PER_TOKEN = 16
# Numbers of tokens in a batch, the padding included.
BATCH_TOKENS = 8192

Ids: TypeAlias = NDArray[np.int64]


class Tokens:
    """A tokenizer of the ``tokenizers`` library: special tokens added, cut to a length.

    Parameters
    ----------
    content : its JSON
    max_length : tokens that are read of a text, special ones included
    pad : number of the token that fills up shorter texts
    """

    def __init__(self, content: bytes, max_length: int, pad: int = 0) -> None:
        try:
            # By name: without the extra the package has no types.
            tokenizers = importlib.import_module("tokenizers")
        except ImportError as error:
            raise MissingExtraError(
                "onnx features need the packages onnxruntime and tokenizers; pip install "
                "'mild-learn[onnx]'."
            ) from error
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_str(content.decode())
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(max_length)
        except Exception as error:  # tokenizers raises nothing narrower
            raise DataFileError(f"the tokenizer cannot be read ({error}).") from error
        self.max_length = max_length
        self.pad = pad

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """Token numbers of each text, at least one."""
        most = self.max_length * CHARACTERS_PER_TOKEN
        cut = [text[:most].encode("utf-8", "replace").decode() for text in texts]
        found = self._tokenizer.encode_batch_fast(cut, add_special_tokens=True)
        # A tokenizer without special tokens makes nothing of an empty text.
        return [np.array(tokens.ids or [self.pad], np.int64) for tokens in found]


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
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
        mask[place, : len(row)] = 1
    return ids, mask


def batches_by_length(rows: Sequence[Ids], most: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Places of rows of like length, the longest first, so many tokens at a time.

    Examples
    --------
    >>> rows = [np.zeros(length, np.int64) for length in (1, 4, 2, 3)]
    >>> list(batches_by_length(rows, most=8))
    [[1, 3], [2, 0]]
    """
    order = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
    start = 0
    while start < len(order):
        size = max(1, most // len(rows[order[start]]))
        yield order[start : start + size]
        start += size
