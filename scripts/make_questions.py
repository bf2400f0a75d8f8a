"""Write questions with exact answers, in five families of graded tasks.

    python scripts/make_questions.py questions.jsonl [--count 1500] [--seed 0]

The embedded table of outcomes (``mild.datasets.outcomes_file``) has the questions of seed 0.
"""

from __future__ import annotations

import argparse
import calendar
import datetime
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple, TypedDict

from mild.errors import InvalidInputError

# The stand-in experts of `mild serve --demo` answer from the same file.
FACTS_FILE = Path(__file__).parents[1] / "gateway" / "src" / "mild_gateway" / "demo" / "facts.toml"
FACTS = tomllib.loads(FACTS_FILE.read_text(encoding="utf-8"))


class Question(NamedTuple):
    """A question: its task, grade (1 to 5), text, answer, kind of answer, and options of a choice."""

    task: str
    grade: int
    query: str
    answer: object
    kind: str = "numeric"
    options: list[str] | None = None


# Arithmetic: sums from one digit to three, in five grades


def arithmetic(rng: Random) -> Question:
    grade = rng.randint(1, 5)
    task, expression, value = _SUMS[grade - 1](rng)
    query = rng.choice(("What is {}?", "Calculate {}.", "How much is {}?")).format(expression)
    return Question(task, grade, query, value)


Sum = tuple[str, str, int]


def _plus_or_minus(rng: Random, low: int, high: int) -> Sum:
    a, b = rng.randint(low, high), rng.randint(low, high)
    if rng.random() < 0.5:
        return "add", f"{a} + {b}", a + b
    a, b = max(a, b), min(a, b)
    return "subtract", f"{a} - {b}", a - b


def _one_digit(rng: Random) -> Sum:
    return _plus_or_minus(rng, 1, 9)


def _two_digits(rng: Random) -> Sum:
    return _plus_or_minus(rng, 10, 99)


def _tables(rng: Random) -> Sum:
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    if rng.random() < 0.6:
        return "multiply", f"{a} * {b}", a * b
    return "divide", f"{a * b} / {a}", b


def _mixed(rng: Random) -> Sum:
    a, b, c = rng.randint(2, 30), rng.randint(2, 12), rng.randint(2, 9)
    if rng.random() < 0.5:
        return "mixed", f"{a} + {b} * {c}", a + b * c
    return "mixed", f"({a} + {b}) * {c}", (a + b) * c


def _long(rng: Random) -> Sum:
    a, b = rng.randint(101, 999), rng.randint(11, 99)
    if rng.random() < 0.5:
        return "multiply", f"{a} * {b}", a * b
    c = rng.randint(101, 9999)
    return "add", f"{a} + {b} + {c}", a + b + c


_SUMS = (_one_digit, _two_digits, _tables, _mixed, _long)


# Words: problems whose grade is the number of steps, one to three

_NAMES = "Ada Ben Clara Dan Eva Felix Greta Hugo Ida Jonas Lena Max"
NAMES = _NAMES.split()
_THINGS = "apples pencils books marbles stickers coins cookies cards shells"
THINGS = _THINGS.split()
PLACES = ("basket", "box", "drawer", "bag", "shelf")


def words(rng: Random) -> Question:
    grade = rng.randint(1, 3)
    return rng.choice(_PROBLEMS[grade - 1])(rng)


def _gain(rng: Random) -> Question:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    a, b = rng.randint(2, 20), rng.randint(2, 20)
    text = f"{name} has {a} {thing} and gets {b} more. How many {thing} now?"
    return Question("gain", 1, text, a + b)


def _loss(rng: Random) -> Question:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    a = rng.randint(5, 30)
    b = rng.randint(1, a - 1)
    text = f"{name} has {a} {thing} and gives away {b}. How many {thing} are left?"
    return Question("loss", 1, text, a - b)


def _groups(rng: Random) -> Question:
    thing, place = rng.choice(THINGS), rng.choice(PLACES)
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    text = f"There are {b} {thing} in every {place}. How many {thing} are in {a} of them?"
    return Question("groups", 1, text, a * b)


