"""What a cascade did on rows with known outcomes."""

from __future__ import annotations

import numpy as np

from mild.core.arrays import FloatArray
from mild.data.cost_terms import CostTerms, KnownOutcomes
from mild.policies.cascade import CascadeRun


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
