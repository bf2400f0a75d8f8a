"""Candidates of a search: margins and strengths of a linear router, a bias, and other families."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from mild.core.arrays import FloatArray, IntArray, check_strength, invalid
from mild.core.decisions import argmax_last
from mild.core.losses import floored_counts
from mild.core.margins import membership, paper_grid, ratio_grid
from mild.core.rounding import tie_ranks
from mild.errors import check_option
from mild.routers.base import BaseRouter
from mild.routers.clusters import ClusterRouter
from mild.routers.cost_models import CostRegressionRouter, KNNRouter
from mild.routers.linear import LinearRouter
from mild.routers.objective import tie_means, training_margins

FAMILIES = ("linear", "regression", "knn", "clusters", "mlp", "stack")
#: What "auto" leaves out: the network changes the cost of the blend little (-0.0033 to +0.0006 over six
#: draws, docs/science/published.md), and takes longer than all the others.
RARELY_USEFUL = ("mlp",)
ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
#: Numbers of clusters; all of them are blended.
CLUSTERS = (6, 12, 16)
#: Strengths of the baseline between contrast (0) and others (1).
BASELINES = (0.25, 0.5)
# Biases that are tried, in units of the margin; rounds of the search, and rows, at most.
STEPS = np.linspace(-2, 2, 33)
ROUNDS = 3
ROWS = 20_000


@dataclass(frozen=True)
class Candidate:
    """One router to try.

    ``complexity`` orders candidates of equal merit: the one-standard-error rule takes the smallest. Of
    candidates with ``keeps_scores`` the scores of held-out rows are kept, for a bias.
    """

    family: str
    router: BaseRouter
    params: dict[str, Any]
    complexity: tuple[float, ...]
    keeps_scores: bool = False
    moved: bool | None = None  # whether its margins are others than the centre of the search

    @property
    def member(self) -> str:
        """Name in a stack, which has the best candidate of each name."""
        if self.family == "clusters":
            return f"clusters_{self.params['n_clusters']}"
        if self.family == "linear":
            return str(self.params.get("loss", self.family))
        return self.family

    @property
    def key(self) -> str:
        """What the candidate is, for other searches on the same rows and folds."""
        return repr((type(self.router).__name__, sorted(self.router.get_params().items())))

    @property
    def estimates_costs(self) -> bool:
        """Whether it is a member for how well it estimates costs, not for what its choices cost."""
        return self.family != "linear" or "loss" in self.params


def linear_candidates(
    base: LinearRouter, X: Any, costs: FloatArray, sample_weight: FloatArray | None, options: Any
) -> tuple[list[Candidate], int]:
    """Margins around the base router's, times strengths; and how many margin vectors were dropped.

    ``options`` are the parameters of RouterCV. Neighbours follow one another, so that each can start from
    the last. Margins that are powers of how often an expert is cheapest come first; they need the
    stationary rule, as argmax is not consistent with them.
    """
    factors, max_margins = options.margin_factors, options.max_margins
    by_ratio = options.grid == "ratios"
    weight = np.ones(len(costs)) if sample_weight is None else sample_weight
    center = training_margins(base, X, costs, weight)
    vectors: list[FloatArray | None] = [None]
    dropped, moving = 0, False
    if base.loss == "mild" and costs.shape[1] > 1:
        found = ratio_grid(center, factors, max_margins) if by_ratio else paper_grid(center)
        moves = list(found)
        dropped = found.dropped
        moving = by_ratio and bool(np.not_equal(factors, 1).any())
        if moving and base.decision == "stationary":
            means = tie_means(base, costs, weight)
            member = membership(costs, base.rewards, "best", means=means)
            counts = (member * weight[:, None]).sum(axis=0)
            powers: list[FloatArray] = []
            for exponent in options.margin_exponents:
                power = power_margins(counts, exponent, center.sum())
                if not any(np.allclose(power, one, rtol=1e-9, atol=0) for one in moves + powers):
                    powers.append(power)
            dropped += max(0, len(moves) + len(powers) - max_margins)
            first = [*moves[:1], *powers][:max_margins]
            moves = [*sorted(first, key=lambda margins: np.ptp(np.log(margins))), *moves[1:]]
        vectors = [*moves[:max_margins]] if by_ratio else [*moves]
    strengths = _strengths(options.alphas, ALPHAS if by_ratio else (base.alpha,))
    given = base.get_params(deep=False)
    candidates = []
    for place, vector in enumerate(vectors):
        distance, equal = 0.0, False
        if vector is not None:
            equal = bool(np.allclose(vector, vector[0], rtol=1e-9, atol=0))
            ratio = np.log(vector / vector.sum()) - np.log(center / center.sum())
            distance = float(np.abs(ratio).max().round(9))
        # A serpentine walk: the last strength of one vector is the first of the next.
        for alpha in strengths if place % 2 == 0 else strengths[::-1]:
            params: dict[str, Any] = {"alpha": float(alpha)}
            if vector is not None:
                params["margins"] = tuple(float(value) for value in vector)
            router = type(base)(**{**given, **params})
            rank = (0.0, distance, -float(alpha))
            keeps_scores = options.bias and moving and equal
            moved = distance > 0
            candidates.append(Candidate("linear", router, params, rank, keeps_scores, moved))
    return candidates, dropped


def power_margins(counts: FloatArray, exponent: float, total: float) -> FloatArray:
    """Margins proportional to ``counts ** exponent``; a count of 0 is taken as 1.

    >>> power_margins(np.array([16.0, 1.0, 0.0]), 0.5, 3.0)
    array([2. , 0.5, 0.5])
    """
    power = floored_counts(counts) ** check_strength("margin_exponents", exponent)
    result: FloatArray = power * (total / power.sum())
    return result


def parse_families(families: Any) -> tuple[list[str], list[str]]:
    """Families to search, and those left out because their package is missing.

    >>> parse_families("auto")
    (['linear', 'regression', 'knn', 'clusters', 'stack'], [])
    """
    if families is None:
        return [], []
    if families == "auto":
        return [name for name in FAMILIES if name not in RARELY_USEFUL], []
    if families == "all":
        missing = [] if importlib.util.find_spec("torch") else ["mlp"]
        return [name for name in FAMILIES if name not in missing], missing
    asked = [families] if isinstance(families, str) else families
    if not isinstance(asked, Iterable) or not (asked := list(asked)):
        raise invalid("families", f"must name at least one family, or be None; got {families!r}.")
    for name in asked:
        check_option("families", name, FAMILIES)
    return asked, []


def family_candidates(
    families: Sequence[str],
    alphas: Sequence[float] | None,
    random_state: Any,
    ties: str | None = None,
) -> list[Candidate]:
    """Candidates of every family but the stack, which is made from the best of the others.

    ``ties`` is that of LinearRouter.
    """
    found: list[Candidate] = []
    strengths = _strengths(alphas, ALPHAS)
    if "linear" in families:
        forms: list[tuple[float, dict[str, Any]]] = [
            *((1.0, {"rewards": kind}) for kind in ("others", "complement", "contrast")),
            *((1.0, {"rewards": "baseline", "strength": strength}) for strength in BASELINES),
            (2.0, {"loss": "tdef"}),
            (2.0, {"loss": "ce"}),
        ]
        for rank, form in forms:
            for alpha in strengths:
                params = form if "loss" in form else {**form, "margins": "uniform"}
                params = {**params, "alpha": float(alpha)}
                complexity = (0.0, rank, -float(alpha))
                router: Any = LinearRouter(**params, ties=ties)
                found.append(Candidate("linear", router, params, complexity))
    if "regression" in families:
        for alpha in (1.0, 1e1, 1e2, 1e3, 3e3, 1e4):
            router = CostRegressionRouter(alpha)
            found.append(Candidate("regression", router, {"alpha": alpha}, (1.0, 0.0, -alpha)))
    if "knn" in families:
        for count in (10, 40, 160, 640):
            complexity = (2.0, 0.0, -float(count))
            found.append(Candidate("knn", KNNRouter(count), {"n_neighbors": count}, complexity))
    if "clusters" in families:
        for count in CLUSTERS:
            params = {"n_clusters": count}
            router = ClusterRouter(**params, random_state=random_state)
            found.append(Candidate("clusters", router, params, (1.5, 1.0, float(count))))
    if "mlp" in families:
        from mild.routers.neural import NeuralRouter  # torch is an extra

        for width in (32, 128):
            params = {"hidden": (width,)}
            network = NeuralRouter(**params, random_state=random_state)
            found.append(Candidate("mlp", network, params, (3.0, 0.0, float(width))))
    return found


def further_candidates(routers: Sequence[Any], ties: str | None = None) -> list[Candidate]:
    """Candidates from unfitted routers, whose family is the name of their class.

    Nothing is known of how simple they are, so the rule of one standard error takes them after the known
    families, in the order that they were given in. ``ties`` is that of LinearRouter.

    >>> [candidate] = further_candidates([KNNRouter(n_neighbors=3)])
    >>> candidate.family, candidate.params
    ('knnrouter', {'n_neighbors': 3})
    """
    if not isinstance(routers, Iterable):
        rule = f"must be a list of unfitted routers, such as [KNNRouter(3)]; got {routers!r}."
        raise invalid("candidates", rule)
    candidates = []
    for place, given in enumerate(routers):
        if not isinstance(given, BaseRouter):
            rule = f"must hold unfitted routers of mild, such as KNNRouter(3); got {given!r}."
            raise invalid("candidates", rule)
        router = clone(given)
        params = set_parameters(router)
        if "ties" in router.get_params() and router.ties is None:
            router.set_params(ties=ties)
        family = type(router).__name__.lower()
        candidates.append(Candidate(family, router, params, (3.5, 0.0, float(place))))
    return candidates


def set_parameters(router: BaseRouter) -> dict[str, Any]:
    """The parameters of a router that have another value than by default."""
    defaults = inspect.signature(type(router)).parameters
    params = {}
    for name, value in router.get_params(deep=False).items():
        # Values may be arrays, for which == is no answer; their text is what is shown.
        if repr(value) != repr(defaults[name].default):
            params[name] = value
    return params


def _strengths(alphas: Sequence[float] | None, default: Sequence[float]) -> list[float]:
    if alphas is None:
        return list(default)
    if not isinstance(alphas, Iterable) or not (strengths := list(alphas)):
        raise invalid("alphas", f"must hold at least one strength; got {alphas!r}.")
    return [check_strength("alphas", alpha) for alpha in strengths]


def find_bias(
    scores: FloatArray, costs: FloatArray, sample_weight: FloatArray | None, margin: float
) -> FloatArray:
    """Bias (n_experts,) with which the largest score costs least, by coordinate search on a grid.

    Scores and costs are (n_samples, n_experts); all experts share the ``margin``. The minimum is 0, as only
    differences matter. Rows with an unknown cost are left out. Ties go to the value nearest to 0.

    >>> find_bias(np.array([[0.0, 0.5], [0.0, 2.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]), None, 1.0)
    array([0.625, 0.   ])
    """
    rows = np.flatnonzero(~np.isnan(costs).any(axis=1))
    rows = rows[np.linspace(0, len(rows), min(len(rows), ROWS), endpoint=False, dtype=np.intp)]
    scores, costs = scores[rows].astype(np.float64), costs[rows].astype(np.float64)
    if sample_weight is not None:
        costs = costs * sample_weight[rows, None]
    bias = np.zeros(scores.shape[1])
    every = np.arange(len(rows))
    for _ in range(ROUNDS):
        before = bias.copy()
        for k in range(bias.size):
            others = scores + bias
            others[:, k] = -np.inf
            rival = argmax_last(others)
            # The expert is chosen from the first step above this gap on.
            gap = ((others[every, rival] - scores[:, k]) / margin).round(9)
            change = costs[:, k] - costs[every, rival]
            place = np.searchsorted(STEPS, gap, side="right")
            total = np.bincount(place, change, STEPS.size + 1)[:-1].cumsum()
            ranks = tie_ranks(total, scale=float(np.abs(change).sum()))
            bias[k] = STEPS[np.lexsort((np.abs(STEPS), ranks))[0]] * margin
        if (bias == before).all():
            break
    result: FloatArray = bias - bias.min()
    return result


def cross_fitted_bias(
    scores: FloatArray,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    folds: list[tuple[IntArray, IntArray]],
    margin: float,
) -> tuple[FloatArray, IntArray]:
    """The bias from all held-out scores, and choices (n,) with the bias from the other folds.

    ``scores`` are NaN in rows that no fold holds out, where the choice is -1.
    """
    covered = np.isfinite(scores[:, 0])
    chosen = np.full(len(scores), -1, dtype=np.intp)

    def found(rows: IntArray) -> FloatArray:
        weight = None if sample_weight is None else sample_weight[rows]
        return find_bias(scores[rows], costs[rows], weight, margin)

    for _, test in folds:
        other = covered.copy()
        other[test] = False
        chosen[test] = argmax_last(scores[test] + found(np.flatnonzero(other)))
    return found(np.flatnonzero(covered)), chosen
