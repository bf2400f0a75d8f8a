"""Our own questions: deterministic, different, exact."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import pytest

from mild.errors import InvalidInputError

questions = pytest.importorskip("scripts.make_questions")
SHARES = questions.SHARES
make_questions = questions.make_questions


@pytest.fixture(scope="module")
def rows():
    return make_questions(1500, seed=0)


def test_the_questions_of_the_embedded_table_stay_as_they_are(rows):
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n"
    assert hashlib.sha256(text.encode()).hexdigest().startswith("e8ada1ec8c2980b4")


def test_another_seed_gives_other_questions(rows):
    other = make_questions(1500, seed=1)
    assert len({row["query"] for row in rows} & {row["query"] for row in other}) < 1000


def test_no_question_comes_twice(rows):
    assert len({row["query"] for row in rows}) == 1500


def test_families_have_their_shares(rows):
    families = Counter(row["source"].split("/")[0] for row in rows)
    for family, share in SHARES.items():
        assert families[family] == pytest.approx(1500 * share, abs=5)


def test_rows_are_complete_and_answers_fit_their_kind(rows):
    for row in rows:
        assert 1 <= row["grade"] <= 5
        assert row["kind"] in ("numeric", "exact", "contains", "choice")
        assert (row["options"] is not None) == (row["kind"] == "choice")
        if row["kind"] == "choice":
            assert len(set(row["options"])) == 4
            assert row["answer"] in "ABCD"
        if row["kind"] == "numeric":
            assert row["answer"].isdigit()


def test_answers_that_are_looked_for_do_not_stand_in_the_question(rows):
    for row in rows:
        # A question that names what to choose from names the answer too.
        if row["kind"] == "contains" and row["source"] not in ("facts/kind", "dates/leap_year"):
            assert row["answer"] not in row["query"].replace("?", "").split()


def test_more_than_there_is_cannot_be_had():
    with pytest.raises(InvalidInputError, match="facts has no"):
        make_questions(5000)
