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
_SEPARATOR = re.compile(r"[^\w.]|_")
# What makes a name a shell pattern.
_PATTERN_SIGN = re.compile(r"[*?\[]")


def match_expert(name: str, experts: Sequence[str]) -> str:
    """The expert that ``name`` refers to.

    Tried in this order: the full name, the full name ignoring case, the name without its provider
    (``gpt-4`` in ``openai/gpt-4``), whole parts (``7B`` in ``Qwen2.5-7B-Instruct``), any substring. The
    first rule that matches must match one expert only.

    Parameters
    ----------
    name : str
        Name or short name.
    experts : list of str
        Names to choose from.

    Returns
    -------
    str
        Full name.

    Raises
    ------
    InvalidInputError
        No expert matches, or several do.

    Examples
    --------
    >>> match_expert("7B", ["Qwen2.5-7B-Instruct", "gpt-4"])
    'Qwen2.5-7B-Instruct'
    """
    if name in experts:
        return name
    matches = _short_name_matches(name.casefold().strip(), experts)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InvalidInputError(
            f"{name!r} must match one expert; it matches {listed(matches)}.", parameter="experts"
        )
    hint = ""
    close_names = difflib.get_close_matches(name, experts, n=1)
    if close_names:
        hint = f" Did you mean {close_names[0]!r}?"
    raise InvalidInputError(
        f"{name!r} is not one of the experts {listed(experts)}.{hint}", parameter="experts"
    )


def _short_name_matches(short: str, experts: Sequence[str]) -> list[str]:
    """The experts that match a short name by the first rule that any of them matches."""
    if not short:
        return []
    rules: tuple[Callable[[str], bool], ...] = (
        lambda full: full == short,
        lambda full: full.rpartition("/")[2] == short,
        lambda full: _marked_parts(short) in _marked_parts(full),
        lambda full: short in full,
    )
    for rule in rules:
        matches = [expert for expert in experts if rule(expert.casefold())]
        if matches:
            return matches
    return []


def _marked_parts(name: str) -> str:
    """The parts of a name, each between two marks, so that whole parts can be searched for."""
    return f"\0{_SEPARATOR.sub(chr(0), name)}\0"


def match_values(named: Mapping[str, T], experts: Sequence[str]) -> dict[str, T]:
    """What is said about experts, by their full names; two names of one expert are refused."""
    name_of: dict[str, str] = {}
    for name in named:
        expert = match_expert(name, experts)
        if expert in name_of:
            both = f"{name_of[expert]!r} and {name!r} both mean {expert!r}"
            raise InvalidInputError(f"each expert must be named once; {both}.", parameter="experts")
        name_of[expert] = name
    return {expert: named[name] for expert, name in name_of.items()}


def match_experts(wanted: str | Sequence[str], experts: Sequence[str]) -> list[str]:
    """Experts named by a list, or by comma-separated names and shell patterns, in that order.

    Parameters
    ----------
    wanted : str or list of str
        Names as a list; or names and patterns, separated by commas.
    experts : list of str
        Names to choose from.

    Returns
    -------
    list of str
        Full names, each once.

    Examples
    --------
    >>> match_experts("gpt-*,7B", ["Qwen2.5-7B-Instruct", "gpt-4"])
    ['gpt-4', 'Qwen2.5-7B-Instruct']
    """
    if isinstance(wanted, str):
        names = [name.strip() for name in wanted.split(",") if name.strip()]
    else:
        names = list(wanted)
    if not any(names):
        raise InvalidInputError(
            f"experts must name at least one expert; got {wanted!r}.", parameter="experts"
        )
    matches: list[str] = []
    for name in names:
        pattern_matches = []
        if isinstance(wanted, str) and name not in experts and _PATTERN_SIGN.search(name):
            pattern_matches = [expert for expert in experts if fnmatchcase(expert, name)]
        matches += pattern_matches or [match_expert(name, experts)]
    return list(dict.fromkeys(matches))
