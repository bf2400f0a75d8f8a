"""A task and an unfitted router to a folder on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mild.artifact import save
from mild.artifact.sources import source_of
from mild.evaluation.tasks.inputs import contents
from mild.evaluation.tasks.notes import task_notes
from mild.evaluation.tasks.pricing import asking_prices
from mild.evaluation.tasks.seen import Seen
from mild.evaluation.tasks.task import Task, check_rows
from mild.features import TextFeatures
from mild.metrics import expert_shares
from mild.routers.priced import PricedRouter

__all__ = ["Fitted", "fit_task", "fit_texts", "save_task"]

# Training rows, at most about twice as many, whose choices tell the usual shares.
SHARE_ROWS = 5_000


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
    seen = Seen.of(task.table)
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
        notes={**task_notes(task), "marks_complete": seen.complete, "shares": trained},
        marks=seen.marks,
        overwrite=overwrite,
    )
