"""Hashed terms against a transcription by loops."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mild.core.long_texts import abridge, shorten
from mild.features import HashingFeatures
from mild.features.terms import (
    CHUNK_CHARACTERS,
    NUMBER_NAMES,
    chunks,
    count_buckets,
    count_known,
    count_numbers,
    hash_terms,
    index_of,
    lay_out,
    term_texts,
)

LIMITS = (6144, 2048)
MASK = (1 << 64) - 1
RATIO = 0x9E3779B97F4A7C15


def loop_tokens(text):
    """Words and marks of a folded text, as bytes, with where each starts; and the folded bytes."""
    folded = bytearray()
    for byte in text.lower().encode("utf-8", "surrogatepass"):
        folded.append(32 if byte < 33 or byte == 127 else byte)
    content = b" " + bytes(folded) + b" "
    tokens, word = [], b""
    for byte in content:
        letter = byte > 127 or chr(byte).isalnum()
        if letter:
            word += bytes([byte])
            continue
        if word:
            tokens.append(word)
            word = b""
        if byte != 32:
            tokens.append(bytes([byte]))
    return tokens, content


def loop_terms(text):
    """Every term of a text as loops find it."""
    tokens, content = loop_tokens(text)
    pieces = []
    for start in range(len(content) - 4):
        middle = content[start + 1 : start + 4]
        if all(byte > 127 or chr(byte).isalnum() for byte in middle):
            pieces.append(content[start : start + 5])
    return tokens, list(pairwise(tokens)), pieces


def mix(value):
    for _ in range(2):
        value ^= value >> 32
        value = value * 0xD6E8FEB86659FD93 & MASK
    return value


def polynomial(content):
    return sum(byte * pow(RATIO, place, 1 << 64) for place, byte in enumerate(content)) & MASK


def loop_hashes(text):
    tokens, pairs, pieces = loop_terms(text)

    def word(token):
        return polynomial(token) * RATIO & MASK

    return Counter(
        [mix(word(token)) for token in tokens]
        + [mix((word(a) * 0xA24BAED4963EE407 + word(b)) & MASK) for a, b in pairs]
        + [mix(polynomial(piece) ^ 0x8CB92BA72F3D8DD7) for piece in pieces]
    )


ODD = [
    "",
    " ",
    "a",
    "?!",
    "Hello, world 42",
    "naïve ÉCOLE",
    "日本語",
    "x\ud800y",
    "İ",
    "a" * 200,
    "\0\n",
]


@pytest.mark.parametrize("text", ODD)
def test_hashes_of_one_text_are_those_of_the_loops(text):
    texts, hashes = hash_terms(lay_out([text], *LIMITS))
    assert not texts.any()
    assert Counter(hashes.tolist()) == loop_hashes(text)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=60), min_size=2, max_size=5))
def test_hashes_of_several_texts_are_those_of_each_alone(several):
    texts, hashes = hash_terms(lay_out(several, *LIMITS))
    for place, text in enumerate(several):
        assert Counter(hashes[texts == place].tolist()) == loop_hashes(text)


def test_readable_terms_are_in_the_order_of_the_hashes():
    buffer = lay_out(["Big big dog!"], *LIMITS)
    names = term_texts(buffer)
    assert names[:7] == ["big", "big", "dog", "!", "big big", "big dog", "dog !"]
    assert names[7] == "… big …"
    _, hashes = hash_terms(buffer)
    assert len(names) == hashes.size
    assert hashes[0] == hashes[1]


def test_words_pairs_and_pieces_of_the_same_letters_have_different_hashes():
    _, hashes = hash_terms(lay_out(["hello hello1 xhellox"], *LIMITS))
    names = term_texts(lay_out(["hello hello1 xhellox"], *LIMITS))
    of = dict(zip(names, hashes.tolist(), strict=True))
    assert of["hello"] != of["…hello…"]
    assert len(set(of.values())) == len(of)


def test_hashes_spread_evenly_over_buckets():
    words = [f"w{number}" for number in range(20_000)]
    _, hashes = hash_terms(lay_out([" ".join(words)], 1 << 20, 0))
    for part in (hashes[:20_000], hashes[20_000:39_999]):
        used = np.bincount((part >> np.uint64(52)).astype(np.intp), minlength=1 << 12)
        # As many as would fall at random: a Poisson count's variance is its mean.
        assert 0.9 < used.var() / used.mean() < 1.1


@given(st.text(max_size=50), st.integers(1, 9), st.integers(0, 9))
def test_a_cut_text_keeps_its_first_and_last_characters(text, first, last):
    cut = shorten(text, first, last)
    if len(text) <= first + last:
        assert cut == text
    else:
        assert cut[:first] == text[:first]
        assert cut[first] == " "
        assert cut[first + 1 :] == (text[-last:] if last else "")


def test_chunks_cover_the_texts_in_order_and_are_bounded():
    rng = np.random.default_rng(0)
    texts = ["x" * int(size) for size in rng.integers(0, 9000, 900)] + [""] * 600
    covered = []
    for rows in chunks(texts, 8192):
        some = texts[rows]
        covered += some
        assert len(some) == 1 or sum(min(len(t), 8192) for t in some) <= CHUNK_CHARACTERS
        assert len(some) <= 256
    assert covered == texts


def test_known_terms_are_counted_and_others_are_not():
    buffer = lay_out(["one two two", "three", "", "two"], *LIMITS)
    every = count_buckets(buffer, 16)
    two = every.columns[every.ends[3] : every.ends[4]]
    index = index_of(np.sort(two), 16)
    known = count_known(buffer, 16, index, two.size)
    per_text = np.diff(known.ends)
    assert per_text.tolist()[1:] == [0, 0, two.size]
    assert known.counts[: per_text[0]].max() == 2
    alone = count_known(lay_out(["one two two"], *LIMITS), 16, index, two.size)
    np.testing.assert_array_equal(alone.columns, known.columns[: per_text[0]])
    np.testing.assert_array_equal(alone.counts, known.counts[: per_text[0]])


@pytest.mark.parametrize("together", [True, False])
def test_plain_numbers_match_their_names(together):
    texts = ["AB c1\n?x", "", "def f(a):\n  return a+1\n", "日本"]
    if together:
        numbers = count_numbers(lay_out(texts, *LIMITS))
    else:
        numbers = np.concatenate([count_numbers(lay_out([text], *LIMITS)) for text in texts])
    named = [dict(zip(NUMBER_NAMES, row, strict=True)) for row in numbers]
    assert named[0]["log_length"] == pytest.approx(np.log1p(8))
    assert named[0]["capitals"] == pytest.approx(2 / 9)
    assert named[0]["digits"] == pytest.approx(1 / 9)
    assert named[0]["log_questions"] == pytest.approx(np.log(2))
    assert named[1]["log_length"] == 0
    assert named[2]["log_lines"] == pytest.approx(np.log(3))
    assert named[2]["code"] == pytest.approx(2 / 24)
    assert named[2]["arithmetic"] == pytest.approx(1 / 24)
    assert named[3]["not_ascii"] == pytest.approx(6 / 7)
    assert named[3]["log_length"] == pytest.approx(np.log1p(2))


def test_the_length_of_a_cut_text_is_that_of_the_whole():
    (numbers,) = count_numbers(lay_out(["x" * 1_000_000], *LIMITS))
    assert numbers[0] == pytest.approx(np.log1p(1_000_000))


@settings(max_examples=50)
@given(
    st.integers(8150, 60_000), st.text(min_size=1, max_size=30), st.sampled_from([LIMITS, (500, 0)])
)
def test_an_abridged_text_has_the_features_of_the_whole_one(length, part, limits):
    text = (part + " 17?") * (length // len(part))
    text = text[:length]
    short = abridge(text)
    assert len(short) <= min(len(text), 8192 + 40)
    assert abridge(short) == short
    whole, cut = lay_out([text], *limits), lay_out([short], *limits)
    np.testing.assert_array_equal(count_numbers(whole), count_numbers(cut))
    np.testing.assert_array_equal(count_buckets(whole, 20).columns, count_buckets(cut, 20).columns)
    np.testing.assert_array_equal(count_buckets(whole, 20).counts, count_buckets(cut, 20).counts)


def test_fitted_features_of_abridged_texts_are_those_of_the_whole_ones():
    texts = [f"{word} " * count for word in ("sum", "Rome", "loop") for count in (3, 900, 9000)]
    features = HashingFeatures(n_components=3).fit(texts)
    short = [abridge(text) for text in texts]
    assert max(map(len, short)) < 8300
    np.testing.assert_array_equal(features.transform(short), features.transform(texts))
