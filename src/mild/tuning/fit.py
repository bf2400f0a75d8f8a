"""Fit one router, without a search."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mild.artifact import Router
from mild.core.arrays import invalid
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import DegenerateDataWarning, check_arguments
from mild.features import TextFeatures
from mild.tuning.fitting import (
    fit_task,
    is_scaled,
    make_router,
    make_saved_router,
    settle_ties,
    standardized,
    table_text_features,
)
from mild.tuning.tasks import Progress, Task, check_rows, make_task


@check_arguments
def fit(
    data: Any,
    router: Any = "linear",
    *,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
    text: str | TextFeatures | None = None,
    standardize: bool | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
    **params: Any,
) -> Router:
    """Fit one router on past queries and on how well each expert answered them.

    The cost of an answer is ``error + beta + price_weight * dollars + latency_weight * seconds``.

    Parameters
    ----------
    data : Outcomes, or whatever ``mild.read_outcomes`` takes
    router : "linear", "ridge", "knn", "priced", "constant" or "neural"; in Python also an
        unfitted router of ``mild.routers``
    beta : what asking an expert costs, in wrong answers: ``{"large": 0.5}``; the others cost nothing
    price_weight : wrong answers that one dollar is worth
    latency_weight : wrong answers that one second is worth
    text : text features: "hashing" (the default), "encoder", "hashing+encoder", or "vectors" for
        the vectors of the table; in Python also unfitted features of ``mild.features``
    standardize : whether features are scaled to mean 0 and standard deviation 1; None for all but texts
    random_state : seed of the random numbers
    progress : callable(done, total, message) or None
    **params : parameters of the router, such as ``loss="tdef"`` or ``alpha=0.01``

    Returns
    -------
    Router

    Examples
    --------
    >>> import mild
    >>> from mild.datasets import load_outcomes
    >>> router = mild.fit(load_outcomes(), loss="tdef", price_weight=50)
    >>> router.route(["What is 17 * 23?"])  # doctest: +ELLIPSIS
    ['...']
    """
    terms = CostTerms(beta, price_weight, latency_weight)
    unfitted = make_router(router, params, random_state, fit)
    fitted = fit_data(data, unfitted, terms, text, standardize, progress)
    if fitted.task.left_out is not None:
        warnings.warn(fitted.task.left_out, DegenerateDataWarning, stacklevel=2)
    return fitted.router


@dataclass(frozen=True, eq=False)
class FittedData:
    """A router with the features of the rows that it was fitted on."""

    router: Router
    features: Any  # (n_samples, n_features) of the training rows
    task: Task
    note: str | None = None  # why there was nothing to learn, in a sentence

    @property
    def notes(self) -> list[str]:
        """Sentences about rows that were left out, or why there was nothing to learn."""
        return [sentence for sentence in (self.task.left_out, self.note) if sentence is not None]

    def as_dict(self) -> dict[str, Any]:
        """Return what ``mild fit --json`` prints about the router."""
        router = self.router
        estimator = None
        if router.info.estimator is not None:
            estimator = router.info.estimator.as_dict()
        text = None
        if router.text is not None:
            text = router.text.kind
        return {
            "kind": router.policy.kind,
            "estimator": estimator,
            "n_features": router.n_features,
            "margins": router.margins,
            "notes": self.notes,
            "text": text,
            "cost": self.task.cost,
        }


def fit_data(
    data: Any,
    unfitted: Any,
    terms: CostTerms,
    text: str | TextFeatures | None = None,
    standardize: bool | None = None,
    progress: Progress | None = None,
) -> FittedData:
    """Fit a copy of a router on a table; the arguments are those of ``fit``."""
    from sklearn.base import clone

    unfitted = clone(unfitted)
    name = type(unfitted).__name__
    table = read_outcomes(data)
    if table.given_costs is not None and name == "PricedRouter":
        rule = "PricedRouter learns from prices, and this is a table of numbers"
        raise invalid("router", f"must fit the table; {rule}.")
    task = make_task(table, terms)
    check_rows(task)
    # Under other prices, which a priced router accepts later, another expert may be best.
    if task.constant_expert is not None and name != "PricedRouter":
        return fit_constant(task)
    settle_ties(unfitted)
    text_features = table_text_features(table, text, progress)
    model = standardized(unfitted, is_scaled(standardize, text_features))
    fitted = fit_task(task, model, text_features)
    return FittedData(make_saved_router(fitted, task), fitted.features, task)


def fit_constant(task: Task) -> FittedData:
    """Return the router that always asks one expert, for a task in which it costs least in every row."""
    from mild.routers import ConstantRouter

    fitted = fit_task(task, ConstantRouter(task.constant_expert), table_text_features(task.table))
    return FittedData(
        make_saved_router(fitted, task), fitted.features, task, note=task.constant_reason
    )
