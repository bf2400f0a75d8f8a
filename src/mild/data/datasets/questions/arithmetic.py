"""Sums from one digit to three, in five grades."""

from __future__ import annotations

from random import Random

from mild.data.datasets.questions.rows import Row, make_row

__all__ = ["arithmetic"]


def arithmetic(rng: Random) -> Row:
    """One sum; its grade is drawn."""
    grade = rng.randint(1, 5)
    task, expression, value = _GRADES[grade - 1](rng)
    query = rng.choice(("What is {}?", "Calculate {}.", "How much is {}?")).format(expression)
    return make_row(f"arithmetic/{task}", grade, query, value, "numeric")


def _one_digit(rng: Random) -> tuple[str, str, int]:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    if rng.random() < 0.5:
        return "add", f"{a} + {b}", a + b
    a, b = max(a, b), min(a, b)
    return "subtract", f"{a} - {b}", a - b


def _two_digits(rng: Random) -> tuple[str, str, int]:
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    if rng.random() < 0.5:
        return "add", f"{a} + {b}", a + b
    a, b = max(a, b), min(a, b)
    return "subtract", f"{a} - {b}", a - b


def _tables(rng: Random) -> tuple[str, str, int]:
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    if rng.random() < 0.6:
        return "multiply", f"{a} * {b}", a * b
    return "divide", f"{a * b} / {a}", b


def _mixed(rng: Random) -> tuple[str, str, int]:
    a, b, c = rng.randint(2, 30), rng.randint(2, 12), rng.randint(2, 9)
    if rng.random() < 0.5:
        return "mixed", f"{a} + {b} * {c}", a + b * c
    return "mixed", f"({a} + {b}) * {c}", (a + b) * c


def _long(rng: Random) -> tuple[str, str, int]:
    a, b = rng.randint(101, 999), rng.randint(11, 99)
    if rng.random() < 0.5:
        return "multiply", f"{a} * {b}", a * b
    c = rng.randint(101, 9999)
    return "add", f"{a} + {b} + {c}", a + b + c


_GRADES = (_one_digit, _two_digits, _tables, _mixed, _long)
