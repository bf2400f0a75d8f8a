"""Bytes to hashed terms: words and marks, pairs of neighbours, pieces of five bytes. No loop in Python.

Bytes ``b_s`` to ``b_(e-1)`` have the polynomial hash ``sum_i b_i r^(i-s)`` modulo ``2^64``, r odd. With
running sums ``S_e = sum_(i<e) b_i r^i`` it is ``(S_e - S_s) r^(-s)``: look-ups and a product, however long
the term. A last mixing step spreads it over all 64 bits. The hash is fixed for good: an artefact holds
places in a table of hashes. It is fast, not secret: whoever wants two texts to collide can have that.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.features.hashing.buffer import MARK, WORD, Buffer

__all__ = ["PIECE", "hash_terms", "term_texts"]

Hashes: TypeAlias = NDArray[np.uint64]
Ints: TypeAlias = NDArray[np.signedinteger[Any]]

PIECE = 5
_RATIO = 0x9E3779B97F4A7C15
_INVERSE = pow(_RATIO, -1, 1 << 64)
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
_PAIR = np.uint64(0xA24BAED4963EE407)
# What keeps the piece "hello" apart from the word "hello".
_PIECE_SALT = np.uint64(0x8CB92BA72F3D8DD7)
_HALF = np.uint64(32)


def hash_terms(buffer: Buffer) -> tuple[Ints | None, Hashes]:
    """Text and hash of every term: ``texts`` (n_terms,) and ``hashes`` (n_terms,) uint64, unsorted.

    ``texts`` is None where there is one text: the fast path has nothing to tell apart.
    """
    starts, stops, pieces = _places(buffer)
    sums, inverse = _running_sums(buffer)
    # Starts are those of the byte before, ends those of the last byte: both miss by one in the sums. The
    # power that undoes a word's start does too, which multiplies every word's hash by r.
    after = sums[1:]
    words = after.take(stops)
    words -= after.take(starts)
    words *= inverse.take(starts)
    parts = sums[PIECE:].take(pieces)
    parts -= sums.take(pieces)
    parts *= inverse.take(pieces)
    parts ^= _PIECE_SALT
    pairs = words[:-1] * _PAIR
    pairs += words[1:]
    if buffer.n_texts == 1:
        return None, _mixed(np.concatenate((words, pairs, parts)))
    of_words = _texts_of(starts, buffer)
    inside = (of_words[1:] == of_words[:-1]).nonzero()[0]
    texts = np.concatenate((of_words, of_words.take(inside), _texts_of(pieces, buffer)))
    return texts, _mixed(np.concatenate((words, pairs.take(inside), parts)))


def term_texts(buffer: Buffer) -> list[str]:
    """Each term of one text as a person reads it, in the order of ``hash_terms``."""
    starts, stops, pieces = _places(buffer)
    content = buffer.folded.tobytes()

    def read(start: int, stop: int) -> str:
        return content[start:stop].decode("utf-8", "replace")

    words = [read(start + 1, stop + 1) for start, stop in zip(starts, stops, strict=True)]
    pairs = [f"{a} {b}" for a, b in pairwise(words)]
    return [*words, *pairs, *(f"…{read(place, place + PIECE)}…" for place in pieces)]


def _places(buffer: Buffer) -> tuple[Ints, Ints, Ints]:
    """Bytes before the first of each word or mark, last bytes of each, and first bytes of pieces."""
    classes = buffer.classes
    before, after = classes[:-1], classes[1:]
    is_word, is_mark = classes == WORD, classes == MARK
    turns = before != after
    starts = (is_mark[1:] | (turns & is_word[1:])).nonzero()[0]
    stops = (is_mark[:-1] | (turns & is_word[:-1])).nonzero()[0]
    # A piece is five bytes whose middle three belong to a word, so it never leaves its text.
    pieces = (is_word[1:-3] & is_word[2:-2] & is_word[3:-1]).nonzero()[0]
    return starts, stops, pieces


def _texts_of(places: Ints, buffer: Buffer) -> Ints:
    """Number of the text that each place lies in, places ascending."""
    ends = places.searchsorted(buffer.ends)
    return np.arange(buffer.n_texts).repeat(ends[1:] - ends[:-1])


def _running_sums(buffer: Buffer) -> tuple[Hashes, Hashes]:
    """Sums ``S`` (length + 1,), and the powers that undo a start one byte later."""
    size = buffer.folded.size
    powers, inverse = _powers(max(16, size.bit_length()))
    sums = np.empty(size + 1, np.uint64)
    sums[0] = 0
    np.add.accumulate(buffer.folded * powers[:size], out=sums[1:])
    return sums, inverse


def _mixed(hashes: Hashes) -> Hashes:
    hashes ^= hashes >> _HALF
    hashes *= _MULTIPLIER
    hashes ^= hashes >> _HALF
    hashes *= _MULTIPLIER
    return hashes


@lru_cache(maxsize=8)
def _powers(bits: int) -> tuple[Hashes, Hashes]:
    """Powers 0 to ``2^bits - 1`` of the ratio and of its inverse, modulo ``2^64``."""
    tables = []
    for base in (_RATIO, _INVERSE):
        factors = np.full(1 << bits, base, np.uint64)
        factors[0] = 1
        tables.append(np.multiply.accumulate(factors))
    return tables[0], tables[1]
