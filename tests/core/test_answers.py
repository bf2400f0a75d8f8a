"""Answers of experts: what they say, which are equal, and of what kind they are."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mild.core.answers import (
    KINDS,
    Answers,
    answer_codes,
    canonical_answer,
    detect_kind,
    kind_by_scores,
)
from mild.core.refusals import is_refusal
from mild.errors import InvalidInputError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KIND = st.sampled_from(list(KINDS))
ARGUMENTS = {"city": "Oslo", "days": [1, 2.0]}
CALLS = {
    "plain": {"name": "weather", "arguments": ARGUMENTS},
    "parameters": {"name": "weather", "parameters": {"days": [1, 2], "city": "Oslo"}},
    "OpenAI": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"days": [1, 2], "city": "Oslo"}'},
        }
    ],
    "OpenAI message": {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)},
            }
        ],
    },
    "OpenAI Responses": {
        "type": "function_call",
        "call_id": "c",
        "name": "weather",
        "arguments": json.dumps(ARGUMENTS),
    },
    "Anthropic": [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": ARGUMENTS},
    ],
    "Anthropic message": {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "weather", "input": ARGUMENTS}],
    },
}


@given(st.text() | JSON.map(json.dumps), KIND)
@example("\u00b8", "number")  # a cedilla, which becomes a mark that stands for nothing
@example("&`", "number")  # a symbol around a mark that stands for nothing
def test_a_canonical_answer_is_its_own_canonical_answer(text, kind):
    said = canonical_answer(text, kind)
    if said is not None:
        assert canonical_answer(said, kind) == said


@given(JSON | st.binary() | st.dictionaries(st.tuples(st.integers()), st.text()), KIND)
def test_any_value_is_an_answer_or_none(value, kind):
    said = canonical_answer(value, kind)
    assert said is None or isinstance(said, str)
    assert Answers.of([[value, value]], kind).codes[0, 0] == (-1 if said is None else 0)


@given(JSON)
def test_the_order_of_keys_does_not_matter(value):
    def turned(one):
        if isinstance(one, dict):
            return {key: turned(one[key]) for key in reversed(one)}
        return [turned(part) for part in one] if isinstance(one, list) else one

    pair = [canonical_answer(json.dumps(one), "json") for one in (value, turned(value))]
    assert pair[0] == pair[1]


@pytest.mark.parametrize("form", CALLS)
@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("kind", ["json", "number"])
def test_tool_calls_of_all_providers_are_equal(form, as_text, kind):
    if kind != "json" and as_text:
        return
    call = json.dumps(CALLS[form]) if as_text else CALLS[form]
    assert canonical_answer(call, kind) == canonical_answer(CALLS["plain"], "json")


@pytest.mark.parametrize(
    "other",
    [
        {"name": "forecast", "arguments": ARGUMENTS},
        {"name": "weather", "arguments": {**ARGUMENTS, "city": "Rome"}},
        {"name": "weather", "arguments": {**ARGUMENTS, "days": [2, 1]}},
        {"name": "weather", "arguments": "not JSON"},
        [CALLS["plain"], CALLS["plain"]],
    ],
)
def test_other_tool_calls_differ(other):
    assert canonical_answer(other, "json") != canonical_answer(CALLS["plain"], "json")


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("1,200.0", 1200, "number"),
        ("\u22125", "-5.0", "number"),
        (r"\frac{3}{4}", "0.75", "number"),
        ("The answer is 7.", "#### 7", "number"),
        ("1e400", "10e399", "number"),
        ("No solution", "no solution.", "number"),
        ("(b)", "Answer: **B**", "choice"),
        ("Paris.", " paris ", "short_text"),
        ("The cat; it SAT!", "the cat\nit sat", "free_text"),
        ("```python\n[1, 2]\n```", "[1, 2]\n", "code"),
        ('{"a": 1.0, "b": 2}', '{"b": 2, "a": 1}', "json"),
        ('{"a": 0.30000000000000004}', '{"a": 0.3}', "json"),
        ('[{"f": {"x": 1}}, {"g": {}}]', '[{"g": {}}, {"f": {"x": 1}}]', "json"),
        ('{"a": NaN}', '{"a":NaN}', "json"),
        ("no call", "No call", "json"),
        ("a" + "[" * 100_000, "a" + "[" * 100_000, "json"),
        ("a\ud800", "a\ud800", "short_text"),
    ],
)
def test_equal_answers(one, other, kind):
    assert canonical_answer(one, kind) == canonical_answer(other, kind) is not None


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("1e400", "1e401", "number"),
        ("1e-400", "0", "number"),
        ("123456789012", "123456789013", "number"),
        ("True", "true", "code"),
        (" x", "x", "code"),
        ('{"a": true}', '{"a": 1}', "json"),
        ('{"a": "1"}', '{"a": 1}', "json"),
        ("[1, 2]", "[2, 1]", "json"),
        ('[{"a": 1}, {"a": 2}]', '[{"a": 2}, {"a": 1}]', "json"),
    ],
)
def test_different_answers(one, other, kind):
    assert canonical_answer(one, kind) != canonical_answer(other, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "missing", [None, float("nan"), np.float32("nan"), "", "no answer", "Undetermined"]
)
def test_missing_answers_never_agree(kind, missing):
    assert (answer_codes([[missing, missing]], kind) == -1).all()


def test_a_program_may_print_words_that_stand_for_no_answer():
    assert canonical_answer("None", "short_text") is None
    assert canonical_answer("None", "code") == "None"


REFUSALS = [
    "I cannot help with that.",
    "I'm sorry, but I can't assist with that request.",
    "Sorry, I can\N{RIGHT SINGLE QUOTATION MARK}t help with that.",
    "I am unable to provide medical advice.",
    "As an AI language model, I cannot answer this question.",
    "Unfortunately, I won't do that.",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", [*REFUSALS, "", "...", "-", " \u2014 ", "\u2026", "\u200b", "\u3164"]
)
def test_refusals_and_texts_without_words_agree_with_nobody(text, kind):
    assert canonical_answer(text, kind) is None
    assert answer_codes([[text, text]], kind).tolist() == [[-1, -1]]


@pytest.mark.parametrize("text", ["?", "***", "( )", "_", "\u0301"])
@pytest.mark.parametrize("kind", ["number", "choice", "json", "short_text", "free_text"])
def test_punctuation_is_an_answer_of_programs_only(text, kind):
    assert canonical_answer(text, kind) is None
    assert canonical_answer(text, "code") is not None


@pytest.mark.parametrize("text", ["+", "<", "\N{THUMBS UP SIGN}", "5", "a", "\u4f60\u597d"])
def test_symbols_letters_and_digits_are_answers(text):
    assert canonical_answer(text, "short_text") is not None
    assert canonical_answer(text, "free_text") is not None


def test_empty_lists_and_objects_are_answers_in_json():
    assert canonical_answer("[]", "json") == "[]"
    assert canonical_answer("{}", "json") == "{}"


@pytest.mark.parametrize(
    "text",
    [
        "I don't know.",
        "Sorry, I was wrong: it is 4.",
        "I can't help laughing, but it is 4.",
        "I cannot believe it: 4.",
        "The answer is that I cannot help with that.",
        "I can help with that: 4.",
        "I cannot help with the first part. " + "The second part is easy. " * 20,
    ],
)
def test_a_text_that_says_more_than_no_is_not_a_refusal(text):
    assert not is_refusal(text)


def test_an_unknown_kind_is_refused():
    with pytest.raises(InvalidInputError) as refused:
        canonical_answer("1", "numbr")
    assert refused.value.code == "invalid_answer_kind"


@pytest.mark.parametrize("text", ["1,234,", "answer is ", "\\frac{1}{", "A or ", "[", "'\"([*"])
def test_long_answers_are_read_fast(text):
    start = time.process_time()
    for kind in KINDS:
        canonical_answer(text * 100_000, kind)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["12", 3.5, "no answer", "-1,000"], "number"),
        (["A", "(b)", "C."], "choice"),
        (['[{"f": {}}]', "no call"], "json"),
        ([{"name": "f", "arguments": {}}], "json"),
        (["(1, 'a')", "True", "'x'"], "code"),
        (["Paris", "Rome"], "short_text"),
        (["It is a long story that begins in a small town far away from here. " * 2], "free_text"),
        ([None, ""], "short_text"),
        (["{'a': {{}: 1}}", r"'\d'"], "short_text"),
    ],
)
def test_the_kind_is_detected_from_the_answers(answers, kind):
    assert detect_kind(answers) == kind


@pytest.mark.parametrize(
    ("row", "scores", "kind"),
    [
        (["True", "true", "True"], [1, 0, 1], "code"),
        (["True", "true", "True"], [1, 1, 1], "short_text"),
        (["It makes 4.", "2 + 2 = 4", "maybe 5"], [1, 1, 0], "number"),
        (["I choose B because it fits", "Answer: B", "C"], [1, 1, 0], "choice"),
        (["It makes 4.", "2 + 2 = 4", None], [1, np.nan, 0], "short_text"),
    ],
)
def test_scores_decide_between_kinds(row, scores, kind):
    assert kind_by_scores([row] * 20, np.array([scores] * 20, float)) == kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", ["answer", "the answer is", "-", ""])
def test_long_runs_of_spaces_take_no_time(kind, start):
    begun = time.process_time()
    canonical_answer(start + " " * 20_000 + "1", kind)
    assert time.process_time() - begun < 1


def test_only_messages_of_an_assistant_are_read_as_such():
    user = {"role": "admin", "name": "Ann"}
    assert canonical_answer(user, "json") == '{"name": "Ann", "role": "admin"}'
    assert canonical_answer({"role": "assistant", "content": "4"}, "json") == "4"


@pytest.mark.parametrize("kind", ["number", "json", "code", "short_text"])
def test_numbers_of_numpy_are_numbers(kind):
    assert canonical_answer(np.int64(4), kind) == canonical_answer(4, kind) == "4"
    assert canonical_answer(np.float32("nan"), kind) is None


def test_one_odd_answer_does_not_decide_the_kind():
    """It contradicts the answers of all other experts, but in a single row."""
    rows = [["A", "A", "B", "A", "A", "A", "A", "C"] for _ in range(200)]
    scores = np.array([[1, 1, 0, 1, 1, 1, 1, 0]] * 200, float)
    rows[17][0] = "A\nB: c"
    scores[17, 0] = 0.0
    assert kind_by_scores(rows, scores) == "choice"
    # Letters that are wrong in many rows, which only the whole text tells apart, are another matter.
    for row in rows[::10]:
        row[0] = "A\nB: c"
    scores[::10, 0] = 0.0
    assert kind_by_scores(rows, scores) != "choice"
