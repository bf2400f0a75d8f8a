"""Fit one router, without a search."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.artifact import Router, fingerprint
from mild.artifact.info import DataInfo
from mild.artifact.sources import source_of
from mild.core.arrays import FloatArray, IntArray, invalid
from mild.data import Matrices, OutcomeTable, read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import DegenerateDataWarning, check_arguments
from mild.features import TextFeatures
from mild.tuning.fitting import (
    as_given,
    fit_task,
    fit_texts,
    make_router,
    make_step,
    router_of,
    set_order,
    standardized,
)
from mild.tuning.tasks import Progress, Task, check_rows, fitting_order, make_task


@check_arguments
def fit(
    data: Any,
    router: Any = "linear",
    *,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
    text: str | TextFeatures | None = None,
    balance: str | None = None,
    standardize: bool | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
    **params: Any,
) -> Router:
    """Fit one router on past queries and on how well each expert answered them.

    The cost of an answer is ``error + beta + price_weight * dollars + latency_weight * seconds``.

    Parameters
    ----------
    data : OutcomeTable, or whatever ``mild.read_outcomes`` takes; or ``mild.data.Matrices``
    router : "linear", "regression", "knn", "priced", "constant", "neural" or "transformer"; or
        an unfitted router of ``mild.routers``
    beta : what asking an expert costs, in wrong answers: ``{"large": 0.5}``; the others cost nothing
    price_weight, latency_weight : wrong answers that one dollar, and one second, is worth
    text : "hashing" (the default), "static", "encoder", "hashing+encoder", "vectors" for the vectors of the
        table, or unfitted features of ``mild.features``
    balance : column whose values count alike, however many rows each has
    standardize : whether features are scaled to mean 0 and standard deviation 1; None for all but texts
    random_state : seed
    progress : callable(done, total, message) or None
    **params : parameters of the router, such as ``loss="tdef"`` or ``alpha=0.01``

    Returns
    -------
    Router

    Examples
    --------
    >>> import mild
    >>> from mild.data.datasets import load_outcomes
    >>> router = mild.fit(load_outcomes(), loss="tdef", price_weight=50)
    >>> router.route(["What is 17 * 23?"])  # doctest: +ELLIPSIS
    ['...']
    """
    terms = CostTerms(beta, price_weight, latency_weight)
    unfitted = make_router(router, params, random_state, fit)
    fitted = fit_data(data, unfitted, terms, text, balance, standardize, progress)
    if fitted.task is not None and fitted.task.left_out is not None:
        warnings.warn(fitted.task.left_out, DegenerateDataWarning, stacklevel=2)
    return fitted.router


@dataclass(frozen=True, eq=False)
class FittedData:
    """A router with the features of the rows that it was fitted on."""

    router: Router
    features: Any  # (n_samples, n_features) of the training rows
    task: Task | None = None  # None for a table of features and costs
    costs: Any = None  # of a table of features and costs
    note: str | None = None  # why there was nothing to learn, in a sentence

    @property
    def notes(self) -> list[str]:
        """What to know about the rows that were used."""
        left_out = None if self.task is None else self.task.left_out
        return [sentence for sentence in (left_out, self.note) if sentence is not None]

    def as_dict(self) -> dict[str, Any]:
        """What ``mild fit --json`` prints about the router."""
        router, estimator = self.router, self.router.info.estimator
        found = {
            "kind": router.policy.shown.kind,
            "estimator": None if estimator is None else estimator.as_dict(),
            "n_features": router.n_features,
            "margins": router.margins,
            "notes": self.notes,
        }
        if self.task is not None:
            found["text"] = None if router.text is None else router.text.kind
            found |= {"cost": self.task.cost, "balance": self.task.balance}
        return found


def fit_data(
    data: Any,
    unfitted: Any,
    terms: CostTerms,
    text: str | TextFeatures | None = None,
    balance: str | None = None,
    standardize: bool | None = None,
    progress: Progress | None = None,
) -> FittedData:
    """Fit a copy of a router on a table; the arguments are those of ``fit``."""
    from sklearn.base import clone

    unfitted = clone(unfitted)
    name = type(unfitted).__name__
    if isinstance(data, Matrices):
        if name in ("PricedRouter", "TransformerRouter"):
            learns = "prices" if name == "PricedRouter" else "queries"
            rule = f"{name} learns from {learns}, and this is a table of features and costs"
            raise invalid("router", f"must fit the table; {rule}.")
        return fit_matrices(data, unfitted, standardize is not False)
    table = data if isinstance(data, OutcomeTable) else read_outcomes(data, part="train")
    task = make_task(table, terms, balance=balance)
    check_rows(task)
    # Under other prices, which a priced router accepts later, another expert may be best.
    if task.constant_expert is not None and name != "PricedRouter":
        return fit_constant(task)
    order = task.fitting_order
    task = task.in_order(order)
    set_order(unfitted, order)
    if hasattr(unfitted, "text_features"):
        if text is not None or standardize:
            rule = (
                "is for routers that read features; a transformer router reads the queries itself."
            )
            raise invalid("standardize" if text is None else "text", rule)
        if progress is not None:
            unfitted.set_params(progress=progress)
        fitted = fit_texts(task, unfitted)
    else:
        step = make_step(table, text, progress)
        scale = step.kind == "vectors" if standardize is None else standardize
        fitted = fit_task(task, standardized(unfitted, scale), step)
    return FittedData(router_of(fitted, task), fitted.features, task.as_given())


def fit_matrices(table: Matrices, unfitted: Any, scale: bool) -> FittedData:
    """Fit a router on a table of features and costs."""
    order, costs = in_matrix_order(table)
    set_order(unfitted, order)
    model = standardized(unfitted, scale).fit(table.X, costs)
    return FittedData(matrix_router(model, table), table.X, costs=table.costs)


def in_matrix_order(table: Matrices) -> tuple[IntArray, FloatArray]:
    """The order (n_experts,) in which routers are fitted on a table of features and costs, and its costs.

    Mean costs take the place of mean scores. Experts without names stay as they are.
    """
    costs = table.costs_of(table.expert_names)
    if not table.experts_named:
        return np.arange(costs.shape[1]), costs
    order = fitting_order(table.expert_names, -costs)
    return order, costs[:, order]


def matrix_router(model: Any, table: Matrices) -> Router:
    """The router of a model that was fitted on a table ``in_matrix_order``."""
    source = as_given(source_of(model), in_matrix_order(table)[0])
    data = DataInfo(fingerprint(table.X, table.costs), table.rows)
    return replace(
        source,
        expert_names=table.expert_names,
        feature_names=table.feature_names,
        info=replace(source.info, data=data),
    )


def fit_constant(task: Task) -> FittedData:
    """The constant of a task in which one expert costs least in every row."""
    from mild.routers import ConstantRouter

    fitted = fit_task(task, ConstantRouter(task.constant_expert), make_step(task.table))
    return FittedData(router_of(fitted, task), fitted.features, task, note=task.constant_reason)
