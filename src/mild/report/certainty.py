"""What more certainty of meeting a target costs, as text: for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mild.money import amount

#: How the certainty of a row begins that has a guarantee.
GUARANTEE = "guarantee"


def certainty_setting(row: Mapping[str, Any]) -> str:
    """The setting of a row; where it does not meet the target, this is said first.

    >>> certainty_setting({"certainty": "80 %", "setting": "always large", "met": False})
    'not met: nearest is always large'
    """
    if row["met"]:
        return str(row["setting"])
    if str(row["certainty"]).startswith(GUARANTEE):
        return f"not certified: {row['setting']}"
    return f"not met: nearest is {row['setting']}"


def certainty_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """All rows in one sentence, where they differ in nothing but the certainty; None where they differ.

    >>> row = {"setting": "always large", "quality_kept": 1.0, "dollars_saved": 0.0}
    >>> row |= {"dollars_per_1000": 4.0, "met": False}
    >>> certainty_sentence([{"certainty": "50 %", **row}, {"certainty": "80 %", **row}])
    'The target is not met with 50 % or 80 %: nearest is always large (quality kept 100.0 %, \
dollars saved 0.0 %, $4.00 per 1,000 queries).'
    """
    if not rows or any(_without_certainty(row) != _without_certainty(rows[0]) for row in rows):
        return None
    row = rows[0]
    certainties = [str(row["certainty"]) for row in rows]
    figures = f"{row['setting']} ({_figure_words(row)})"
    if row["met"]:
        levels = _enumeration(certainties, "and")
        return f"The target is met with {levels} by the same setting: {figures}."
    levels = _enumeration(certainties, "or")
    return f"The target is not met with {levels}: nearest is {figures}."


def _without_certainty(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "certainty"}


def _enumeration(words: Sequence[str], conjunction: str) -> str:
    """Words with commas, and a conjunction before the last one."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def _figure_words(row: Mapping[str, Any]) -> str:
    """The figures of a row that are known."""
    parts = []
    if row["quality_kept"] is not None:
        parts.append(f"quality kept {100 * row['quality_kept']:.1f} %")
    if row["dollars_saved"] is not None:
        parts.append(f"dollars saved {100 * row['dollars_saved']:.1f} %")
    parts.append(f"${amount(row['dollars_per_1000'])} per 1,000 queries")
    return ", ".join(parts)
