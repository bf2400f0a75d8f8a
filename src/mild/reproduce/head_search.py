"""Margins by a search over linear heads on frozen features: quick, where training is not.

The p - 1 ratios of the margins are searched around uniform ones, the mean kept at 1, by the
cross-validated deferral loss of the stationary decision. The strength of the heads is settled first,
at uniform margins.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import parallel_config
from numpy.typing import NDArray

from mild.arrays import FloatArray
from mild.costs import cheapest
from mild.margins import COUNTS, membership, ratio_grid, theory_margins, uniform_margins
from mild.reproduce.experts.splits import stratified_order
from mild.routers.candidates import Candidate
from mild.routers.linear import LinearRouter
from mild.routers.search import Search, SearchData

__all__ = ["SETTINGS", "margin_candidates", "search_heads", "standardised"]

FOLDS = 3
ALPHAS = (1e-1, 1e-2, 1e-3, 1e-4)
# From the finest to the coarsest.
FACTORS = ((0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0), (0.5, 0.7, 1.0, 1.4, 2.0), (0.5, 1.0, 2.0))
LIMIT = 28
SEARCH_TOL = 5e-3
JOBS = 8

#: What a search depends on beside its data: part of the key under which its result is kept.
SETTINGS = {
    "folds": FOLDS,
    "alphas": list(ALPHAS),
    "factors": [list(f) for f in FACTORS],
    "limit": LIMIT,
    "tol": SEARCH_TOL,
}


@dataclass(frozen=True)
class _Head:
    """A linear head: rewards, margins and strength."""

    rewards: str
    margins: tuple[float, ...]
    alpha: float

    @property
    def distance(self) -> float:
        """How far from uniform: the largest logarithm of a margin against the mean of them."""
        logs = np.log(self.margins)
        return float(np.abs(logs - logs.mean()).max().round(9))

    def candidate(self, scale: float) -> Candidate:
        """The head for the search."""
        router = LinearRouter(
            rewards=self.rewards, margins=self.margins, alpha=self.alpha, cost_scale=scale
        )
        return Candidate("linear", router, {}, (self.distance,))


def search_heads(
    features: NDArray[np.float32],
    costs: NDArray[np.float32],
    largest: float,
    kinds: Sequence[str],
    seed: int = 0,
) -> dict[str, Any]:
    """Margins of mean 1, and rewards among ``kinds``, that route best from these features.

    Of the candidates whose paired difference to the best is within one standard error, the one
    nearest to uniform margins is taken: differences smaller than that are chance.

    Parameters
    ----------
    features : (n, n_features)
    costs : (n, n_experts)
    largest : largest possible cost
    kinds : forms of rewards to choose from
    seed : of the folds

    Returns
    -------
    dict, JSON-ready: ``margins``, ``rewards``, ``alpha`` and ``loss`` of the head that was taken,
    ``best`` of the best by plain mean, ``uniform`` the best at uniform margins, ``candidates``
    all that were judged at their strength, best first
    """
    p = costs.shape[1]
    order = stratified_order(cheapest(costs), np.random.default_rng(seed))
    parts = [np.sort(part) for part in np.array_split(order, FOLDS)]
    folds = [
        (np.sort(np.concatenate([other for other in parts if other is not part])), part)
        for part in parts
    ]
    data = SearchData(standardised(features), costs, None, folds)
    even = tuple(uniform_margins(p).tolist())
    heads: list[_Head] = []
    for kind in kinds:
        tried = [_Head(kind, even, alpha) for alpha in ALPHAS]
        alpha = tried[int(np.argmin(_judge(data, tried, largest).mean(axis=0)))].alpha
        heads += [
            _Head(kind, margins, alpha) for margins in margin_candidates(costs, kind, largest)
        ]
    rows = _judge(data, heads, largest)
    means = rows.mean(axis=0)
    best = int(np.argmin(means))
    errors = (rows - rows[:, [best]]).std(axis=0) / np.sqrt(len(rows))
    near = np.flatnonzero(means - means[best] <= errors)
    taken = int(min(near, key=lambda i: (heads[i].distance, means[i])))
    flat = int(min((i for i, h in enumerate(heads) if h.margins == even), key=lambda i: means[i]))

    def said(index: int) -> dict[str, Any]:
        head = heads[index]
        return {
            "margins": [round(value, 6) for value in head.margins],
            "rewards": head.rewards,
            "alpha": head.alpha,
            "loss": round(float(means[index]), 6),
        }

    return {
        **said(taken),
        "rows": len(rows),
        "best": said(best),
        "standard_error": round(float(errors[taken]), 6),
        "uniform": said(flat),
        "candidates": [said(int(i)) for i in np.argsort(means, kind="stable")],
    }


def margin_candidates(
    costs: NDArray[np.float32], kind: str, largest: float
) -> list[tuple[float, ...]]:
    """Margins to try, of mean 1: ratios around uniform ones, and the theory by either count.

    ``largest`` is the largest possible cost, the scale of complement rewards.
    """
    p = costs.shape[1]
    # All ratios at once if that is few enough, otherwise one at a time, so that none is left out.
    product = [f for f in FACTORS if len(f) ** (p - 1) <= LIMIT]
    walk = [f for f in FACTORS if 1 + (len(f) - 1) * p <= LIMIT]
    factors = (product or walk or FACTORS[-1:])[0]
    found: list[FloatArray] = [np.array(entry) for entry in ratio_grid([1.0] * p, factors, LIMIT)]
    for counts in COUNTS:
        mass = membership(costs, kind, counts, largest).sum(axis=0)
        if mass.any():
            found.append(theory_margins(mass))
    even = uniform_margins(p)
    # Uniform first and exactly: it is what the others are measured against.
    found = [even] + [vector for vector in found if not np.allclose(vector, even, rtol=1e-9)]
    return [tuple(float(value) for value in vector) for vector in found]


def standardised(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Features of mean 0 and deviation 1; one that never changes stays 0.

    Examples
    --------
    >>> standardised(np.array([[1, 5], [3, 5]], np.float32))
    array([[-1.,  0.],
           [ 1.,  0.]], dtype=float32)
    """
    wide = features.astype(np.float64)
    spread = wide.std(axis=0)
    return ((wide - wide.mean(axis=0)) / np.where(spread > 0, spread, 1)).astype(np.float32)


def _judge(data: SearchData, heads: Sequence[_Head], largest: float) -> FloatArray:
    """Out-of-fold costs (n, heads)."""
    candidates = [head.candidate(largest) for head in heads]
    # Threads: NumPy lets go of the interpreter in its products, and nothing has to be copied.
    with parallel_config(backend="threading", n_jobs=min(JOBS, os.cpu_count() or 1)):
        search = Search(data, SEARCH_TOL, None, None, len(candidates))
        made = search.run(candidates)
    if search.interrupted:
        # A search that was stopped must not pass for one that was finished.
        raise KeyboardInterrupt
    return data.paid(made)
