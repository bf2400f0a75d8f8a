"""Whom exploration asks, and how often, with ``explore = "auto"``: by how sure the router is.

An expert's expected cost is known up to a standard error. ``doubt`` is the probability that the expert of
least cost is another one than the preferred. That share of the requests is explored, at least
``MIN_EXPLORE`` and at most ``explore_max``; it falls as the intervals become narrow. Half of them go to the
choice of the candidate, the router that ``mild learn`` has trained and not yet promoted, where it decides
otherwise; the rest goes to each expert by the probability that it is the best. More than ``MIN_EXPLORE`` is
explored only while what is expected to be spent on exploration is at most ``explore_max`` of what is
expected to be spent in all. ``MIN_EXPLORE`` itself does not depend on dollars: beside an expert that costs
nothing, nothing else would ever be tried. All probabilities are computed before the draw, so the ones that
are logged are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mild_gateway import decide
from mild_gateway.arrays import FloatArray, IntArray
from mild_gateway.decide import Router

# Share of the requests that is explored however sure the router is: drift would not be seen otherwise.
MIN_EXPLORE = 0.02
# Of the explored requests, those that go to the candidate's choice.
CANDIDATE_SHARE = 0.5
# Draws of the costs from which probabilities are computed. They are fixed: equal requests, equal numbers.
_DRAWS = 256


class AutoExploration:
    """Probabilities of experts for each request of one router, perhaps with a candidate beside it."""

    def __init__(self, router: Router, candidate: Router | None, explore_max: float) -> None:
        self._n_experts = len(router.experts)
        self._explore_max = explore_max
        self._explore_min = min(MIN_EXPLORE, explore_max)
        self._candidate = candidate
        self._noise = None
        errors = decide.standard_errors(candidate or router)
        if errors is not None:
            draws = np.random.default_rng(0).standard_normal((_DRAWS, self._n_experts))
            self._noise = draws * errors
        # Dollars that were expected to be spent, in all and on exploration.
        self._dollars = 0.0
        self._explored_dollars = 0.0

    def probabilities(
        self,
        best: int,
        able: Sequence[int],
        costs: Sequence[float] | None,
        features: FloatArray | None,
        dollars: Sequence[float] | None = None,
    ) -> list[float]:
        """Probability of each expert, 0 of those that are not ``able``; they sum to 1.

        Parameters
        ----------
        best : the preferred expert
        able : experts that can serve the request
        costs : expected cost of each expert by the router; None if it has learned none
        features : of the text
        dollars : what each expert is expected to take for the request; None if that is not known
        """
        if len(able) == 1:
            certain = np.zeros(self._n_experts)
            certain[best] = 1.0
            return certain.tolist()
        among = np.array(sorted(able))
        candidate_choice = best
        if self._candidate is not None and features is not None:
            decision = decide.decide(self._candidate, features[None])
            candidate_choice = int(among[np.argmax(decision.values[0][among])])
            costs = None
            if decision.costs is not None:
                costs = decision.costs[0]
        others, doubt = self._doubt(best, among, costs)
        share = max(doubt, self._explore_min)
        if candidate_choice != best:
            share = self._explore_max
            others *= 1 - CANDIDATE_SHARE
            others[candidate_choice] += CANDIDATE_SHARE
        share = min(share, self._explore_max)
        if dollars is not None:
            share = self._affordable(share, dollars[best], float(others @ np.asarray(dollars)))
        shares = share * others
        shares[best] += 1 - share
        return shares.tolist()

    def _doubt(
        self, best: int, among: IntArray, costs: Sequence[float] | FloatArray | None
    ) -> tuple[FloatArray, float]:
        """Shares (p,) of the others in what is explored; probability that one of them is the best."""
        others = np.zeros(self._n_experts)
        doubt = 0.0
        if self._noise is not None and costs is not None:
            drawn_costs = np.asarray(costs)[among] + self._noise[:, among]
            times_best = np.bincount(drawn_costs.argmin(axis=1), minlength=len(among))
            others[among] = times_best / _DRAWS
            doubt = 1 - others[best]
        others[best] = 0.0
        if doubt <= 0:
            others[among] = among != best
        return others / others.sum(), float(doubt)

    def _affordable(self, share: float, preferred: float, explored: float) -> float:
        """The share, or as much of it as the dollars allow; counts what is expected to be spent."""
        allowed = self._explore_max * (self._dollars + preferred) - self._explored_dollars
        needed = explored * (1 - self._explore_max) + self._explore_max * preferred
        if needed > 0:
            affordable = max(allowed, 0.0) / needed
            share = min(share, max(affordable, self._explore_min))
        self._explored_dollars += share * explored
        self._dollars += (1 - share) * preferred + share * explored
        return share
