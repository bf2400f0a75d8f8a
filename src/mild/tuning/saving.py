"""Save a router, with what is recorded about the table that it was fitted on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact import Router
from mild.artifact import save as save_router
from mild.artifact.router import in_order_of
from mild.artifact.sources import as_router
from mild.core.arrays import invalid
from mild.data import Outcomes, read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import check_arguments
from mild.features import TextFeatures
from mild.tuning.fitting import Fitted, make_saved_router, table_features
from mild.tuning.tasks import make_task


@check_arguments
def save(
    router: Any,
    folder: str | os.PathLike[str],
    *,
    experts: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    data: tuple[Any, Any] | Mapping[str, Any] | None = None,
    text: TextFeatures | None = None,
    notes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    query_hashes: NDArray[np.uint64] | None = None,
    table: Any = None,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
) -> Path:
    """Write a fitted router to a folder, as JSON and safetensors; ``mild.load`` reads it.

    Parameters
    ----------
    router : fitted router, ``Router``, or a Pipeline that ends in a router and may begin with text features
    folder : folder to write; it must not exist yet or must be empty, unless ``overwrite``
    experts, feature_names, data, text, notes, query_hashes : as in ``mild.artifact.save``
    overwrite : whether an existing router may be replaced
    table : the table that the router was fitted on, or anything that ``mild.read_outcomes`` accepts. If
        given, the names of the experts, the terms of the cost, prices and hashes of the training queries
        are saved as well
    beta, price_weight, latency_weight : the terms of the cost, as passed to ``table.costs``; only with
        ``table``

    Returns
    -------
    Path of the folder

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.pipeline import make_pipeline
    >>> import mild
    >>> from mild.datasets import load_outcomes
    >>> from mild.features import HashingFeatures
    >>> table = load_outcomes()
    >>> pipeline = make_pipeline(HashingFeatures(n_components=16), mild.LinearRouter())
    >>> pipeline = pipeline.fit(table.queries, table.costs(price_weight=50))
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     folder = mild.save(pipeline, parent + "/router", table=table, price_weight=50)
    ...     mild.load(folder).experts
    ['gemma3', 'rules', 'smollm2']
    """
    terms = CostTerms(beta, price_weight, latency_weight)
    if table is None:
        _refuse_terms(terms)
    else:
        router = _with_table(router, read_outcomes(table), terms, text)
    return save_router(
        router,
        folder,
        experts=experts,
        feature_names=feature_names,
        data=data,
        text=text,
        notes=notes,
        overwrite=overwrite,
        query_hashes=query_hashes,
    )


def _refuse_terms(terms: CostTerms) -> None:
    """Refuse terms of a cost without the table that they belong to."""
    for name, value in terms.as_dict().items():
        if value is not None:
            rule = "is a term of the cost of a table; pass the table as well (table=)."
            raise invalid(name, rule)


def _with_table(
    router: Any, table: Outcomes, terms: CostTerms, text: TextFeatures | None
) -> Router:
    """Return the router with what is recorded about the table that it was fitted on, such as its cost."""
    source = as_router(router)
    text_features = text
    if text_features is None:
        text_features = source.text
    if text_features is None and table.given_costs is None:
        rule = (
            "must be a table of numbers, because the router was fitted on numbers; or leave it out."
        )
        raise invalid("table", rule)
    if source.n_experts != len(table.experts):
        rule = f"must have the router's {source.n_experts} experts; got {len(table.experts)}."
        raise invalid("table", rule)
    if set(source.experts) == set(table.experts):
        source = in_order_of(source, table.experts)
    task = make_task(table, terms)
    fitted = Fitted(source, text_features, table_features(task.table, text_features))
    return make_saved_router(fitted, task)
