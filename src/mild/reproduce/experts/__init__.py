"""Experts of the image experiments: who knows what, what they answered, what they cost.

Importing this imports no torch; training an expert does.

>>> get_setup("I").owners(10)
array([0, 0, 0, 0, 0, 0, 0, 1, 1, 2])
"""

from mild.reproduce.experts.answers import (
    COSTS,
    EXPERTS,
    Accuracy,
    ExpertAnswers,
    expert_costs,
    largest_cost,
)
from mild.reproduce.experts.people import people_scenario
from mild.reproduce.experts.setups import (
    PEOPLE,
    SETUPS,
    Setup,
    coverage_setup,
    get_setup,
    parse_coverage,
)
from mild.reproduce.experts.synthetic import synthetic_answers
from mild.reproduce.experts.trained import trained_answers

__all__ = [
    "COSTS",
    "EXPERTS",
    "PEOPLE",
    "SETUPS",
    "Accuracy",
    "ExpertAnswers",
    "Setup",
    "coverage_setup",
    "expert_costs",
    "get_setup",
    "largest_cost",
    "parse_coverage",
    "people_scenario",
    "synthetic_answers",
    "trained_answers",
]
