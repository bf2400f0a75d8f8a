"""What a cascade did on rows with known outcomes."""

from __future__ import annotations

import numpy as np

from mild.core.arrays import FloatArray
from mild.data.cost_terms import CostTerms, KnownOutcomes
from mild.policies.cascade import CascadeRun


def cascade_scores(scores: FloatArray, run: CascadeRun) -> FloatArray:
    """Return the scores (n,) of a cascade's answers; NaN if an outcome of an asked expert is unknown."""
    unknown = (run.asked & np.isnan(scores)).any(axis=1)
    return np.where(unknown, np.nan, run.answer_scores(scores))


def cascade_costs(table: KnownOutcomes, terms: CostTerms, run: CascadeRun) -> FloatArray:
    """Return the cost (n,) of a run, in wrong answers: its error, and what asking the experts costs."""
    costs = 1 - cascade_scores(table.scores, run) + run.asked @ np.array(terms.betas(table))
    if terms.price_weight and table.prices is not None:
        costs = costs + terms.price_weight * run.total_prices(table.prices)
    if terms.latency_weight and table.latencies is not None:
        costs = costs + terms.latency_weight * run.seconds(table.latencies)
    return costs
