"""Figures of choices on a task."""

from __future__ import annotations

from typing import Any

from mild.core.arrays import IntArray
from mild.evaluation.figures import RoutingFigures, routing_figures
from mild.tuning.tasks import Task


def task_figures(task: Task, chosen: IntArray, **options: Any) -> RoutingFigures:
    """Rows with equal queries, or of one group, count as one."""
    about = (task.table.experts, task.groups, task.unit)
    return routing_figures(task.outcomes, chosen, *about, **options)
