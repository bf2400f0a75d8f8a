"""What the stand-in experts know: sums, or a few facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial

_WORDS = {
    "times": "*",
    "multiplied by": "*",
    "plus": "+",
    "minus": "-",
    "divided by": "/",
    "×": "*",
}
_SUM = re.compile(r"[-(]*\d[\d\s.,+*/()-]*")
_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|[-+*/()])")
LONGEST = 200


def calculate(text: str) -> str | None:
    """The value of the first sum in a text; None if there is none.

    >>> calculate("What is 17 times 23?"), calculate("What is (6 + 9) * 4?"), calculate("Who?")
    ('391', '60', None)
    """
    plain = text[:2000].lower()
    for word, sign in _WORDS.items():
        plain = plain.replace(word, sign)
    for found in _SUM.finditer(plain):
        tokens = _TOKEN.findall(found.group()[:LONGEST])
        if any(token in "+-*/" for token in tokens[1:]):
            try:
                value, rest = _add(tokens)
            except (IndexError, ValueError, ZeroDivisionError):
                continue
            if not rest:
                return str(value) if value.denominator == 1 else f"{float(value):.6g}"
    return None


def _add(tokens: list[str]) -> tuple[Fraction, list[str]]:
    value, tokens = _multiply(tokens)
    while tokens and tokens[0] in "+-":
        sign, (other, tokens) = tokens[0], _multiply(tokens[1:])
        value = value + other if sign == "+" else value - other
    return value, tokens


def _multiply(tokens: list[str]) -> tuple[Fraction, list[str]]:
    value, tokens = _one(tokens)
    while tokens and tokens[0] in "*/":
        sign, (other, tokens) = tokens[0], _one(tokens[1:])
        value = value * other if sign == "*" else value / other
    return value, tokens


def _one(tokens: list[str]) -> tuple[Fraction, list[str]]:
    if tokens[0] == "-":
        value, rest = _one(tokens[1:])
        return -value, rest
    if tokens[0] == "(":
        value, rest = _add(tokens[1:])
        if rest[0] != ")":
            raise ValueError("a bracket is missing")
        return value, rest[1:]
    return Fraction(tokens[0]), tokens[1:]


def recall(text: str) -> str | None:
    """A fact of a school book; None if it is not known.

    >>> recall("What is the capital of France?"), recall("What is love?")
    ('Paris', None)
    """
    from mild.gateway.demo.facts import FACTS

    asked = text[:2000].strip()
    for _, question, pairs in FACTS.values():
        before, _, after = question.partition("{}")
        if asked.startswith(before):
            for left, right in pairs.items():
                if asked.startswith(before + left + after):
                    return right
    return None


def _rules(text: str) -> str:
    return calculate(text) or "unknown"


def _stand_in_for(model: str, text: str) -> str:
    return (
        recall(text) or f"I am a stand-in for {model}. Put the real one, or any other, in my place."
    )


STAND_INS: Mapping[str, Callable[[str], str]] = {
    "smollm2": partial(_stand_in_for, "SmolLM2-135M"),
    "gemma3": partial(_stand_in_for, "Gemma-3-270M"),
    "rules": _rules,
}
