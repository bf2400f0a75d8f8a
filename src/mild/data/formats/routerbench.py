"""RouterBench: ``<model>`` holds the score and ``<model>|total_cost`` the dollars."""

from __future__ import annotations

from typing import Any

from mild.data.formats.layout import Layout
from mild.errors import listed

__all__ = ["find_routerbench"]

COST_MARK = "|total_cost"
OTHER_MARK = "|model_response"


def find_routerbench(schema: Any) -> Layout | None:
    """Columns by the mark behind the model's name.

    Examples
    --------
    >>> import pyarrow as pa
    >>> names = ["prompt", "gpt-4", "gpt-4|model_response", "gpt-4|total_cost"]
    >>> find_routerbench(pa.schema([(name, pa.float64()) for name in names])).prices
    {'gpt-4': 'gpt-4|total_cost'}
    """
    names = list(schema.names)
    marked = [name.removesuffix(COST_MARK) for name in names if name.endswith(COST_MARK)]
    experts = [name for name in marked if name in names]
    if not experts:
        return None
    words = []
    scoreless = [name for name in marked if name not in names]
    if scoreless:
        words.append(f"without a score, and left as columns: {listed(scoreless, 4)}")
    responses = sum(name.endswith(OTHER_MARK) for name in names)
    if responses:
        words.append(f"left as columns: <model>{OTHER_MARK} ({responses})")
    return Layout(
        "routerbench",
        {name: name for name in experts},
        {name: name + COST_MARK for name in experts},
        words=tuple(words),
    )
