import math

import numpy as np
import pytest

from mild.exceptions import InvalidInputError, OptionError
from mild.margins import theory_margins
from mild.reproduce.methods import READINGS, ROBUSTNESS, Method, robustness

WORDS = ("mild", "uniform", "tuned", "grid", "tdef", "ce", "cwce", "ldam")


@pytest.mark.parametrize("word", WORDS)
def test_a_word_reads_back_from_its_own_text(word):
    method = Method.parse(word)
    assert Method.parse(method.text) == method


def test_mild_is_the_literal_reading():
    assert Method.parse("mild").as_dict() == {
        "name": "mild",
        "rewards": "others",
        "counts": "reward",
        "margins": "theory",
        "total": "1",
    }


def test_short_words_say_the_margins():
    assert Method.parse("uniform") == Method.parse("mild:margins=uniform")
    assert Method.parse("tuned:rewards=any") == Method.parse("mild:rewards=any,margins=tuned")
    assert Method.parse("grid").counts == "reward"


def test_options_that_mean_nothing_to_a_method_are_none():
    assert Method.parse("tdef").as_dict() == {
        "name": "tdef",
        "rewards": None,
        "counts": None,
        "margins": None,
        "total": None,
    }
    assert Method.parse("uniform").counts is None
    assert Method.parse("tuned").counts is None
    assert Method.parse("mild:margins=1/2/3").total is None


def test_options_may_come_in_any_order_with_blanks():
    asked = " mild : total = mean3 , counts=best, rewards=contrast"
    assert Method.parse(asked) == Method("mild", "contrast", "best", "theory", "mean3")


def test_explicit_margins_are_numbers_exactly():
    method = Method.parse("mild:margins=0.1/2/0.30000000000000004")
    assert method.margins == (0.1, 2.0, 0.1 + 0.2)
    assert Method.parse(method.text) == method
    assert method.as_dict()["margins"] == [0.1, 2.0, 0.1 + 0.2]


@pytest.mark.parametrize(("total", "expected"), [("1", 1.0), ("2.5", 2.5), ("mean3", 12.0)])
def test_total_is_a_sum_or_a_mean_times_the_experts(total, expected):
    assert Method.parse(f"mild:total={total}").sum_of_margins(4) == expected


def test_equal_totals_are_written_alike():
    assert Method.parse("mild:total=1.0") == Method.parse("mild:total=1")
    assert Method.parse("mild:total=mean3.0") == Method.parse("mild:total=mean3")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mils", "Did you mean 'mild'"),
        ("", "method must be one of"),
        ("mild:", "key=value"),
        ("mild:rewards", "key=value"),
        ("mild:rewards=", "key=value"),
        ("mild:reward=others", "Did you mean 'rewards'"),
        ("mild:rewards=other", "Did you mean 'others'"),
        ("mild:rewards=any", "rewards must be one of"),
        ("mild:counts=worst", "counts must be one of"),
        ("mild:counts=best,counts=best", "twice"),
        ("mild:margins=thoery", "Did you mean 'theory'"),
        ("mild:margins=1/x/3", "numbers a/b/c"),
        ("mild:margins=1/0/3", "positive"),
        ("mild:margins=1/nan/3", "positive"),
        ("mild:margins=1/-2/3", "positive"),
        ("mild:margins=1/2,total=3", "total must be left out"),
        ("mild:total=0", "total must be a positive number"),
        ("mild:total=inf", "total must be a positive number"),
        ("mild:total=mean", "total must be a positive number"),
        ("mild:total=meanx", "total must be a positive number"),
        ("uniform:counts=best", "counts is an option of theory"),
        ("uniform:margins=theory", "use 'mild:margins=theory'"),
        ("tdef:rewards=others", "an option of mild alone"),
        ("ce:total=1", "an option of mild alone"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(text, said):
    with pytest.raises(InvalidInputError) as caught:
        Method.parse(text)
    assert said in str(caught.value)
    assert str(caught.value).rstrip("?").endswith((".", "'"))


def test_an_unknown_option_is_an_option_error():
    with pytest.raises(OptionError):
        Method.parse("mild:colour=red")


def test_methods_are_equal_and_hash_by_what_they_say():
    assert len({Method.parse("mild"), Method("mild", "others", "reward", "theory", "1")}) == 1


def test_found_margins_replace_the_search():
    found = Method.parse("tuned:rewards=any").with_margins([1, 2], "contrast")
    assert found == Method("mild", "contrast", margins=(1.0, 2.0))
    assert not found.searched


def test_readings_hold_every_reading_once_and_tdef():
    assert len(READINGS) == len(set(READINGS)) == 3 * 2 * 3 + 2 + 1
    assert Method.parse("mild") in READINGS
    assert Method.parse("tdef") in READINGS
    assert all(Method.parse(method.text) == method for method in READINGS)


def test_labels_of_the_readings_differ():
    assert len({method.label for method in READINGS}) == len(READINGS)


def test_robustness_starts_at_the_theory_and_moves_each_expert_and_all():
    center = theory_margins([0.425, 0.3, 0.275], total=1)
    np.testing.assert_allclose(ROBUSTNESS[0].margins, center, atol=1e-4)
    assert math.isclose(sum(ROBUSTNESS[0].margins), 1)
    assert len(set(ROBUSTNESS)) == 1 + 3 * 3 + 3
    assert robustness((1, 1), steps=(5,))[-1].margins == (6.0, 6.0)
