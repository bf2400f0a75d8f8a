"""From a dataset of many files to a saved router: two passes to learn the features, then the solver."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from mild.artifact import save
from mild.artifact.sources import source_of
from mild.core.arrays import IntArray
from mild.data import OutcomeTable
from mild.data.data_quality import Cells, Finding, unasked_rows
from mild.distributed.shards.dataset import Dataset, concatenate
from mild.distributed.shards.solving import Sample, check_router, chosen_rows, solve_sharded
from mild.distributed.shards.sums import CostStats, Moments, merged_marks
from mild.distributed.shards.worker import PartitionSummary, Setup, StepState
from mild.distributed.shards.workers import Workers, in_order
from mild.errors import InvalidInputError
from mild.evaluation.tasks import CostTerms, Task, contents, make_task, task_notes
from mild.evaluation.tasks.training_queries import TrainingQueryIndex
from mild.features import TextFeatures, make_features
from mild.features.embedding import scale_rows
from mild.features.hashing import HashingFeatures
from mild.metrics import expert_shares
from mild.policies import ConstantPolicy
from mild.routers.baselines import ConstantRouter
from mild.routers.linear import LinearRouter

__all__ = ["ShardedFit", "fit_shards", "save_shards"]

Progress = Callable[[int, int, str], None]
#: Dataset -> context of workers that hold it.
OpenWorkers = Callable[[Dataset], AbstractContextManager[Workers]]


@dataclass(frozen=True, eq=False)
class ShardedFit:
    """A router and its features, fitted on a dataset of many files.

    Attributes
    ----------
    model : router, or Pipeline of a scaler and a router
    step : texts or vectors to features
    dataset : what it was fitted on, without experts that were never asked
    rows : rows in which an expert was asked
    task : the sample that the solver started with, as a task
    features : (m, d) of the sample's rows, before they are scaled
    fingerprint : of features and costs, in the order of the partitions
    seen : hashes of the queries
    findings : what is odd about the outcomes
    settled : why there was nothing to route, or None
    evaluations : how often the objective was evaluated
    remembered : how many of these an earlier run had saved
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
    open_workers: OpenWorkers,
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
    dataset : the rows
    terms : terms of the cost
    router : unfitted LinearRouter
    open_workers : dataset -> context of workers that hold it
    text, text_options : how queries become features, as for ``mild.evaluation.tasks.make_step``
    standardize : whether features are scaled; None for vectors only
    folder : where evaluations are saved, so that a fit that was killed can continue
    progress : called as ``progress(done, total, message)``
    """
    check_router(router)
    for _ in range(2):
        step = _unfitted(dataset, text, text_options)
        with open_workers(dataset) as workers:
            fit = _Fit(dataset, terms, router, workers, step, folder, progress)
            asked = fit.asked_experts()
            if len(asked) == len(dataset.expert_names):
                return fit.run(step.kind == "vectors" if standardize is None else standardize)
        # Experts that were never asked are left out, and everything is read again without them.
        dataset = dataset.only(asked)
    raise InvalidInputError(f"{dataset.source} changed while it was read; run it again.")


def save_shards(fitted: ShardedFit, out: str, overwrite: bool = False) -> Path:
    """Save the router with its features, its costs, its shares and the hashes of its queries.

    The shares are those of the sample. The fingerprint is that of the partitions in their order: it does
    not depend on the engine, and differs from that of the same rows in one file.
    """
    dataset = fitted.dataset
    names = dataset.expert_names
    chosen = source_of(fitted.model).policy.predict(fitted.features)
    shares = dict(zip(names, expert_shares(chosen, len(names)).tolist(), strict=True))
    data = {"fingerprint": fitted.fingerprint, "rows": fitted.rows}
    table = {
        **data,
        "form": dataset.shape.layout.form,
        "explanation": dataset.explanation(fitted.rows),
        "shards": len(dataset.files),
    }
    notes = {
        **task_notes(fitted.task),
        "table": table,
        "marks_complete": fitted.seen.complete,
        "shares": {"rows": len(chosen), "experts": shares},
    }
    return save(
        fitted.model,
        out,
        expert_names=names,
        text=fitted.step,
        data=data,
        notes=notes,
        marks=fitted.seen.marks,
        overwrite=overwrite,
    )


class _Fit:
    """One fit; the first pass, over all costs, is made at once."""

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
        self._report(0, "reading the costs")
        answers = workers.call("survey", step if isinstance(step, HashingFeatures) else None)
        numbers = sorted(number for own, _ in answers for number, _ in own)
        found = in_order([own for own, _ in answers])
        self.rows = {n: stats.rows for n, (stats, _) in zip(numbers, found, strict=True)}
        self.stats: CostStats = reduce(add, [stats for stats, _ in found])
        self.cells: Cells = reduce(add, [cells for _, cells in found])
        self.counts = [counts for _, counts in answers if counts is not None]
        if self.stats.rows < 2:
            raise InvalidInputError(
                f"{dataset.source}: a table to learn from must have at least two rows in which an expert "
                f"was asked; this has {self.stats.rows}."
            )

    def asked_experts(self) -> list[str]:
        """Experts that were asked at least once."""
        asked = zip(self.dataset.expert_names, self.stats.asked.tolist(), strict=True)
        return [name for name, rows in asked if rows]

    def run(self, scaled: bool) -> ShardedFit:
        """Second pass, in which features are made, and as many as the solver needs."""
        self._fit_step()
        cheapest = np.flatnonzero(self.stats.always)
        scaled = scaled and not cheapest.size
        setup = Setup(StepState.of(self.step), self.rows)
        self._report(1, "making features")
        sampled = _by_partition(chosen_rows(self.stats.rows), self.rows)
        answers = self.workers.call("make_features", setup, scaled, sampled)
        summaries: list[PartitionSummary] = in_order([own for own, _ in answers])
        samples = [one.sample for one in summaries if one.sample is not None]
        task = make_task(concatenate(samples), self.terms)
        digests = "".join(one.fingerprint for one in summaries)
        result = ShardedFit(
            None,
            self.step,
            self.dataset,
            self.stats.rows,
            task,
            self.step.transform(contents(task, self.step)),
            hashlib.sha256(digests.encode()).hexdigest(),
            merged_marks(*(seen for _, seen in answers)),
            self._findings(),
        )
        if cheapest.size:
            return self._constant(result, int(cheapest[0]))
        moments: list[Moments] = [one.moments for one in summaries if one.moments is not None]
        return self._solved(result, setup, reduce(add, moments).scaler() if moments else None)

    def _findings(self) -> tuple[Finding, ...]:
        lost = sum(part.rows for part in self.dataset.partitions) - self.stats.rows
        dropped = [unasked_rows(lost)] if lost else []
        return *dropped, *self.cells.findings(self.dataset.expert_names)

    def _solved(self, result: ShardedFit, setup: Setup, scaler: Any) -> ShardedFit:
        from sklearn.base import clone
        from sklearn.pipeline import make_pipeline

        X = np.array(result.features)
        if scaler is not None:
            X = scaler.transform(X)
            setup = replace(setup, scaler=scaler)
        router = self._named(clone(self.router), X.shape[1])
        sample = Sample(X, result.task.costs, len(X) == self.stats.rows)
        router.policy_, objective = solve_sharded(
            router,
            self.workers,
            setup,
            self.stats,
            sample,
            self.folder,
            lambda number, value: self._report(2, f"evaluation {number}, objective {value:.8g}"),
        )
        return replace(
            result,
            model=router if scaler is None else make_pipeline(scaler, router),
            evaluations=objective.evaluations,
            remembered=objective.remembered,
        )

    def _constant(self, result: ShardedFit, expert: int) -> ShardedFit:
        """The constant router, where one expert costs least in every row."""
        router = self._named(ConstantRouter(expert), self.step.n_features)
        means = (self.stats.totals / self.stats.asked).astype(np.float32)
        router.policy_ = ConstantPolicy(means, self.step.n_features, expert)
        names = self.dataset.expert_names
        name = names[expert]
        only = f"{name} is the only expert"
        why = only if len(names) == 1 else f"in no row does another expert cost less than {name}"
        words = f"there is nothing to route: {why}. The router always asks {name}."
        return replace(result, model=router, settled=words)

    def _named(self, router: Any, n_features: int) -> Any:
        names = self.dataset.expert_names
        router.n_experts_, router.expert_names_ = len(names), names
        router.n_features_in_ = n_features
        return router

    def _fit_step(self) -> None:
        """Fit the features as one table would, from counts of all texts and a sample of them."""
        n, step = self.stats.rows, self.step
        if isinstance(step, HashingFeatures):
            rows = step.sample_rows(n)
            queries = self._take(np.arange(n) if rows is None else rows).queries
            step.fit_counts(reduce(add, self.counts), queries)
        elif step.kind == "vectors":
            vectors = self._take(np.arange(1)).vectors
            step.fit([] if vectors is None else vectors)
        else:
            step.fit(self._take(scale_rows(n)).queries)

    def _take(self, rows: IntArray) -> OutcomeTable:
        found = in_order(self.workers.call("take", _by_partition(rows, self.rows)))
        return concatenate([table for table in found if table is not None])

    def _report(self, done: int, message: str) -> None:
        if self.progress is not None:
            self.progress(done, 2, message)


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
            "text 'vectors' needs a column of vectors in the table, such as embedding, and it has none.",
            parameter="text",
        )
    if step.kind != "vectors" and shape.query is None:
        raise InvalidInputError(
            f"text {step.kind!r} needs queries, and the table has only vectors; use 'vectors'.",
            parameter="text",
        )
    return step


def _by_partition(rows: IntArray, counts: Mapping[int, int]) -> dict[int, IntArray]:
    """Ascending numbers of rows, as partition -> numbers within it."""
    found: dict[int, IntArray] = {}
    start = 0
    for number in sorted(counts):
        end = start + counts[number]
        low, high = np.searchsorted(rows, [start, end])
        if high > low:
            found[number] = rows[low:high] - start
        start = end
    return found
