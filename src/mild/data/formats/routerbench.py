"""RouterBench: ``<model>`` holds the score and ``<model>|total_cost`` the dollars."""

from __future__ import annotations

from typing import Any

from mild.data.formats.base import Format, Layout
from mild.errors import listed

COST_MARK = "|total_cost"
RESPONSE_MARK = "|model_response"


def detect_routerbench(schema: Any) -> Layout | None:
    """Return the layout of columns ``<model>`` and ``<model>|total_cost``; None if there are none."""
    names = list(schema.names)
    scores = {}
    prices = {}
    scoreless = []
    n_responses = 0
    for name in names:
        if name.endswith(COST_MARK):
            model = name.removesuffix(COST_MARK)
            if model in names:
                scores[model] = model
                prices[model] = name
            else:
                scoreless.append(model)
        elif name.endswith(RESPONSE_MARK):
            n_responses += 1
    if not scores:
        return None
    notes = []
    if scoreless:
        notes.append(f"kept as plain columns, because they have no score: {listed(scoreless, 4)}")
    if n_responses:
        notes.append(f"kept as plain columns: <model>{RESPONSE_MARK} ({n_responses})")
    return Layout("routerbench", scores, prices, notes=tuple(notes))


ROUTERBENCH = Format(
    "routerbench",
    "RouterBench",
    "RouterBench (columns <model> and <model>|total_cost)",
    detect_routerbench,
)