def _share(rng: Random) -> Question:
    thing = rng.choice(THINGS)
    a, b = rng.randint(2, 10), rng.randint(2, 12)
    text = f"{a} children share {a * b} {thing} equally. How many {thing} does each child get?"
    return Question("share", 1, text, b)


def _change(rng: Random) -> Question:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    price, count = rng.randint(2, 9), rng.randint(2, 5)
    paid = rng.choice((50, 60, 100))
    text = (
        f"{name} buys {count} {thing} for {price} dollars each and pays with {paid} dollars. "
        f"How many dollars come back?"
    )
    return Question("change", 2, text, paid - price * count)


def _two_people(rng: Random) -> Question:
    first, second = rng.sample(NAMES, 2)
    thing, a, b = rng.choice(THINGS), rng.randint(3, 20), rng.randint(2, 9)
    text = (
        f"{first} has {a} {thing}. {second} has {b} more than {first}. "
        f"How many {thing} do they have together?"
    )
    return Question("two_people", 2, text, 2 * a + b)


def _pace(rng: Random) -> Question:
    name, hours, speed = rng.choice(NAMES), rng.randint(2, 6), rng.randint(3, 20)
    rest = rng.randint(1, 30)
    text = (
        f"{name} travels {hours} hours at {speed} km per hour and then {rest} km more. "
        f"How many km is that in all?"
    )
    return Question("pace", 2, text, hours * speed + rest)


def _market(rng: Random) -> Question:
    name, thing, place = rng.choice(NAMES), rng.choice(THINGS), rng.choice(PLACES)
    boxes, each = rng.randint(3, 9), rng.randint(4, 12)
    sold, found = rng.randint(2, boxes * each - 1), rng.randint(2, 15)
    text = (
        f"{name} fills {boxes} times a {place} with {each} {thing}, sells {sold} of the {thing} and then "
        f"finds {found} more. How many {thing} does {name} have?"
    )
    return Question("market", 3, text, boxes * each - sold + found)


def _twice(rng: Random) -> Question:
    first, second, third = rng.sample(NAMES, 3)
    thing, a, b = rng.choice(THINGS), rng.randint(2, 15), rng.randint(1, 9)
    text = (
        f"{first} has {a} {thing}. {second} has twice as many as {first}. {third} has {b} more than "
        f"{second}. How many {thing} do the three have together?"
    )
    return Question("twice", 3, text, 5 * a + b)


_PROBLEMS = ((_gain, _loss, _groups, _share), (_change, _two_people, _pace), (_market, _twice))


# Strings: the letters of a word, and lists of words and numbers

_WORDS = """
apple bread chair cloud dance eagle flame grape honey island jungle kettle lemon mirror needle ocean
paper queen river silver table umbrella violin winter yellow zebra bottle candle desert engine forest
garden hammer insect jacket ladder magnet number orange pencil rabbit school tiger unicorn valley window
breakfast butterfly chocolate mountain newspaper telephone cat dog sun moon tree fish bird star milk rain
snow wind door book hand foot
"""
WORDS = _WORDS.split()
ORDINALS = ("first", "second", "third", "fourth")


def strings(rng: Random) -> Question:
    return rng.choice(_STRINGS)(rng)


def _reverse(rng: Random) -> Question:
    word = rng.choice(WORDS)
    grade = 2 if len(word) <= 4 else 4
    return Question("reverse", grade, f'Write the word "{word}" backwards.', word[::-1], "exact")


def _length(rng: Random) -> Question:
    word = rng.choice(WORDS)
    return Question("length", 2, f'How many letters has the word "{word}"?', len(word))


def _letter(rng: Random) -> Question:
    word, place = rng.choice(WORDS), rng.randint(0, 3)
    place = min(place, len(word) - 1)
    query = f'What is the {ORDINALS[place]} letter of the word "{word}"?'
    return Question("letter", 1 + (place > 0), query, word[place], "exact")


def _last_letter(rng: Random) -> Question:
    word = rng.choice(WORDS)
    query = f'What is the last letter of the word "{word}"?'
    return Question("last_letter", 2, query, word[-1], "exact")


