"""Templates and their places."""

from __future__ import annotations

from mild_gateway.collect.prompts import PROMPTS, fill_prompt


def test_every_template_holds_the_question():
    assert all("{query}" in template for template in PROMPTS.values())


def test_the_choice_template_shows_options_and_letters():
    assert fill_prompt(PROMPTS["choice"], "Which?", ["one", "two"]) == (
        "Which?\n\nA. one\nB. two\n\nAnswer with one letter (A, B) and nothing else."
    )


def test_places_inside_a_question_are_left_alone():
    assert fill_prompt("{query} {x}", "{options}{query}") == "{options}{query} {x}"
