"""Equal queries, whitespace aside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mild.data import duplicate_groups

TEXTS = st.lists(st.text(alphabet="ab \n\t\u00a0", max_size=9), max_size=12)


@given(TEXTS)
def test_groups_are_those_of_the_folded_texts(texts):
    folded = [" ".join(text.split()) for text in texts]
    assert duplicate_groups(texts).tolist() == [folded.index(text) for text in folded]


def test_long_texts_that_differ_in_the_middle_are_different():
    start, end = "a b c " * 5, " x y z" * 5
    assert duplicate_groups(
        [start + "1" + end, start + "2" + end, start + " 1 " + end]
    ).tolist() == [
        0,
        1,
        0,
    ]
