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
from mild.distributed.shards.solving import check_router, chosen_rows, solve_sharded
from mild.distributed.shards.sums import CostStats, merged_marks
from mild.distributed.shards.worker import PartitionSummary, Setup
from mild.distributed.shards.workers import Workers, in_order
from mild.errors import InvalidInputError
from mild.evaluation.tasks import CostTerms, Task, contents, make_task, task_notes
from mild.evaluation.tasks.training_queries import TrainingQueryIndex
from mild.features import TextFeatures, make_features
from mild.features.embedding import scale_rows
from mild.features.hashing import HashingFeatures
from mild.metrics import expert_shares
from mild.policies import ConstantPolicy
from mild.routers.constant import ConstantRouter
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
    report = progress or (lambda done, total, message: None)
    for _ in range(2):
        step = _unfitted(dataset, text, text_options)
        with open_workers(dataset) as workers:
            report(0, 2, "reading the costs")
            answers = workers.call("survey", step if isinstance(step, HashingFeatures) else None)
            found = in_order([own for own, _ in answers])
            stats: CostStats = reduce(add, [own for own, _ in found])
            if stats.rows < 2:
                raise InvalidInputError(
                    f"{dataset.source}: a table to learn from must have at least two rows in which an "
                    f"expert was asked; this has {stats.rows}."
                )
            if stats.asked.all():
                cells: Cells = reduce(add, [own for _, own in found])
                lost = sum(part.rows for part in dataset.partitions) - stats.rows
                findings = [unasked_rows(lost)] if lost else []
                findings += cells.findings(dataset.expert_names)
                rows = {
                    part.number: own.rows
                    for part, (own, _) in zip(dataset.partitions, found, strict=True)
                }
                counts = [counts for _, counts in answers if counts is not None]
                _fit_step(step, workers, rows, reduce(add, counts) if counts else None)
                scaled = step.kind == "vectors" if standardize is None else standardize
                fitted = _fit(
                    dataset,
                    terms,
                    router,
                    workers,
                    Setup(step, rows),
                    stats,
                    scaled,
                    folder,
                    report,
                )
                return replace(fitted, findings=tuple(findings))
        # Experts that were never asked are left out, and everything is read again without them.
        names = zip(dataset.expert_names, stats.asked.tolist(), strict=True)
        dataset = dataset.only([name for name, asked in names if asked])
    raise InvalidInputError(f"{dataset.source} changed while it was read; run it again.")


def _unfitted(
    dataset: Dataset, text: str | None, options: Mapping[str, Any] | None
) -> TextFeatures:
    """The feature step for a dataset, as for a task: hashing where there are queries, else vectors."""
    step = make_features(
        text or ("vectors" if dataset.query is None else "hashing"), **(options or {})
    )
    if step.kind == "vectors" and dataset.vectors is None:
        raise InvalidInputError(
            "text 'vectors' needs a column of vectors in the table, such as embedding, and it has none.",
            parameter="text",
        )
    if step.kind != "vectors" and dataset.query is None:
        raise InvalidInputError(
            f"text {step.kind!r} needs queries, and the table has only vectors; use 'vectors'.",
            parameter="text",
        )
    return step


def _fit_step(step: TextFeatures, workers: Workers, rows: Mapping[int, int], counts: Any) -> None:
    """Fit the features as one table would, from counts of all texts and a sample of them."""
    n = sum(rows.values())

    def take(numbers: IntArray) -> OutcomeTable:
        found = in_order(workers.call("take", _by_partition(numbers, rows)))
        return concatenate([table for tables in found for table in tables])

    if isinstance(step, HashingFeatures):
        sampled = step.sample_rows(n)
        step.fit_counts(counts, take(np.arange(n) if sampled is None else sampled).queries)
    elif step.kind == "vectors":
        vectors = take(np.arange(1)).vectors
        step.fit([] if vectors is None else vectors)
    else:
        step.fit(take(scale_rows(n)).queries)


def _fit(
    dataset: Dataset,
    terms: CostTerms,
    router: LinearRouter,
    workers: Workers,
    setup: Setup,
    stats: CostStats,
    scaled: bool,
    folder: Path | None,
    report: Progress,
) -> ShardedFit:
    """Second pass, in which features are made, and as many as the solver needs."""
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline

    step, names = setup.step, dataset.expert_names
    cheapest = np.flatnonzero(stats.always)
    scaled = scaled and not cheapest.size
    report(1, 2, "making features")
    sampled = _by_partition(chosen_rows(stats.rows), setup.rows)
    answers = workers.call("make_features", setup, scaled, sampled)
    summaries: list[PartitionSummary] = in_order([own for own, _ in answers])
    task = make_task(concatenate([table for one in summaries for table in one.sample]), terms)
    features = step.transform(contents(task, step))
    expert = int(cheapest[0]) if cheapest.size else None
    router = clone(router) if expert is None else ConstantRouter(expert)
    router.n_experts_, router.expert_names_ = len(names), names
    router.n_features_in_ = step.n_features
    model: Any = router
    counts: dict[str, Any] = {}
    if expert is not None:
        means = (stats.totals / stats.asked).astype(np.float32)
        router.policy_ = ConstantPolicy(means, step.n_features, expert)
        only = f"{names[expert]} is the only expert"
        why = f"in no row does another expert cost less than {names[expert]}"
        counts["settled"] = (
            f"there is nothing to route: {only if len(names) == 1 else why}. The router always asks "
            f"{names[expert]}."
        )
    else:
        X = np.array(features)
        if scaled:
            moments = [one.moments for one in summaries if one.moments is not None]
            scaler = reduce(add, moments).scaler()
            X = scaler.transform(X)
            setup = replace(setup, scaler=scaler)
            model = make_pipeline(scaler, router)
        router.policy_, objective = solve_sharded(
            router,
            workers,
            setup,
            stats,
            X,
            task.costs,
            folder,
            lambda number, value: report(2, 2, f"evaluation {number}, objective {value:.8g}"),
        )
        counts = {"evaluations": objective.evaluations, "remembered": objective.remembered}
    digests = "".join(one.fingerprint for one in summaries)
    return ShardedFit(
        model,
        step,
        dataset,
        stats.rows,
        task,
        features,
        hashlib.sha256(digests.encode()).hexdigest(),
        merged_marks(*(seen for _, seen in answers)),
        **counts,
    )


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
        "form": dataset.layout.form,
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
