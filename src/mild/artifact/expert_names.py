"""Experts by full name, or by an unambiguous short name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from mild.errors import InvalidInputError, listed

T = TypeVar("T")

# "0.5B" is one part of "Qwen2.5-0.5B-Instruct": a dot does not separate parts.
PART = re.compile(r"[^\w.]|_")


def match_expert(name: str, experts: Sequence[str]) -> str:
    """The expert that ``name`` refers to.

    Tried in this order: the full name, the full name in other case, the name without its provider
    (``gpt-4`` in ``openai/gpt-4``), whole parts (``7B`` in ``Qwen2.5-7B-Instruct``), any substring. The
    first rule that matches must match one expert only.

    Parameters
    ----------
    name : name or short name
    experts : names to choose from

    Returns
    -------
    full name

    Examples
    --------
    >>> match_expert("7B", ["Qwen2.5-7B-Instruct", "gpt-4"])
    'Qwen2.5-7B-Instruct'
    """
    if name in experts:
        return name
    short = name.casefold().strip()
    rules: tuple[Callable[[str], bool], ...] = (
        lambda whole: whole == short,
        lambda whole: whole.rpartition("/")[2] == short,
        lambda whole: _parts(short) in _parts(whole),
        lambda whole: short in whole,
    )
    for rule in rules if short else ():
        found = [expert for expert in experts if rule(expert.casefold())]
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidInputError(
                f"{name!r} must match one expert; it matches {listed(found)}.", parameter="experts"
            )
    close = difflib.get_close_matches(name, experts, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise InvalidInputError(
        f"{name!r} is not one of the experts {listed(experts)}.{hint}", parameter="experts"
    )


def _parts(name: str) -> str:
    """The parts of a name, each between two marks, so that whole parts can be searched for."""
    return f"\0{PART.sub(chr(0), name)}\0"


def match_values(named: Mapping[str, T], experts: Sequence[str]) -> dict[str, T]:
    """What is said about experts, by their full names; two names of one expert are refused."""
    given: dict[str, str] = {}
    for name in named:
        expert = match_expert(name, experts)
        if expert in given:
            both = f"{given[expert]!r} and {name!r} both mean {expert!r}"
            raise InvalidInputError(f"each expert must be named once; {both}.", parameter="experts")
        given[expert] = name
    return {expert: named[name] for expert, name in given.items()}


def match_experts(wanted: str | Sequence[str], experts: Sequence[str]) -> list[str]:
    """Experts named by a list, or by comma-separated names and shell patterns, in that order.

    Parameters
    ----------
    wanted : names or patterns, as a list or separated by commas
    experts : names to choose from

    Returns
    -------
    list of full names

    Examples
    --------
    >>> match_experts("gpt-*,7B", ["Qwen2.5-7B-Instruct", "gpt-4"])
    ['gpt-4', 'Qwen2.5-7B-Instruct']
    """
    patterns = isinstance(wanted, str)
    names = [name.strip() for name in wanted.split(",")] if isinstance(wanted, str) else [*wanted]
    if not any(names):
        raise InvalidInputError(
            f"experts must name at least one expert; got {wanted!r}.", parameter="experts"
        )
    chosen: list[str] = []
    for name in filter(None, names) if patterns else names:
        found = []
        if patterns and name not in experts and any(c in name for c in "*?["):
            found = [expert for expert in experts if fnmatchcase(expert, name)]
        chosen += found or [match_expert(name, experts)]
    return list(dict.fromkeys(chosen))
