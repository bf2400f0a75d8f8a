"""Writing columns, tables of outcomes, and the two parts of a file that is split.

Files are written completely or not at all, and an existing file is replaced only if the caller says so.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from mild.artifact.files import check_free, replacing
from mild.core.arrays import IntArray
from mild.data.data_quality import duplicate_groups
from mild.data.formats import check_options
from mild.data.formats.base import ReadArguments
from mild.data.number_tables import default_features, is_number_table
from mild.data.outcome_table import Outcomes
from mild.data.outcomes import choose_contents
from mild.data.queries import query_texts
from mild.data.tables import (
    DELIMITERS,
    STDIN,
    csv_records,
    find_tables,
    naming,
    number_matrix,
    read_table,
    table_suffix,
)
from mild.data.vectors import read_vectors
from mild.errors import DataFileError, check_arguments, count_noun

SUFFIXES = (".csv", ".parquet", ".jsonl")

#: Lists or arrays of equal length.
Columns = Mapping[str, Any]


def check_output(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Check that a file can be written at a path; called before long work whose result is written there.

    Parameters
    ----------
    path : str or path-like
        The file to be written, .csv, .parquet or .jsonl.
    overwrite : bool, default=False
        Whether an existing file may be replaced.

    Returns
    -------
    pathlib.Path
        The path.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise DataFileError(
            f"{target}: the output must end in {', '.join(SUFFIXES)}; got {target.suffix!r}.",
            parameter="path",
        )
    return check_free(target, overwrite)


def write_columns(columns: Columns, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Write columns of equal length to a .csv, .parquet or .jsonl file.

    The file appears complete or not at all. In a .csv, lists are written as JSON; in a .jsonl,
    numbers that are not finite are null.

    Parameters
    ----------
    columns : dict of str to array-like
        Values by the name of their column.
    path : str or path-like
        The file; its suffix determines the format.
    overwrite : bool, default=False
        Whether an existing file may be replaced.

    Returns
    -------
    pathlib.Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_columns({"expert": [0, 1]}, Path(folder) / "choices.jsonl")
    ...     print(file.read_text(), end="")
    {"expert": 0}
    {"expert": 1}
    """
    target = check_output(path, overwrite)
    table = pa.table(dict(columns))
    try:
        # Written under a temporary name, which becomes the target when the file is complete.
        with replacing(target) as file:
            if target.suffix.lower() == ".csv":
                write_csv(columns, file)
            elif target.suffix.lower() == ".parquet":
                parquet.write_table(table, file)
            else:
                write_json_lines(table, file)
    except OSError as error:
        raise DataFileError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target


def write_batches(
    path: str | os.PathLike[str], schema: Any, batches: Iterable[Any], overwrite: bool = False
) -> int:
    """Write batches of rows to a file one by one, so that they need not fit in memory together.

    The file appears complete or not at all. A name that ends in .csv or .jsonl says the format; any
    other file is parquet. Nothing is read from ``batches`` if the file cannot be written.

    Parameters
    ----------
    path : str or path-like
        The file.
    schema : pyarrow.Schema
        Schema of the batches.
    batches : iterable of pyarrow.RecordBatch
        The rows.
    overwrite : bool, default=False
        Whether an existing file may be replaced.

    Returns
    -------
    int
        Number of rows written.

    Examples
    --------
    >>> import tempfile
    >>> batch = pa.record_batch({"expert": ["small", "large"], "draws": [[0.9, 0.1], [0.5, 0.5]]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.jsonl"
    ...     print(write_batches(file, batch.schema, [batch]), "rows")
    ...     print(file.read_text(), end="")
    2 rows
    {"expert": "small", "draws": [0.9, 0.1]}
    {"expert": "large", "draws": [0.5, 0.5]}
    """
    target = check_free(Path(path), overwrite)
    n_rows = 0
    try:
        with replacing(target) as file, _batch_writer(target, file, schema) as write:
            for batch in batches:
                write(batch)
                n_rows += batch.num_rows
    except OSError as error:
        raise DataFileError(f"cannot write {target}: {error.strerror or error}.") from error
    return n_rows


@contextmanager
def _batch_writer(target: Path, file: IO[bytes], schema: Any) -> Iterator[Callable[[Any], None]]:
    """Return a function that writes a batch of rows to an open file, in the format of its name."""
    suffix = target.suffix.lower()
    if suffix == ".csv":
        write_csv(_columns_of(schema.empty_table()), file)
        yield lambda batch: write_csv(_columns_of(batch), file, header=False)
    elif suffix == ".jsonl":
        yield lambda batch: write_json_lines(pa.Table.from_batches([batch]), file)
    else:
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            yield writer.write_batch


