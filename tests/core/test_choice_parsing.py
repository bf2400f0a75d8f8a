"""Letters in the many ways in which models give them."""

from __future__ import annotations

import time

import pytest

from mild.core.choice_parsing import extract_letter

OPTIONS = ["Paris", "Rome", "A small dog", "Oslo"]


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        (" B. ", "B"),
        ("(B)", "B"),
        ("[B]", "B"),
        ("**B**", "B"),
        ("`B`", "B"),
        ('"B"', "B"),
        ("B)", "B"),
        ("B:", "B"),
        ("B. Rome", "B"),
        ("B) Rome is the capital of Italy.", "B"),
        ("(B) Rome", "B"),
        ("**B. Rome**", "B"),
        ("B: Rome", "B"),
        ("Answer: B", "B"),
        ("answer: b", "B"),
        ("Answer: (B)", "B"),
        ("Answer: **B**", "B"),
        ("**Answer:** B", "B"),
        ("Answer:\nB", "B"),
        ("The answer is B.", "B"),
        ("The answer is (B) Rome.", "B"),
        ("The correct answer is: B", "B"),
        ("The correct answer is option B.", "B"),
        ("The correct option is B", "B"),
        ("The answer would be B, since it is in Italy.", "B"),
        ("Final answer: B", "B"),
        ("I choose option B because it is in Italy.", "B"),
        ("\\boxed{B}", "B"),
        ("So we get $\\boxed{\\text{B}}$.", "B"),
        ("A is tempting. But the answer is B.", "B"),
        ("Answer: A\nWait, that is wrong.\nAnswer: B", "B"),
        ("Let me think.\nParis is in France.\nB", "B"),
        ("Let me think.\n\n(B)", "B"),
        ("Rome", "B"),
        ("rome.", "B"),
        ("The answer is Rome", "B"),
        ("A small dog", "C"),
        ("I think it is B", "B"),
        ("Clearly B is right", "B"),
        ("It must be (D).", "D"),
        ("A", "A"),
        ("A.", "A"),
        ("Answer: A", "A"),
        ("Answer: A. Paris", "A"),
        ("Answer: A Paris", "A"),
        ("The answer is A because it is in France.", "A"),
    ],
)
def test_a_letter_is_found(response, letter):
    assert extract_letter(response, OPTIONS) == letter


@pytest.mark.parametrize(
    "response",
    [
        "",
        "I do not know.",
        "A or B",
        "E",
        "Answer: E",
        "Both A and B are right",
        "The answer is a city in Italy",
        "Answer: A big city",
        "It's a matter of taste, I can't say",
        "None of them",
        "Paris and Rome",
    ],
)
def test_no_letter_is_made_up(response):
    assert extract_letter(response, OPTIONS) is None


def test_letters_beyond_the_options_do_not_count():
    assert extract_letter("D", ["yes", "no"]) is None
    assert extract_letter("D", OPTIONS) == "D"


def test_an_option_that_appears_twice_cannot_be_named_by_its_text():
    assert extract_letter("yes", ["yes", "yes", "no"]) is None


@pytest.mark.parametrize(
    "piece", ["answer ", "A ", "(", "\\boxed{", "**", "answer is option ", "\n"]
)
def test_long_responses_take_no_time(piece):
    def seconds(count):
        start = time.process_time()
        extract_letter(piece * count, OPTIONS)
        return time.process_time() - start

    short = min(seconds(500) for _ in range(3))
    # Ten times the text takes about ten times as long; a hundred times if places were paired.
    assert any(seconds(5_000) < 1 + 40 * short for _ in range(3))
