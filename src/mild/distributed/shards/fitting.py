"""From a dataset of many files to a saved router: two passes to learn the features, then the solver."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from mild._version import __version__
from mild.artifact import Router
from mild.artifact.files import file_lock
from mild.artifact.folder import check_target
from mild.artifact.info import DataInfo, SharesInfo, TableInfo
from mild.artifact.sources import source_of
from mild.core.arrays import FloatArray, IntArray
from mild.core.losses import class_weights
from mild.data import OutcomeTable
from mild.data.cost_terms import CostTerms, left_out_rows, without_values
from mild.data.data_quality import Finding, ScoreCounts, unasked_rows
from mild.data.formats.base import ReadArguments
from mild.distributed.ray_connection import check_ray
from mild.distributed.shards.dataset import Dataset, concatenate, open_dataset
from mild.distributed.shards.workers import (
    CostStats,
    Setup,
    TargetSums,
    Workers,
    local_workers,
    ray_workers,
)
from mild.errors import (
    ArtifactError,
    DataFileError,
    InvalidInputError,
    OutputExistsError,
    UnsupportedError,
)
from mild.features import TextFeatures, check_input, make_features
from mild.features.base import scale_rows
from mild.features.hashing import HashingFeatures
from mild.metrics import expert_shares
from mild.policies import ConstantPolicy, LinearPolicy
from mild.routers.base import warn_if_degenerate
from mild.routers.baselines import ConstantRouter
from mild.routers.linear import LinearRouter
from mild.routers.objective import (
    LABEL_LOSSES,
    LinearObjective,
    Whole,
    add_penalty,
    fixed_margins,
    row_loss,
    row_targets,
    single_blas_thread,
    tie_rule,
)
from mild.routers.solver import (
    SAMPLE,
    Beginning,
    Preconditioner,
    make_beginning,
    minimise,
    sample_rows,
    second_moments,
)
from mild.tuning.fit import FittedData
from mild.tuning.fitting import contents, task_info
from mild.tuning.tasks import Progress, Task, make_task
from mild.tuning.training_rows import TrainingQueryIndex

#: Dataset -> context of workers that hold it.
OpenWorkers = Callable[[Dataset], AbstractContextManager[Workers]]


@dataclass(frozen=True, eq=False)
class ShardedFit:
    """A router and its features, fitted on a dataset of many files."""

    model: Any  # router, or Pipeline of a scaler and a router
    step: TextFeatures
    dataset: Dataset  # without experts that were never asked
    rows: int  # in which an expert was asked
    task: Task  # the sample that the solver started with
    features: Any  # (m, d) of the sample's rows, before they are scaled
    fingerprint: str  # of features and costs, in the order of the partitions
    seen: TrainingQueryIndex
    findings: tuple[Finding, ...] = ()
    constant_reason: str | None = None  # why there was nothing to route
    evaluations: int = 0
    remembered: int = 0  # evaluations that an earlier run had saved


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

    ``open_workers`` gives the workers that hold a dataset; ``text`` and ``text_options`` say how queries
    become features, as for ``make_step``; features are scaled if ``standardize``, by default vectors only.
    Evaluations are saved in ``folder``, so that a fit that was killed can continue.
    """
    check_router(router)
    report = progress or (lambda done, total, message: None)
    step = make_features(
        text or ("vectors" if dataset.query is None else "hashing"), **(text_options or {})
    )
    check_input(step, dataset.query is not None, dataset.vectors is not None)
    while True:
        with open_workers(dataset) as workers:
            report(0, 2, "reading the costs")
            hashing = next((p for p in step.parts if isinstance(p, HashingFeatures)), None)
            found, counts = workers.call("survey", hashing)
            stats: CostStats = reduce(add, [own for own, _ in found])
            if stats.rows < 2:
                raise InvalidInputError(
                    f"{dataset.source}: a table to learn from must have at least two rows in which an "
                    f"expert was asked; this has {stats.rows}."
                )
            cells: ScoreCounts = reduce(add, [own for _, own in found])
            _check_measured(dataset.expert_names, terms, stats, cells)
            if stats.asked.all():
                rows = {
                    part.number: own.rows
                    for part, (own, _) in zip(dataset.partitions, found, strict=True)
                }
                _fit_step(step, workers, rows, counts)
                scaled = step.kind == "vectors" if standardize is None else standardize
                setup = Setup(step, rows)
                fitted = _fit(dataset, terms, router, workers, setup, stats, scaled, folder, report)
                lost = sum(part.rows for part in dataset.partitions) - stats.rows - stats.unknown
                findings = [unasked_rows(lost)] if lost else []
                lacking = int(cells.asked.sum() - stats.asked.sum())
                left_out = left_out_rows(stats.unknown, lacking, terms.measured)
                if left_out is not None:
                    findings.append(Finding("unknown_losses", stats.unknown + lacking, left_out))
                findings += cells.findings(dataset.expert_names)
                return replace(fitted, findings=tuple(findings))
        # Everything is read again without the experts that were never asked.
        names = np.array(dataset.expert_names)
        dataset = dataset.only(names[stats.asked > 0].tolist())


