"""Embedded data sets: digits, synthetic problems, simulated experts, and outcomes of questions.

>>> from mild.datasets import one_dimensional
>>> data = one_dimensional(n_samples=500, random_state=0)
>>> data.X.shape, data.costs.shape
((500, 1), (500, 3))
"""

from dataclasses import replace
from pathlib import Path

from mild.data import Outcomes, read_outcomes
from mild.data.selection import Where
from mild.datasets.digits import COSTS, EXPERTS, SETUPS, DigitsScenario, digits_scenario
from mild.datasets.simulated_experts import (
    expert_by_group,
    expert_on_first_classes,
    probabilistic_expert,
    random_annotator,
    with_missing_answers,
    within_capacity,
)
from mild.datasets.synthetic import (
    RoutingData,
    class_densities,
    domains,
    expert_accuracies,
    one_dimensional,
    region_of,
    regions,
)

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
    "expert_by_group",
    "expert_on_first_classes",
    "load_outcomes",
    "one_dimensional",
    "outcomes_file",
    "probabilistic_expert",
    "random_annotator",
    "region_of",
    "regions",
    "with_missing_answers",
    "within_capacity",
]


def outcomes_file() -> Path:
    """Return the file of a table of outcomes: 1,500 questions, two small language models and rules.

    SmolLM2-135M and Gemma-3-270M, both behind llama.cpp on one thread, and a rule-based solver answered
    each of them; ``scripts/`` has what was run, ``scripts/make_questions.py`` the questions. Latencies
    were measured; prices follow from counted tokens at made-up rates, in proportion to the models' sizes
    and as high as those of large models.

    Returns
    -------
    pathlib.Path
        A Parquet file.

    Examples
    --------
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(outcomes_file())
    >>> len(table), table.experts
    (1500, ['gemma3', 'rules', 'smollm2'])
    """
    return Path(__file__).with_name("outcomes.parquet")


def load_outcomes(where: Where = None) -> Outcomes:
    """Read the table of ``outcomes_file``.

    Parameters
    ----------
    where : str, list of str or None, default=None
        Conditions on the rows, as in ``mild.read_outcomes``; None for all rows.

    Returns
    -------
    Outcomes
        Questions, and the outcomes of three experts.

    Examples
    --------
    >>> load_outcomes()
    Outcomes(1,500 queries, 3 experts: gemma3, rules, smollm2, with prices, latencies)
    """
    table = read_outcomes(outcomes_file(), where=where)
    contents = table.layout.partition(": ")[2]
    return replace(table, layout=f"the table that comes with mild: {contents}")
