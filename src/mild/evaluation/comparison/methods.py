"""The methods that are compared, each as a search over its own strength, and how one is run."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import IntArray
from mild.errors import TuningInterruptedWarning, check_option

__all__ = ["METHODS", "TUNED", "Choices", "Context", "Method", "chosen_methods", "run_method"]

ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)

#: What ``mild tune`` searches by default: all families, the network on small tables alone.
TUNED = "auto"

Folds = Sequence[tuple[IntArray, IntArray]]


@dataclass(frozen=True, eq=False)
class Context:
    """What a method may know before it is fitted.

    Attributes
    ----------
    folds : of the training rows, the same for all methods
    largest : largest possible cost, the scale of complement rewards; None to take it from the rows
    seed : of what is drawn at random
    jobs : parallel workers
    """

    folds: Folds
    largest: float | None
    seed: int
    jobs: int | None


@dataclass(frozen=True)
class Method:
    """One row of a comparison.

    Attributes
    ----------
    key : name on the command line and in files
    label : name in tables
    what : one line on how it is trained
    build : unfitted router for a context
    needs : package without which it is left out
    """

    key: str
    label: str
    what: str
    build: Callable[[Context], Any]
    needs: str | None = None


def _linear(loss: str, **options: Any) -> Callable[[Context], Any]:
    def build(context: Context) -> Any:
        from mild.routers.linear import LinearRouter
        from mild.routers.objective import LDAM_SCALE

        # LDAM multiplies its scores by its scale: this is the same penalty on what its loss sees.
        unit = LDAM_SCALE**2 if loss == "ldam" else 1.0
        more: dict[str, Any] = {}
        if loss == "tdef" and context.largest is not None:
            more["cost_scale"] = context.largest
        router = LinearRouter(loss, **options, **more)
        return _search(context, router, [unit * alpha for alpha in ALPHAS], (1.0,))

    return build


def _search(context: Context, router: Any, alphas: Sequence[float], factors: Any) -> Any:
    from mild.routers.search import RouterCV

    return RouterCV(
        router,
        alphas=alphas,
        margin_factors=factors,
        cv=context.folds,
        one_standard_error=False,
        n_jobs=context.jobs,
        random_state=context.seed,
    )


def _tuned_margins(context: Context) -> Any:
    from mild.routers.linear import LinearRouter

    return _search(context, LinearRouter("mild"), ALPHAS, (0.5, 1.0, 2.0))


def _families(families: Any) -> Callable[[Context], Any]:
    def build(context: Context) -> Any:
        from mild.routers.search import RouterCV

        return RouterCV(
            families=families,
            cv=context.folds,
            n_jobs=context.jobs,
            random_state=context.seed,
        )

    return build


def _constant(context: Context) -> Any:
    from mild.routers.baselines import ConstantRouter

    return ConstantRouter()


METHODS = (
    Method("constant", "best constant", "the expert that is cheapest in training", _constant),
    Method("ce", "CE", "cross-entropy on the cheapest expert", _linear("ce")),
    Method("cwce", "CWCE", "CE, weighted by inverse frequency", _linear("cwce")),
    Method("ldam", "LDAM", "label-distribution-aware margins", _linear("ldam")),
    Method("tdef", "TDEF", "complement rewards, all margins 1", _linear("tdef")),
    Method("mild", "MILD theory", "others rewards, theory margins, stationary", _linear("mild")),
    Method("mild_tuned", "MILD tuned", "others rewards, margin ratios searched", _tuned_margins),
    Method(
        "regression", "cost regression", "predicts every cost, takes the least",
        _families(["regression"]),
    ),
    Method("knn", "kNN", "mean costs of the nearest rows", _families(["knn"])),
    Method("mlp", "MLP", "a small network with MILD's loss", _families(["mlp"]), needs="torch"),
    Method("tune", "mild tune", "the best of these families and their stack", _families(TUNED)),
)  # fmt: skip


def chosen_methods(names: Sequence[str] | None = None) -> tuple[tuple[Method, ...], list[str]]:
    """Methods by their keys, in the order of METHODS, and those left out for want of a package.

    The best constant is always there: it is what the others are compared with.

    Examples
    --------
    >>> [method.key for method in chosen_methods(["knn", "ce"])[0]]
    ['constant', 'ce', 'knn']
    """
    known = [method.key for method in METHODS]
    for name in names or ():
        check_option("method", name, known)
    asked = [m for m in METHODS if not names or m.key in names or m.key == "constant"]
    missing = [m for m in asked if m.needs and importlib.util.find_spec(m.needs) is None]
    return tuple(m for m in asked if m not in missing), [m.label for m in missing]


@dataclass(frozen=True, eq=False)
class Choices:
    """What a method did on the test rows of one split.

    Attributes
    ----------
    chosen : (n_test,) experts
    found : what its search settled on, JSON-ready
    seconds : time to search, fit and decide
    """

    chosen: IntArray
    found: dict[str, Any]
    seconds: float


def run_method(
    method: Method, context: Context, X_train: Any, train_costs: Any, X_test: Any
) -> Choices:
    """Fit a method on training rows and let it choose on test rows."""
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            # An interrupted search keeps its best so far; an interrupted comparison ends.
            warnings.simplefilter("error", TuningInterruptedWarning)
            router = method.build(context).fit(X_train, train_costs)
    except TuningInterruptedWarning as error:
        raise KeyboardInterrupt from error
    chosen = router.predict(X_test)
    found = {name: _plain(value) for name, value in getattr(router, "best_params_", {}).items()}
    if hasattr(router, "best_family_"):
        found = {"family": router.best_family_, **found}
    return Choices(chosen, found, time.perf_counter() - start)


def _plain(value: Any) -> Any:
    """A parameter as JSON knows it."""
    if isinstance(value, (np.ndarray, tuple, list)):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value
