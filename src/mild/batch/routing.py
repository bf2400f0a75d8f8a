"""Route every row of a data set: Parquet in, Parquet out, on this machine or on Ray."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mild.artifact import Router
from mild.batch.inputs import Inputs, RowError, choose_inputs
from mild.batch.novel_queries import SAMPLE, NovelQueries
from mild.batch.output_folder import OutputFolder, part_name
from mild.batch.parquet_files import ParquetDataset, Piece, open_dataset, open_file_system
from mild.batch.ray_connection import (
    check_engine,
    connect,
    remote_values,
    worker_errors,
)
from mild.core.arrays import IntArray
from mild.data.tables import choose_columns
from mild.errors import DataFileError, InvalidInputError, MildError, count_noun

#: Columns of the output: the chosen expert, and the experts that a cascade asks first.
EXPERT = "expert"
FIRST_STEP = "first_step"
REMEDY = "Nothing was written. Run it again, on machines with more memory."

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class RoutedDataset:
    """Counts of a routed data set."""

    out: str  # folder of the output
    rows: int  # rows that were written
    counts: dict[str, int]  # expert -> rows that were sent to it
    bad: int  # rows without a query
    files: int  # files of the output
    novel: NovelQueries = field(default_factory=NovelQueries)  # among the first rows

    @property
    def shares(self) -> dict[str, float]:
        """Expert -> its share of the rows that were sent to one."""
        total = max(1, sum(self.counts.values()))
        return {name: count / total for name, count in self.counts.items()}

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "rows": self.rows,
            "counts": self.counts,
            "shares": self.shares,
            "rows_without_a_query": self.bad,
            "files": self.files,
        }


@dataclass(frozen=True)
class PieceCounts:
    """Counts of one piece."""

    rows: int  # rows that were written
    per_expert: IntArray  # (p,) rows that were sent to each expert
    bad: int  # rows without a query

    def __add__(self, other: PieceCounts) -> PieceCounts:
        return PieceCounts(
            self.rows + other.rows, self.per_expert + other.per_expert, self.bad + other.bad
        )


@dataclass(frozen=True)
class RoutingJob:
    """What every worker needs to route a piece of the data set."""

    router: Router
    pieces: Sequence[Piece]
    inputs: Inputs
    keep: Sequence[str]
    probabilities: bool
    skip_bad: bool
    schema: Any  # of the output
    file_system: Any
    folder: str  # that parts are written to

    @property
    def columns(self) -> list[str]:
        """Columns that are read."""
        return list(dict.fromkeys([*self.inputs.columns, *self.keep]))

    def route_piece(self, number: int) -> PieceCounts:
        """Route a piece and write its file. Routing it again writes the same file again."""
        piece = self.pieces[number]
        per_expert = np.zeros(self.router.n_experts, np.int64)
        rows = 0
        tables = []
        # One thread for linear algebra: rows must not depend on the number of workers.
        with threadpool_limits(1):
            for table, chosen in self._routed_batches(piece):
                per_expert += np.bincount(chosen, minlength=len(per_expert))
                rows += table.num_rows
                tables.append(table)
        bad = piece.rows - int(per_expert.sum())
        path = f"{self.folder}/{part_name(number)}"
        with self.file_system.open_output_stream(path) as stream:
            parquet.write_table(pa.concat_tables(tables), stream)
        return PieceCounts(rows, per_expert, bad)

    def novel_queries(self) -> NovelQueries:
        """How many of the first rows have a novel query."""
        if self.inputs.kind != "texts" or not self.pieces:
            return NovelQueries()
        _, batch = next(iter(self.pieces[0].batches(self.columns)))
        texts, _ = self.inputs.of(batch.slice(0, SAMPLE))
        return NovelQueries.of(self.router, texts, self.router.features(texts))

    def _routed_batches(self, piece: Piece) -> Iterator[tuple[Any, IntArray]]:
        """Tables of the output, each with the experts of the rows that have a query."""
        for first_row, batch in piece.batches(self.columns):
            try:
                yield self._route_batch(batch)
            except RowError as error:
                row = first_row + error.row + 1
                raise DataFileError(f"row {row:,} of {piece.path}: {error}") from error
            except (MildError, pa.ArrowException) as error:
                kind: type[MildError] = DataFileError
                if isinstance(error, MildError):
                    kind = type(error)
                rows = f"rows {first_row + 1:,} to {first_row + batch.num_rows:,}"
                raise kind(f"{piece.path}, {rows}: {error}") from error

    def _route_batch(self, batch: Any) -> tuple[Any, IntArray]:
        """The rows of the output for a batch, and the experts of those that have a query."""
        router = self.router
        X, empty = self.inputs.of(batch)
        if self.inputs.kind == "texts":
            X = router.features(X)
        X, bad = _without_bad_rows(X, empty)
        estimates: list[NDArray[Any]] = []
        chosen = router.policy.predict(X)
        if self.probabilities:
            decisions = router.decide_features(X)
            estimates.append(decisions.probabilities)
            if decisions.costs is not None:
                chosen = decisions.chosen
                estimates.append(decisions.costs)
        columns = [batch.column(name) for name in self.keep]
        expert_indices = pa.array(chosen.astype(np.int32), mask=bad)
        expert_names = pa.array(router.experts, pa.string())
        columns.append(pa.DictionaryArray.from_arrays(expert_indices, expert_names))
        first_steps = router.first_steps(X)
        if first_steps is not None:
            columns.append(pa.array(first_steps, pa.list_(pa.string()), mask=bad))
        for values in estimates:
            columns.extend(
                pa.array(column, mask=bad) for column in np.asarray(values, np.float32).T
            )
        table = pa.Table.from_arrays(columns, schema=self.schema)
        if self.skip_bad and bad.any():
            table = table.filter(pc.is_valid(table[EXPERT]))
        return table, chosen[~bad]


def route_dataset(
    router: Router,
    source: str,
    out: str,
    *,
    query: str | None = None,
    vectors: str | None = None,
    features: str | None = None,
    keep: Sequence[str] = (),
    probabilities: bool = False,
    skip_bad: bool = False,
    engine: str = "local",
    address: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> RoutedDataset:
    """Route every row of a Parquet data set and write the chosen experts, in the order of the rows.

    The output folder appears when it is complete. If anything goes wrong, it does not appear, or stays as
    it was before.

    Parameters
    ----------
    router : Router
        A loaded router.
    source : str
        File, folder or pattern, or the address of a file or folder (``s3://...``).
    out : str
        Folder of the output, or its address.
    query : str, default=None
        Column of the query. By default the router reads the columns that it was fitted on; at most one of
        ``query``, ``vectors`` and ``features`` may name others.
    vectors : str, default=None
        Column of vectors.
    features : str, default=None
        Columns of numbers.
    keep : sequence of str, default=()
        Columns that are copied to the output.
    probabilities : bool, default=False
        Whether probabilities, and expected costs where they are known, are written.
    skip_bad : bool, default=False
        Whether rows without a query are left out; otherwise their expert is null.
    engine : str, default="local"
        "local" (this process) or "ray".
    address : str, default=None
        Address of a Ray cluster. By default a Ray is started on this machine.
    overwrite : bool, default=False
        Whether an earlier output may be replaced.
    progress : callable, default=None
        Called as ``progress(done, total, message)`` after every piece.

    Returns
    -------
    RoutedDataset
    """
    check_engine(engine, address)
    output = OutputFolder(out, overwrite)
    dataset = open_dataset(source)
    _check_apart(dataset, output)
    inputs = choose_inputs(router, dataset.schema, query, vectors, features)
    keep = list(dict.fromkeys(keep))
    if keep:
        choose_columns("keep", keep, list(dataset.schema.names))
    dataset.check_columns([*inputs.columns, *keep])
    schema = output_schema(router, dataset.schema, keep, probabilities)
    pieces = dataset.pieces()
    output.check()
    with output.writing() as folder:
        job = RoutingJob(
            router=router,
            pieces=pieces,
            inputs=inputs,
            keep=keep,
            probabilities=probabilities,
            skip_bad=skip_bad,
            schema=schema,
            file_system=output.file_system,
            folder=folder,
        )
        results = _routed_on_ray(job, address) if engine == "ray" else _routed_here(job)
        total = _total_counts(results, router.n_experts, len(pieces), progress)
        summary = RoutedDataset(
            out=output.shown,
            rows=total.rows,
            counts=dict(zip(router.experts, total.per_expert.tolist(), strict=True)),
            bad=total.bad,
            files=len(pieces),
            novel=job.novel_queries(),
        )
        output.publish(summary.as_dict())
    return summary


def _total_counts(
    results: Generator[PieceCounts, None, None],
    n_experts: int,
    n_pieces: int,
    progress: Progress | None,
) -> PieceCounts:
    """The sum over all pieces, once they are routed."""
    total = PieceCounts(0, np.zeros(n_experts, np.int64), 0)
    # Closed before the folder is removed or gets its name, so that no worker still writes to it.
    with closing(results):
        for done, counts in enumerate(results, start=1):
            total += counts
            if progress is not None:
                progress(done, n_pieces, count_noun(counts.rows, "row"))
    return total


def _check_apart(dataset: ParquetDataset, output: OutputFolder) -> None:
    """Refuse an output folder that lies in the input, or holds files of it."""
    _, source_path = open_file_system(dataset.source)
    lies_in_input = output.path.startswith(f"{source_path.rstrip('/')}/")
    holds_input = any(file.path.startswith(f"{output.path}/") for file in dataset.files)
    if (lies_in_input or holds_input) and dataset.file_system.equals(output.file_system):
        raise InvalidInputError(
            f"the folder to write to must be apart from the input; {output.shown} is not. Choose another.",
            parameter="out",
        )


def _routed_here(job: RoutingJob) -> Generator[PieceCounts, None, None]:
    """Route all pieces in this process."""
    for number in range(len(job.pieces)):
        yield job.route_piece(number)


def _routed_on_ray(job: RoutingJob, address: str | None) -> Generator[PieceCounts, None, None]:
    """Route all pieces with one actor per processor; results in the order of the pieces."""
    with (
        connect(address) as ray,
        worker_errors(REMEDY),
        remote_values(ray, job, max_copies=len(job.pieces)) as remote_jobs,
    ):
        pool = ray.util.ActorPool(remote_jobs)
        yield from pool.map(
            lambda remote_job, number: remote_job.call("route_piece", number),
            range(len(job.pieces)),
        )


def output_schema(
    router: Router, input_schema: Any, keep: Sequence[str], probabilities: bool
) -> Any:
    """Columns of the output: those kept, the expert, a cascade's first step, probabilities and costs."""
    fields = [pa.field(EXPERT, pa.dictionary(pa.int32(), pa.string()))]
    if router.cascade is not None:
        fields.append(pa.field(FIRST_STEP, pa.list_(pa.string())))
    if probabilities:
        prefixes = ["p__"]
        if router.decide_features(np.zeros((1, router.policy.n_columns))).costs is not None:
            prefixes.append("expected_cost__")
        for prefix in prefixes:
            fields.extend(pa.field(prefix + name, pa.float32()) for name in router.experts)
    output_names = pa.schema(fields).names
    kept_fields = []
    for name in keep:
        if name in output_names:
            raise InvalidInputError(
                f"column {name!r} cannot be kept: the output has a column of that name.",
                parameter="keep",
            )
        kept_fields.append(input_schema.field(name))
    return pa.schema([*kept_fields, *fields])


def _without_bad_rows(
    X: NDArray[Any], empty: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """X with zeros in rows that are empty or not finite, and which rows these are, (n,)."""
    bad = empty | ~np.isfinite(X).all(axis=1)
    if bad.any():
        X = np.where(bad[:, None], X.dtype.type(0), X)
    return X, bad
