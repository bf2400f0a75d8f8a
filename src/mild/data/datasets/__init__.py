"""Small problems of our own: digits, a line, a plane, domains, questions and who answered them.

They are loaded when they are first used: the questions need no scikit-learn.

>>> from mild.data.datasets import one_dimensional
>>> data = one_dimensional(n_samples=500, random_state=0)
>>> data.X.shape, data.costs.shape
((500, 1), (500, 3))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mild.data.datasets.digits import COSTS, EXPERTS, SETUPS, DigitsScenario, digits_scenario
    from mild.data.datasets.domains import domains
    from mild.data.datasets.line import class_densities, expert_accuracies, one_dimensional
    from mild.data.datasets.outcomes import outcomes_file
    from mild.data.datasets.plane import region_of, regions
    from mild.data.datasets.routing_data import RoutingData

_HOMES = {
    "COSTS": "digits",
    "EXPERTS": "digits",
    "SETUPS": "digits",
    "DigitsScenario": "digits",
    "digits_scenario": "digits",
    "domains": "domains",
    "class_densities": "line",
    "expert_accuracies": "line",
    "one_dimensional": "line",
    "outcomes_file": "outcomes",
    "region_of": "plane",
    "regions": "plane",
    "RoutingData": "routing_data",
}

__all__ = [
    "COSTS",
    "EXPERTS",
    "SETUPS",
    "DigitsScenario",
    "RoutingData",
    "class_densities",
    "digits_scenario",
    "domains",
    "expert_accuracies",
    "one_dimensional",
    "outcomes_file",
    "region_of",
    "regions",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"mild.data.datasets.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'mild.data.datasets' has no attribute {name!r}")
