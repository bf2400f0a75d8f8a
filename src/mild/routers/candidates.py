"""What a search tries: margins and strengths of a linear router, and other families if asked."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from mild.arrays import FloatArray, check_strength
from mild.exceptions import InvalidInputError, check_option
from mild.margins import paper_grid, ratio_grid
from mild.routers.base import BaseRouter
from mild.routers.linear import LinearRouter
from mild.routers.nearest import KNNRouter
from mild.routers.regression import CostRegressionRouter
from mild.routers.targets import training_margins

__all__ = [
    "FAMILIES",
    "MLP_SIZE",
    "Candidate",
    "family_candidates",
    "linear_candidates",
    "parse_families",
]

FAMILIES = ("linear", "regression", "knn", "mlp", "stack")
#: Rows times features, counted as 384 at least, up to which "auto" has the network: about 5,000 rows, or
#: 20 seconds of one core. On more it takes longer than all the others together.
MLP_SIZE = 2_000_000
GRIDS = ("ratios", "paper")
ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True)
class Candidate:
    """One router to try.

    ``complexity`` orders candidates of equal merit: the one-standard-error rule takes the smallest.
    """

    family: str
    router: BaseRouter
    params: dict[str, Any]
    complexity: tuple[float, ...]


def linear_candidates(
    base: LinearRouter,
    X: Any,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    alphas: Sequence[float] | None,
    factors: Sequence[float],
    max_margins: int,
    grid: str,
) -> tuple[list[Candidate], int]:
    """Margins around the base router's, times strengths; and how many margin vectors were dropped.

    Neighbours follow one another, so that each can start from the last.
    """
    check_option("grid", grid, GRIDS)
    weight = np.ones(len(costs)) if sample_weight is None else sample_weight
    center = training_margins(base, X, costs, weight)
    vectors: list[FloatArray | None] = [None]
    dropped = 0
    if base.loss == "mild" and costs.shape[1] > 1:
        found = paper_grid(center) if grid == "paper" else ratio_grid(center, factors, max_margins)
        vectors = list(found)
        dropped = found.dropped
    strengths = _strengths(alphas, ALPHAS if grid == "ratios" else (base.alpha,))
    candidates = []
    for place, vector in enumerate(vectors):
        distance = 0.0
        if vector is not None:
            ratio = np.log(vector / vector.sum()) - np.log(center / center.sum())
            distance = float(np.abs(ratio).max().round(9))
        # A serpentine walk: the last strength of one vector is the first of the next.
        for alpha in strengths if place % 2 == 0 else strengths[::-1]:
            params: dict[str, Any] = {"alpha": float(alpha)}
            if vector is not None:
                params["margins"] = tuple(float(value) for value in vector)
            router = clone(base).set_params(**params)
            candidates.append(Candidate("linear", router, params, (0.0, distance, -float(alpha))))
    return candidates, dropped


def parse_families(families: Any, shape: tuple[int, int]) -> tuple[list[str], list[str]]:
    """Families to search, and those left out: their package is missing, or the table is too large.

    Parameters
    ----------
    families : None, "all", "auto" or names
    shape : (n_samples, n_features) of the table; "auto" has the network up to MLP_SIZE alone

    Examples
    --------
    >>> parse_families("auto", (20_600, 384))
    (['linear', 'regression', 'knn', 'stack'], ['mlp'])
    """
    if families is None:
        return [], []
    whole = families in ("all", "auto")
    asked = list(FAMILIES) if whole else list(_as_names(families))
    if not asked:
        raise InvalidInputError("families must name at least one family, or be None; got none.")
    for name in asked:
        check_option("families", name, FAMILIES)
    large = families == "auto" and shape[0] * max(shape[1], 384) > MLP_SIZE
    if whole and (large or importlib.util.find_spec("torch") is None):
        return [name for name in asked if name != "mlp"], ["mlp"]
    return asked, []


def family_candidates(
    families: Sequence[str], alphas: Sequence[float] | None, random_state: Any
) -> list[Candidate]:
    """Candidates of every family but the stack, which is made from the best of the others."""
    found: list[Candidate] = []
    strengths = _strengths(alphas, ALPHAS)
    if "linear" in families:
        for kind in ("others", "complement", "contrast"):
            base = LinearRouter("mild", rewards=kind, margins="uniform")
            found += _linear(base, {"rewards": kind, "margins": "uniform"}, strengths, 1.0)
        for loss in ("tdef", "ce"):
            found += _linear(LinearRouter(loss), {"loss": loss}, strengths, 2.0)
    if "regression" in families:
        for alpha in (1.0, 1e1, 1e2, 1e3, 1e4):
            params = {"alpha": alpha}
            found.append(
                Candidate("regression", CostRegressionRouter(**params), params, (1.0, 0.0, -alpha))
            )
    if "knn" in families:
        for neighbors in (10, 40, 160, 640):
            found.append(
                Candidate(
                    "knn",
                    KNNRouter(n_neighbors=neighbors),
                    {"n_neighbors": neighbors},
                    (2.0, 0.0, -float(neighbors)),
                )
            )
    if "mlp" in families:
        from mild.routers.neural import NeuralRouter  # torch is an extra

        for hidden in ((32,), (128,)):
            network = NeuralRouter(hidden=hidden, random_state=random_state)
            found.append(
                Candidate("mlp", network, {"hidden": hidden}, (3.0, 0.0, float(hidden[0])))
            )
    return found


def _linear(
    base: LinearRouter, params: dict[str, Any], alphas: Sequence[float], rank: float
) -> list[Candidate]:
    return [
        Candidate(
            "linear",
            clone(base).set_params(alpha=float(alpha)),
            {**params, "alpha": float(alpha)},
            (0.0, rank, -float(alpha)),
        )
        for alpha in alphas
    ]


def _strengths(alphas: Sequence[float] | None, default: Sequence[float]) -> list[float]:
    if alphas is None:
        return list(default)
    strengths = [check_strength("alphas", alpha) for alpha in alphas]
    if not strengths:
        raise InvalidInputError("alphas must hold at least one strength; got none.")
    return strengths


def _as_names(families: Any) -> Sequence[str]:
    return [families] if isinstance(families, str) else families
