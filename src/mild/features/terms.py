"""Texts to counts of hashed terms, and to a few plain numbers. No loop over terms in Python.

Texts are cut to a bounded length, folded to lower case and laid end to end as UTF-8 bytes, so any
Unicode text can be hashed, lone surrogates included. Terms are words and punctuation marks, pairs of
neighbours, and pieces of five bytes.

Bytes ``b_s`` to ``b_(e-1)`` have the polynomial hash ``sum_i b_i r^(i-s)`` modulo ``2^64``, r odd. With
running sums ``S_e = sum_(i<e) b_i r^i`` it is ``(S_e - S_s) r^(-s)``: look-ups and a product, however
long the term. A last mixing step spreads it over all 64 bits. The hash never changes: saved routers
hold bucket numbers. It is not cryptographic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.core.long_texts import shorten, whole_length

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.signedinteger[Any]]
Hashes: TypeAlias = NDArray[np.uint64]

# Classes of bytes. A word is a run of ASCII letters, digits and non-ASCII bytes; a mark is one byte of
# ASCII punctuation. Control characters count as spaces.
SPACE = 0
WORD = 1
MARK = 2
# Characters per chunk: large enough that threads seldom wait for each other, small enough for the cache.
CHUNK_CHARACTERS = 65_536
# Texts per chunk, which bound the counters.
CHUNK_TEXTS = 256
# Bytes of a piece of a word.
PIECE = 5
_RATIO = 0x9E3779B97F4A7C15
_INVERSE = pow(_RATIO, -1, 1 << 64)
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
_PAIR = np.uint64(0xA24BAED4963EE407)
# Keeps the piece "hello" apart from the word "hello".
_PIECE_SALT = np.uint64(0x8CB92BA72F3D8DD7)
_HALF = np.uint64(32)

#: Plain numbers that are counted in every text.
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
# Bytes that each number counts; number 0 is the length.
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
_SPACES = {*range(33), 127}


def _class_of(byte: int) -> int:
    """Class of a byte."""
    if byte in _SPACES:
        return SPACE
    if byte > 127 or chr(byte).isalnum():
        return WORD
    return MARK


def _group_of(byte: int) -> int:
    """The number that counts a byte; 0 where none does, because number 0 is replaced by the length."""
    for group, members in _GROUPS.items():
        if byte in members:
            return group
    return 0


# Tables for ``bytes.translate``.
_FOLD_OF = bytes(32 if byte in _SPACES else byte for byte in range(256))
_CLASS_OF = bytes(map(_class_of, range(256)))
_GROUP_OF = bytes(map(_group_of, range(256)))


class Buffer(NamedTuple):
    """Several texts in one run of bytes, each followed by a space, and a space before the first."""

    raw: Bytes  # as written
    folded: Bytes  # in lower case; not always as long as raw
    classes: Bytes  # SPACE, WORD or MARK for each folded byte
    raw_ends: Ints  # (n_texts + 1,) positions of the spaces in raw
    ends: Ints  # the same in folded
    lengths: Ints  # (n_texts,) characters of the whole texts, before they were cut


class Counts(NamedTuple):
    """Counts of several texts: text t has the entries ``ends[t]`` to ``ends[t + 1]``."""

    columns: Ints  # distinct within a text, ascending
    counts: Ints  # occurrences
    ends: Ints  # (n_texts + 1,)


def chunks(texts: Sequence[str], longest: int) -> Iterator[slice]:
    """Slices of neighbouring texts that together have a bounded number of characters."""
    start = 0
    size = 0
    for i, text in enumerate(texts):
        length = min(len(text), longest)
        is_full = size + length > CHUNK_CHARACTERS or i - start == CHUNK_TEXTS
        if is_full and i > start:
            yield slice(start, i)
            start = i
            size = 0
        size += length
    if start < len(texts):
        yield slice(start, len(texts))


def lay_out(texts: Sequence[str], first: int, last: int) -> Buffer:
    """Cut, encode and fold the texts."""
    encoded = []
    lower_case = []
    for text in texts:
        cut = shorten(text, first, last)
        encoded.append(cut.encode("utf-8", "surrogatepass"))
        lower_case.append(cut.lower().encode("utf-8", "surrogatepass"))
    raw = b" ".join((b"", *encoded, b""))
    folded = b" ".join((b"", *lower_case, b"")).translate(_FOLD_OF)
    return Buffer(
        raw=np.frombuffer(raw, np.uint8),
        folded=np.frombuffer(folded, np.uint8),
        classes=np.frombuffer(folded.translate(_CLASS_OF), np.uint8),
        raw_ends=_ends(encoded),
        ends=_ends(lower_case),
        lengths=np.array([whole_length(text) for text in texts], np.int64),
    )


def count_numbers(buffer: Buffer) -> NDArray[np.float64]:
    """Numbers (n_texts, 9): logarithms of characters, lines and question marks, then shares.

    Shares are of the bytes that are left after long texts were cut, plus one space.
    """
    sizes = np.diff(buffer.raw_ends)
    n_numbers = len(NUMBER_NAMES)
    group_of_byte = np.frombuffer(buffer.raw[1:].tobytes().translate(_GROUP_OF), np.uint8)
    # One count of pairs of text and group, instead of one for every text.
    keys = group_of_byte + (np.arange(sizes.size) * n_numbers).repeat(sizes)
    counts = np.bincount(keys, minlength=sizes.size * n_numbers).reshape(-1, n_numbers)
    counts[:, 0] = buffer.lengths
    numbers = counts / sizes[:, None]
    numbers[:, :3] = np.log1p(counts[:, :3])
    return numbers


def index_of(terms: Ints, bits: int) -> Ints:
    """Column of each bucket, (2^bits,); -1 for those that are not kept."""
    index = np.full(1 << bits, -1, np.int32)
    index[terms] = np.arange(terms.size, dtype=np.int32)
    return index


def count_buckets(buffer: Buffer, bits: int) -> Counts:
    """Counts of hash buckets in [0, 2^bits)."""
    texts, hashes = hash_terms(buffer)
    buckets = (hashes >> np.uint64(64 - bits)).astype(np.int32)
    return _grouped(texts, buckets, 1 << bits, buffer.lengths.size)


def count_known(buffer: Buffer, bits: int, index: Ints, n_terms: int) -> Counts:
    """Counts of known terms: ``index`` (2^bits,) gives the column of a bucket, or -1."""
    texts, hashes = hash_terms(buffer)
    hashes >>= np.uint64(64 - bits)
    columns = index.take(hashes.view(np.int64))
    known = (columns >= 0).nonzero()[0]
    return _grouped(texts.take(known), columns.take(known), n_terms, buffer.lengths.size)


def hash_terms(buffer: Buffer) -> tuple[Ints, Hashes]:
    """Text and hash of every term: ``texts`` (n_terms,) and ``hashes`` (n_terms,) uint64, unsorted."""
    starts, stops, pieces = _positions(buffer)
    n_texts = buffer.lengths.size
    size = buffer.folded.size
    powers, inverse = _powers(max(16, size.bit_length()))
    sums = np.zeros(size + 1, np.uint64)
    np.add.accumulate(buffer.folded * powers[:size], out=sums[1:])
    # Starts are those of the byte before, stops those of the last byte: both are one too small for the
    # sums. So is the power that undoes a word's start, which multiplies every word's hash by r.
    sums_after = sums[1:]
    words = sums_after.take(stops)
    words -= sums_after.take(starts)
    words *= inverse.take(starts)
    piece_hashes = sums[PIECE:].take(pieces)
    piece_hashes -= sums.take(pieces)
    piece_hashes *= inverse.take(pieces)
    piece_hashes ^= _PIECE_SALT
    pairs = words[:-1] * _PAIR
    pairs += words[1:]
    text_of_word = _text_of(starts, buffer, n_texts)
    text_of_piece = _text_of(pieces, buffer, n_texts)
    # The last word of a text and the first of the next one are no pair.
    in_one_text = (text_of_word[1:] == text_of_word[:-1]).nonzero()[0]
    texts = np.concatenate((text_of_word, text_of_word.take(in_one_text), text_of_piece))
    hashes = np.concatenate((words, pairs.take(in_one_text), piece_hashes))
    for _ in range(2):
        hashes ^= hashes >> _HALF
        hashes *= _MULTIPLIER
    return texts, hashes


def _text_of(positions: Ints, buffer: Buffer, n_texts: int) -> Ints:
    """Number of the text of each position in the folded bytes; positions are ascending."""
    counts = np.diff(positions.searchsorted(buffer.ends))
    return np.arange(n_texts).repeat(counts)


def term_texts(buffer: Buffer) -> list[str]:
    """Each term of one text in readable form, in the order of ``hash_terms``."""
    starts, stops, pieces = _positions(buffer)
    content = buffer.folded.tobytes()

    def read(start: int, stop: int) -> str:
        return content[start:stop].decode("utf-8", "replace")

    words = []
    for start, stop in zip(starts, stops, strict=True):
        words.append(read(start + 1, stop + 1))
    pairs = [f"{first} {second}" for first, second in pairwise(words)]
    piece_texts = [f"…{read(start, start + PIECE)}…" for start in pieces]
    return [*words, *pairs, *piece_texts]


def name_terms(buffer: Buffer, bits: int, index: Ints, columns: Ints) -> list[str]:
    """A readable term for each column of one text; the first one where several share a bucket."""
    _, hashes = hash_terms(buffer)
    column_of_term = index.take((hashes >> np.uint64(64 - bits)).astype(np.intp))
    names: dict[int, str] = {}
    for column, name in zip(column_of_term.tolist(), term_texts(buffer), strict=True):
        names.setdefault(column, name)
    return [names[column] for column in columns.tolist()]


def _ends(encoded: Sequence[bytes]) -> Ints:
    """Positions (n_texts + 1,) of the spaces before, between and after the texts."""
    sizes_with_space = (len(text) + 1 for text in encoded)
    return np.fromiter(accumulate(sizes_with_space, initial=0), np.int64)


def _positions(buffer: Buffer) -> tuple[Ints, Ints, Ints]:
    """Bytes before the first of each word or mark, last bytes of each, and first bytes of pieces."""
    is_word = buffer.classes == WORD
    is_mark = buffer.classes == MARK
    class_changes = buffer.classes[:-1] != buffer.classes[1:]
    # Every mark is a term by itself, a word is a run of bytes.
    starts = (is_mark[1:] | (class_changes & is_word[1:])).nonzero()[0]
    stops = (is_mark[:-1] | (class_changes & is_word[:-1])).nonzero()[0]
    # A piece is five bytes whose middle three belong to a word, so it never leaves its text.
    pieces = (is_word[1:-3] & is_word[2:-2] & is_word[3:-1]).nonzero()[0]
    return starts, stops, pieces


@lru_cache(maxsize=8)
def _powers(bits: int) -> tuple[Hashes, Hashes]:
    """Powers 0 to ``2^bits - 1`` of the ratio and of its inverse, modulo ``2^64``."""
    factors = np.full((2, 1 << bits), [[_RATIO], [_INVERSE]], np.uint64)
    factors[:, 0] = 1
    powers, inverse = np.multiply.accumulate(factors, axis=1)
    return powers, inverse


def _grouped(texts: Ints, columns: Ints, width: int, n_texts: int) -> Counts:
    """Count equal columns of the same text."""
    dtype: type[np.signedinteger[Any]] = np.int64
    if n_texts * width < 1 << 31:
        # Four bytes sort faster than eight.
        dtype = np.int32
    keys: Ints = texts.astype(dtype)
    keys *= width
    keys += columns
    distinct, counts = np.unique(keys, return_counts=True)
    ends = distinct.searchsorted(np.arange(n_texts + 1) * width)
    return Counts((distinct % width).astype(np.intp), counts, ends)
