"""Small problems of our own, made in memory: the digits scenarios, a line and a plane.

>>> data = one_dimensional(n_samples=500, random_state=0)
>>> data.X.shape, data.costs.shape
((500, 1), (500, 3))
"""

from mild.datasets.digits import COSTS, EXPERTS, SETUPS, DigitsScenario, digits_scenario
from mild.datasets.line import class_densities, expert_accuracies, one_dimensional
from mild.datasets.plane import region_of, regions
from mild.datasets.routing_data import RoutingData

__all__ = [
    "COSTS",
    "EXPERTS",
    "SETUPS",
    "DigitsScenario",
    "RoutingData",
    "class_densities",
    "digits_scenario",
    "expert_accuracies",
    "one_dimensional",
    "region_of",
    "regions",
]
