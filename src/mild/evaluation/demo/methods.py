"""The methods that the demo compares, each as a router ready to fit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, KFold

from mild.core.arrays import IntArray
from mild.core.costs import cheapest
from mild.data.datasets import RoutingData
from mild.evaluation.demo.settings import DemoSettings
from mild.routers.constant import ConstantRouter
from mild.routers.linear import LinearRouter
from mild.routers.nearest import KNNRouter
from mild.routers.regression import CostRegressionRouter
from mild.routers.targets import LDAM_SCALE
from mild.routers.tuning import RouterCV

__all__ = ["METHODS", "Method", "Routing", "route_all"]


@dataclass(frozen=True)
class Method:
    """One row of the tables.

    Attributes
    ----------
    key : name in the files
    label : name in tables and figures
    what : one line on how it is trained and decides
    compete : whether it may be marked as the best and must be beaten by the best
    """

    key: str
    label: str
    what: str
    compete: bool = True


_THEORY = "others rewards, theory margins from best counts"
_TUNED = "others rewards; margin ratios, powers of best counts and a bias searched"

METHODS = (
    Method("tdef", "TDEF", "complement rewards, all margins 1"),
    Method("mild_uniform", "MILD uniform", "others rewards, equal margins: both rules agree"),
    Method("mild_theory_argmax", "MILD theory, argmax", f"{_THEORY}; the paper's rule"),
    Method("mild_theory_stationary", "MILD theory, stationary", f"{_THEORY}; our rule"),
    Method("mild_tuned_argmax", "MILD tuned, argmax", f"{_TUNED} for argmax"),
    Method("mild_tuned_stationary", "MILD tuned, stationary", f"{_TUNED} for our rule"),
    Method("mild_contrast", "MILD contrast (ours)", "contrast rewards, equal margins"),
    Method("ce", "CE", "cross-entropy on the cheapest expert"),
    Method("cwce", "CWCE", "CE, weighted by inverse frequency"),
    Method("ldam", "LDAM", "label-distribution-aware margins"),
    Method("regression", "cost regression", "predicts every cost, takes the least"),
    Method("knn", "kNN", "mean costs of the nearest rows"),
    Method("label", "true label only", "cheapest expert of the row's true class"),
    Method("constant", "best constant", "the expert that is cheapest in training"),
    Method("oracle", "oracle", "cheapest expert of every test row", compete=False),
)


@dataclass(frozen=True, eq=False)
class Routing:
    """What one method did on the test rows.

    Attributes
    ----------
    chosen : (n_test,) experts
    found : what the search settled on, ready for JSON
    seconds : time of search, fit and decisions
    """

    chosen: IntArray
    found: dict[str, Any]
    seconds: float


def route_all(
    train: RoutingData,
    test: RoutingData,
    settings: DemoSettings,
    cost_scale: float,
    by_label: bool = False,
) -> dict[str, Routing]:
    """Train every method on ``train`` and let it decide on ``test``, in the order of METHODS."""
    result: dict[str, Routing] = {}
    routers = _routers(settings, cost_scale, len(train.X), result)
    for method in METHODS:
        start = time.perf_counter()
        found: dict[str, Any] = {}
        if method.key == "oracle":
            chosen = cheapest(test.costs)
        elif method.key == "label":
            if not by_label:
                continue
            chosen = _route_by_label(train, test)
        else:
            router = routers[method.key]().fit(train.X, train.costs)
            chosen = router.predict(test.X)
            found = _found(router)
        result[method.key] = Routing(chosen, found, time.perf_counter() - start)
    return result


def _routers(
    settings: DemoSettings, cost_scale: float, n_samples: int, done: dict[str, Routing]
) -> dict[str, Callable[[], Any]]:
    """Every trained method; all searches see the same folds of the training half.

    ``done`` holds the methods that have been fitted before.
    """
    folds = KFold(settings.folds, shuffle=True, random_state=0)

    def linear(loss: str, **options: Any) -> RouterCV:
        # LDAM multiplies its scores by its scale: this is the same penalty on what its loss sees.
        unit = LDAM_SCALE**2 if loss == "ldam" else 1.0
        alphas = [unit * alpha for alpha in settings.alphas]
        return _search(LinearRouter(loss, **options), alphas, (1.0,), folds)

    def theory(decision: str) -> RouterCV:
        return linear("mild", counts="best", decision=decision)

    def tuned(decision: str) -> RouterCV:
        # The strength is the one that was best at the theory's margins: one search, then the other.
        alpha = done[f"mild_theory_{decision}"].found["alpha"]
        return _search(
            LinearRouter("mild", counts="reward", decision=decision),
            [alpha],
            settings.margin_factors,
            folds,
        )

    def grid(router: Any, **values: Any) -> GridSearchCV:
        return GridSearchCV(router, values, cv=folds)

    # Ridge sets its penalty against a sum over rows, the other methods against a mean.
    ridge_alphas = [n_samples * alpha for alpha in settings.alphas]
    return {
        "tdef": lambda: linear("tdef", cost_scale=cost_scale),
        "mild_uniform": lambda: linear("mild", margins="uniform"),
        "mild_theory_argmax": lambda: theory("argmax"),
        "mild_theory_stationary": lambda: theory("stationary"),
        "mild_tuned_argmax": lambda: tuned("argmax"),
        "mild_tuned_stationary": lambda: tuned("stationary"),
        "mild_contrast": lambda: linear("mild", rewards="contrast", margins="uniform"),
        "ce": lambda: linear("ce"),
        "cwce": lambda: linear("cwce"),
        "ldam": lambda: linear("ldam"),
        "regression": lambda: grid(CostRegressionRouter(), alpha=ridge_alphas),
        "knn": lambda: grid(KNNRouter(), n_neighbors=list(settings.neighbours)),
        "constant": ConstantRouter,
    }


def _search(
    router: LinearRouter, alphas: list[float], factors: tuple[float, ...], folds: KFold
) -> RouterCV:
    return RouterCV(
        router, alphas=alphas, margin_factors=factors, cv=folds, one_standard_error=False
    )


def _route_by_label(train: RoutingData, test: RoutingData) -> IntArray:
    """What knowing the true class is worth: each class to its cheapest expert in training."""
    n_classes = int(max(train.labels.max(), test.labels.max())) + 1
    mean = np.array([train.costs[train.labels == y].mean(axis=0) for y in range(n_classes)])
    return cheapest(mean)[test.labels]


def _found(router: Any) -> dict[str, Any]:
    """Parameters that a search settled on, as plain numbers."""
    return {name: _plain(value) for name, value in getattr(router, "best_params_", {}).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | tuple | list):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value
