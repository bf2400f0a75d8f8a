"""What routers see of a task: features of its queries, or the vectors that came with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mild.errors import InvalidInputError
from mild.evaluation.comparison import Inputs, MatrixInputs, TextInputs
from mild.evaluation.tasks.task import Task
from mild.features import TextFeatures, make_features

__all__ = ["comparison_inputs", "contents", "make_step"]


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
