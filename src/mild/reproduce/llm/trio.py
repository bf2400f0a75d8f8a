"""Three language models, from strong to tiny, and what asking each of them costs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from mild.exceptions import InvalidInputError

__all__ = ["BETA", "QWEN", "SETUP", "is_paper_trio", "ordered_trio", "parse_beta"]

#: The paper's experts, from strong to tiny, and what it lets asking them cost (its setting b).
QWEN = ("Qwen2.5-7B-Instruct", "Qwen2.5-1.5B-Instruct", "Qwen2.5-0.5B-Instruct")
BETA = (1.0, 0.6, 0.1)
#: Name of the paper's experts in its figures.
SETUP = "qwen2.5"

SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*[bB](?![a-zA-Z0-9])")


def ordered_trio(names: Sequence[str]) -> list[str]:
    """The three experts to route among where none are named: the paper's, or the table's by size.

    Examples
    --------
    >>> ordered_trio(["tiny-1B", "large-70B", "mid-8B"])
    ['large-70B', 'mid-8B', 'tiny-1B']
    """
    by_case = {name.casefold(): name for name in names}
    paper = [by_case.get(name.casefold()) for name in QWEN]
    if all(paper):
        return [name for name in paper if name]
    if len(names) != 3:
        raise InvalidInputError(
            f"these experiments need three experts; the table has {len(names)}. Name three, from "
            f"strong to tiny, such as --experts 7B,1.5B,0.5B."
        )
    sizes = {name: _size(name) for name in names}
    known = [size for size in sizes.values() if size is not None]
    if len(set(known)) < 3:
        raise InvalidInputError(
            f"experts must tell their sizes by their names, such as 7B; got {', '.join(names)}. Name "
            f"them from strong to tiny with --experts."
        )
    return sorted(names, key=lambda name: -(sizes[name] or 0.0))


def is_paper_trio(names: Sequence[str]) -> bool:
    """Whether the experts are the paper's, in its order."""
    return tuple(name.casefold() for name in names) == tuple(name.casefold() for name in QWEN)


def parse_beta(text: str, names: Sequence[str]) -> tuple[float, ...]:
    """What asking each expert costs: numbers in the order of the experts, or ``expert=cost`` pairs.

    Examples
    --------
    >>> parse_beta("1, 0.6, 0.1", ["7B", "1.5B", "0.5B"])
    (1.0, 0.6, 0.1)
    >>> parse_beta("0.5B=0.1,7B=1", ["7B", "1.5B", "0.5B"])
    (1.0, 0.0, 0.1)
    """
    parts = [part.strip() for part in text.strip().removesuffix(",").split(",")]
    if any("=" in part for part in parts):
        return _named(parts, text, names)
    return check_beta([_number(part, text) for part in parts], names)


def check_beta(beta: Sequence[float], names: Sequence[str]) -> tuple[float, ...]:
    """One finite, non-negative number per expert."""
    if len(beta) != len(names):
        raise InvalidInputError(
            f"beta must be one number per expert, {len(names)} of them; got {len(beta)}."
        )
    for value in beta:
        if not (math.isfinite(value) and value >= 0):
            raise InvalidInputError(f"beta must be finite and not negative; got {value:g}.")
    return tuple(float(value) for value in beta)


def _named(parts: Sequence[str], text: str, names: Sequence[str]) -> tuple[float, ...]:
    from mild.tables.expert_names import match_expert

    costs: dict[str, float] = {}
    for part in parts:
        name, mark, value = (piece.strip() for piece in part.rpartition("="))
        if not (mark and name):
            raise InvalidInputError(
                f"beta must be numbers, or EXPERT=COST for all that are named; got {text!r}."
            )
        try:
            expert = match_expert(name, names)
        except InvalidInputError as error:
            raise InvalidInputError(f"beta: {error}") from error
        if expert in costs:
            raise InvalidInputError(f"beta must name each expert once; got {expert!r} twice.")
        costs[expert] = _number(value, text)
    return check_beta([costs.get(name, 0.0) for name in names], names)


def _number(part: str, text: str) -> float:
    try:
        return float(part)
    except ValueError as error:
        raise InvalidInputError(
            f"beta must be numbers such as 1,0.6,0.1, or EXPERT=COST pairs; got {text!r}."
        ) from error


def _size(name: str) -> float | None:
    found = SIZE.findall(name.replace("_", "-"))
    return float(found[-1]) if found else None
