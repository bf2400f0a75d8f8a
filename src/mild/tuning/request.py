"""What was asked of ``mild.tune``, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mild.artifact.targets import Target
from mild.core.arrays import IntArray
from mild.features import TextFeatures
from mild.tuning.fitting import table_text_features
from mild.tuning.tasks import (
    Progress,
    Task,
    fewer_folds,
    parallel_jobs,
    possible_folds,
    search_folds,
)

# Steps that one stage of a progress bar has.
STAGE_STEPS = 1_000


@dataclass(frozen=True)
class Stage:
    """One of several stages of a progress bar: its own progress is a part of the whole bar's."""

    progress: Progress | None
    number: int
    n_stages: int

    def __call__(self, done: int, total: int, message: str) -> None:
        if self.progress is None:
            return
        within = round(STAGE_STEPS * done / max(total, 1))
        self.progress(STAGE_STEPS * self.number + within, STAGE_STEPS * self.n_stages, message)


@dataclass(frozen=True, eq=False)
class TuneRequest:
    """What was asked of ``tune``.

    Attributes
    ----------
    task : the rows and their costs
    target : quality and dollars that are asked for, if any
    search : unfitted RouterCV
    max_calls : experts that a cascade asks about one query at most; 0 for no cascade
    text : name of text features, or features
    time : column of times, or None
    random_state : seed
    progress : callable(done, total, message) or None
    notes : what to know about the rows; more are added
    """

    task: Task
    target: Target
    search: Any
    max_calls: int
    text: str | TextFeatures | None
    time: str | None
    random_state: int
    progress: Progress | None
    notes: list[str] = field(default_factory=list)

    @property
    def n_jobs(self) -> int | None:
        """Parallel workers."""
        return parallel_jobs(self.search.n_jobs, len(self.task.table))

    def folds(self, task: Task) -> list[tuple[IntArray, IntArray]]:
        """The folds of a task; fewer than were asked for are noted."""
        n_folds = self.search.cv
        possible = possible_folds(task, n_folds, self.time)
        fewer = fewer_folds(n_folds, possible, task)
        if fewer is not None:
            self.notes.append(fewer)
        if possible >= 2:
            n_folds = possible
        return search_folds(task, n_folds, self.time, self.random_state)

    def stage(self, number: int) -> Stage:
        """A stage of the progress: 0 for the search or the trade-offs, 1 for cascades if there are any."""
        n_stages = 1
        if self.max_calls:
            n_stages = 2
        return Stage(self.progress, number, n_stages)

    def text_features(self, task: Task) -> TextFeatures | None:
        """Unfitted text features for a task; None for a table of numbers."""
        return table_text_features(task.table, self.text, self.progress)
