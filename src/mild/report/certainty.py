"""Text on what more certainty of meeting a target costs, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mild.money import amount

#: The first word of the certainty of a row with a guarantee.
GUARANTEE = "guarantee"


def certainty_setting(row: Mapping[str, Any]) -> str:
    """Return the setting of a row as text, which begins with whether it misses the target.

    >>> certainty_setting({"certainty": "80 %", "setting": "always large", "met": False})
    'not met: nearest is always large'
    """
    if row["met"]:
        return str(row["setting"])
    if str(row["certainty"]).startswith(GUARANTEE):
        return f"not certified: {row['setting']}"
    return f"not met: nearest is {row['setting']}"


def certainty_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return one sentence for all rows if they differ in nothing but the certainty; otherwise None.

    >>> row = {"setting": "always large", "quality_kept": 1.0, "dollars_saved": 0.0}
    >>> row |= {"dollars_per_1000": 4.0, "met": False}
    >>> certainty_sentence([{"certainty": "50 %", **row}, {"certainty": "80 %", **row}])
    'The target is not met with 50 % or 80 %: nearest is always large (quality kept 100.0 %, \
dollars saved 0.0 %, $4.00 per 1,000 queries).'
    """
    if not rows:
        return None
    row = rows[0]
    for other_row in rows[1:]:
        if _without_certainty(other_row) != _without_certainty(row):
            return None
    certainties = [str(row["certainty"]) for row in rows]
    figures = f"{row['setting']} ({_figure_words(row)})"
    if row["met"]:
        levels = _enumeration(certainties, "and")
        return f"The target is met with {levels} by the same setting: {figures}."
    levels = _enumeration(certainties, "or")
    return f"The target is not met with {levels}: nearest is {figures}."


def _without_certainty(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without its certainty."""
    other_facts = dict(row)
    other_facts.pop("certainty", None)
    return other_facts


def _enumeration(words: Sequence[str], conjunction: str) -> str:
    """Join words with commas, and with a conjunction before the last one."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def _figure_words(row: Mapping[str, Any]) -> str:
    """Return the figures of a row that are known, as text."""
    figures = []
    if row["quality_kept"] is not None:
        figures.append(f"quality kept {100 * row['quality_kept']:.1f} %")
    if row["dollars_saved"] is not None:
        figures.append(f"dollars saved {100 * row['dollars_saved']:.1f} %")
    figures.append(f"${amount(row['dollars_per_1000'])} per 1,000 queries")
    return ", ".join(figures)
