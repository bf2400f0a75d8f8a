"""What the stand-in experts know: sums, or a few facts."""

from __future__ import annotations

import ast
import operator
import re
import tomllib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

from mild.errors import InvalidInputError
from mild_gateway.experts.expert import check_base_url

_WORDS = {
    "times": "*",
    "multiplied by": "*",
    "plus": "+",
    "minus": "-",
    "divided by": "/",
    "×": "*",
}
_SUM = re.compile(r"[-(]*\d[\d\s.,+*/()-]*")
_OPERATIONS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv
}  # fmt: skip
LONGEST = 200


def calculate(text: str) -> str | None:
    """The value of the first sum in a text; None if there is none.

    >>> calculate("What is 17 times 23?"), calculate("What is (6 + 9) * 4?"), calculate("Who?")
    ('391', '60', None)
    """
    plain = text[:2000].lower()
    for word, sign in _WORDS.items():
        plain = plain.replace(word, sign)
    for match in _SUM.finditer(plain):
        expression = match.group()[:LONGEST].strip(" .,")
        if not any(sign in expression[1:] for sign in "+-*/"):
            continue
        try:
            value = _evaluate(ast.parse(expression, mode="eval").body)
        except (KeyError, SyntaxError, TypeError, ZeroDivisionError):
            continue
        if value.denominator == 1:
            return str(value)
        return f"{float(value):.6g}"
    return None


def _evaluate(node: ast.expr) -> Fraction:
    """The value of a sum; KeyError or TypeError if something else is in it."""
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    if isinstance(node, ast.Constant):
        return Fraction(str(node.value))
    raise TypeError(f"{node} is not part of a sum")


@cache
def read_facts() -> dict[str, tuple[int, str, dict[str, str]]]:
    """Task -> grade, question with ``{}`` for what is asked, and what is asked -> its answer."""
    content = tomllib.loads(Path(__file__).with_name("facts.toml").read_text(encoding="utf-8"))
    facts = {}
    for task, fields in content.items():
        facts[task] = (fields["grade"], fields["question"], fields["answers"])
    return facts


def recall(text: str) -> str | None:
    """A fact of a school book; None if it is not known."""
    asked = text[:2000].strip()
    for _, question, pairs in read_facts().values():
        before, _, after = question.partition("{}")
        if asked.startswith(before):
            for left, right in pairs.items():
                if asked.startswith(before + left + after):
                    return right
    return None


def _stand_in_for(model: str, text: str) -> str:
    other = f"I am a stand-in for {model}. Replace me with the real model, or any other."
    return recall(text) or other


STAND_INS: Mapping[str, Callable[[str], str]] = {
    "smollm2": partial(_stand_in_for, "SmolLM2-135M"),
    "gemma3": partial(_stand_in_for, "Gemma-3-270M"),
    "rules": lambda text: calculate(text) or "unknown",
}


def read_endpoints(options: list[str]) -> dict[str, str]:
    """Endpoints that take the places of stand-ins of the demo, by their names.

    >>> read_endpoints(["smollm2=http://127.0.0.1:8131/v1"])
    {'smollm2': 'http://127.0.0.1:8131/v1'}
    """
    endpoints: dict[str, str] = {}
    for option in options:
        name, separator, url = option.partition("=")
        # The option is not quoted: a secret may stand in it.
        if not separator or name not in STAND_INS or name in endpoints:
            raise InvalidInputError(
                "--endpoint must be NAME=URL, as smollm2=http://127.0.0.1:8131/v1, once for each stand-in "
                f"of the demo ({', '.join(STAND_INS)})."
            )
        try:
            endpoints[name] = check_base_url(url)
        except ValueError as error:
            raise InvalidInputError(f"the address of --endpoint {name} {error}.") from None
    return endpoints
