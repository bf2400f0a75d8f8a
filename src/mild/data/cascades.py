"""What a cascade did on rows with known outcomes, as one more column of their table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mild.core.answers import Answer
from mild.core.arrays import FloatArray
from mild.data.cost_terms import CostTerms, KnownOutcomes
from mild.data.formats.base import ANSWER, LOGPROB
from mild.data.outcome_table import OutcomeTable
from mild.policies.answers import CascadeRun


def with_cascade(table: OutcomeTable, run: CascadeRun, name: str = "cascade") -> OutcomeTable:
    """The table with the cascade as one more expert: score, dollars and seconds of its run."""
    while name in table.expert_names:
        name += "_"
    prices, latencies = table.prices, table.latencies
    return replace(
        table,
        expert_names=[*table.expert_names, name],
        scores=np.column_stack([table.scores, cascade_scores(table.scores, run)]),
        prices=None if prices is None else np.column_stack([prices, run.paid(prices)]),
        latencies=None
        if latencies is None
        else np.column_stack([latencies, run.seconds(latencies)]),
    )


def cascade_scores(scores: FloatArray, run: CascadeRun) -> FloatArray:
    """Scores (n,) of the given answers; NaN where the outcome of an expert that was asked is unknown."""
    unknown = (run.asked & np.isnan(scores)).any(axis=1)
    return np.where(unknown, np.nan, run.given(scores))


def cascade_costs(table: KnownOutcomes, terms: CostTerms, run: CascadeRun) -> FloatArray:
    """Cost (n,) of a run: the error, and what asking each expert of the path costs, in wrong answers."""
    costs = 1 - cascade_scores(table.scores, run) + run.asked @ np.array(terms.betas(table))
    if terms.price_weight and table.prices is not None:
        costs = costs + terms.price_weight * run.paid(table.prices)
    if terms.latency_weight and table.latencies is not None:
        costs = costs + terms.latency_weight * run.seconds(table.latencies)
    return costs


def row_answers(table: OutcomeTable, row: int) -> dict[str, Answer]:
    """What the experts with a column of answers said in a row, for ``Router.explain``."""
    (cells,) = table.columns.slice(row, 1).to_pylist()
    names = [name for name in table.expert_names if ANSWER + name in cells]
    return {name: Answer(cells[ANSWER + name], cells.get(LOGPROB + name)) for name in names}
