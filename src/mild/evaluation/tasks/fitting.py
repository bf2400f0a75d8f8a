"""Features of a task's queries, and a router fitted on them and saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mild.artifact import save
from mild.artifact.sources import source_of
from mild.errors import InvalidInputError
from mild.evaluation.comparison import Inputs, MatrixInputs, TextInputs
from mild.evaluation.tasks.task import Task, asking_prices, check_rows, task_notes
from mild.evaluation.tasks.training_queries import TrainingQueryIndex
from mild.features import TextFeatures, make_features
from mild.metrics import expert_shares
from mild.routers.cost_models import PricedRouter

__all__ = [
    "Fitted",
    "comparison_inputs",
    "contents",
    "fit_task",
    "fit_texts",
    "make_step",
    "save_task",
]

# Training rows, at most about twice as many, whose choices tell the usual shares.
SHARE_ROWS = 5_000


def make_step(
    task: Task, text: str | None = None, options: Mapping[str, Any] | None = None
) -> TextFeatures:
    """An unfitted feature step for a task.

    Parameters
    ----------
    task : what it is for
    text : name in ``mild.features.FEATURES``; None for hashing, or for the vectors if there are no queries
    options : parameters of the step

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> from mild.evaluation.tasks import CostTerms, make_task
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["a", "b"], "correct__s": [1, 0], "correct__l": [1, 1],
    ... }))
    >>> make_step(make_task(table, CostTerms())).kind
    'hashing'
    """
    if text is None:
        if not task.has_queries and task.table.vectors is None:
            raise InvalidInputError(
                "every query is empty: there is nothing to route by. Name the column of the query, or one "
                "of vectors (--query, --vectors)."
            )
        text = "hashing" if task.has_queries else "vectors"
    step = make_features(text, **(options or {}))
    if step.kind == "vectors" and task.table.vectors is None:
        raise InvalidInputError(
            "text 'vectors' needs a column of vectors in the table, such as embedding, and it has none."
        )
    if step.kind != "vectors" and not task.has_queries:
        raise InvalidInputError(
            f"text {step.kind!r} needs queries, and the table has only vectors; use 'vectors'."
        )
    return step


def contents(task: Task, step: TextFeatures | None) -> Any:
    """What the step turns into features: queries, or vectors (n_samples, n_features)."""
    of_vectors = step is not None and step.kind == "vectors"
    return task.table.vectors if of_vectors else task.table.queries


def comparison_inputs(
    task: Task, text: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[Inputs, str]:
    """Rows for ``compare``, and the kind of their features."""
    step = make_step(task, text, options)
    if step.kind == "vectors":
        return MatrixInputs(task.table.vectors), step.kind
    return TextInputs(task.table.queries, lambda: make_step(task, text, options)), step.kind


@dataclass(frozen=True, eq=False)
class Fitted:
    """A router and the step that makes its features, both fitted.

    Attributes
    ----------
    model : router, or Pipeline that ends in one
    step : texts to features
    features : (n_samples, n_features) of the training rows
    """

    model: Any
    step: TextFeatures
    features: Any


def fit_task(
    task: Task, model: Any, step: TextFeatures, on_features: Callable[[Any], None] | None = None
) -> Fitted:
    """Learn features from the queries, then the router from features and costs.

    Parameters
    ----------
    task : what to learn from
    model : unfitted router, or Pipeline that ends in one; a PricedRouter learns errors and prices apart
    step : unfitted features
    on_features : called with the features before the router is fitted
    """
    check_rows(task)
    features = step.fit_transform(contents(task, step))
    if on_features is not None:
        on_features(features)
    steps = getattr(model, "steps", None)
    name, router = steps[-1] if steps else ("", model)
    if isinstance(router, PricedRouter):
        errors, prices, weight = asking_prices(task)
        router.set_params(price_weight=weight)
        model.fit(features, errors, **{f"{name}__prices" if steps else "prices": prices})
    else:
        model.fit(features, task.costs)
    return Fitted(model, step, features)


def fit_texts(task: Task, model: Any) -> Fitted:
    """Learn a router that reads the queries themselves, such as a TransformerRouter."""
    check_rows(task)
    model.fit(task.table.queries, task.costs)
    return Fitted(model, model.text_features(), model.features(task.table.queries))


def save_task(fitted: Fitted, task: Task, out: str, overwrite: bool = False) -> Path:
    """Write the router with its features, its costs in words, its usual shares and marks of its queries."""
    index = TrainingQueryIndex.of(task.table)
    names = task.table.expert_names
    some = fitted.features[:: 1 + task.table.rows // SHARE_ROWS]
    shares = expert_shares(source_of(fitted.model).policy.predict(some), len(names)).tolist()
    trained = {"rows": some.shape[0], "experts": dict(zip(names, shares, strict=True))}
    return save(
        fitted.model,
        out,
        expert_names=names,
        text=fitted.step,
        data=(fitted.features, task.costs),
        notes={**task_notes(task), "marks_complete": index.complete, "shares": trained},
        marks=index.marks,
        overwrite=overwrite,
    )
