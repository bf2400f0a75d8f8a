"""The number that a response comes to."""

from __future__ import annotations

import re
from fractions import Fraction

# If a response has "answer" more often than this, only the last ones are read.
MAX_MARKERS = 20
# Number of characters behind such a word in which its number is looked for.
NEAR = 1000

# The last one counts: a model that thinks aloud names its answer at the end.
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_MARKER = re.compile(r"(?:\banswer\b(?:\s+is)?\s*[:=]?|####)", re.IGNORECASE)

_LATEX = re.compile(r"(?:(-)\s*)?\\[dt]?frac\s*\{\s*(\d{1,300})\s*\}\s*\{\s*(\d{1,300})\s*\}")
_NUMBER = re.compile(
    r"""
    (?<!\w)(?<!\d\.)                     # neither inside a word nor behind a decimal point
    (?P<sign>[-+])?(?:[$€£]\s?)?
    (?:
        (?P<mixed>\d{1,300})\s+(?P<top>\d{1,300})\s*/\s*(?P<bottom>\d{1,300})(?!\d)
      | (?P<numerator>\d{1,300})\s*/\s*(?P<denominator>\d{1,300})(?!\d)
      | (?P<plain>(?:\d{1,3}(?:[,\u00a0\u202f]\d{3})+|\d{1,300})(?:\.\d{1,300})?(?!\d)|\.\d{1,300}(?!\d))
        (?:[eE](?P<exponent>[-+]?\d{1,3})(?!\d)|\s*[x×*·]\s*10\s*\^\s*\{?(?P<power>[-+]?\d{1,3})\}?)?
    )
    (?P<percent>\s?(?:\\?%|percent\b))?
    """,
    re.VERBOSE,
)


def extract_number(response: str) -> list[Fraction]:
    """Return the values of the number that a response gives as its answer; empty if there is none.

    It is the number in the last ``\\boxed{...}``; else the one after the last "answer:", "answer is" or
    "####" (behind the last "=" of that line, if there is one); else the last number. Thousands may be
    separated by commas or narrow spaces; fractions, LaTeX fractions, mixed numbers, powers of ten and
    percents are read. A percent has two values: 50% is 50 and 1/2.

    >>> extract_number("3 boxes of 4 are 12, and 1,200.50 in all.")
    [Fraction(2401, 2)]
    >>> extract_number("The answer is 3/4, from 9 of 12")
    [Fraction(3, 4)]
    """
    text = _cleaned(response)
    for boxed in reversed(_BOXED.findall(text)):
        if numbers := numbers_in(boxed):
            return numbers[-1]
    for marker in reversed(list(_MARKER.finditer(text))[-MAX_MARKERS:]):
        line = text[marker.end() : marker.end() + NEAR].lstrip().split("\n", 1)[0]
        # The whole line if it has no "=".
        behind_equals = line.rpartition("=")[2]
        if numbers := numbers_in(behind_equals):
            return numbers[0]
    if numbers := numbers_in(text):
        return numbers[-1]
    return []


def numbers_in(text: str) -> list[list[Fraction]]:
    """Return the values of each number in a text, in order.

    >>> numbers_in("1 1/2 cups, 2e3 grains, 5%")
    [[Fraction(3, 2)], [Fraction(2000, 1)], [Fraction(5, 1), Fraction(1, 20)]]
    """
    text = _LATEX.sub(r" \1\2/\3", _cleaned(text))
    numbers = [values for match in _NUMBER.finditer(text) if (values := _values(match))]
    return numbers


def is_number_text(text: str) -> bool:
    """Whether a text is one number and nothing else.

    >>> [is_number_text(text) for text in ("-1,200", "3/4", "12 apples", "2024-03-05")]
    [True, True, False, False]
    """
    return _NUMBER.fullmatch(_cleaned(text).strip()) is not None


def same_number(values: list[Fraction], correct: list[Fraction], tolerance: float) -> bool:
    """Return whether any value v is within ``tolerance * max(1, |c|)`` of any correct value c."""
    exact_tolerance = Fraction(tolerance)
    for correct_value in correct:
        max_difference = exact_tolerance * max(Fraction(1), abs(correct_value))
        if any(abs(value - correct_value) <= max_difference for value in values):
            return True
    return False


def _cleaned(text: str) -> str:
    """A text with one minus sign, without LaTeX's spaces and without Markdown's bold type."""
    text = text.replace("\u2212", "-").replace("{,}", ",").replace("\\,", "\u202f")
    # A space: without one 2**3 would be 23.
    return text.replace("\\!", "").replace("\\$", "$").replace("**", " ")


def _values(match: re.Match[str]) -> list[Fraction]:
    """Values of a match of _NUMBER: two for a percent, none for a fraction over 0."""
    try:
        if match["mixed"]:
            value = int(match["mixed"]) + Fraction(int(match["top"]), int(match["bottom"]))
        elif match["numerator"]:
            value = Fraction(int(match["numerator"]), int(match["denominator"]))
        else:
            value = Fraction(re.sub(r"[^\d.]", "", match["plain"]))
            value *= Fraction(10) ** int(match["power"] or match["exponent"] or 0)
    except ZeroDivisionError:
        return []
    if match["sign"] == "-":
        value = -value
    if match["percent"]:
        return [value, value / 100]
    return [value]