def _columns_of(rows: Any) -> Columns:
    """Return the columns of an Arrow table or batch by name."""
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def write_json_lines(table: Any, file: IO[bytes]) -> None:
    """Write an Arrow table to an open binary file, one JSON object per row."""
    lists = [_json_values(column) for column in table.columns]
    for row in zip(*lists, strict=True):
        line = json.dumps(dict(zip(table.column_names, row, strict=True)), ensure_ascii=False)
        file.write(line.encode() + b"\n")


def write_csv(columns: Columns, file: IO[bytes], header: bool = True) -> None:
    """Write columns as CSV to an open binary file."""
    table = pa.table(dict(columns))
    for index, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [_as_json(value) for value in table.column(index).to_pylist()]
            table = table.set_column(index, field.name, pa.array(texts, pa.string()))
    options = arrow_csv.WriteOptions(include_header=header, quoting_style="needed")
    arrow_csv.write_csv(table, file, options)


def _as_json(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, default=str)


def _json_values(column: Any) -> list[Any]:
    """Return the values of a column as JSON can hold them: dates as text, None for what is not finite."""
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    elif pa.types.is_floating(column.type):
        import pyarrow.compute as pc

        column = pc.if_else(pc.is_finite(column), column, None)
    values: list[Any] = column.to_pylist()
    return values


