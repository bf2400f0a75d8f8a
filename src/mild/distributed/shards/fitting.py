"""From a dataset of many files to a router: a few passes to learn the features, then the solver."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mild.core.arrays import IntArray
from mild.data import OutcomeTable
from mild.data.data_quality import Cells, Finding, unasked_rows
from mild.distributed.shards.dataset import Dataset
from mild.distributed.shards.joining import joined
from mild.distributed.shards.setup import Read, Setup, StepState
from mild.distributed.shards.solving import Sample, check_router, chosen_rows, solve_sharded
from mild.distributed.shards.sums import Moments, Survey, merged_marks
from mild.distributed.shards.workers import Workers
from mild.errors import InvalidInputError
from mild.evaluation.tasks import CostTerms, Task, make_task
from mild.evaluation.tasks.fitting import contents
from mild.evaluation.tasks.training_queries import TrainingQueryIndex
from mild.features import TextFeatures, make_features
from mild.features.embedding import scale_rows
from mild.features.hashing import HashingFeatures
from mild.policies import ConstantPolicy
from mild.routers.constant import ConstantRouter
from mild.routers.linear import LinearRouter

__all__ = ["ShardedFit", "fit_shards"]

Progress = Callable[[int, int, str], None]
#: Dataset -> workers that hold it, for as long as the context lasts.
Hire = Callable[[Dataset], AbstractContextManager[Workers]]


@dataclass(frozen=True, eq=False)
class ShardedFit:
    """A router and its features, fitted on a dataset of many files.

    Attributes
    ----------
    model : router, or Pipeline of a scaler and a router
    step : texts or vectors to features
    dataset : what it was fitted on, experts that were never asked left out
    rows : rows in which somebody was asked
    task : the sample that the solver began with, as a task
    features : (m, d) of the sample's rows, before they are scaled
    fingerprint : of features and costs, in the order of the parts
    seen : marks of the queries
    findings : what is odd about the outcomes
    settled : why there was nothing to route, or None
    evaluations : how often the objective was evaluated
    remembered : how many of these an earlier run had written down
    """

    model: Any
    step: TextFeatures
    dataset: Dataset
    rows: int
    task: Task
    features: Any
    fingerprint: str
    seen: TrainingQueryIndex
    findings: tuple[Finding, ...] = ()
    settled: str | None = None
    evaluations: int = 0
    remembered: int = 0


def fit_shards(
    dataset: Dataset,
    terms: CostTerms,
    router: Any,
    hire: Hire,
    *,
    text: str | None = None,
    text_options: Mapping[str, Any] | None = None,
    standardize: bool | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> ShardedFit:
    """Fit a linear router on all rows of a dataset; the optimum is that of the same rows in one table.

    Parameters
    ----------
    dataset : where the rows are
    terms : what counts as a cost
    router : unfitted LinearRouter
    hire : dataset -> context of workers that hold it
    text, text_options : how queries become features, as for ``mild.evaluation.tasks.make_step``
    standardize : whether features are scaled; None for what their kind asks for
    folder : where evaluations are written down, so that a fit that was killed can go on
    progress : called as ``progress(done, total, message)``
    """
    check_router(router)
    for _ in range(2):
        step = _unfitted(dataset, text, text_options)
        with hire(dataset) as workers:
            job = _Job(dataset, terms, router, workers, step, folder, progress)
            job.survey()
            kept = job.asked_experts()
            if len(kept) == len(dataset.expert_names):
                return job.fit(step.kind == "vectors" if standardize is None else standardize)
        # Experts that were never asked are no experts: everything is read without them.
        dataset = dataset.only(kept)
    raise InvalidInputError(f"{dataset.source} changed while it was read; run it again.")


class _Job:
    """One fit, pass by pass."""

    def __init__(
        self,
        dataset: Dataset,
        terms: CostTerms,
        router: LinearRouter,
        workers: Workers,
        step: TextFeatures,
        folder: Path | None,
        progress: Progress | None,
    ) -> None:
        self.dataset = dataset
        self.terms = terms
        self.router = router
        self.workers = workers
        self.step = step
        self.folder = folder
        self.progress = progress
        self.rows: dict[int, int] = {}
        self.counts: Any = None

    def survey(self) -> None:
        """First pass: how many rows, who was asked, what it cost; which terms the texts have."""
        self._say(0, "surveying the shards")
        counted = self.step if isinstance(self.step, HashingFeatures) else None
        answers = self.workers.ask("survey", counted)
        found = _ordered(one for lot, _ in answers for one in lot)
        self.rows = {number: one.rows for number, one, _ in found}
        self.whole: Survey = _added([one for _, one, _ in found])
        self.cells: Cells = _added([cells for _, _, cells in found])
        self.counts = _added([counts for _, counts in answers if counts is not None])
        if self.whole.rows < 2:
            raise InvalidInputError(
                f"{self.dataset.source}: a table to learn from must have at least two rows in which an "
                f"expert was asked; this has {self.whole.rows}."
            )

    def asked_experts(self) -> list[str]:
        """Experts that were asked at least once."""
        asked = zip(self.dataset.expert_names, self.whole.asked.tolist(), strict=True)
        return [name for name, rows in asked if rows]

    def fit(self, scaled: bool) -> ShardedFit:
        """Second pass, in which features are made, and as many as the solver needs."""
        self._learn_step()
        settled = np.flatnonzero(self.whole.always)
        scaled = scaled and not settled.size
        setup = Setup(StepState.of(self.step), self.rows)
        self._say(1, "making features")
        picked = _by_part(chosen_rows(self.whole.rows), self.rows)
        answers = self.workers.ask("read", setup, scaled, picked)
        told: list[Read] = [
            one for _, one in _ordered((r.number, r) for a, _ in answers for r in a)
        ]
        seen = merged_marks(*(marks for _, marks in answers))
        task = make_task(joined([one.sample for one in told if one.sample is not None]), self.terms)
        features = self.step.transform(contents(task, self.step))
        result = ShardedFit(
            None,
            self.step,
            self.dataset,
            self.whole.rows,
            task,
            features,
            hashlib.sha256("".join(one.fingerprint for one in told).encode()).hexdigest(),
            seen,
            self._findings(),
        )
        if settled.size:
            return self._settled(result, int(settled[0]))
        moments: Moments | None = _added([one.moments for one in told if one.moments is not None])
        return self._solved(result, setup, None if moments is None else moments.scaler())

    def _findings(self) -> tuple[Finding, ...]:
        lost = sum(part.rows for part in self.dataset.parts) - self.whole.rows
        dropped = [unasked_rows(lost)] if lost else []
        return *dropped, *self.cells.findings(self.dataset.expert_names)

    def _solved(self, result: ShardedFit, setup: Setup, scaler: Any) -> ShardedFit:
        from sklearn.base import clone
        from sklearn.pipeline import make_pipeline

        X = np.array(result.features)
        if scaler is not None:
            X = scaler.transform(X)
            setup = replace(setup, scaler=scaler)
        router = clone(self.router)
        names = self.dataset.expert_names
        router.n_experts_, router.expert_names_, router.n_features_in_ = (
            len(names),
            names,
            X.shape[1],
        )
        sample = Sample(X, result.task.costs, len(X) == self.whole.rows)
        router.policy_, objective = solve_sharded(
            router, self.workers, setup, self.whole, sample, self.folder, self._told
        )
        return replace(
            result,
            model=router if scaler is None else make_pipeline(scaler, router),
            evaluations=objective.evaluations,
            remembered=objective.remembered,
        )

    def _settled(self, result: ShardedFit, expert: int) -> ShardedFit:
        """The constant, where one expert costs least in every row."""
        names = self.dataset.expert_names
        router = ConstantRouter(expert)
        means = (self.whole.totals / self.whole.asked).astype(np.float32)
        router.policy_ = ConstantPolicy(means, self.step.n_features, expert)
        router.n_experts_, router.expert_names_ = len(names), names
        router.n_features_in_ = self.step.n_features
        name = names[expert]
        only = f"{name} is the only expert"
        why = only if len(names) == 1 else f"in no row does another expert cost less than {name}"
        words = f"there is nothing to route: {why}. The router always asks {name}."
        return replace(result, model=router, settled=words)

    def _learn_step(self) -> None:
        """Fit the features as one table would, from counts of all texts and from some of them."""
        n, step = self.whole.rows, self.step
        if isinstance(step, HashingFeatures):
            rows = step.sample_rows(n)
            step.fit_counts(self.counts, self._take(np.arange(n) if rows is None else rows).queries)
        elif step.kind == "vectors":
            vectors = self._take(np.arange(1)).vectors
            step.fit([] if vectors is None else vectors)
        else:
            step.fit(self._take(scale_rows(n)).queries)

    def _take(self, rows: IntArray) -> OutcomeTable:
        answers = self.workers.ask("take", _by_part(rows, self.rows))
        return joined([one for _, one in _ordered(a for lot in answers for a in lot)])

    def _say(self, done: int, message: str) -> None:
        if self.progress is not None:
            self.progress(done, 2, message)

    def _told(self, number: int, value: float) -> None:
        self._say(2, f"evaluation {number}, objective {value:.8g}")


def _unfitted(
    dataset: Dataset, text: str | None, options: Mapping[str, Any] | None
) -> TextFeatures:
    """The feature step for a dataset, as for a task: hashing where there are queries, else vectors."""
    shape = dataset.shape
    if text is None:
        text = "vectors" if shape.query is None else "hashing"
    step = make_features(text, **(options or {}))
    if step.kind == "vectors" and shape.vectors is None:
        raise InvalidInputError(
            "text 'vectors' needs a column of vectors in the table, such as embedding, and it has none."
        )
    if step.kind != "vectors" and shape.query is None:
        raise InvalidInputError(
            f"text {step.kind!r} needs queries, and the table has only vectors; use 'vectors'."
        )
    return step


def _by_part(rows: IntArray, counted: Mapping[int, int]) -> dict[int, IntArray]:
    """Ascending numbers of rows, as part -> numbers within it."""
    numbers = sorted(counted)
    ends = np.cumsum([counted[number] for number in numbers])
    found: dict[int, IntArray] = {}
    for place, number in enumerate(numbers):
        start = int(ends[place]) - counted[number]
        low, high = np.searchsorted(rows, [start, int(ends[place])])
        if high > low:
            found[number] = rows[low:high] - start
    return found


def _ordered(answers: Any) -> list[Any]:
    return sorted(answers, key=lambda answer: answer[0])


def _added(terms: Sequence[Any]) -> Any:
    """The sum of all in order; None of none."""
    total = terms[0] if terms else None
    for term in terms[1:]:
        total = total + term
    return total
