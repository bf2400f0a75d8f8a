"""Linear routers on frozen features: each method finds its strength by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mild.arrays import FloatArray, IntArray
from mild.costs import REWARDS
from mild.reproduce.methods import Method

__all__ = ["ALPHAS", "FOLDS", "Fitted", "fit_linear", "linear_protocol"]

ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
FOLDS = 5
N_EXPERTS = 3
FACTORS = (0.5, 1.0, 2.0)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A router as one decision rule wants it.

    Attributes
    ----------
    decision : "argmax" or "stationary"
    scores : (n_test, n_experts)
    margins : (n_experts,) that it was trained with; None for methods that learn from labels
    found : what its search settled on, JSON-ready
    """

    decision: str
    scores: FloatArray
    margins: tuple[float, ...] | None
    found: dict[str, Any] = field(default_factory=dict)


def linear_protocol(features: dict[str, Any], alphas: Sequence[float]) -> dict[str, Any]:
    """What a record says of the training."""
    return {"name": "linear", "features": features, "alphas": list(alphas), "folds": FOLDS}


def fit_linear(
    method: Method,
    train: FloatArray,
    costs: FloatArray,
    test: FloatArray,
    folds: Sequence[tuple[IntArray, IntArray]],
    largest: float,
    seed: int,
    alphas: Sequence[float] = ALPHAS,
    jobs: int | None = None,
) -> list[Fitted]:
    """Fit a method on the training rows; one result per decision rule that differs for it.

    The strength of the penalty, and margins that are to be searched, are those of the least
    cross-validated deferral loss under that decision rule: argmax and stationary decoding may take
    different ones, and neither is judged by what suits the other.

    Parameters
    ----------
    train, test : features (n, d)
    costs : (n_train, n_experts)
    folds : of the training rows
    largest : largest possible cost, for complement rewards
    alphas : strengths of the penalty to choose from, in units that mean the same for all methods
    """
    both = method.name == "mild" and method.margins != "uniform"
    return [
        _fit(method, decision, train, costs, test, folds, largest, seed, alphas, jobs)
        for decision in (("argmax", "stationary") if both else ("argmax",))
    ]


def _fit(
    method: Method,
    decision: str,
    train: FloatArray,
    costs: FloatArray,
    test: FloatArray,
    folds: Sequence[tuple[IntArray, IntArray]],
    largest: float,
    seed: int,
    alphas: Sequence[float],
    jobs: int | None,
) -> Fitted:
    from mild.routers.linear import LinearRouter
    from mild.routers.tuning import RouterCV

    strengths = [_unit(method) * alpha for alpha in alphas]
    kinds = REWARDS if method.rewards == "any" else (method.rewards,)
    searches = []
    for kind in kinds:
        router = LinearRouter(method.name, **_options(method, kind, decision, largest))
        search = RouterCV(
            router,
            alphas=_fewer(strengths) if method.margins == "grid" else strengths,
            margin_factors=FACTORS if method.margins == "tuned" else (1.0,),
            grid="paper" if method.margins == "grid" else "ratios",
            cv=folds,
            one_standard_error=False,
            n_jobs=jobs,
            random_state=seed,
        )
        searches.append(search.fit(train, costs))
    best = min(searches, key=_least)
    router = best.best_router_
    found: dict[str, Any] = {
        "alpha": float(router.alpha),
        "cross_validated": _least(best),
        "tried": len(best.cv_results_["mean_cost"]),
    }
    margins = None
    if method.name in ("mild", "tdef"):
        margins = tuple(float(value) for value in router.margins_)
    if method.name == "mild":
        found["rewards"] = router.rewards
    return Fitted(decision, router.decision_function(test), margins, found)


def _options(method: Method, rewards: str | None, decision: str, largest: float) -> dict[str, Any]:
    """Options of the linear router that a method stands for."""
    options: dict[str, Any] = {"decision": decision}
    if method.name in ("mild", "tdef"):
        options["cost_scale"] = largest
    if method.name != "mild":
        return options
    options |= {"rewards": rewards, "counts": method.counts or "reward"}
    # A search goes out from the theory.
    options["margins"] = "theory" if method.searched else method.margins
    if not isinstance(method.margins, tuple):
        options["total"] = method.sum_of_margins(N_EXPERTS)
    return options


def _fewer(strengths: Sequence[float]) -> Sequence[float]:
    """Every other strength: the grid of margins has 216 points, and their scale is a strength, too."""
    return strengths[1::2] or strengths


def _unit(method: Method) -> float:
    """Factor that makes a strength mean the same for all methods.

    Scores that are t times as large, with margins or a scale that are so, too, make the same decisions
    and have t^2 times the penalty.
    """
    from mild.routers.targets import LDAM_SCALE

    if method.name == "ldam":
        return LDAM_SCALE**2
    if method.name != "mild":
        return 1.0
    given = method.margins
    total = sum(given) if isinstance(given, tuple) else method.sum_of_margins(N_EXPERTS)
    return (N_EXPERTS / total) ** 2


def _least(search: Any) -> float:
    return float(search.cv_results_["mean_cost"][search.best_index_])