def write_outcomes(table: Outcomes, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Write a table of outcomes to a .parquet, .csv or .jsonl file in the wide format.

    Its columns are, in this order,

    - ``prompt``: the query, with its choices; ``embedding``: the vectors;
    - the other columns of the table; one that is called ``prompt`` or ``embedding`` is renamed
      ``<column>_of_source``;
    - ``correct__<model>`` if all scores are 0 or 1, else ``score__<model>``; ``cost__<model>`` in dollars;
      ``latency_ms__<model>``.

    Parameters
    ----------
    table : Outcomes
        The outcomes.
    path : str or path-like
        The file.
    overwrite : bool, default=False
        Whether an existing file may be replaced.

    Returns
    -------
    pathlib.Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(pa.table({"query": ["a"], "weak": [False], "strong": [True]}))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_outcomes(table, Path(folder) / "wide.csv").read_text(), end="")
    "prompt","correct__strong","correct__weak"
    "a",1,0
    """
    target = check_output(path, overwrite)
    return write_columns(table.wide_columns(), target, overwrite)


@dataclass(frozen=True)
class FilePart:
    """One of the two files of a split.

    Attributes
    ----------
    file : pathlib.Path
        The file.
    rows : int
        Number of its rows.
    queries : int
        Number of its different queries.
    """

    file: Path
    rows: int
    queries: int

    @property
    def contents(self) -> str:
        """The numbers of rows and queries, in words."""
        rows = count_noun(self.rows, "row")
        return f"{rows}, {count_noun(self.queries, 'different query', 'different queries')}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return {"file": str(self.file), "rows": self.rows, "queries": self.queries}


@dataclass(frozen=True)
class FileSplit:
    """What ``split_file`` wrote.

    Attributes
    ----------
    train : FilePart
        The file to train on.
    test : FilePart
        The file to test on.
    left_out : int
        Number of rows in neither file: after a split in time, test rows whose query or group also occurs in
        the training rows.
    """

    train: FilePart
    test: FilePart
    left_out: int

    @property
    def sentences(self) -> list[str]:
        """What was written, in words."""
        sentences = [
            f"{self.train.file}: {self.train.contents} to train on.",
            f"{self.test.file}: {self.test.contents} to test on.",
        ]
        if self.left_out == 1:
            sentences.append(
                "1 later row is in neither file because its query or group is in the training rows."
            )
        elif self.left_out:
            sentences.append(
                f"{self.left_out:,} later rows are in neither file because their query or group is in the "
                "training rows."
            )
        return sentences

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return {
            "train": self.train.as_dict(),
            "test": self.test.as_dict(),
            "left_out": self.left_out,
        }


@check_arguments
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
) -> FileSplit:
    """Divide the rows of a file into a file to train on and a file to test on.

    Equal queries are always in the same file, as in ``Outcomes.split``. Rows are copied unchanged, in
    the format of the source: ``log.csv`` becomes ``log.train.csv`` and ``log.test.csv``. A source that is
    neither .parquet, .csv, .tsv, .json nor .jsonl becomes two .parquet files.

    Parameters
    ----------
    file : str or path-like
        Path of one file.
    test_size, groups, time, random_state : optional
        The same as in ``Outcomes.split``.
    out : str, path-like or None, default=None
        Folder of the two files; None for that of the file.
    overwrite : bool, default=False
        Whether existing files may be replaced.
    query : str, list of str or None, default=None
        The same as in ``mild.read_outcomes``.

    Returns
    -------
    FileSplit
        The two files, and how many rows each has.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = Path(folder) / "log.csv"
    ...     _ = log.write_text("prompt,correct__a\\n2 + 2?,1\\n3 + 4?,0\\n2 + 2?,0\\n5 + 5?,1\\n")
    ...     files = split_file(log, 0.5)
    ...     files.train.rows, files.test.rows, files.train.file.name
    (1, 3, 'log.train.csv')
    """
    options = ReadArguments(query=query)
    check_options(options)
    source = _only_file(file)
    train_file, test_file, part_format = _output_files(source, out, overwrite)
    # Errors that are raised in this block name the file.
    with naming(source):
        source_table = read_table(source, options.texts())
        outcomes, query_of_row = _table_to_split(source_table, options)
        split = outcomes.split_rows(test_size, groups=groups, time=time, random_state=random_state)
        file_rows = _file_rows(source, part_format, source_table)
    train_content = file_rows.content(split.train)
    test_content = file_rows.content(split.test)
    _write_both(train_file, train_content, test_file, test_content)
    n_train_queries = len(np.unique(query_of_row[split.train]))
    n_test_queries = len(np.unique(query_of_row[split.test]))
    return FileSplit(
        FilePart(train_file, len(split.train), n_train_queries),
        FilePart(test_file, len(split.test), n_test_queries),
        split.dropped,
    )


def _output_files(
    source: Path, folder: str | os.PathLike[str] | None, overwrite: bool
) -> tuple[Path, Path, str]:
    """Return the two files into which a file is divided, and their format as a suffix such as ``.csv``.

    Both paths must be free unless ``overwrite``; the folder is made if it does not exist.
    """
    with naming(source):
        stem, suffix, part_format = _name_parts(source)
    output_folder = source.parent
    if folder is not None:
        output_folder = Path(folder)
        _make_folder(output_folder)
    train_file = output_folder / f"{stem}.train{suffix}"
    test_file = output_folder / f"{stem}.test{suffix}"
    check_free(train_file, overwrite)
    check_free(test_file, overwrite)
    return train_file, test_file, part_format


def _write_both(
    train_file: Path, train_content: bytes, test_file: Path, test_content: bytes
) -> None:
    """Write two files, both or neither; compressed where their name says so."""
    if train_file.suffix.lower() == ".gz":
        train_content = gzip.compress(train_content)
        test_content = gzip.compress(test_content)
    try:
        with replacing(train_file) as train_target, replacing(test_file) as test_target:
            train_target.write(train_content)
            test_target.write(test_content)
    except OSError as error:
        folder = train_file.parent
        raise DataFileError(f"cannot write to {folder}: {error.strerror or error}.") from error


def _table_to_split(table: Any, options: ReadArguments) -> tuple[Outcomes, IntArray]:
    """Return an Outcomes that can be split like an Arrow table, and the number of each row's query."""
    texts = [""] * table.num_rows
    vectors = None
    if options.query is None and is_number_table(table):
        has_texts = False
        vectors = number_matrix(table, default_features(table.schema))
    else:
        recipe, vector_column = choose_contents(table, options, ())
        if recipe is not None:
            texts = query_texts(table, recipe)
        has_texts = any(texts)
        if vector_column is not None and not has_texts:
            vectors = read_vectors(table, vector_column)
    # A table needs an expert: this one is made up, since a split uses queries, vectors and columns only.
    scores = np.zeros((table.num_rows, 1))
    rows = Outcomes(texts, ["any"], scores, None, None, columns=table, vectors=vectors)
    if has_texts:
        return rows, duplicate_groups(texts)
    return rows, rows.groups()


def _only_file(source: str | os.PathLike[str]) -> Path:
    """Return the file of a source; several files, a folder or the standard input are an error."""
    is_stdin = os.fspath(source) == STDIN
    files = []
    if not is_stdin:
        files = find_tables(source)
    # A file named "-" in this folder would be read as the standard input.
    if len(files) != 1 or str(files[0]) == STDIN or Path(source).is_dir():
        got = f"{len(files)} files"
        if is_stdin:
            got = "the standard input"
        raise DataFileError(
            f"{source}: only a single file can be divided into two; got {got}. Make it one first, with "
            "mild convert.",
            parameter="file",
        )
    return files[0]


