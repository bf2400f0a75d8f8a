"""Short names mean one expert or are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild.artifact.expert_names import match_values
from mild.data import match_expert, match_experts
from mild.errors import InvalidInputError

QWEN = ["Qwen2.5-0.5B-Instruct", "Qwen2.5-1.5B-Instruct", "Qwen2.5-7B-Instruct"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("7B", 2),
        ("0.5B", 0),
        ("1.5b", 1),
        ("qwen2.5-7b-instruct", 2),
        ("0.5B-Instruct", 0),
        (" 7B ", 2),
    ],
)
def test_a_short_name_finds_the_expert_that_contains_it(name, expected):
    assert match_expert(name, QWEN) == QWEN[expected]


def test_a_complete_word_of_a_name_is_preferred_to_a_fragment():
    assert match_expert("1b", ["llama-11b", "llama-1b"]) == "llama-1b"
    assert match_expert("gpt-4o", ["gpt-4o-mini", "gpt-4o"]) == "gpt-4o"
    assert (
        match_expert("v0.1", ["mistralai/Mistral-7B-v0.1", "x/zephyr"])
        == "mistralai/Mistral-7B-v0.1"
    )


@pytest.mark.parametrize("name", ["5B", "Instruct", "Qwen2.5"])
def test_a_name_that_fits_several_is_refused_with_them(name):
    with pytest.raises(
        InvalidInputError, match=r"must match one expert; it matches Qwen2.5-0.5B-Instruct"
    ):
        match_expert(name, QWEN)


@pytest.mark.parametrize(
    ("name", "experts"),
    [
        ("l", ["small", "large"]),
        ("gpt-4", ["gpt-4-turbo", "gpt-4-1106"]),
        ("b", ["1b", "b-2-b", "b_3"]),
    ],
)
def test_the_end_of_one_name_that_is_in_another_is_refused(name, experts):
    with pytest.raises(InvalidInputError) as caught:
        match_expert(name, experts)
    assert all(expert in str(caught.value) for expert in experts[-2:])


def test_a_name_without_its_provider_means_that_model():
    assert match_expert("gpt-4", ["openai/gpt-4", "openai/gpt-4-turbo"]) == "openai/gpt-4"


def test_two_names_of_one_expert_are_refused():
    assert match_values({"7B": 1, "0.5B": 2}, QWEN) == {QWEN[2]: 1, QWEN[0]: 2}
    with pytest.raises(InvalidInputError, match="'7B' and '7b' both mean"):
        match_values({"7B": 1, "7b": 2}, QWEN)


def test_the_same_name_in_other_case_is_refused_if_two_fit():
    with pytest.raises(InvalidInputError, match="it matches gpt, GPT"):
        match_expert("Gpt", ["gpt", "GPT"])


@pytest.mark.parametrize("name", ["", "  ", "13B"])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(InvalidInputError, match=r"is not one of the experts Qwen2\.5-0\.5B"):
        match_expert(name, QWEN)


def test_a_typo_is_suggested():
    with pytest.raises(InvalidInputError, match=r"Did you mean 'Qwen2.5-7B-Instruct'\?"):
        match_expert("Qwen2.5-7B-Instruckt", QWEN)


def test_patterns_and_lists_keep_their_order():
    assert match_experts("7B,*B-Instruct", QWEN) == [QWEN[2], QWEN[0], QWEN[1]]
    assert match_experts(["1.5B", "0.5B"], QWEN) == [QWEN[1], QWEN[0]]
    with pytest.raises(InvalidInputError, match=r"'z\*' is not one"):
        match_experts("z*", QWEN)


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=5, unique=True))
def test_a_full_name_always_means_itself(names):
    assert match_experts(names, names) == names
