"""Refusals in thirteen languages, written without knowledge of the phrases that are looked for."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mild.core.answers import KINDS, canonical_answer
from mild.core.refusals import is_refusal

LANGUAGES = json.loads(Path(__file__).with_name("refusals.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_refusals_are_recognised(language):
    refusals = LANGUAGES[language]["refusals"]
    assert len(refusals) >= 20
    assert [text for text in refusals if not is_refusal(text)] == []
    assert [text for text in refusals if not is_refusal(text.replace("'", "\u2019"))] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_answers_with_the_words_of_a_refusal_are_none(language):
    assert [text for text in LANGUAGES[language]["answers"] if is_refusal(text)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_refusal_is_recognised_within_json(language):
    for text in LANGUAGES[language]["refusals"]:
        assert is_refusal(json.dumps({"error": text}))
        assert is_refusal(json.dumps({"role": "assistant", "refusal": text, "content": None}))
        assert not is_refusal(json.dumps({"answer": 4, "error": text}))


@pytest.mark.parametrize("kind", KINDS)
def test_refusals_agree_with_nobody(kind):
    assert canonical_answer("I'm sorry, but I can't assist with that request.", kind) is None
    assert canonical_answer('{"error": "refused"}', kind) is None


@pytest.mark.parametrize(
    "text", ['{"refused": true}', '{"error": "Refused."}', '{"refusal": "no", "code": 3}']
)
def test_an_object_that_says_no_is_a_refusal(text):
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text", ["{}", '{"answer": "4"}', '{"refused": false}', '{"error": "timeout"}', "{", '{"a": 1}']
)
def test_other_objects_are_answers(text):
    assert not is_refusal(text)


def test_a_long_text_that_begins_with_a_refusal_says_more():
    text = "I cannot help with the first part. " + "The second part is easy. " * 20
    assert not is_refusal(text)


@pytest.mark.parametrize("text", ["as an ai " * 33, "मैं एक " * 40, "作为" * 150, "als ki " * 40])
def test_words_before_no_refusal_are_read_fast(text):
    start = time.process_time()
    assert not is_refusal(text)
    # One expression for all of it took a minute.
    assert time.process_time() - start < 5
