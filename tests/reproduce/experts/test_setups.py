"""Setups: whole classes to every expert, and clear words where that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from mild.exceptions import InvalidInputError, OptionError, UnsupportedError
from mild.reproduce.experts import PEOPLE, SETUPS, Setup, coverage_setup, get_setup, parse_coverage


@pytest.mark.parametrize("n_classes", [10, 100, 200])
@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_experts_own_consecutive_classes_in_their_exact_shares(setup, n_classes):
    owners = setup.owners(n_classes)
    assert owners.shape == (n_classes,)
    assert owners.dtype == np.int64
    assert (np.diff(owners) >= 0).all()
    counts = np.bincount(owners, minlength=setup.n_experts)
    np.testing.assert_allclose(counts, np.multiply(setup.coverage, n_classes), atol=1e-9)


def test_the_papers_setups_are_these():
    assert SETUPS["I"].owners(10).tolist() == [0] * 7 + [1] * 2 + [2]
    assert SETUPS["II"].owners(10).tolist() == [0] * 5 + [1] * 2 + [2] * 2 + [3]
    assert SETUPS["III"].owners(10).tolist() == [0] * 4 + [1] * 2 + [2] * 2 + [3, 4]
    assert SETUPS["severe"].owners(10).tolist() == [0] * 9 + [1]


@pytest.mark.parametrize(
    ("text", "n_classes", "counts"),
    [
        ("0.6,0.3,0.1", 10, [6, 3, 1]),
        ("0.25,0.25,0.25,0.25", 10, [3, 2, 3, 2]),
        ("0.333333,0.333333,0.333334", 10, [3, 4, 3]),
        ("0.15,0.85", 10, [2, 8]),
        (" 0.5 , 0.5 ", 3, [2, 1]),
        ("5e-1,0.5", 2, [1, 1]),
    ],
)
def test_any_coverage_gives_whole_classes_by_cumulative_rounding(text, n_classes, counts):
    owners = parse_coverage(text).owners(n_classes)
    assert np.bincount(owners).tolist() == counts


def test_a_setup_is_named_by_its_coverage_unless_the_paper_has_it():
    assert parse_coverage("0.6,0.3,0.1") == Setup("0.6-0.3-0.1", (0.6, 0.3, 0.1))
    assert parse_coverage("0.7,0.2,0.1") is SETUPS["I"]
    assert coverage_setup((0.9, 0.1)) is SETUPS["severe"]


@pytest.mark.parametrize("text", ["0.6,0.3,0.1", "0.333333,0.333333,0.333334", "0.99999,1e-5"])
def test_the_name_of_a_coverage_gives_it_back(text):
    setup = parse_coverage(text)
    assert get_setup(setup.name) == setup


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0.6,0.3", "coverage must sum to 1; got 0.9 from 0.6,0.3."),
        ("0.6,0.3,0.2", "coverage must sum to 1; got 1.1 from 0.6,0.3,0.2."),
        ("70,20,10", "got 100 from 70,20,10. Write shares, not percentages: 0.7,0.2,0.1."),
        ("70%,30%", "got '70%' in '70%,30%'."),
        ("0.7,0.3,", "got '' in '0.7,0.3,'."),
        ("", "got '' in ''."),
        ("0.7;0.3", "got '0.7;0.3' in '0.7;0.3'."),
        ("1", "coverage must name at least two experts, such as 0.9,0.1; got 1."),
        ("1,0", "coverage must be positive for every expert; got 0 in 1,0."),
        ("1.2,-0.2", "coverage must be positive for every expert; got -0.2 in 1.2,-0.2."),
        ("nan,0.5", "coverage must be positive for every expert; got nan in nan,0.5."),
        ("inf,0.5", "coverage must be positive for every expert; got inf in inf,0.5."),
    ],
)
def test_a_bad_coverage_is_refused_in_one_sentence(text, sentence):
    with pytest.raises(InvalidInputError) as caught:
        parse_coverage(text)
    assert str(caught.value).endswith(sentence)


def test_an_expert_without_a_class_is_refused_with_the_least_share():
    with pytest.raises(
        InvalidInputError, match=r"expert 2 with 0.04 gets none\. Raise its share to 0.1"
    ):
        parse_coverage("0.96,0.04").owners(10)
    assert np.bincount(parse_coverage("0.96,0.04").owners(100)).tolist() == [96, 4]


def test_a_setup_made_by_hand_is_checked_where_it_is_used():
    with pytest.raises(InvalidInputError, match=r"coverage must sum to 1; got 0\.8"):
        Setup("mine", (0.5, 0.3)).owners(10)


def test_people_own_no_classes():
    with pytest.raises(UnsupportedError, match="'people'"):
        Setup(PEOPLE, (0.8, 0.8)).owners(10)


def test_an_unknown_name_suggests_a_known_one():
    with pytest.raises(
        OptionError, match=r"setup must be one of .*; got 'sever'\. Did you mean 'severe'\?"
    ):
        get_setup("sever")
    assert get_setup("II") is SETUPS["II"]


@pytest.mark.parametrize("name", ["0.6-0.3", "--", "1-0"])
def test_a_name_that_is_a_bad_coverage_is_refused(name):
    with pytest.raises(InvalidInputError, match="coverage must"):
        get_setup(name)