def _count(rng: Random) -> Question:
    word = rng.choice(WORDS)
    letter = rng.choice(word)
    query = f'How often does the letter "{letter}" occur in "{word}"?'
    return Question("count", 3, query, word.count(letter))


def _spell(rng: Random) -> Question:
    word = rng.choice(WORDS)
    # Case and punctuation around an answer do not count: ask for what cannot be copied.
    query = f'Write the word "{word}" with a dash between all its letters.'
    return Question("spell", 3, query, "-".join(word), "exact")


def _last_word(rng: Random) -> Question:
    chosen = rng.sample(WORDS, rng.randint(3, 5))
    query = f"What is the last word of this list: {', '.join(chosen)}?"
    return Question("last_word", 1, query, chosen[-1], "exact")


def _alphabet(rng: Random) -> Question:
    chosen = rng.sample(WORDS, 3)
    query = f"Which of these words comes first in the alphabet: {', '.join(chosen)}?"
    return Question("alphabet", 3, query, min(chosen), "exact")


def _largest(rng: Random) -> Question:
    numbers = rng.sample(range(1, 100), rng.randint(3, 5))
    end = rng.choice(("largest", "smallest"))
    value = max(numbers) if end == "largest" else min(numbers)
    query = f"Which of these numbers is the {end}: {', '.join(map(str, numbers))}?"
    return Question(end, 2, query, value)


_STRINGS = (
    _reverse,
    _length,
    _letter,
    _last_letter,
    _count,
    _spell,
    _last_word,
    _alphabet,
    _largest,
)


# Dates: weekdays, months, dates and the clock

_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
DAYS = _DAYS.split()
_MONTHS = """
January February March April May June July August September October November December
"""
MONTHS = _MONTHS.split()


def dates(rng: Random) -> Question:
    return rng.choice(_DATES)(rng)


def _neighbour(rng: Random, names: list[str]) -> tuple[str, str, str]:
    """One of the names, before or after, and the name there."""
    place = rng.randrange(len(names))
    step = rng.choice((-1, 1))
    return names[place], "after" if step > 0 else "before", names[(place + step) % len(names)]


def _next_day(rng: Random) -> Question:
    day, side, answer = _neighbour(rng, DAYS)
    query = f"Which day of the week comes right {side} {day}?"
    return Question("next_day", 1, query, answer, "contains")


def _later_day(rng: Random) -> Question:
    day, ahead = rng.randrange(7), rng.choice([d for d in range(2, 31) if d % 7])
    query = f"Today is {DAYS[day]}. Which day of the week is it in {ahead} days?"
    return Question("later_day", 2 if ahead < 7 else 4, query, DAYS[(day + ahead) % 7], "contains")


def _next_month(rng: Random) -> Question:
    month, side, answer = _neighbour(rng, MONTHS)
    query = f"Which month comes right {side} {month}?"
    return Question("next_month", 1, query, answer, "contains")


def _days_in_month(rng: Random) -> Question:
    year, month = rng.randint(1990, 2030), rng.randint(1, 12)
    query = f"How many days has {MONTHS[month - 1]} {year}?"
    days = calendar.monthrange(year, month)[1]
    return Question("days_in_month", 3 if month == 2 else 2, query, days)


def _leap_year(rng: Random) -> Question:
    year = rng.choice((rng.randint(1890, 2110), rng.randrange(1892, 2110, 4)))
    answer = "yes" if calendar.isleap(year) else "no"
    query = f"Is {year} a leap year? Answer yes or no."
    return Question("leap_year", 3, query, answer, "contains")


def _later_date(rng: Random) -> Question:
    start = datetime.date(2020, 1, 1) + datetime.timedelta(rng.randrange(3650))
    ahead = rng.randint(1, 60)
    end = start + datetime.timedelta(ahead)
    query = f"Which date is {ahead} days after {start.isoformat()}? Write it as YYYY-MM-DD."
    grade = 3 if start.month == end.month else 5
    return Question("later_date", grade, query, end.isoformat(), "contains")


