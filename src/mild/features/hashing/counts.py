"""Hashed terms to counts: which known terms each text has, and how often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.features.hashing.buffer import Buffer
from mild.features.hashing.terms import hash_terms

__all__ = ["Counts", "chunks", "count_buckets", "count_known", "index_of"]

Ints: TypeAlias = NDArray[np.signedinteger[Any]]

# Characters per chunk: enough for two threads to seldom wait for each other, and still in cache. Texts
# per chunk bound its counters.
CHUNK_CHARACTERS = 65_536
CHUNK_TEXTS = 256


@dataclass(frozen=True)
class Counts:
    """Counts of several texts, side by side: text t has the entries ``ends[t]`` to ``ends[t + 1]``.

    Attributes
    ----------
    columns : (n_entries,) distinct within a text, ascending
    counts : (n_entries,) how often
    ends : (n_texts + 1,)
    """

    columns: Ints
    counts: Ints
    ends: Ints


def chunks(texts: Sequence[str], longest: int) -> Iterator[slice]:
    """Slices of neighbouring texts that together have a bounded number of characters."""
    start = size = 0
    for place, text in enumerate(texts):
        length = min(len(text), longest)
        if place > start and (size + length > CHUNK_CHARACTERS or place - start == CHUNK_TEXTS):
            yield slice(start, place)
            start, size = place, 0
        size += length
    if start < len(texts):
        yield slice(start, len(texts))


def index_of(terms: Ints, bits: int) -> Ints:
    """Column of each bucket, (2^bits,); -1 for those that are not kept."""
    index = np.full(1 << bits, -1, np.int32)
    index[terms] = np.arange(terms.size, dtype=np.int32)
    return index


def count_buckets(buffer: Buffer, bits: int) -> Counts:
    """Counts of hash buckets in [0, 2^bits)."""
    texts, hashes = hash_terms(buffer)
    buckets = (hashes >> np.uint64(64 - bits)).astype(np.int32)
    return _grouped(texts, buckets, 1 << bits, buffer.n_texts)


def count_known(buffer: Buffer, bits: int, index: Ints, n_terms: int) -> Counts:
    """Counts of known terms: ``index`` (2^bits,) gives the column of a bucket, or -1."""
    texts, hashes = hash_terms(buffer)
    hashes >>= np.uint64(64 - bits)
    columns = index.take(hashes.view(np.int64))
    known = (columns >= 0).nonzero()[0]
    if texts is not None:
        texts = texts.take(known)
    return _grouped(texts, columns.take(known), n_terms, buffer.n_texts)


def _grouped(texts: Ints | None, columns: Ints, width: int, n_texts: int) -> Counts:
    keys = columns
    if texts is not None:
        # Four bytes sort faster than eight.
        small = n_texts * width < 1 << 31
        keys = texts.astype(np.int32 if small else np.int64)
        keys *= width
        keys += columns
    keys.sort()
    fresh = np.empty(keys.size + 1, bool)
    fresh[0] = fresh[-1] = True
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:-1])
    places = fresh.nonzero()[0] if keys.size else np.zeros(1, np.intp)
    distinct = keys.take(places[:-1])
    counts = places[1:] - places[:-1]
    if texts is None:
        return Counts(distinct.astype(np.intp), counts, np.array((0, distinct.size)))
    ends = distinct.searchsorted(np.arange(n_texts + 1) * width)
    return Counts((distinct % width).astype(np.intp), counts, ends)
