"""The two pictures: best and learned regions of a line and of a plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from mild.core.arrays import FloatArray, IntArray
from mild.core.costs import cheapest
from mild.data.datasets import (
    RoutingData,
    expert_accuracies,
    one_dimensional,
    region_of,
    regions,
)
from mild.data.datasets.synthetic import BETAS, SPAN
from mild.routers.linear import LinearRouter

__all__ = ["LearnedRegions", "Picture", "draw_line", "draw_plane", "radial_features", "segments"]

ALPHA = 1e-4
REGION_GAMMA = 25.0
GRID = 1001
SIDE = 160

#: What is drawn, in this order: label and options of the router.
ROUTERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("TDEF", {"loss": "tdef"}),
    ("MILD theory, stationary", {"counts": "best", "decision": "stationary"}),
    ("MILD theory, argmax", {"counts": "best", "decision": "argmax"}),
)


@dataclass(frozen=True, eq=False)
class LearnedRegions:
    """Which expert a router asks at each point of the grid, and what that costs.

    Attributes
    ----------
    label : name of the router
    chosen : (n_grid,) experts
    loss : expected cost of its choices over the drawn inputs, exact given x
    agreement : share of the drawn inputs at which it asks the best expert
    """

    label: str
    chosen: IntArray
    loss: float
    agreement: float


@dataclass(frozen=True, eq=False)
class Picture:
    """A problem with its best regions and those that routers learned.

    Attributes
    ----------
    data : the sample that was trained on
    grid : (n_grid, n_features) points
    best : (n_grid,) expert of least expected cost
    best_loss : expected cost of the best choices
    constant_loss : expected cost of the best constant
    learned : one entry per router
    """

    data: RoutingData
    grid: FloatArray
    best: IntArray
    best_loss: float
    constant_loss: float
    learned: tuple[LearnedRegions, ...]


def draw_line(n_samples: int = 4000, random_state: int = 0) -> Picture:
    """The line: linear routers on cubic splines of x."""
    data = one_dimensional(n_samples, random_state)
    splines = SplineTransformer(n_knots=14, degree=3, include_bias=False)
    grid = np.linspace(*SPAN, GRID)[:, None]
    best = cheapest(1 - expert_accuracies(grid[:, 0]) + np.array(BETAS))
    return _picture(data, grid, best, splines)


def draw_plane(n_samples: int = 4000, random_state: int = 0) -> Picture:
    """The plane: linear routers on radial features of the point."""
    data = regions(n_samples, random_state)
    ticks = (np.arange(SIDE) + 0.5) / SIDE
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    return _picture(data, grid, region_of(grid), radial_features(data.X, REGION_GAMMA))


def _picture(data: RoutingData, grid: FloatArray, best: IntArray, features: Any) -> Picture:
    expected = np.asarray(data.expected_costs)
    rows = np.arange(len(expected))
    best_experts = cheapest(expected)
    learned = []
    for label, options in ROUTERS:
        router = make_pipeline(features, LinearRouter(alpha=ALPHA, **options))
        router.fit(data.X, data.costs)
        chosen = router.predict(data.X)
        learned.append(
            LearnedRegions(
                label,
                router.predict(grid),
                float(expected[rows, chosen].mean()),
                float((chosen == best_experts).mean()),
            )
        )
    return Picture(
        data,
        grid,
        best,
        float(expected.min(axis=1).mean()),
        float(expected.mean(axis=0).min()),
        tuple(learned),
    )


def radial_features(X: FloatArray, gamma: float, n_components: int = 128) -> Nystroem:
    """Nystroem features of the kernel ``exp(-gamma ||x - z||^2)``.

    With them a linear router draws curved borders. Every method sees the same ones.
    """
    kept = min(n_components, len(X))
    return Nystroem(kernel="rbf", gamma=gamma, n_components=kept, random_state=0).fit(X)


def segments(positions: FloatArray, chosen: Sequence[int] | IntArray) -> list[dict[str, Any]]:
    """Runs of one expert along a line: where each starts and ends.

    Examples
    --------
    >>> segments(np.array([0.0, 1.0, 2.0, 3.0]), [0, 0, 2, 2])
    [{'expert': 0, 'start': 0.0, 'end': 1.5}, {'expert': 2, 'start': 1.5, 'end': 3.0}]
    """
    experts = np.asarray(chosen)
    changes = np.flatnonzero(np.diff(experts)) + 1
    middles = (positions[changes - 1] + positions[changes]) / 2
    edges = [float(positions[0]), *middles.tolist(), float(positions[-1])]
    starts = [0, *changes.tolist()]
    return [
        {"expert": int(experts[start]), "start": edges[i], "end": edges[i + 1]}
        for i, start in enumerate(starts)
    ]
