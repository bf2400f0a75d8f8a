"""What is written about a task beside the router that was fitted on it."""

from __future__ import annotations

from typing import Any

from mild.artifact import LoadedRouter
from mild.evaluation.tasks.task import Task
from mild.evaluation.tasks.terms import CostTerms

__all__ = ["task_notes", "terms_of"]


def task_notes(task: Task) -> dict[str, Any]:
    """How queries are made, costs in words and numbers, and which table it was; JSON-ready."""
    table = task.table
    query = {} if table.recipe is None else {"query": table.recipe.as_dict()}
    return {
        **query,
        "cost": {"words": task.words, **task.terms.as_dict()},
        "table": {
            "fingerprint": table.fingerprint(),
            "rows": table.rows,
            "form": table.form,
            "explanation": table.explanation,
        },
    }


def terms_of(router: LoadedRouter) -> CostTerms | None:
    """What counted as a cost when a router was fitted; None if that was not written down."""
    notes = router.metadata.get("notes") or {}
    fields = notes.get("cost")
    return None if fields is None else CostTerms.from_dict(fields)
