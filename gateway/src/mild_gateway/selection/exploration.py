"""Whom exploration asks, and how often, with ``explore = "auto"``: by how sure the router is.

An expert's expected cost is known up to a standard error. ``doubt`` is the probability that the expert of
least cost is another one than the preferred. That share of the requests is explored, at least ``LEAST`` and
at most ``explore_max``; it falls as the intervals become narrow. Half of them go to the choice of the
candidate, the router that ``mild learn`` has trained and not yet promoted, where it decides otherwise; the
rest goes to each expert by the probability that it is the best. The same holds for dollars: what is
expected to be spent on exploration never exceeds ``explore_max`` of what is expected to be spent. All
probabilities are computed before the draw, so the ones that are logged are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mild.artifact import Router, RouterInfo
from mild.core import FloatArray

# Share of the requests that is explored however sure the router is: drift would not be seen otherwise.
LEAST = 0.02
# Of the explored requests, those that go to the candidate's choice.
CANDIDATE_SHARE = 0.5
# Draws of the costs from which probabilities are computed. They are fixed: equal requests, equal numbers.
_DRAWS = 256


class AutoExploration:
    """Probabilities of experts for each request of one router, perhaps with a candidate beside it."""

    def __init__(self, router: Router, candidate: Router | None, most: float) -> None:
        self._candidate = None if candidate is None else candidate.direct.policy
        self._n_experts = router.n_experts
        errors = standard_errors((candidate or router).info, router.expert_names)
        draws = np.random.default_rng(0).standard_normal((_DRAWS, router.n_experts))
        self._noise = None if errors is None else draws * errors
        self._most = most
        # Dollars that were expected to be spent, in all and on exploration.
        self._dollars = self._explored_dollars = 0.0

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
        among = np.array(sorted(able))
        others = np.zeros(self._n_experts)
        if len(among) == 1:
            others[best] = 1.0
            return others.tolist()
        choice = best
        if self._candidate is not None and features is not None:
            found = self._candidate.decide(features[None, : self._candidate.n_columns])
            costs = None if found.costs is None else found.costs[0]
            choice = int(among[np.argmax(found.values[0][among])])
        doubt = 0.0
        if self._noise is not None and costs is not None:
            drawn = np.asarray(costs)[among] + self._noise[:, among]
            others[among] = np.bincount(drawn.argmin(axis=1), minlength=len(among)) / _DRAWS
            doubt = 1 - others[best]
        others[best] = 0.0
        if doubt <= 0:
            others[among] = among != best
        others /= others.sum()
        wanted = doubt
        if choice != best:
            wanted = self._most
            others *= 1 - CANDIDATE_SHARE
            others[choice] += CANDIDATE_SHARE
        share = min(max(wanted, LEAST), self._most)
        if dollars is not None:
            share = self._affordable(share, dollars[best], float(others @ np.asarray(dollars)))
        others *= share
        others[best] += 1 - share
        return others.tolist()

    def _affordable(self, share: float, preferred: float, explored: float) -> float:
        """The share, or as much of it as the dollars allow; counts what is expected to be spent."""
        most = self._most
        allowed = most * (self._dollars + preferred) - self._explored_dollars
        needed = explored * (1 - most) + most * preferred
        if needed > 0:
            share = min(share, max(allowed, 0.0) / needed)
        self._explored_dollars += share * explored
        self._dollars += (1 - share) * preferred + share * explored
        return share


def standard_errors(info: RouterInfo, expert_names: Sequence[str]) -> FloatArray | None:
    """(p,) standard errors of the experts' mean costs: those of learning, or of a table's mean scores."""
    known, scores = info.standard_errors or {}, info.mean_scores or {}
    if not known and (not scores or info.table is None):
        return None
    means = np.array([scores.get(name, 0.5) for name in expert_names])
    rows = 1 if info.table is None else info.table.rows
    of_table = np.sqrt(np.maximum(means * (1 - means), 0.02) / rows)
    return np.array([known.get(*one) for one in zip(expert_names, of_table, strict=True)])