def _minutes(rng: Random) -> Question:
    hours, minutes = rng.randint(1, 9), rng.choice((0, 0, 10, 15, 30, 45))
    rest = f" and {minutes} minutes" if minutes else ""
    name = "1 hour" if hours == 1 else f"{hours} hours"
    query = f"How many minutes are {name}{rest}?"
    return Question("minutes", 3 if minutes else 2, query, 60 * hours + minutes)


def _clock(rng: Random) -> Question:
    start, ahead = rng.randrange(24 * 12) * 5, rng.randrange(10, 300, 5)
    end = (start + ahead) % (24 * 60)
    query = f"It is {start // 60:02d}:{start % 60:02d}. What time is it {ahead} minutes later?"
    return Question("clock", 4, query, f"{end // 60:02d}:{end % 60:02d}", "contains")


_DATES = (
    _next_day,
    _later_day,
    _next_month,
    _days_in_month,
    _leap_year,
    _later_date,
    _minutes,
    _clock,
)


def facts(rng: Random) -> Question:
    n_answers = [len(fields["answers"]) for fields in FACTS.values()]
    task = rng.choices(list(FACTS), n_answers)[0]
    grade = FACTS[task]["grade"]
    answers = FACTS[task]["answers"]
    subject = rng.choice(list(answers))
    query = FACTS[task]["question"].format(subject)
    answer = answers[subject]
    others = sorted(set(answers.values()) - {answer})
    # An option that is a letter could be taken for the letter of an option.
    lettered = len(others) < 3 or any(len(other) == 1 for other in answers.values())
    if lettered or rng.random() < 0.85:
        kind = "numeric" if answer.isdigit() else "contains"
        return Question(task, grade, query, answer, kind)
    options = [answer, *rng.sample(others, 3)]
    rng.shuffle(options)
    return Question(task, grade, query, "ABCD"[options.index(answer)], "choice", options)


#: Family -> its share of the questions, and what draws one of them.
FAMILIES: dict[str, tuple[float, Callable[[Random], Question]]] = {
    "arithmetic": (0.21, arithmetic),
    "words": (0.17, words),
    "strings": (0.18, strings),
    "dates": (0.14, dates),
    "facts": (0.30, facts),
}

SHARES = {family: share for family, (share, _) in FAMILIES.items()}
# After so many repetitions in a row a family has nothing new to ask.
EXHAUSTED = 10_000


class Row(TypedDict):
    """``source``: family and task; ``grade``: 1 (easy) to 5; ``options``: of a choice, else None."""

    query: str
    answer: str
    kind: str
    options: list[str] | None
    source: str
    grade: int


def make_questions(n_questions: int = 1500, seed: int = 0) -> list[Row]:
    """Different questions with exact answers, in random order; the same for the same seed.

    Parameters
    ----------
    n_questions : how many; there are about 1,500 without repetition
    seed : seed of all random draws

    Returns
    -------
    list of rows with query, answer, kind (numeric, exact, contains, choice), options (of a choice), source
    (family/task) and grade (1 to 5)

    Examples
    --------
    >>> row = make_questions(n_questions=40, seed=3)[0]
    >>> sorted(row)
    ['answer', 'grade', 'kind', 'options', 'query', 'source']
    """
    rng = Random(seed)
    # The last family takes what rounding leaves.
    counts = {family: int(n_questions * share) for family, share in SHARES.items()}
    counts["facts"] += n_questions - sum(counts.values())
    rows: dict[str, Row] = {}
    for family, (_, draw) in FAMILIES.items():
        end, repeated = len(rows) + counts[family], 0
        while len(rows) < end:
            task, grade, query, answer, kind, options = draw(rng)
            repeated = repeated + 1 if query in rows else 0
            if repeated > EXHAUSTED:
                raise InvalidInputError(
                    f"n_questions must leave something new to ask; {family} has no {counts[family]}.",
                    parameter="n_questions",
                )
            row = Row(
                query=query,
                answer=str(answer),
                kind=kind,
                options=options,
                source=f"{family}/{task}",
                grade=grade,
            )
            rows.setdefault(query, row)
    shuffled = list(rows.values())
    rng.shuffle(shuffled)
    return shuffled


def main() -> None:
    """Write one JSON object per line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = make_questions(options.count, options.seed)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    options.file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
