import pytest

from mild.exceptions import InvalidInputError
from mild.reproduce.llm.trio import QWEN, is_paper_trio, ordered_trio, parse_beta

NAMES = ["Q-7B", "Q-1.5B", "Q-0.5B"]


def test_the_paper_s_trio_is_found_among_others_and_in_its_order():
    family = ["Qwen2.5-7B-base", *reversed(QWEN), "Llama-3.1-8B-Instruct"]
    assert ordered_trio(family) == list(QWEN)
    assert is_paper_trio(ordered_trio([name.lower() for name in QWEN]))


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["a-1B", "a-70b", "a-8B"], ["a-70b", "a-8B", "a-1B"]),
        (["x_0.5B_it", "x_1.5B_it", "x_7B_it"], ["x_7B_it", "x_1.5B_it", "x_0.5B_it"]),
        (
            ["Qwen2.5-3B", "Qwen2.5-14B", "Qwen2.5-32B"],
            ["Qwen2.5-32B", "Qwen2.5-14B", "Qwen2.5-3B"],
        ),
    ],
)
def test_three_others_are_ordered_by_the_sizes_in_their_names(names, order):
    assert ordered_trio(names) == order
    assert not is_paper_trio(order)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["a-1B", "a-7B"], "need three experts; the table has 2"),
        (["a-1B", "a-7B", "b-1B", "b-7B"], "need three experts; the table has 4"),
        (["small", "medium", "large"], "must tell their sizes by their names"),
        (["a-7B", "b-7B", "c-1B"], "must tell their sizes by their names"),
    ],
)
def test_experts_that_cannot_be_ordered_are_to_be_named(names, sentence):
    with pytest.raises(InvalidInputError, match=sentence) as caught:
        ordered_trio(names)
    assert "--experts" in str(caught.value)


def test_costs_are_numbers_in_order_or_pairs_by_short_names():
    assert parse_beta("1,0.6,0.1", NAMES) == (1.0, 0.6, 0.1)
    assert parse_beta("0.5B=0.1, 7B=1", NAMES) == (1.0, 0.0, 0.1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1,0.6", "beta must be one number per expert, 3 of them; got 2"),
        ("1,0.6,0.1,0", "3 of them; got 4"),
        ("1,x,0.1", "beta must be numbers such as 1,0.6,0.1"),
        ("1,-0.6,0.1", "finite and not negative; got -0.6"),
        ("1,nan,0.1", "finite and not negative; got nan"),
        ("9B=1", "beta: '9B' is none of the experts"),
        ("7B=1,Q-7B=2", "each expert once; got 'Q-7B' twice"),
        ("7B=1,0.6,0.1", "or EXPERT=COST for all that are named"),
        ("7B=dear", "beta must be numbers"),
    ],
)
def test_costs_that_cannot_be_meant_are_one_sentence(text, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        parse_beta(text, NAMES)
