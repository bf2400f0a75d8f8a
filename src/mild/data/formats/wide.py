"""Wide: ``correct__<model>`` or ``score__<model>``, ``cost__<model>``, ``latency_ms__<model>``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mild.data.formats.base import CORRECT, LATENCY, PRICE, SCORE, Format, Layout
from mild.errors import listed


def detect_wide(schema: Any) -> Layout | None:
    """Columns by their prefixes; ``score__`` goes before ``correct__``."""
    found: dict[str, dict[str, str]] = {CORRECT: {}, SCORE: {}, PRICE: {}, LATENCY: {}}
    # Experts in the order in which they first appear.
    experts: dict[str, None] = {}
    for column in schema.names:
        prefix, mark, expert = column.partition("__")
        if expert and prefix + mark in found:
            found[prefix + mark][expert] = column
            if prefix + mark in (CORRECT, SCORE):
                experts[expert] = None
    if not experts:
        return None
    scores = {name: found[SCORE].get(name) or found[CORRECT][name] for name in experts}
    prices, latencies = (
        {name: column for name, column in found[prefix].items() if name in scores}
        for prefix in (PRICE, LATENCY)
    )
    layout = Layout("wide", scores, prices, latencies)
    both = [name for name in scores if name in found[CORRECT] and name in found[SCORE]]
    notes = [f"score__ is used instead of correct__ for {listed(both, 4)}"] if both else []
    others = Counter(
        prefix
        for name in schema.names
        for prefix, mark, expert in [name.partition("__")]
        if mark
        and name not in layout.taken
        and (expert in scores or prefix + mark in (PRICE, LATENCY))
    )
    if others:
        left = [f"{prefix}__<model> ({count})" for prefix, count in others.items()]
        notes.append(f"kept as plain columns: {listed(left, 8)}")
    return Layout("wide", scores, prices, latencies, tuple(notes))


WIDE = Format("wide", "wide", "wide (columns correct__<model> or score__<model>)", detect_wide)
