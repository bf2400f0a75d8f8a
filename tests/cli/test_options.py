"""Words on the command line become values, or a sentence."""

from __future__ import annotations

import pytest

from mild.cli.options import margins_value, number_list, surrogate_value
from mild.errors import OptionError


def test_options_that_were_not_given_stay_none():
    assert margins_value(None) is None
    assert surrogate_value(None) is None
    assert number_list("alphas", None) is None


def test_numbers_and_names_are_told_apart():
    assert margins_value("uniform") == "uniform"
    assert margins_value("1,2,0.5") == [1.0, 2.0, 0.5]
    assert surrogate_value("0.5") == 0.5
    assert surrogate_value("hinge") == "hinge"
    assert number_list("alphas", "1e-3, 1e-2,") == [0.001, 0.01]


def test_a_word_among_numbers_is_refused():
    with pytest.raises(
        OptionError,
        match=r"margins must be theory, uniform, or numbers.*'theorie'.*Did you mean 'theory'",
    ):
        margins_value("theorie")
    with pytest.raises(OptionError, match=r"alphas must be numbers such as 1,2,0\.5; got '1,x'"):
        number_list("alphas", "1,x")


@pytest.mark.parametrize("text", ["1,,2", ",1", "1,2,,", "", ","])
def test_a_gap_among_numbers_is_refused(text):
    with pytest.raises(OptionError, match="alphas must be numbers"):
        number_list("alphas", text)


def test_help_lists_few_options_first_and_the_rest_under_headings(mild):
    help_text = mild("tune", "--help").out
    _, _, rest = help_text.partition("\nOptions:\n")
    first, *others = rest.split("\n\n")
    options = [line for line in first.splitlines() if line.startswith("  -")]
    assert len(options) <= 15
    assert [part.splitlines()[0] for part in others] == [
        "Targets:",
        "Search:",
        "Reading the table:",
    ]
