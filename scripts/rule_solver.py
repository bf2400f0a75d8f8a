"""A narrow expert: rules for sums, letters and dates. Reads a question on stdin, prints the answer.

It is always right on what it knows, says "unknown" to everything else, and needs nothing but the
standard library: `echo "What is 12 * 12?" | python scripts/rule_solver.py` prints 144.
"""

from __future__ import annotations

import calendar
import datetime
import operator
import re
import sys
from collections.abc import Callable

ORDINALS = ("first", "second", "third", "fourth")
MONTHS = tuple(calendar.month_name)
SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
RANK = {"+": 1, "-": 1, "*": 2, "/": 2}


def calculate(expression: str) -> str | None:
    """The value of a sum, by precedence climbing."""
    tokens = re.findall(r"\d+|[-+*/()]", expression)
    if "".join(tokens) != expression.replace(" ", ""):
        return None

    def term() -> float:
        token = tokens.pop(0)
        if token != "(":
            return float(token)
        value = climb(1)
        tokens.pop(0)
        return value

    def climb(rank: int) -> float:
        left = term()
        while tokens and RANK.get(tokens[0], 0) >= rank:
            sign = tokens.pop(0)
            left = SIGNS[sign](left, climb(RANK[sign] + 1))
        return left

    try:
        value = climb(1)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return str(int(value)) if value == int(value) else str(value)


def later_date(days: str, start: str) -> str:
    """A date so many days after another."""
    end = datetime.date.fromisoformat(start) + datetime.timedelta(int(days))
    return end.isoformat()


def later_time(hour: str, minute: str, ahead: str) -> str:
    """A time of day so many minutes after another."""
    total = (int(hour) * 60 + int(minute) + int(ahead)) % (24 * 60)
    return f"{total // 60:02d}:{total % 60:02d}"


def month_length(month: str, year: str) -> str | None:
    """Days of a month."""
    if month not in MONTHS:
        return None
    return str(calendar.monthrange(int(year), MONTHS.index(month))[1])


def letter_of(ordinal: str, word: str) -> str:
    """A letter of a word by its place."""
    return word[-1] if ordinal == "last" else word[ORDINALS.index(ordinal)]


RULES: tuple[tuple[str, Callable[..., str | None]], ...] = (
    (r"(?:What is|Calculate|How much is) ([-+*/() \d]+)[?.]", calculate),
    (r'Write the word "(\w+)" backwards\.', lambda word: word[::-1]),
    (r'Write the word "(\w+)" with a dash between all its letters\.', lambda word: "-".join(word)),
    (r'How many letters has the word "(\w+)"\?', lambda word: str(len(word))),
    (r'What is the (first|second|third|fourth|last) letter of the word "(\w+)"\?', letter_of),
    (
        r'How often does the letter "(\w)" occur in "(\w+)"\?',
        lambda letter, word: str(word.count(letter)),
    ),
    (r"Which date is (\d+) days after (\d{4}-\d\d-\d\d)\?.*", later_date),
    (r"It is (\d\d):(\d\d)\. What time is it (\d+) minutes later\?", later_time),
    (r"How many days has (\w+) (\d{4})\?", month_length),
)


def solve(question: str) -> str:
    """The answer by the first rule that fits."""
    for pattern, rule in RULES:
        if match := re.fullmatch(pattern, question.strip()):
            return rule(*match.groups()) or "unknown"
    return "unknown"


if __name__ == "__main__":
    print(solve(sys.stdin.read()))
