"""Which terms made the features of a text what they are."""

from __future__ import annotations

import numpy as np

from mild.features.base import Rows
from mild.features.hashing.buffer import Buffer
from mild.features.hashing.counts import Ints
from mild.features.hashing.numbers import NUMBER_NAMES
from mild.features.hashing.terms import hash_terms, term_texts

__all__ = ["name_terms", "spread_numbers"]


def name_terms(buffer: Buffer, bits: int, index: Ints, columns: Ints) -> list[str]:
    """A readable term for each of the columns that one text has; the first where several share a bucket."""
    _, hashes = hash_terms(buffer)
    found = index.take((hashes >> np.uint64(64 - bits)).astype(np.intp))
    names: dict[int, str] = {}
    for column, name in zip(found.tolist(), term_texts(buffer), strict=True):
        names.setdefault(column, name)
    return [names[column] for column in columns.tolist()]


def spread_numbers(row: Rows, width: int) -> tuple[list[str], Rows]:
    """The plain numbers of a row of features, each in a row of its own."""
    parts = np.zeros((len(NUMBER_NAMES), row.size), np.float32)
    places = np.arange(len(NUMBER_NAMES))
    parts[places, width + places] = row[width:]
    return [f"<{name}>" for name in NUMBER_NAMES], parts
