"""A saved router at work: queries in, decisions out, and why. NumPy alone, as ``mild.artifact``."""

from mild.serving.deciding import Decisions, decide_all
from mild.serving.explanation import Explanation, explain
from mild.serving.lines import FIELDS, LineFormat
from mild.serving.prices import Prices, is_priced, new_prices
from mild.serving.stream import Routed, route_stream

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
