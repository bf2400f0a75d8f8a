"""Fit a linear router on a data set whose queries or vectors are spread over the workers of a Ray cluster.

This process reads the outcomes of all rows, a few numbers each, makes costs and targets of them and runs
the solver: the same code as for a table in memory. Only the features, hundreds of numbers per row, are in
the workers. A worker holds those of some pieces of the data set, and gives the value and the gradient of
the loss on its rows. Ray starts a worker again that was lost; it then makes its features again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa

from mild.artifact import fingerprint
from mild.artifact.info import DataInfo
from mild.batch.parquet_files import ParquetDataset, Piece, open_dataset
from mild.batch.ray_connection import (
    RemoteValue,
    check_ray,
    connect,
    remote_values,
    worker_errors,
)
from mild.core.arrays import FloatArray, IntArray
from mild.data import Outcomes
from mild.data.cost_terms import CostTerms
from mild.data.formats import FORMATS
from mild.data.formats.base import ANSWER, LOGPROB, ReadArguments
from mild.data.outcomes import build_outcomes, read_with_options
from mild.data.queries import Recipe, query_texts
from mild.data.selection import named_columns
from mild.data.tables import naming, validate_columns
from mild.data.vectors import read_vectors
from mild.errors import DataFileError, InvalidInputError, UnsupportedError
from mild.features import TextFeatures
from mild.features.base import scale_rows
from mild.features.hashing import HashingFeatures, TermCounts
from mild.routers.linear import LinearRouter
from mild.routers.objective import LinearObjective, RowLoss, add_penalty, single_blas_thread
from mild.routers.solver import SAMPLE, sample_rows
from mild.tuning.fit import FittedData
from mild.tuning.fitting import (
    Fitted,
    make_saved_router,
    make_text_features,
    settle_ties,
    task_info,
)
from mild.tuning.tasks import Progress, Task, check_rows, make_task
from mild.tuning.training_rows import TrainingQueryIndex, text_hashes, vector_hashes

REMEDY = "Use more workers, on more machines."


def fit_dataset(
    source: str,
    unfitted: Any,
    terms: CostTerms,
    *,
    reading: Mapping[str, Any] | None = None,
    text: str | TextFeatures | None = None,
    standardize: bool | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> FittedData:
    """Fit a linear router on a Parquet data set with Ray; the result is that of a fit in memory.

    Parameters
    ----------
    source : str
        File, folder or pattern, or the address of a file or folder (``s3://...``).
    unfitted : LinearRouter
        The router to fit.
    terms : CostTerms
        What counts as a cost.
    reading : mapping, default=None
        How the files are read: arguments of ``mild.read_outcomes``.
    text : str or TextFeatures, default=None
        Text features, by name or unfitted.
    standardize : bool, default=None
        Whether features are scaled. By default only vectors are.
    address : str, default=None
        Address of a Ray cluster. By default a Ray is started on this machine.
    progress : callable, default=None
        Called as ``progress(done, total, message)``.

    Returns
    -------
    FittedData
        The fitted router, with the features and costs of a sample of the rows.
    """
    check_router(unfitted)
    check_ray(address)
    dataset = open_dataset(source)
    head = read_head(dataset, ReadArguments(**(reading or {})))
    step = make_text_features(head.table, text)
    task = read_task(dataset, head, terms)
    data = locate_rows(dataset, head, task, reads_vectors=step.kind == "vectors")
    settle_ties(unfitted)
    if standardize is None:
        standardize = step.kind == "vectors"
    with sharded_rows(data, address) as rows:
        _report(progress, 0, "learning the features")
        fit_step(step, rows)
        _report(progress, 1, "making features")
        query_index = rows.make_features(step)
        features = ShardedFeatures(rows, step)
        if standardize:
            features = features.standardized()
        _report(progress, 2, "fitting")
        fit_router(unfitted, features, task)
        sample = sample_rows(rows.n_rows, 2 * SAMPLE)
        sample_task = _sample_task(task, rows.feature_inputs(sample), sample)
    return _fitted_data(unfitted, features, task, sample_task, query_index)


def check_router(router: Any) -> None:
    """Refuse a router that cannot be fitted on Ray."""
    if not isinstance(router, LinearRouter):
        raise UnsupportedError(
            f"the engine ray fits linear routers; got {type(router).__name__}. Use a linear one, or fit it "
            f"without the engine ray, on a table that fits into memory.",
            parameter="router",
        )
    router._check_options()
    if router.norms != "none":
        raise UnsupportedError(
            "the engine ray fits margins without the norms of the features; leave norms out.",
            parameter="norms",
        )


@dataclass(frozen=True)
class Head:
    """The first rows of a data set as an ordinary table, and how all of its rows are read."""

    table: Outcomes
    options: ReadArguments

    @property
    def recipe(self) -> Recipe:
        """What queries and vectors are made of."""
        return self.table.recipe or Recipe(())

    @property
    def content_columns(self) -> list[str]:
        """Columns of the queries and of the vectors."""
        columns = [*self.recipe.columns, *self.recipe.choices]
        if self.recipe.vectors is not None:
            columns.append(self.recipe.vectors)
        return columns


def read_head(dataset: ParquetDataset, options: ReadArguments) -> Head:
    """Read the first rows of a data set, which show what its columns hold."""
    piece = dataset.pieces()[0]
    _, batch = next(piece.batches(dataset.schema.names))
    # Rows that are selected may come later.
    all_rows = replace(options, where=None)
    with naming(piece.path):
        table = read_with_options(pa.Table.from_batches([batch]), all_rows)
    if FORMATS[table.form].widen is not None:
        raise DataFileError(
            "a data set for the engine ray must have one row per query; it has one per query and model. "
            "Convert it first, with mild convert."
        )
    return Head(table, replace(options, form=table.form))


def read_task(dataset: ParquetDataset, head: Head, terms: CostTerms) -> Task:
    """The outcomes of all training rows, without their queries and vectors."""
    columns = []
    for name in dataset.schema.names:
        is_answer = name.startswith((ANSWER, LOGPROB))
        is_selected_by = name in named_columns(head.options.where)
        if is_selected_by or not (name in head.content_columns or is_answer):
            columns.append(name)
    dataset.check_columns([*columns, *head.content_columns])
    batches = []
    for piece in dataset.pieces():
        for _, batch in piece.batches(columns):
            batches.append(batch)
    outcomes = validate_columns(pa.Table.from_batches(batches))
    with naming(dataset.source):
        table = build_outcomes(outcomes, head.options, contents=head.recipe)
        task = make_task(table, terms)
        check_rows(task)
    reason = task.constant_reason
    if reason is not None:
        raise InvalidInputError(f"{reason.partition(' The router')[0]} Ask that expert always.")
    return task


@dataclass(frozen=True)
class TrainingRows:
    """Where the queries and vectors of the training rows are."""

    pieces: Sequence[Piece]
    kept: Sequence[IntArray]  # for each piece, the rows to train on, counted from its first row
    recipe: Recipe  # what queries and vectors are made of
    reads_vectors: bool  # whether features are made of vectors; otherwise of queries

    def feature_inputs(self, number: int) -> Any:
        """What features are made of: the queries, or vectors (n, d), of the training rows of a piece."""
        if self.reads_vectors:
            return self._vectors(number)
        return self._queries(number)

    def query_index(self, number: int) -> TrainingQueryIndex:
        """Hashes of the queries of a piece, or of its vectors where there are no queries."""
        if self.recipe.columns:
            hashes = text_hashes(self._queries(number))
        else:
            hashes = vector_hashes(self._vectors(number))
        return TrainingQueryIndex.of_hashes(hashes)

    def _queries(self, number: int) -> list[str]:
        table = self._table(number, [*self.recipe.columns, *self.recipe.choices])
        with naming(self.pieces[number].path):
            return query_texts(table, self.recipe)

    def _vectors(self, number: int) -> FloatArray:
        piece = self.pieces[number]
        column = str(self.recipe.vectors)
        table = self._table(number, [column])
        with naming(piece.path):
            return read_vectors(table, column, piece.first_row + self.kept[number])

    def _table(self, number: int, columns: Sequence[str]) -> Any:
        batches = [batch for _, batch in self.pieces[number].batches(columns)]
        with naming(self.pieces[number].path):
            table = validate_columns(pa.Table.from_batches(batches))
        return table.take(self.kept[number])


def locate_rows(
    dataset: ParquetDataset, head: Head, task: Task, reads_vectors: bool
) -> TrainingRows:
    """Where the queries and vectors of the rows of a task are."""
    pieces = dataset.pieces()
    rows = task.table.row_numbers
    if rows is None:
        rows = np.arange(len(task.table))
    kept = []
    first_row = 0
    for piece in pieces:
        start, stop = np.searchsorted(rows, [first_row, first_row + piece.rows])
        kept.append(rows[start:stop] - first_row)
        first_row += piece.rows
    return TrainingRows(pieces, kept, head.recipe, reads_vectors)


@dataclass(frozen=True)
class FeatureSteps:
    """How features are made: a fitted text step, and a fitted scaler or None."""

    step: TextFeatures
    scaler: Any = None


class ShardWorker:
    """Holds the features of some pieces, and sums over them.

    What it holds is made when it is first asked for, so that a worker that was started again gives the same
    answers.
    """

    def __init__(self, data: TrainingRows) -> None:
        self.data = data
        self._features: dict[int, Any] = {}
        self._is_scaled: set[int] = set()

    def count_terms(self, shard: Sequence[int], hashing: HashingFeatures) -> TermCounts:
        """Term counts over the texts of some pieces."""
        counts = [hashing.count(self.data.feature_inputs(number)) for number in shard]
        return reduce(add, counts)

    def take_contents(self, shard: Sequence[int], rows: IntArray) -> list[Any]:
        """Queries or vectors of some rows, by their positions among the training rows of the shard."""
        taken: list[Any] = []
        for number, piece_rows in self._rows_by_piece(shard, rows):
            contents = self.data.feature_inputs(number)
            for row in piece_rows:
                taken.append(contents[row])
        return taken

    def make_features(self, shard: Sequence[int], steps: FeatureSteps) -> TrainingQueryIndex:
        """Make the features of all pieces; gives the hashes of their queries."""
        index = TrainingQueryIndex(np.zeros(0, np.uint64))
        for number in shard:
            index += self.data.query_index(number)
            self._make(number, steps)
        return index

    def fit_scaler(self, shard: Sequence[int], steps: FeatureSteps, scaler: Any) -> Any:
        """The scaler, after it has seen the rows of this shard too."""
        for number in shard:
            scaler.partial_fit(self._get(number, steps))
        return scaler

    def take_features(
        self, shard: Sequence[int], steps: FeatureSteps, rows: IntArray
    ) -> FloatArray:
        """Features of some rows, by their positions among the training rows of the shard."""
        blocks = [np.zeros((0, steps.step.n_features_), np.float32)]
        for number, piece_rows in self._rows_by_piece(shard, rows):
            blocks.append(self._get(number, steps)[piece_rows])
        return np.concatenate(blocks)

    def _rows_by_piece(
        self, shard: Sequence[int], rows: IntArray
    ) -> Iterator[tuple[int, IntArray]]:
        """Pieces that hold some of these rows, each with the positions of the rows in the piece."""
        first = 0
        for number in shard:
            stop = first + len(self.data.kept[number])
            piece_rows = rows[(rows >= first) & (rows < stop)] - first
            if piece_rows.size:
                yield number, piece_rows
            first = stop

    def evaluate(
        self, shard: Sequence[int], steps: FeatureSteps, losses: Sequence[RowLoss], W: FloatArray
    ) -> tuple[float, FloatArray]:
        """Value and gradient at W of the loss on all rows of the shard, without the penalty."""
        value = 0.0
        gradient = np.zeros(W.shape)
        with single_blas_thread():
            for number, loss in zip(shard, losses, strict=True):
                X = self._get(number, steps)
                if len(X):
                    piece_value, piece_gradient = LinearObjective(X, loss, 0.0)(W)
                    value += piece_value
                    gradient += piece_gradient
        return value, gradient

    def _get(self, number: int, steps: FeatureSteps) -> Any:
        """Features (n, d) of a piece, scaled if there is a scaler."""
        if number not in self._features:
            self._make(number, steps)
        if steps.scaler is not None and number not in self._is_scaled:
            # In place: there is no room for two copies.
            if len(self._features[number]):
                self._features[number] = steps.scaler.transform(self._features[number])
            self._is_scaled.add(number)
        return self._features[number]

    def _make(self, number: int, steps: FeatureSteps) -> None:
        """Make the features of a piece, not scaled."""
        contents = self.data.feature_inputs(number)
        with naming(self.data.pieces[number].path):
            features = steps.step.vectorize(contents)
        self._features[number] = np.ascontiguousarray(features, np.float32)
        self._is_scaled.discard(number)


class ShardedRows:
    """The training rows, spread over workers: each has a shard, a run of neighbouring pieces."""

    def __init__(self, ray: Any, workers: Sequence[RemoteValue], data: TrainingRows) -> None:
        self.ray = ray
        self.workers = workers
        self.data = data
        self.shards: list[list[int]] = []
        bounds = [0]
        for shard in np.array_split(np.arange(len(data.pieces)), len(workers)):
            numbers = shard.tolist()
            n_rows = sum(len(data.kept[number]) for number in numbers)
            self.shards.append(numbers)
            bounds.append(bounds[-1] + n_rows)
        # Training rows before each shard, and at the end the number of all.
        self.bounds = np.array(bounds)
        self.n_rows = bounds[-1]

    def call(self, method: str, *arguments: Any, per_shard: Sequence[Any] = ()) -> list[Any]:
        """Results of a method of all workers, in the order of their shards.

        Parameters
        ----------
        method : str
            A method of ``ShardWorker``, whose first argument is the shard.
        arguments : object
            Further arguments, which are the same for all workers.
        per_shard : sequence, default=()
            If it is given, the last argument of each worker.
        """
        shared = [self.ray.put(argument) for argument in arguments]
        answers = []
        for number, (worker, shard) in enumerate(zip(self.workers, self.shards, strict=True)):
            last = per_shard[number : number + 1]
            answers.append(worker.call(method, shard, *shared, *last))
        return list(self.ray.get(answers))

    def split(self, rows: IntArray) -> list[IntArray]:
        """Ascending numbers of training rows, as positions within each shard."""
        cuts = np.searchsorted(rows, self.bounds)
        positions = []
        for first_row, (start, stop) in zip(self.bounds[:-1], pairwise(cuts), strict=True):
            positions.append(rows[start:stop] - first_row)
        return positions

    def feature_inputs(self, rows: IntArray) -> Any:
        """Queries, or vectors (n, d), of some training rows, in ascending order."""
        contents = []
        for shard_contents in self.call("take_contents", per_shard=self.split(rows)):
            contents += shard_contents
        if self.data.reads_vectors:
            return np.stack(contents)
        return contents

    def make_features(self, step: TextFeatures) -> TrainingQueryIndex:
        """Let all workers make their features; gives the hashes of all queries."""
        return reduce(add, self.call("make_features", FeatureSteps(step)))


@contextmanager
def sharded_rows(data: TrainingRows, address: str | None) -> Iterator[ShardedRows]:
    """The training rows on the workers of a Ray cluster."""
    worker = ShardWorker(data)
    with (
        connect(address) as ray,
        worker_errors(REMEDY),
        remote_values(ray, worker, max_copies=len(data.pieces)) as workers,
    ):
        yield ShardedRows(ray, workers, data)


def fit_step(step: TextFeatures, rows: ShardedRows) -> None:
    """Fit the features as one table would, from counts of all texts and a sample of them."""
    for part in step.parts:
        if isinstance(part, HashingFeatures):
            counts = reduce(add, rows.call("count_terms", part))
            sample = part.sample_rows(rows.n_rows)
            if sample is None:
                sample = np.arange(rows.n_rows)
            part.fit_counts(counts, rows.feature_inputs(sample))
        elif part.kind == "vectors":
            part.fit(rows.feature_inputs(np.arange(1)))
        else:
            part.fit(rows.feature_inputs(scale_rows(rows.n_rows)))


@dataclass(frozen=True)
class ShardedFeatures:
    """Features (n, d) that are in the workers; stands for X in the fit of a linear router."""

    rows: ShardedRows
    step: TextFeatures
    scaler: Any = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.rows.n_rows, int(self.step.n_features_)

    @property
    def dtype(self) -> Any:
        """The type of the features."""
        return np.dtype(np.float32)

    @property
    def steps(self) -> FeatureSteps:
        """How the workers make these features."""
        return FeatureSteps(self.step, self.scaler)

    def __getitem__(self, rows: IntArray) -> FloatArray:
        """Some rows, in ascending order."""
        positions = self.rows.split(rows)
        return np.concatenate(self.rows.call("take_features", self.steps, per_shard=positions))

    def standardized(self) -> ShardedFeatures:
        """These features, scaled to mean 0 and standard deviation 1."""
        from sklearn.preprocessing import StandardScaler

        # From shard to shard: the scaler learns from one part of the rows after another.
        scaler: Any = StandardScaler(copy=False)
        steps = self.rows.ray.put(self.steps)
        for worker, shard in zip(self.rows.workers, self.rows.shards, strict=True):
            scaler = worker.call("fit_scaler", shard, steps, scaler)
        return replace(self, scaler=self.rows.ray.get(scaler))

    def objective(self, loss: RowLoss, alpha: float, fit_intercept: bool) -> ShardedObjective:
        """The objective of the solver over all rows."""
        return ShardedObjective(self, loss, alpha, fit_intercept)


@dataclass
class ShardedObjective:
    """Value and gradient at ``W`` (p, d + 1), summed over the shards in their order."""

    X: ShardedFeatures
    loss: RowLoss
    alpha: float
    fit_intercept: bool

    def __post_init__(self) -> None:
        rows = self.X.rows
        self._steps = rows.ray.put(self.X.steps)
        # References to the losses of the pieces of each shard, which are sent once.
        self._losses = []
        first = 0
        for shard in rows.shards:
            losses = []
            for number in shard:
                count = len(rows.data.kept[number])
                losses.append(self.loss.take(np.arange(first, first + count), 1.0))
                first += count
            self._losses.append(rows.ray.put(losses))

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of W."""
        return self.loss.rewards.shape[0], self.X.shape[1] + 1

    def __call__(self, W: FloatArray) -> tuple[float, FloatArray]:
        value = 0.0
        gradient = np.zeros(self.shape)
        rows = self.X.rows
        weights = rows.ray.put(W)
        answers = []
        for worker, shard, losses in zip(rows.workers, rows.shards, self._losses, strict=True):
            answers.append(worker.call("evaluate", shard, self._steps, losses, weights))
        for shard_value, shard_gradient in rows.ray.get(answers):
            value += shard_value
            gradient += shard_gradient
        return add_penalty(value, gradient, W, self.alpha, self.fit_intercept)


def fit_router(router: LinearRouter, features: ShardedFeatures, task: Task) -> None:
    """Fit the router on all rows, as its ``fit`` does on arrays."""
    X: Any = features
    n_rows, n_features = features.shape
    if n_rows <= 2 * SAMPLE:
        # The solver works on so few rows as a whole.
        X = features[np.arange(n_rows)]
    router.n_experts_ = task.costs.shape[1]
    router.expert_names_ = task.table.experts
    router.n_features_in_ = n_features
    router.policy_ = router._fit(X, task.costs, None).with_ranks(task.ranks)


def _sample_task(task: Task, contents: Any, rows: IntArray) -> Task:
    """The task of some rows, with their queries or vectors."""
    table = task.table[rows]
    if isinstance(contents, list):
        table = replace(table, queries=contents)
    else:
        table = replace(table, vectors=contents)
    return replace(
        task,
        table=table,
        costs=task.costs[rows],
        groups=table.groups(None),
        training_ranks=task.ranks,
    )


def _fitted_data(
    router: LinearRouter,
    features: ShardedFeatures,
    task: Task,
    sample_task: Task,
    query_index: TrainingQueryIndex,
) -> FittedData:
    """The router with its features and what is recorded about all rows."""
    from sklearn.pipeline import make_pipeline

    model: Any = router
    if features.scaler is not None:
        model = make_pipeline(features.scaler, router)
    step = features.step
    contents: Any = sample_task.table.queries
    if step.kind == "vectors":
        contents = sample_task.table.vectors
    sample_features = step.vectorize(contents)
    sampled = make_saved_router(Fitted(model, step, sample_features), sample_task)
    info = replace(
        task_info(task),
        estimator=sampled.info.estimator,
        data=DataInfo(fingerprint(sample_features, task.costs), len(task.table)),
        hashes_complete=query_index.complete,
        shares=sampled.info.shares,
    )
    saved = replace(sampled, query_hashes=query_index.hashes, info=info)
    return FittedData(saved, sample_features, sample_task)


def _report(progress: Progress | None, done: int, message: str) -> None:
    if progress is not None:
        progress(done, 3, message)
