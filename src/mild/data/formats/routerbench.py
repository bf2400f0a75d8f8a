"""RouterBench: ``<model>`` holds the score and ``<model>|total_cost`` the dollars."""

from __future__ import annotations

from typing import Any

from mild.data.formats.base import Format, Layout
from mild.errors import listed

COST_MARK = "|total_cost"
RESPONSE_MARK = "|model_response"


def detect_routerbench(schema: Any) -> Layout | None:
    """Columns by the mark behind the model's name."""
    names = list(schema.names)
    marked = [name.removesuffix(COST_MARK) for name in names if name.endswith(COST_MARK)]
    experts = [name for name in marked if name in names]
    if not experts:
        return None
    notes = []
    scoreless = [name for name in marked if name not in names]
    if scoreless:
        notes.append(f"kept as plain columns, because they have no score: {listed(scoreless, 4)}")
    responses = sum(name.endswith(RESPONSE_MARK) for name in names)
    if responses:
        notes.append(f"kept as plain columns: <model>{RESPONSE_MARK} ({responses})")
    prices = {name: name + COST_MARK for name in experts}
    return Layout("routerbench", {name: name for name in experts}, prices, notes=tuple(notes))


ROUTERBENCH = Format(
    "routerbench",
    "RouterBench",
    "RouterBench (columns <model> and <model>|total_cost)",
    detect_routerbench,
)