def _check_measured(
    names: Sequence[str], terms: CostTerms, stats: CostStats, cells: ScoreCounts
) -> None:
    """Refuse a weight of dollars or seconds where an expert that was asked has none in any row."""
    never = ((cells.asked > 0) & (stats.asked == 0)).tolist()
    bare = [name for name, has_none in zip(names, never, strict=True) if has_none]
    if bare:
        weights = {"prices": terms.price_weight, "latencies": terms.latency_weight}
        what = " and ".join(name for name, weight in weights.items() if weight)
        raise without_values("price_weight" if terms.price_weight else "latency_weight", what, bare)


def _fit_step(step: TextFeatures, workers: Workers, rows: Mapping[int, int], counts: Any) -> None:
    """Fit the features as one table would, from counts of all texts and a sample of them."""
    n = sum(rows.values())

    def take(numbers: IntArray) -> OutcomeTable:
        found, _ = workers.call("take", _by_partition(numbers, rows))
        return concatenate([table for tables in found for table in tables])

    for part in step.parts:
        if isinstance(part, HashingFeatures):
            sampled = part.sample_rows(n)
            part.fit_counts(counts, take(np.arange(n) if sampled is None else sampled).queries)
        elif part.kind == "vectors":
            vectors = take(np.arange(1)).vectors
            part.fit([] if vectors is None else vectors)
        else:
            part.fit(take(scale_rows(n)).queries)


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
    constant = bool(stats.always.any())
    scaled = scaled and not constant
    report(1, 2, "making features")
    # The sample of a fit in memory, or all rows.
    n = stats.rows
    sampled = _by_partition(np.arange(n) if n <= 2 * SAMPLE else sample_rows(n, SAMPLE), setup.rows)
    summaries, seen = workers.call("make_features", setup, scaled, sampled)
    task = make_task(concatenate([table for one in summaries for table in one.sample]), terms)
    features = step.vectorize(contents(task.table, step))
    expert = task.first_of(stats.always) if constant else None
    router = clone(router) if expert is None else ConstantRouter(expert)
    if expert is None and router.ties is None:
        router.ties = "mean"
    router.n_experts_, router.expert_names_ = len(names), names
    router.n_features_in_ = step.n_features_
    model: Any = router
    counts: dict[str, Any] = {}
    if expert is not None:
        means = (stats.totals / stats.asked).astype(np.float32)
        router.policy_ = ConstantPolicy(means, step.n_features_, expert)
        only = f"{names[expert]} is the only expert"
        why = f"in no row does another expert cost less than {names[expert]}"
        counts["constant_reason"] = (
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

        def tell(number: int, value: float) -> None:
            report(2, 2, f"evaluation {number}, objective {value:.8g}")

        solved = solve_sharded(router, workers, setup, stats, X, task.costs, folder, tell)
        router.policy_, objective = solved
        counts = {"evaluations": objective.evaluations, "remembered": objective.remembered}
    fingerprint = hashlib.sha256("".join(one.fingerprint for one in summaries).encode()).hexdigest()
    return ShardedFit(model, step, dataset, n, task, features, fingerprint, seen, **counts)


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


def shard_router(fitted: ShardedFit) -> Router:
    """The router with its features, costs, shares on the sample and hashes of its queries."""
    dataset = fitted.dataset
    names = dataset.expert_names
    source = source_of(fitted.model)
    chosen = source.policy.predict(fitted.features)
    shares = dict(zip(names, expert_shares(chosen, len(names)).tolist(), strict=True))
    explanation = dataset.explanation(fitted.rows)
    form, shards = dataset.layout.form, len(dataset.files)
    info = replace(
        task_info(fitted.task),
        estimator=source.info.estimator,
        data=DataInfo(fitted.fingerprint, fitted.rows),
        table=TableInfo(fitted.fingerprint, fitted.rows, form, explanation, shards),
        hashes_complete=fitted.seen.complete,
        shares=SharesInfo(len(chosen), shares),
    )
    return replace(
        source,
        expert_names=names,
        text=fitted.step,
        query_hashes=fitted.seen.hashes,
        info=info,
    )


@dataclass(frozen=True, eq=False)
class DatasetFit:
    """A router that was fitted on a dataset of many files, and saved."""

    folder: Path
    fitted: FittedData  # with the features and costs of a sample of the rows
    fit: ShardedFit
    n_files: int
    notes: tuple[str, ...]  # what to know about the rows and the fit

    def as_dict(self) -> dict[str, Any]:
        """Counts that ``mild fit --json`` prints beside the figures of the router."""
        return {
            "rows": self.fit.rows,
            "shards": self.n_files,
            "evaluations": self.fit.evaluations,
            "remembered": self.fit.remembered,
        }


def fit_dataset(
    source: str,
    out: str,
    router: Any,
    terms: CostTerms,
    *,
    reading: Mapping[str, Any] | None = None,
    text: str | None = None,
    model: str | None = None,
    standardize: bool | None = None,
    engine: str = "local",
    address: str | None = None,
    n_jobs: int | None = None,
    scratch: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> DatasetFit:
    """Fit a linear router on Parquet files that need not fit into memory, and save it to a folder.

    A fit that was killed or interrupted resumes when it is called again.

    Parameters
    ----------
    source : folder, pattern or URL of Parquet files
    out : folder of the router
    router : unfitted LinearRouter
    terms : terms of the cost
    reading : how the files are read: arguments of ``mild.read_outcomes``
    text, model : kind of the text features, and its model
    standardize : whether features are scaled; None for vectors only
    engine, address : "local", or "ray" with the address of a cluster
    n_jobs : threads, or Ray workers; None for one per core
    scratch : folder for intermediate results; None for one beside ``out``
    overwrite : whether an existing router may be replaced
    progress : callable(done, total, message) or None
    """
    check_router(router)
    # Before anything is written.
    if engine == "ray":
        check_ray(address)
    dataset = open_dataset(source, ReadArguments(**(reading or {})))
    folder = check_target(out, overwrite)
    settings = described(dataset, terms, router, text, model, standardize)
    with work_folder(folder, scratch, settings) as work:

        def make_workers(held: Dataset) -> AbstractContextManager[Workers]:
            if engine == "ray":
                return ray_workers(held, terms, address, n_jobs)
            return local_workers(held, terms, work.features, n_jobs)

        try:
            found = fit_shards(
                dataset,
                terms,
                router,
                make_workers,
                text=text,
                text_options={} if model is None else {"source": model},
                standardize=standardize,
                folder=work.evaluations,
                progress=progress,
            )
        except KeyboardInterrupt as error:
            left = f"intermediate results are in {work.path}: the same command resumes from them."
            raise KeyboardInterrupt(left) from error
        saved = shard_router(found)
        saved.save(out, overwrite=overwrite)
    fitted = FittedData(saved, found.features, found.task)
    return DatasetFit(folder, fitted, found, len(dataset.files), tuple(_notes(dataset, found)))


def _notes(dataset: Dataset, fitted: ShardedFit) -> Iterator[str]:
    yield fitted.dataset.explanation(fitted.rows)
    left = [name for name in dataset.expert_names if name not in fitted.dataset.expert_names]
    if left:
        yield f"left out, never asked: {', '.join(left)}."
    for finding in fitted.findings:
        yield finding.sentence
    if fitted.constant_reason is not None:
        yield fitted.constant_reason
    if fitted.remembered:
        were = "was" if fitted.remembered == 1 else "were"
        yield f"{fitted.remembered} of {fitted.evaluations} evaluations {were} there already."


def check_router(router: Any) -> LinearRouter:
    """Refuse a router that cannot be fitted on partitions."""
    if not isinstance(router, LinearRouter):
        raise UnsupportedError(
            f"a dataset of many files is fitted by a linear router; got {type(router).__name__}. Use a "
            f"linear one, or a table that fits into memory.",
            parameter="router",
        )
    if router.sampling is not None or router.warm_start:
        raise UnsupportedError(
            "a dataset of many files is fitted without sampling and without warm_start; leave them out."
        )
    router._check_options()
    return router


@dataclass(eq=False)
class ShardedObjective:
    """Value and gradient at ``W`` (p, d + 1), summed over partitions in their order.

    A solver that is started again from the same point asks for the same evaluations, bit for bit. Those
    that were saved in the folder are not repeated, so a fit that was killed continues.
    """

    workers: Workers
    setup: Setup
    shape: tuple[int, int]
    router: LinearRouter
    folder: Path | None
    report: Callable[[int, float], None]
    evaluations: int = 0
    remembered: int = 0

    def __call__(self, W: FloatArray) -> tuple[float, FloatArray]:
        point = np.ascontiguousarray(W, np.float64)
        self.evaluations += 1
        found: tuple[float, FloatArray] | None = None
        if self.folder is not None:
            file = self.folder / f"{hashlib.sha256(point.tobytes()).hexdigest()[:40]}.npz"
            # A zip file: damage shows in its checksums.
            with (
                suppress(OSError, BadZipFile),
                open(file, "rb") as opened,
                np.load(opened) as saved,
            ):
                found = float(saved["value"]), saved["gradient"]
                self.remembered += 1
        if found is None:
            found = self._summed(point)
            if self.folder is not None:
                np.savez(self.folder / "new.npz", value=found[0], gradient=found[1])
                os.replace(self.folder / "new.npz", file)
        router = self.router
        value, gradient = add_penalty(*found, point, router.alpha, router.fit_intercept)
        self.report(self.evaluations, value)
        return value, gradient

    def _summed(self, W: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = 0.0, np.zeros(self.shape)
        for own_value, own_gradient in self.workers.call("evaluate", self.setup, W)[0]:
            value += own_value
            gradient += own_gradient
        return value, gradient


def solve_sharded(
    router: LinearRouter,
    workers: Workers,
    setup: Setup,
    stats: CostStats,
    X: FloatArray,
    costs: FloatArray,
    folder: Path | None,
    report: Callable[[int, float], None],
) -> tuple[LinearPolicy, ShardedObjective]:
    """Fit the router on all rows, starting with the scaled features and the costs of a sample."""
    cost_scale = (stats.largest or 1.0) if router.cost_scale is None else router.cost_scale
    setup = replace(setup, options=router)
    first = tie_rule(router, router.loss not in LABEL_LOSSES) == "first"
    means = None if first else stats.totals / stats.asked
    sums: TargetSums = reduce(add, workers.call("sums", setup, cost_scale, means)[0])
    whole, reward_sums = _whole(router, sums, cost_scale)
    whole = replace(whole, means=means)
    warn_if_degenerate(
        stats.differ,
        bool((stats.asked < stats.rows).any()),
        stats.cheapest if router.loss in LABEL_LOSSES else None,
        router.expert_names_,
        stacklevel=3,
    )
    setup = replace(setup, whole=whole)
    shape = costs.shape[1], X.shape[1] + 1
    objective = ShardedObjective(workers, setup, shape, router, folder, report)
    targets = row_targets(router, costs, np.ones(len(costs)), whole)
    loss = row_loss(targets, np.float32)
    weight = float(loss.rewards.sum())
    all_rows = len(X) == stats.rows
    max_iter = router.max_iter
    with single_blas_thread():
        moments = second_moments(X, np.ones(len(X)))
        curvature = targets.curvature_of(reward_sums)
        preconditioner = Preconditioner(moments, curvature, router.alpha, router.fit_intercept)
        begin = Beginning(preconditioner, np.zeros(shape))
        start = begin.W
        if weight > 0:
            own = loss if all_rows else loss.take(np.arange(len(X)), 1 / weight)
            few = LinearObjective(X, own, router.alpha, router.fit_intercept)
            zero_value = few(np.zeros(shape))[0]
            begin = make_beginning(
                few, preconditioner, moments, None, max_iter, all_rows, zero_value
            )
            start = begin.W
            if not all_rows:
                start = minimise(few, begin.preconditioner, start, begin.sample_tol, max_iter).W
    solution = begin.solve(objective, start, router.tol, max_iter)
    return router._settle(solution, targets, np.float32), objective


def _whole(router: LinearRouter, sums: TargetSums, cost_scale: float) -> tuple[Whole, FloatArray]:
    """What rows need from all rows, and the sums (p,) of all scaled rewards."""
    p = sums.labels.size
    rewards = sums.rewards
    if router.loss in LABEL_LOSSES:
        rewards = sums.labels * (class_weights(sums.labels) if router.loss == "cwce" else 1.0)
    margins = fixed_margins(router, p) if sums.margins is None else sums.margins.margins(router)
    total = float(rewards.sum())
    whole = Whole(np.ones(p) if margins is None else margins, sums.labels, cost_scale, total)
    return whole, rewards / total if total > 0 else rewards


def described(
    dataset: Dataset,
    terms: CostTerms,
    router: Any,
    text: str | None,
    model: str | None,
    standardize: bool | None,
) -> dict[str, Any]:
    """All that a fit depends on, JSON-ready: a fit with the same description may be continued."""
    return {
        "version": __version__,
        "files": [[file.path, file.size, file.changed] for file in dataset.files],
        "wanted": dataclasses.asdict(dataset.wanted),
        "experts": dataset.expert_names,
        "terms": terms.as_dict(),
        "router": router.get_params(deep=False),
        "features": [text, model, standardize],
    }


@dataclass(frozen=True)
class WorkFolder:
    """Folders of one fit: all of it, its saved evaluations, and its features."""

    path: Path
    evaluations: Path
    features: Path


@contextmanager
def work_folder(
    target: Path, scratch: str | None, description: Mapping[str, Any]
) -> Iterator[WorkFolder]:
    """A folder beside the router to be, or in ``scratch``, with features and evaluations; locked.

    It is removed when the router is saved, and when the input is bad. A kill or Ctrl-C leaves it: a fit
    with the same description continues from there; another fit begins anew.
    """
    key = hashlib.sha256(json.dumps(description, sort_keys=True, default=str).encode()).hexdigest()
    parent = target.parent if scratch is None else Path(os.path.realpath(scratch))
    path = parent / f".{target.name}.fit"
    folder = WorkFolder(path, path / f"evaluations-{key[:16]}", path / "features")
    taken = OutputExistsError(
        f"another fit is about to write to {target}; wait for it, or choose another folder."
    )
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"cannot write to {path}: {error.strerror or error}.") from error
    # Beside the folder: a lock in it would be removed with it, before the rest is.
    with file_lock(path.with_name(f"{path.name}.lock"), lambda: taken):
        for entry in path.iterdir() if path.exists() else ():
            if entry != folder.evaluations:
                shutil.rmtree(entry, ignore_errors=True)
        folder.evaluations.mkdir(parents=True, exist_ok=True)
        folder.features.mkdir()
        try:
            yield folder
        except (DataFileError, InvalidInputError):
            # Saved evaluations stay: with another address, or more room, the fit continues.
            if not any(folder.evaluations.iterdir()):
                shutil.rmtree(path, ignore_errors=True)
            raise
        shutil.rmtree(path, ignore_errors=True)
