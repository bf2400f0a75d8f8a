"""An outcome table in many Parquet files, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mild.artifact.expert_names import match_experts
from mild.core.arrays import FloatArray
from mild.data import OutcomeTable
from mild.data.formats import choose_form, lay_out
from mild.data.formats.base import Layout
from mild.data.outcomes import ReadOptions, build_outcomes, explanation
from mild.data.parquet_files import FoundFile, find_files, read_footers
from mild.data.queries import Recipe, choose_query
from mild.data.tables import column_kind, unreadable, validate_columns
from mild.data.vectors import VECTOR_NAMES
from mild.distributed.partitions import Partition, check_same_columns, cut, read_batches
from mild.errors import DataFileError, InvalidInputError, OptionError, listed

__all__ = ["Dataset", "concatenate", "naming", "open_dataset"]

# Rows of a partition, unless a single row group has more: enough to be worth a message to a worker.
PART_ROWS = 131_072
# Rows that are in memory at a time while a partition is read.
PIECE_ROWS = 16_384


@dataclass(frozen=True)
class Shape:
    """Which columns of a shard are read, and as what.

    Attributes
    ----------
    layout : columns of the outcomes
    query : how the query is made, or None
    vectors : column of vectors, or None
    kinds : column -> its kind, as in ``column_kind``
    """

    layout: Layout
    query: Recipe | None
    vectors: str | None
    kinds: dict[str, str]


@dataclass(frozen=True)
class Dataset:
    """Shards that are one table: same columns, rows in the order of the files.

    Attributes
    ----------
    source : file, folder or pattern
    files : the shards, in order
    partitions : what is read and summed at a time, in order
    wanted : options of the reader
    shape : columns that are read
    """

    source: str
    files: tuple[FoundFile, ...]
    partitions: tuple[Partition, ...]
    wanted: ReadOptions
    shape: Shape

    @property
    def expert_names(self) -> list[str]:
        """Experts, in the order of their columns or of the names that were asked for."""
        return list(self.shape.layout.scores)

    def only(self, experts: Sequence[str]) -> Dataset:
        """The dataset with some of the experts."""
        layout = self.shape.layout.of(experts)
        wanted = replace(self.wanted, experts=list(experts))
        return replace(self, wanted=wanted, shape=replace(self.shape, layout=layout))

    def explanation(self, rows: int) -> str:
        """How it is read, in one sentence."""
        text = explanation(self.shape.layout, rows, self.shape.query, self.shape.vectors)
        count = len(self.files)
        return f"{text.removesuffix('.')}; {count:,} shard{'' if count == 1 else 's'}."

    def read(self, partition: Partition, contents: bool = True) -> Iterator[OutcomeTable]:
        """Pieces of a partition, in order; without ``contents`` only the outcomes are read."""
        columns = sorted(self.shape.kinds if contents else self.shape.layout.taken)
        with naming(partition.path):
            for first, batch in read_batches(self.source, partition, columns, PIECE_ROWS):
                table = validate_columns(pa.Table.from_batches([batch]))
                yield build_outcomes(table, self.wanted, first, contents)


def open_dataset(source: str, wanted: ReadOptions) -> Dataset:
    """Read the footer of every shard, and check that all have the same columns.

    Parameters
    ----------
    source : file, folder or pattern, on any file system that pyarrow knows
    wanted : options as for ``read_outcomes``

    Raises
    ------
    DataFileError
        No files, no rows, a file that is cut off, columns that differ; the message names the file.
    """
    files = find_files(source)

    def look(file: FoundFile, metadata: Any, schema: Any) -> tuple[Shape, Any]:
        with naming(file.path):
            return _shape(schema, wanted), metadata

    found = read_footers(source, files, look)
    shape = found[0][0]
    for file, (other, _) in zip(files, found, strict=True):
        check_same_columns(files[0].path, shape.kinds, file.path, other.kinds)
    footers = [metadata for _, metadata in found]
    partitions = cut(source, files, footers, set(shape.kinds), most_rows=PART_ROWS)
    fixed = replace(wanted, form=shape.layout.form)
    dataset = Dataset(source, tuple(files), tuple(partitions), fixed, shape)
    # By name, so that the order of columns may differ between shards.
    names = dataset.expert_names
    return dataset.only(names if wanted.experts is None else match_experts(wanted.experts, names))


def _shape(schema: Any, wanted: ReadOptions) -> Shape:
    form = choose_form(schema, wanted.form, wanted.scores)
    if form == "llmrouter":
        raise DataFileError(
            "a dataset of many files must have one row per query; it has one per query and model. Convert "
            "it first, with mild data convert."
        )
    layout = lay_out(schema, form, wanted.scores, wanted.prices, wanted.latencies)
    query = choose_query(schema, wanted.query, wanted.choices, layout.taken)
    vectors = wanted.vectors or next(
        (
            name
            for name in VECTOR_NAMES
            if name in schema.names and column_kind(schema.field(name).type) == "vectors"
        ),
        None,
    )
    if vectors is not None and vectors not in schema.names:
        raise DataFileError(
            f"there must be a column {vectors!r} of vectors; found {listed(list(schema.names))}."
        )
    if query is None and vectors is None:
        raise DataFileError(
            f"there must be a query to route by: name its column with --query, or one of vectors with "
            f"--vectors; found {listed(list(schema.names))}."
        )
    outcomes = (layout.scores, layout.prices, layout.latencies)
    used = [column for columns in outcomes for column in columns.values()]
    used += [] if query is None else [*query.columns, *query.choices]
    used += [] if vectors is None else [vectors]
    kinds = {name: column_kind(schema.field(name).type) for name in used}
    return Shape(layout, query, vectors, kinds)


def concatenate(tables: Sequence[OutcomeTable]) -> OutcomeTable:
    """All rows in one table; experts and columns are those of the first."""
    first = tables[0]
    if len(tables) == 1:
        return first

    def stacked(name: str) -> FloatArray | None:
        parts = [getattr(table, name) for table in tables]
        if parts[0] is None:
            return None
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise DataFileError(
                f"vectors must all have the same length; some have {widths[0]} and others {widths[-1]} "
                f"numbers."
            )
        return np.concatenate(parts)

    return replace(
        first,
        queries=[text for table in tables for text in table.queries],
        scores=np.concatenate([table.scores for table in tables]),
        prices=stacked("prices"),
        latencies=stacked("latencies"),
        vectors=stacked("vectors"),
        columns=pa.concat_tables([table.columns for table in tables]),
        # The rows come from several files: no row number applies.
        row_numbers=None,
    )


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Let errors about a file begin with its name."""
    try:
        yield
    except OptionError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"{file}: {unreadable('.parquet', error)}") from error
    except (DataFileError, InvalidInputError) as error:
        if str(error).startswith(f"{file}: "):
            raise
        raise DataFileError(f"{file}: {error}") from error
