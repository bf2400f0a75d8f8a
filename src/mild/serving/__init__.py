"""A saved router at work: queries in, decisions out, and why. NumPy alone, as ``mild.artifact``.

Names are loaded when they are first used: a gateway decides, and reads no tables.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mild.serving.deciding import Decisions, decide_all
    from mild.serving.explanation import Explanation, explain
    from mild.serving.lines import FIELDS, LineFormat
    from mild.serving.prices import Prices, is_priced, new_prices
    from mild.serving.stream import Routed, route_stream

_HOMES = {
    "FIELDS": "lines",
    "Decisions": "deciding",
    "Explanation": "explanation",
    "LineFormat": "lines",
    "Prices": "prices",
    "Routed": "stream",
    "decide_all": "deciding",
    "explain": "explanation",
    "is_priced": "prices",
    "new_prices": "prices",
    "route_stream": "stream",
}

__all__ = [
    "FIELDS",
    "Decisions",
    "Explanation",
    "LineFormat",
    "Prices",
    "Routed",
    "decide_all",
    "explain",
    "is_priced",
    "new_prices",
    "route_stream",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"mild.serving.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'mild.serving' has no attribute {name!r}")
