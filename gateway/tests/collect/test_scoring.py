"""Right or wrong, by the kind of question."""

from __future__ import annotations

import pytest

from mild_gateway.collect.grading import score_response
from mild_gateway.collect.questions import Question


def score(kind, answer, response, options=(), tolerance=1e-6):
    answers = answer if isinstance(answer, tuple) else (answer,)
    return score_response(Question("?", answers, kind, tuple(options)), response, tolerance)


@pytest.mark.parametrize(
    ("answer", "response", "right"),
    [
        ("Paris", "Paris", 1),
        ("Paris", " paris. ", 1),
        ("Paris", '"Paris"', 1),
        ("Paris", "**Paris**", 1),
        ("Paris", "Answer: Paris", 1),
        ("Paris", "It is in France.\nThe answer is Paris.", 1),
        ("Paris", "\\boxed{Paris}", 1),
        ("New York", "new  york", 1),
        ("café", "cafe\u0301", 1),
        ("Paris", "Paris, France", 0),
        ("Paris", "Not Paris", 0),
        ("Paris", "", 0),
        (("color", "colour"), "colour", 1),
    ],
)
def test_exact(answer, response, right):
    assert score("exact", answer, response) == right


@pytest.mark.parametrize(
    ("answer", "response", "right"),
    [
        ("Paris", "The capital is Paris, of course.", 1),
        ("Buenos Aires", "It is BUENOS AIRES!", 1),
        ("cat", "a category", 0),
        ("S", "It's sulfur", 0),
        ("S", "The symbol is S.", 1),
        ("He", "he said helium", 0),
        ("21:50", "At 21:50 it ends", 1),
    ],
)
def test_contains(answer, response, right):
    assert score("contains", answer, response) == right


def test_numeric_takes_any_of_several_answers_and_a_tolerance():
    assert score("numeric", ("12", "13"), "It is 13") == 1
    assert score("numeric", "0.5", "50%") == 1
    assert score("numeric", "50%", "0.5") == 1
    assert score("numeric", "100", "about 101") == 0
    assert score("numeric", "100", "about 101", tolerance=0.02) == 1
    assert score("numeric", "100", "many") == 0


def test_choice_compares_letters():
    assert score("choice", "B", "The answer is (B).", ["x", "y"]) == 1
    assert score("choice", "B", "A", ["x", "y"]) == 0
    assert score("choice", "B", "no idea", ["x", "y"]) == 0
