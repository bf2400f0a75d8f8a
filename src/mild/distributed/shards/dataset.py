"""An outcome table in many Parquet files, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mild.artifact.expert_names import match_experts
from mild.data import OutcomeTable
from mild.data.formats import FORMATS, check_options, choose_form, lay_out
from mild.data.formats.base import Layout, ReadArguments
from mild.data.formats.tokens import is_price_file
from mild.data.outcomes import build_outcomes, choose_contents, explanation
from mild.data.queries import Recipe
from mild.data.selection import PARTS, SPLIT_NAMES, find_split, named_columns
from mild.data.tables import choose_columns, column_kind, is_string, naming, validate_columns
from mild.distributed.partitions import (
    FoundFile,
    Partition,
    check_same_columns,
    cut,
    find_files,
    read_batches,
    read_footers,
)
from mild.errors import DataFileError

# Rows of a partition, unless a single row group has more: enough to be worth a message to a worker.
PART_ROWS = 131_072
# Rows that are in memory at a time while a partition is read.
PIECE_ROWS = 16_384


@dataclass(frozen=True)
class Dataset:
    """Shards that are one table: same columns, rows in the order of the files."""

    source: str
    files: tuple[FoundFile, ...]
    partitions: tuple[Partition, ...]  # what is read and summed at a time
    wanted: ReadArguments
    layout: Layout  # columns of the outcomes
    query: Recipe | None
    vectors: str | None  # column of vectors
    kinds: Mapping[str, str]  # column that is read -> its kind, as in ``column_kind``

    @property
    def expert_names(self) -> list[str]:
        """Experts, in the order of their columns or of the names that were asked for."""
        return list(self.layout.scores)

    def only(self, experts: Sequence[str]) -> Dataset:
        wanted = replace(self.wanted, experts=list(experts))
        return replace(self, wanted=wanted, layout=self.layout.of(experts))

    def explanation(self, rows: int) -> str:
        """How it is read, in one sentence."""
        text = explanation(self.layout, rows, self.query, self.vectors)
        count = len(self.files)
        return f"{text.removesuffix('.')}; {count:,} shard{'' if count == 1 else 's'}."

    def read(self, partition: Partition, contents: bool = True) -> Iterator[OutcomeTable]:
        """Pieces of a partition, in order; without ``contents`` only the outcomes are read."""
        selecting = named_columns(self.wanted.where)
        columns = sorted({*(self.kinds if contents else self.layout.taken), *selecting})
        for first, batch in read_batches(self.source, partition, columns, PIECE_ROWS):
            with naming(partition.path):
                table = validate_columns(pa.Table.from_batches([batch]))
                piece = build_outcomes(table, self.wanted, first, contents)
            yield piece


def open_dataset(source: str, wanted: ReadArguments) -> Dataset:
    """Read the footer of every shard, and check that all have the same columns."""
    check_options(wanted)
    files = find_files(source)

    def look(file: FoundFile, metadata: Any, schema: Any) -> tuple[Any, ...]:
        texts = [field.name for field in schema if is_string(field.type)]
        splits = [name for name in texts if name.lower() in SPLIT_NAMES]
        with naming(file.path):
            return *_columns(schema, wanted), (splits, metadata)

    found = read_footers(source, files, look)
    layout, query, vectors, kinds, (splits, _) = found[0]
    for file, (*_, other, _) in zip(files, found, strict=True):
        check_same_columns(files[0].path, kinds, file.path, other)
    footers = [metadata for *_, (_, metadata) in found]
    partitions = cut(source, files, footers, set(kinds), most_rows=PART_ROWS)
    fixed = replace(wanted, form=layout.form)
    dataset = Dataset(source, tuple(files), tuple(partitions), fixed, layout, query, vectors, kinds)
    # By name, so that the order of columns may differ between shards.
    names = dataset.expert_names
    dataset = dataset.only(
        names if wanted.experts is None else match_experts(wanted.experts, names)
    )
    return _training_rows(dataset, splits)


def _training_rows(dataset: Dataset, columns: Sequence[str]) -> Dataset:
    """The dataset without the test rows, if one of these columns says which they are."""
    name = next(iter(columns), None)
    if name is None or name in named_columns(dataset.wanted.where):
        return dataset
    values: dict[Any, None] = {}
    for partition in dataset.partitions:
        for _, batch in read_batches(dataset.source, partition, [name], PIECE_ROWS):
            values.update(dict.fromkeys(batch.column(0).to_pylist()))
    split = find_split(pa.table({name: pa.array(list(values), pa.string())}))
    role = None if split is None else split.part(PARTS["train"])
    if split is None or role is None:
        return dataset
    given = dataset.wanted.where or ()
    given = [given] if isinstance(given, str) else list(given)
    taken = [value for value, own in zip(values, split.roles, strict=True) if own == role]
    where = [*given, *(f"{name}={value}" for value in taken)]
    note = f"the {role} rows by column {name!r} (all with --where '{name}=*')"
    return replace(
        dataset,
        wanted=replace(dataset.wanted, where=where),
        layout=replace(dataset.layout, notes=(*dataset.layout.notes, note)),
    )


def _columns(
    schema: Any, wanted: ReadArguments
) -> tuple[Layout, Recipe | None, str | None, dict[str, str]]:
    """Layout, query, vectors and kinds of the columns of a shard."""
    form = choose_form(schema, wanted)
    if FORMATS[form].widen is not None:
        raise DataFileError(
            "a dataset of many files must have one row per query; it has one per query and model. Convert "
            "it first, with mild data convert."
        )
    if wanted.tokens is not None or is_price_file(wanted.prices, schema.names):
        raise DataFileError(
            "token counts and files of prices are for tables that fit into memory: mild data convert "
            "writes the table with its dollars.",
            parameter="prices",
        )
    layout = lay_out(schema, form, wanted)
    query, vectors = choose_contents(schema.empty_table(), wanted, layout.taken)
    if vectors is not None:
        choose_columns("vectors", [vectors], list(schema.names))
    selecting = named_columns(wanted.where)
    outcomes = (layout.scores, layout.prices, layout.latencies)
    used = [column for columns in outcomes for column in columns.values()]
    used += [] if query is None else [*query.columns, *query.choices]
    used += [] if vectors is None else [vectors]
    used += choose_columns("where", selecting, list(schema.names)) if selecting else []
    return layout, query, vectors, {name: column_kind(schema.field(name).type) for name in used}


def concatenate(tables: Sequence[OutcomeTable]) -> OutcomeTable:
    """All rows in one table; experts and columns are those of the first."""
    first = tables[0]
    if len(tables) == 1:
        return first
    widths = sorted({table.vectors.shape[1] for table in tables if table.vectors is not None})
    if len(widths) > 1:
        raise DataFileError(
            f"vectors must all have the same length; some have {widths[0]} and others {widths[-1]} "
            f"numbers."
        )
    stacked: dict[str, Any] = {
        name: np.concatenate([getattr(table, name) for table in tables])
        for name in ("scores", "prices", "latencies", "vectors")
        if getattr(first, name) is not None
    }
    return replace(
        first,
        queries=[text for table in tables for text in table.queries],
        columns=pa.concat_tables([table.columns for table in tables]),
        # The rows come from several files: no row number applies.
        row_numbers=None,
        **stacked,
    )