def _name_parts(file: Path) -> tuple[str, str, str]:
    """Return the name of a file without suffix, the suffix of its parts, and the format of the parts.

    >>> _name_parts(Path("log.csv.gz")), _name_parts(Path("log.feather"))
    (('log', '.csv.gz', '.csv'), ('log', '.parquet', '.parquet'))
    """
    ending = file.suffix
    if ending.lower() == ".gz":
        ending = "".join(file.suffixes[-2:])
    stem = file.name.removesuffix(ending)
    kind = table_suffix(file)
    if kind in (".csv", ".tsv", ".json", ".jsonl", ".ndjson"):
        return stem, ending, kind
    if ending.lower() == ".parquet":
        return stem, ending, ".parquet"
    return stem, ".parquet", ".parquet"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise DataFileError(
            f"cannot make the folder {folder}: {reason}.", parameter="out"
        ) from error


class _FileRows(Protocol):
    """The rows of a file in the form in which they are copied into other files."""

    def content(self, rows: IntArray) -> bytes:
        """Return the bytes of a file with the rows of these numbers."""
        ...


@dataclass(frozen=True, eq=False)
class _ArrowRows:
    """The rows of a file that Arrow writes."""

    table: Any

    def content(self, rows: IntArray) -> bytes:
        buffer = io.BytesIO()
        parquet.write_table(self.table.take(rows), buffer)
        return buffer.getvalue()


@dataclass(frozen=True, eq=False)
class _TextRows:
    """The rows of a file of text, as they are written in it."""

    header: str
    records: Sequence[str]  # one or more lines per row, with their line breaks

    def content(self, rows: IntArray) -> bytes:
        lines = [self.header]
        for row in rows.tolist():
            record = self.records[row]
            lines.append(record)
            # The last line of a file may have no line break.
            if not record.endswith(("\n", "\r")):
                lines.append("\n")
        return "".join(lines).encode()


@dataclass(frozen=True, eq=False)
class _JsonRows:
    """The rows of a .json file that holds a list of objects."""

    records: Sequence[Any]

    def content(self, rows: IntArray) -> bytes:
        kept = [self.records[row] for row in rows.tolist()]
        return json.dumps(kept, ensure_ascii=False).encode() + b"\n"


def _file_rows(file: Path, kind: str, table: Any) -> _FileRows:
    """Return the rows of a file that was read as ``table``; ``kind`` is the format of its parts."""
    is_compressed = file.suffix.lower() == ".gz"
    if kind == ".parquet":
        if table_suffix(file) == ".parquet" and not is_compressed:
            # Read again: categories, for example, are decoded in the table that was read.
            table = parquet.ParquetFile(file).read()
        return _ArrowRows(table)
    content = file.read_bytes()
    if is_compressed:
        content = gzip.decompress(content)
    text = content.decode()
    file_rows: _TextRows | _JsonRows
    if kind == ".json":
        file_rows = _json_rows(text)
    elif kind in (".jsonl", ".ndjson"):
        file_rows = _line_rows(text)
    else:
        file_rows = _csv_rows(text, kind)
    n_records = len(file_rows.records)
    if n_records != table.num_rows:
        raise DataFileError(
            f"its {table.num_rows:,} rows cannot be told apart in the file, where {n_records:,} were "
            "found. Convert it first, with mild convert."
        )
    return file_rows


def _line_rows(text: str) -> _TextRows:
    """Return the rows of a file with one JSON object per line."""
    byte_order_mark = ""
    if text.startswith("\ufeff"):
        byte_order_mark = "\ufeff"
    # Not splitlines(): other line breaks of Unicode may be part of a text.
    lines = io.StringIO(text.removeprefix(byte_order_mark), newline="\n")
    return _TextRows(byte_order_mark, [line for line in lines if line.strip()])


def _json_rows(text: str) -> _TextRows | _JsonRows:
    """Return the rows of a list of objects, or of JSON lines in a file that is named .json."""
    try:
        value = json.loads(text.removeprefix("\ufeff"))
    except ValueError:
        return _line_rows(text)
    if not isinstance(value, list):
        raise DataFileError(
            "only a .json file that holds a list of objects, one per row, can be divided into two. "
            "Convert it first, with mild convert."
        )
    return _JsonRows(value)


def _csv_rows(text: str, kind: str) -> _TextRows:
    """Return the rows of a CSV file; line breaks in quotes do not end a row."""
    header, *records = csv_records(text, DELIMITERS[kind])
    return _TextRows(header.text, [record.text for record in records])
