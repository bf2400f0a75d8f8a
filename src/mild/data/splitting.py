"""Dividing a file into one to train on and one to test on; its rows and columns stay as they are."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow.parquet as parquet

from mild.artifact.files import check_free, replacing
from mild.core.arrays import IntArray
from mild.data.data_quality import duplicate_groups
from mild.data.formats import check_options
from mild.data.formats.base import ReadArguments
from mild.data.outcome_table import OutcomeTable
from mild.data.outcomes import choose_contents
from mild.data.queries import query_texts
from mild.data.selection import find_split
from mild.data.tables import (
    MAX_BLOCK,
    STDIN,
    find_tables,
    naming,
    read_table,
    table_suffix,
)
from mild.data.vectors import read_vectors
from mild.errors import DataFileError, counted

#: What the records of a file are written with.
Writer = Callable[[IntArray, IO[bytes]], Any]


@dataclass(frozen=True)
class FilePart:
    file: Path
    rows: int
    queries: int  # different ones


@dataclass(frozen=True)
class FileSplit:
    """What ``split_file`` wrote."""

    train: FilePart
    test: FilePart
    left_out: int  # rows in neither file, because their query or group is in the past
    split_column: str | None = None  # column of the table that says what is to train on, or None

    @property
    def sentences(self) -> list[str]:
        found = [
            f"{part.file}: {counted(part.rows, 'row')}, "
            f"{counted(part.queries, 'different query', 'different queries')} to {use}"
            for use, part in (("train on", self.train), ("test on", self.test))
        ]
        if self.left_out:
            verb, why = ("is", "its") if self.left_out == 1 else ("are", "their")
            rule = f"{verb} in neither file because {why} query or group is in the training rows"
            found.append(f"{counted(self.left_out, 'later row')} {rule}")
        if self.split_column is not None:
            name = self.split_column
            rule = f"column {name!r} already divides the rows, and other commands go by it"
            found.append(f"{rule}: add --where '{name}=*' to use all rows of a file")
        return [f"{sentence}." for sentence in found]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        parts = {
            name: {"file": str(part.file), "rows": part.rows, "queries": part.queries}
            for name, part in (("train", self.train), ("test", self.test))
        }
        return {**parts, "left_out": self.left_out, "split_column": self.split_column}


def split_file(
    file: str | os.PathLike[str],
    test_size: float = 0.3,
    *,
    groups: str | None = None,
    time: str | None = None,
    random_state: int = 0,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    query: str | Sequence[str] | None = None,
    vectors: str | None = None,
    choices: bool = True,
) -> FileSplit:
    """Divide the rows of a file into one file to train on and one to test on.

    Equal queries are never on both sides. Rows, columns and the format of the file stay as they are:
    ``log.csv`` becomes ``log.train.csv`` and ``log.test.csv``. What is neither .parquet, .csv, .tsv,
    .json nor .jsonl is written as .parquet. ``OutcomeTable.split`` divides a table in memory in the same
    way.

    Parameters
    ----------
    file : path of one file
    test_size, groups, time, random_state : as in ``OutcomeTable.split``
    out : folder of the two files; None for that of the file
    overwrite : whether existing files may be replaced
    query, vectors, choices : as in ``mild.read_outcomes``

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = Path(folder) / "log.csv"
    ...     _ = log.write_text("prompt,correct__a\\n2 + 2?,1\\n3 + 4?,0\\n2 + 2?,0\\n5 + 5?,1\\n")
    ...     found = split_file(log, 0.5)
    ...     found.train.rows, found.test.rows, found.train.file.name
    (1, 3, 'log.train.csv')
    """
    options = ReadArguments(query=query, vectors=vectors, choices=choices)
    check_options(options)
    source = _only_file(file)
    folder = source.parent if out is None else Path(out)
    with naming(source):
        stem, suffix, kind = _name_parts(source)
        targets = [folder / f"{stem}.{part}{suffix}" for part in ("train", "test")]
    if out is not None:
        _make_folder(folder)
    for target in targets:
        check_free(target, overwrite)
    with naming(source):
        table = read_table(source, options.texts())
        recipe, found = choose_contents(table, options, ())
        texts = [""] * table.num_rows if recipe is None else query_texts(table, recipe)
        # The score of a made-up expert: only queries, vectors and columns count for a split.
        rows = OutcomeTable(
            *(texts, ["any"], np.zeros((table.num_rows, 1)), None, None),
            columns=table,
            vectors=None if found is None or any(texts) else read_vectors(table, found),
        )
        split = rows.split_rows(test_size, groups=groups, time=time, random_state=random_state)
        write = _writer(source, kind, table)
    try:
        with replacing(targets[0]) as first, replacing(targets[1]) as second:
            for index, place in ((split.train, first), (split.test, second)):
                if suffix.lower().endswith(".gz"):
                    content = io.BytesIO()
                    write(index, content)
                    place.write(gzip.compress(content.getvalue()))
                else:
                    write(index, place)
    except OSError as error:
        raise DataFileError(f"cannot write to {folder}: {error.strerror or error}.") from error
    numbers = duplicate_groups(texts) if any(texts) else rows.groups()
    train, test = (
        FilePart(target, len(index), len(np.unique(numbers[index])))
        for target, index in zip(targets, (split.train, split.test), strict=True)
    )
    known = find_split(table)
    return FileSplit(train, test, split.dropped, None if known is None else known.name)


def _only_file(source: str | os.PathLike[str]) -> Path:
    """The file of a source that is one; several, a folder and the standard input are refused."""
    files = [Path(STDIN)] if os.fspath(source) == STDIN else find_tables(source)
    if len(files) != 1 or str(files[0]) == STDIN or Path(source).is_dir():
        got = "the standard input" if os.fspath(source) == STDIN else f"{len(files)} files"
        raise DataFileError(
            f"{source}: only a single file can be divided into two; got {got}. Make it one first, with "
            "mild data convert.",
            parameter="file",
        )
    return files[0]


def _name_parts(file: Path) -> tuple[str, str, str]:
    """Name without suffixes, the suffixes of the two files, and the kind of the file."""
    ending = "".join(file.suffixes[-2:]) if file.suffix.lower() == ".gz" else file.suffix
    stem, kind = file.name.removesuffix(ending), table_suffix(file)
    if kind in (".csv", ".tsv", ".json", ".jsonl", ".ndjson"):
        return stem, ending, kind
    return stem, ending if ending.lower() == ".parquet" else ".parquet", ".parquet"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise DataFileError(
            f"cannot make the folder {folder}: {reason}.", parameter="out"
        ) from error


def _writer(file: Path, kind: str, table: Any) -> Writer:
    """A function that writes some of the rows of a file, as they are."""
    if kind == ".parquet":
        # Read again: categories, for example, are decoded in the table that was read.
        again = table_suffix(file) == ".parquet" and file.suffix.lower() != ".gz"
        whole = parquet.ParquetFile(file).read() if again else table
        return lambda rows, out: parquet.write_table(whole.take(rows), out)
    content = (
        gzip.decompress(file.read_bytes()) if file.suffix.lower() == ".gz" else file.read_bytes()
    )
    text = content.decode()
    if kind == ".json":
        count, write = _json_records(text)
    else:
        head, records = _lines(text) if kind in (".jsonl", ".ndjson") else _csv_records(text, kind)
        count, write = len(records), _text_writer(head, records)
    if count != table.num_rows:
        raise DataFileError(
            f"its {table.num_rows:,} rows cannot be told apart in the file, where {count:,} were found. "
            "Convert it first, with mild data convert."
        )
    return write


def _text_writer(head: str, records: Sequence[str]) -> Writer:
    def write(rows: IntArray, out: IO[bytes]) -> None:
        out.write(head.encode())
        for row in rows.tolist():
            # The last line of a file may have no end.
            ending = "" if records[row].endswith(("\n", "\r")) else "\n"
            out.write(f"{records[row]}{ending}".encode())

    return write


def _lines(text: str) -> tuple[str, list[str]]:
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    # Of all line breaks of Unicode only this one ends a line: the others may stand in a text.
    lines = io.StringIO(text.removeprefix(mark), newline="\n")
    return mark, [line for line in lines if line.strip()]


def _csv_records(text: str, kind: str) -> tuple[str, list[str]]:
    """The header of a CSV file, and its records as they are written, line breaks in quotes included."""
    lines = list(io.StringIO(text, newline=""))
    limit = csv.field_size_limit(MAX_BLOCK)
    try:
        reader = csv.reader(iter(lines), delimiter="\t" if kind == ".tsv" else ",")
        records, start = [], 0
        for cells in reader:
            if cells:
                records.append("".join(lines[start : reader.line_num]))
            start = reader.line_num
    except csv.Error as error:
        raise DataFileError(f"line {start + 1} is not valid CSV ({error}).") from error
    finally:
        csv.field_size_limit(limit)
    return records[0], records[1:]


def _json_records(text: str) -> tuple[int, Writer]:
    """The rows of a .json file, and a function that writes some of them in the same shape."""
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except ValueError:
        # Lines of JSON in a file that is named .json.
        head, records = _lines(text)
        return len(records), _text_writer(head, records)
    first = next(iter(found.values())) if isinstance(found, dict) and found else found
    count = len(first) if isinstance(first, list | dict) else 1

    def some(values: Any, rows: list[int]) -> Any:
        if isinstance(values, list):
            return [values[row] for row in rows]
        names = list(values)
        return {names[row]: values[names[row]] for row in rows}

    def write(rows: IntArray, out: IO[bytes]) -> None:
        # A list of rows, or of each column the values of the rows, in a list or by their index.
        index, one_list = rows.tolist(), isinstance(found, list)
        kept = some(found, index) if one_list else {n: some(v, index) for n, v in found.items()}
        out.write(json.dumps(kept, ensure_ascii=False).encode() + b"\n")

    return count, write
