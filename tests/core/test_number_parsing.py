"""Numbers in the many ways in which models write them."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild.core.number_parsing import extract_number, is_number_text, numbers_in, same_number


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("42", 42),
        ("42.", 42),
        ("The answer is 42.", 42),
        ("-7", -7),
        ("\u22127", -7),
        ("It is 5 - 12 = -7", -7),
        ("1,234", 1234),
        ("1,234,567.5", 1234567.5),
        ("1\u202f234", 1234),
        ("1{,}234", 1234),
        ("$1,200.00", 1200),
        ("-$5", -5),
        ("3.50 dollars", 3.5),
        (".5", 0.5),
        ("3/4", 0.75),
        ("1 1/2", 1.5),
        ("\\frac{3}{4}", 0.75),
        ("-\\frac{1}{2}", -0.5),
        ("\\boxed{12}", 12),
        ("\\boxed{\\frac{1}{4}} of 100", 0.25),
        ("2e3", 2000),
        ("2 x 10^3", 2000),
        ("2 \\times 3, so 6", 6),
        ("#### 18", 18),
        ("3 + 4 = 7", 7),
        ("Answer: 3 + 4 = 7", 7),
        ("Answer: 7 (because 3 + 4)", 7),
        ("**Answer:** 7", 7),
        ("Answer: **7**", 7),
        ("First 3, then 4.\nAnswer: 7\n", 7),
        ("There are 12 apples and 3 pears, so 15 in all.", 15),
        ("- 5 apples\n- 6 pears", 6),
        ("1, 2, 3", 3),
        ("It has 30 days", 30),
        ("1,2345", 2345),
        ("2024-03-05", 5),
    ],
)
def test_a_number_is_found(response, value):
    assert extract_number(response)[0] == Fraction(value)


@pytest.mark.parametrize("response", ["", "none", "seven", "x2y", "5/0", "v1.2.3a"])
def test_no_number_is_made_up(response):
    assert extract_number(response) == []


def test_a_percent_is_both_its_number_and_its_share():
    assert extract_number("50%") == [50, Fraction(1, 2)]
    assert extract_number("50 percent") == [50, Fraction(1, 2)]
    assert extract_number("50\\%") == [50, Fraction(1, 2)]


def test_large_whole_numbers_are_distinguished():
    found, wanted = extract_number("12345678901234567890"), numbers_in("12345678901234567891")[0]
    assert not same_number(found, wanted, 0.0)
    assert same_number(found, wanted, 1e-6)


def test_tolerance_is_absolute_up_to_one_and_relative_beyond():
    assert same_number([Fraction("0.01")], [Fraction(0)], 0.01)
    assert not same_number([Fraction("0.011")], [Fraction(0)], 0.01)
    assert same_number([Fraction(101)], [Fraction(100)], 0.01)
    assert not same_number([Fraction(102)], [Fraction(100)], 0.01)


@given(st.integers(-(10**12), 10**12))
def test_every_whole_number_is_read_as_it_is_written(value):
    assert extract_number(f"It is {value}.") == [value]
    assert extract_number(f"It is {value:,}.") == [value]
    assert is_number_text(f"{value:,}")


@given(st.text(max_size=60))
def test_no_text_raises_an_error(text):
    for values in numbers_in(text):
        assert all(isinstance(value, Fraction) for value in values)


@pytest.mark.parametrize("piece", ["1,", "1 ", "1/", "1", "answer ", "\\boxed{", "-", "1,000"])
def test_long_responses_take_no_time(piece):
    def seconds(count):
        start = time.process_time()
        extract_number(piece * count)
        return time.process_time() - start

    short = min(seconds(500) for _ in range(3))
    # Ten times the text takes about ten times as long; a hundred times if places were paired.
    assert any(seconds(5_000) < 1 + 40 * short for _ in range(3))


@pytest.mark.parametrize("text", [r"3\frac{1}{2}", r"3 \frac{1}{2}", r"so $3\dfrac{1}{2}$"])
def test_a_mixed_number_in_latex(text):
    assert extract_number(text) == [Fraction(7, 2)]
