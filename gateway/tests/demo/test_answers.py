import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mild_gateway.demo.answers import STAND_INS, calculate, recall


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("What is 17 times 23?", "391"),
        ("Calculate 10 divided by 4.", "2.5"),
        ("(2 + 3) * -4 = ?", "-20"),
        ("It is 9:40. What is 7 - 10?", "-3"),
        ("Room 5 has 3 windows.", None),
        ("1 / 0", None),
        ("((((", None),
        ("2 * (3 +", None),
    ],
)
def test_sums(text, value):
    assert calculate(text) == value


@given(st.integers(0, 999), st.integers(0, 999), st.integers(1, 99), st.sampled_from("+-*"))
def test_sums_are_right(a, b, c, sign):
    wanted = {"+": a + b * c, "-": a - b * c, "*": a * b * c}[sign]
    assert calculate(f"What is {a} {sign} {b} * {c}?") == str(wanted)


@settings(deadline=None)
@given(st.text(max_size=300))
def test_every_text_has_an_answer(text):
    for answer in STAND_INS.values():
        assert answer(text)


def test_facts():
    assert recall("What is the capital of France?") == "Paris"
    assert recall("What is the capital of Nowhere?") is None
