"""A table of outcomes that lies in many Parquet files, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from mild.artifact.expert_names import match_experts
from mild.data import OutcomeTable
from mild.data.arrow import unreadable
from mild.data.footers import looked_at, runs
from mild.data.formats import choose_form, lay_out
from mild.data.formats.layout import Layout
from mild.data.location import FoundFile, find_files, found_file, shown, system_of
from mild.data.outcomes import ReadOptions, build_outcomes, explanation
from mild.data.queries import choose_query
from mild.data.recipe import Recipe
from mild.data.sources import sound
from mild.data.vectors import VECTOR_NAMES, check_kind, column_kind
from mild.errors import DataFileError, InvalidInputError, OptionError, listed

__all__ = ["Dataset", "Part", "naming", "open_dataset"]

# Rows of a part, unless a single row group has more: enough to be worth a message to a worker.
PART_ROWS = 131_072
# Rows that are in memory at a time while a part is read.
PIECE_ROWS = 16_384


@dataclass(frozen=True)
class Part:
    """Neighbouring row groups of one file.

    Attributes
    ----------
    number : its place in the order in which sums are taken
    file : path on the file system of the dataset
    first, last : row groups, the last one not included
    rows : rows in the file, some of which may have asked nobody
    found : the file as it was when the dataset was opened
    first_row : place of its first row in the file
    """

    number: int
    file: str
    first: int
    last: int
    rows: int
    found: FoundFile | None = None
    first_row: int = 0


@dataclass(frozen=True)
class Shape:
    """Which columns of a shard are read, and as what.

    Attributes
    ----------
    layout : columns of the outcomes
    query : how the query is made, or None
    vectors : column of vectors, or None
    kinds : column -> what it holds, as ``column_kind`` says it
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
    source : where it is, as it was named
    files : the shards, in order
    parts : what is read and summed at a time, in order
    wanted : what the reader was asked for
    shape : columns that are read
    """

    source: str
    files: tuple[FoundFile, ...]
    parts: tuple[Part, ...]
    wanted: ReadOptions
    shape: Shape

    @property
    def expert_names(self) -> list[str]:
        """Experts, in the order of their columns or of those asked for."""
        return list(self.shape.layout.scores)

    def only(self, experts: Sequence[str]) -> Dataset:
        """The same with some of the experts."""
        layout = self.shape.layout.of(experts)
        wanted = replace(self.wanted, experts=list(experts))
        return replace(self, wanted=wanted, shape=replace(self.shape, layout=layout))

    def explanation(self, rows: int) -> str:
        """How it is read, in one sentence."""
        said = explanation(self.shape.layout, rows, self.shape.query, self.shape.vectors)
        count = len(self.files)
        return f"{said.removesuffix('.')}; {count:,} shard{'' if count == 1 else 's'}."

    def read(self, part: Part, contents: bool = True) -> Iterator[OutcomeTable]:
        """Pieces of a part, in order; without ``contents`` only the outcomes are read."""
        columns = sorted(self.shape.kinds if contents else self.shape.layout.taken)
        system = system_of(self.source)
        groups, first = range(part.first, part.last), part.first_row
        with naming(part.file):
            now = found_file(system.get_file_info(part.file))
            if part.found is not None and now != part.found:
                raise changed(part)
            with system.open_input_file(part.file) as stream:
                file = parquet.ParquetFile(
                    stream, page_checksum_verification=True, pre_buffer=False
                )
                for batch in file.iter_batches(PIECE_ROWS, groups, columns, use_threads=False):
                    table = sound(pa.Table.from_batches([batch]))
                    yield build_outcomes(table, self.wanted, first, contents)
                    first += batch.num_rows


def open_dataset(source: str, wanted: ReadOptions) -> Dataset:
    """Look at every shard's last bytes: what it holds, and whether all hold the same.

    Parameters
    ----------
    source : file, folder or pattern, on any file system that pyarrow knows
    wanted : what ``read_outcomes`` would be asked for

    Raises
    ------
    DataFileError
        No files, no rows, a file that is cut off, columns that differ; the file is named.
    """
    files = find_files(source)
    found = looked_at(source, files, partial(_look, wanted))
    shape = found[0][0]
    parts: list[Part] = []
    for file, (other, groups) in zip(files, found, strict=True):
        _compare(shape, other, files[0].path, file.path)
        row = 0
        for start, stop in runs(groups, PART_ROWS):
            rows = sum(groups[start:stop])
            if rows:
                parts.append(Part(len(parts), file.path, start, stop, rows, file, row))
            row += rows
    if not parts:
        raise DataFileError(f"{shown(source)}: there must be at least one row; got none.")
    fixed = replace(wanted, form=shape.layout.form)
    dataset = Dataset(source, tuple(files), tuple(parts), fixed, shape)
    # By name, so that shards with columns in another order are read alike.
    named = dataset.expert_names
    return dataset.only(named if wanted.experts is None else match_experts(wanted.experts, named))


def changed(part: Part) -> DataFileError:
    """What to raise where a file is not what it was."""
    return DataFileError(f"{part.file}: it was changed since the fit began; run it again.")


def _look(
    wanted: ReadOptions, file: FoundFile, metadata: Any, schema: Any
) -> tuple[Shape, list[int]]:
    """Which columns of a file are read, and the rows of its row groups."""
    groups = range(metadata.num_row_groups)
    with naming(file.path):
        return _shape(schema, wanted), [metadata.row_group(group).num_rows for group in groups]


def _shape(schema: Any, wanted: ReadOptions) -> Shape:
    form = choose_form(schema, wanted.form, wanted.scores)
    if form == "llmrouter":
        raise DataFileError(
            "a dataset of many files must have one row per query; it has one per query and model. Bring "
            "them together first, with mild data convert."
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


def _compare(first: Shape, other: Shape, first_file: str, file: str) -> None:
    """Refuse a shard whose columns are not those of the first one."""
    for name in [*first.kinds, *other.kinds]:
        if name not in other.kinds:
            raise DataFileError(
                f"{file}: its columns must be those of {first_file}; {name!r} is missing."
            )
        if name not in first.kinds:
            raise DataFileError(
                f"{file}: its columns must be those of {first_file}; {name!r} is not among those."
            )
        check_kind(name, (first_file, first.kinds[name]), (file, other.kinds[name]))


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Errors about a file name it."""
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
