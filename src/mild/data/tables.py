"""Files, folders, pipes or a data frame as one Arrow table; types and choice of its columns.

Arrow does the reading. Where it fails, the file is searched for the first line that is wrong, so that the
error can name it.
"""

from __future__ import annotations

import csv
import difflib
import glob
import gzip
import io
import json
import math
import os
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from mild.errors import (
    DataFileError,
    InvalidInputError,
    MissingExtraError,
    OptionError,
    count_noun,
    install_hint,
    listed,
)

SUFFIXES = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".feather", ".xlsx")
#: Files that ``read_columns`` reads.
COLUMN_SUFFIXES = (".parquet", ".csv", ".jsonl")
PICKLES = (".pkl", ".pickle")
#: What separates the cells of a text file.
DELIMITERS = {".csv": ",", ".tsv": "\t"}
#: The name of the standard input.
STDIN = "-"
#: Column with the file of each row, where several files are one table.
SOURCE_FILE = "source_file"
# Types are inferred from one block: as large as the file, so that a late value counts too.
MIN_BLOCK = 1 << 20
MAX_BLOCK = 2**31 - 1
#: Words for right and wrong, in upper or lower case.
TRUTHS = {
    **dict.fromkeys(("yes", "y", "true", "t", "right", "correct", "pass", "passed"), 1.0),
    **dict.fromkeys(("no", "n", "false", "f", "wrong", "incorrect", "fail", "failed"), 0.0),
}


@contextmanager
def naming(file: object) -> Iterator[None]:
    """Put the name of a file before the messages of errors about it."""
    try:
        yield
    except OptionError:
        raise
    except (DataFileError, InvalidInputError) as error:
        raise DataFileError(f"{file}: {error}", parameter=error.parameter) from error
    except OSError as error:
        raise DataFileError(f"{file}: it cannot be read: {reason(error)}.") from error


def check_file(file: Path, suffixes: Sequence[str] = SUFFIXES) -> str:
    """Return the lower-case suffix, without ``.gz``, of a file, which must exist and have one of these.

    A pipe, such as /dev/stdin or a process substitution, has none: ``""``.
    """
    if not file.exists():
        raise DataFileError("there is no such file.")
    if file.is_dir():
        raise DataFileError("it must be a file; got a folder.")
    suffix = table_suffix(file)
    if suffix in PICKLES:
        raise DataFileError(
            "it is a pickle, which can run any program when it is loaded and is never read. If you trust "
            f"it, convert it: python -c \"import pandas; pandas.read_pickle('{file.name}')"
            f".to_csv('{file.stem}.csv', index=False)\"",
        )
    if not file.is_file():
        return ""
    if suffix not in suffixes:
        raise DataFileError(f"the file must end in {', '.join(suffixes)}; got {file.suffix!r}.")
    if file.stat().st_size == 0:
        raise DataFileError("the file is empty.")
    return suffix


def table_suffix(file: str | os.PathLike[str]) -> str:
    """Return the lower-case suffix of a file; of a compressed file, that before ``.gz``.

    >>> table_suffix("log.CSV.gz"), table_suffix("log.parquet")
    ('.csv', '.parquet')
    """
    path = Path(file)
    if path.suffix.lower() == ".gz":
        path = Path(path.stem)
    suffix = path.suffix.lower()
    if suffix in (".parq", ".pq"):
        return ".parquet"
    return suffix


def find_tables(source: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a source: a file, a folder, a pattern, or several separated by commas."""
    text = os.fspath(source)
    path = Path(text)
    if path.is_dir():
        return _tables_in_folder(path)
    if path.exists() or text == STDIN:
        return [path]
    if any(mark in text for mark in "*?["):
        return _matching_tables(text)
    names = _comma_separated(text)
    if len(names) > 1 and any(Path(name).exists() for name in names):
        files = []
        for name in names:
            files += find_tables(name)
        return files
    return [path]


def _comma_separated(text: str) -> list[str]:
    """Return the names in a text, without empty ones."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _tables_in_folder(folder: Path) -> list[Path]:
    """Return all tables in a folder and its subfolders."""
    files = sorted(file for file in folder.rglob("*") if _is_table(file))
    if not files:
        kinds = ", ".join(SUFFIXES)
        raise DataFileError(f"the folder must hold files that end in {kinds}; found none.")
    return files


def _matching_tables(patterns: str) -> list[Path]:
    """Return all files that fit one of several patterns, in the order of the patterns."""
    files: list[Path] = []
    # Patterns may contain commas, too, but hardly ever do.
    for pattern in patterns.split(","):
        files.extend(
            Path(name)
            for name in sorted(glob.glob(pattern.strip(), recursive=True))
            if not Path(name).is_dir()
        )
    if not files:
        raise DataFileError(f"no file fits the pattern {short(patterns)}.")
    return files


def _is_table(file: Path) -> bool:
    """Return whether a file has the suffix of a table, and is neither hidden nor called _SUCCESS or so."""
    return file.is_file() and file.name[0] not in "._" and table_suffix(file) in SUFFIXES


def read_table(source: Any, texts: Collection[str] = ()) -> Any:
    """Read one or more files, or a frame of another library, into one Arrow table.

    Parameters
    ----------
    source : str, path-like, list of path-like or frame
        A file, a pipe, ``"-"`` for the standard input, a folder, a pattern, or several files in a list or
        separated by commas; or a frame with ``__arrow_c_stream__``.
    texts : collection of str, default=()
        Names or patterns of columns that are read as text even if they look like numbers: a prompt
        ``007`` is not 7. They apply to files; the columns of a frame have types.

    Returns
    -------
    pyarrow.Table
        At least one row. If the rows come from several files, column ``source_file`` names the file of
        each.
    """
    files = []
    if _is_path(source):
        files = find_tables(source)
    elif isinstance(source, (list, tuple)) and all(_is_path(path) for path in source):
        for path in source:
            files += find_tables(path)
    if not files:
        return _checked(_read_frame(source))
    if len(files) == 1:
        return _read_file(files[0], texts)
    return _joined(files, texts)


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def read_columns(source: Any) -> dict[str, list[Any]]:
    """Read the columns of a .parquet, .csv or .jsonl file, or of a frame, as lists of Python values.

    All cells of a .csv are texts: ``007`` is not converted to 7. If an object of a .jsonl lacks a key, its
    value is None.

    Parameters
    ----------
    source : str, path-like or frame
        Path of the file, or a frame.

    Returns
    -------
    dict of str to list
        Values by the name of their column.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "questions.jsonl"
    ...     _ = file.write_text('{"query": "2 + 2?", "answer": 4}\\n{"query": "Rome?"}\\n')
    ...     read_columns(file)
    {'query': ['2 + 2?', 'Rome?'], 'answer': [4, None]}
    """
    if not isinstance(source, str | os.PathLike):
        columns: dict[str, list[Any]] = read_table(source).to_pydict()
        return columns
    file = Path(source)
    with naming(file):
        suffix = check_file(file, COLUMN_SUFFIXES)
        if suffix == ".jsonl":
            return _columns_of(read_objects(file))
        texts = []
        if suffix == ".csv":
            texts = ["*"]
        columns = read_table(file, texts).to_pydict()
        return columns


def _columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of objects by key, in the order in which keys first appear."""
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    columns = {}
    for name in names:
        columns[name] = [row.get(name) for row in rows]
    return columns


def _read_file(file: Path, texts: Collection[str]) -> Any:
    """Read one file, a pipe or the standard input into an Arrow table."""
    try:
        if str(file) == STDIN:
            return _checked(_read_content(sys.stdin.buffer.read(), texts))
        suffix = check_file(file)
        if not suffix:
            return _checked(_read_content(file.read_bytes(), texts))
        if file.suffix.lower() == ".gz":
            return _checked(_read_content(_decompressed(file.read_bytes()), texts, suffix))
        return _checked(_read_source(file, suffix, texts))
    except OSError as error:
        raise DataFileError(f"it cannot be read: {reason(error)}.") from error


def _joined(files: Sequence[Path], texts: Collection[str]) -> Any:
    """Read several files into one table that names the file of each row; missing columns are empty."""
    tables = []
    for file in files:
        with naming(file):
            table = _read_file(file, texts)
        if SOURCE_FILE not in table.column_names:
            names = pa.array([file.name.partition(".")[0]] * table.num_rows, pa.string())
            table = table.append_column(SOURCE_FILE, names)
        tables.append(table)
    try:
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        raise DataFileError(
            f"{len(files)} files cannot be one table, because a column differs in its type "
            f"({reason(error)})."
        ) from error


def _checked(table: Any) -> Any:
    """Return the table; raise an error if it has no rows, equal names or a broken column."""
    names = list(table.column_names)
    check_names(names)
    if table.num_rows == 0:
        raise DataFileError(f"there must be at least one row; got none, columns {listed(names)}.")
    return validate_columns(table)


def _decompressed(content: bytes) -> bytes:
    """Return the content of a .gz file."""
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise unreadable(".gz", error) from error


def _read_content(content: bytes, texts: Collection[str], suffix: str = "") -> Any:
    """Read the bytes of a file; without a suffix, its first bytes say the format."""
    if not content.strip():
        raise DataFileError("the file is empty.")
    if not suffix:
        if content[:2] == b"\x1f\x8b":
            content = _decompressed(content)
        suffix = _suffix_by_content(content)
    return _read_source(content, suffix, texts)


def _suffix_by_content(content: bytes) -> str:
    """Return the suffix that a file with this content would have."""
    magic = {b"PAR1": ".parquet", b"ARRO": ".feather", b"FEA1": ".feather", b"PK\3\4": ".xlsx"}
    if content[:4] in magic:
        return magic[content[:4]]
    start = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] in (b"{", b"["):
        return ".json"
    header = start.partition(b"\n")[0]
    if b"\t" in header and b"," not in header:
        return ".tsv"
    return ".csv"


def _read_source(source: Path | bytes, suffix: str, texts: Collection[str]) -> Any:
    """Read a file, or its content, in the format of this suffix."""
    if suffix in (".parquet", ".feather"):
        return _read_binary(source, suffix)
    if suffix == ".xlsx":
        return _read_sheet(source, texts)
    if suffix in DELIMITERS:
        return _read_csv(source, texts, DELIMITERS[suffix])
    if suffix == ".json":
        return _read_json(source, texts)
    return _read_json_lines(source, texts)


def _read_frame(source: Any) -> Any:
    """Read a frame of another library into an Arrow table."""
    try:
        if hasattr(source, "iloc") and hasattr(source, "columns"):
            return _read_pandas(source)
        if hasattr(source, "__arrow_c_stream__"):
            return _read_stream(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataFileError(f"the frame cannot be read through Arrow ({reason(error)}).") from error
    raise InvalidInputError(
        f"a table must be a path, or a frame with __arrow_c_stream__ (pandas, polars, DuckDB, "
        f"pyarrow); got {type(source).__name__}.",
        parameter="source",
    )


def _read_stream(frame: Any) -> Any:
    """Read a frame that gives its columns to Arrow."""
    table = pa.RecordBatchReader.from_stream(frame).read_all()
    for index, field in enumerate(table.schema):
        kind = _without_views(field.type)
        if kind != field.type:
            table = table.set_column(index, field.name, table[index].cast(kind))
    return table


def _without_views(kind: Any) -> Any:
    """Return an Arrow type with plain texts and bytes: pyarrow cannot take rows of polars' views."""
    if str(kind) == "string_view":
        return pa.large_string()
    if str(kind) == "binary_view":
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_views(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_without_views(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)), kind.list_size)
    return kind


def _read_pandas(frame: Any) -> Any:
    """Read a pandas frame; columns of mixed values become texts, as in a file."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        names = list(map(str, frame.columns))
        arrays = [_pandas_column(frame.iloc[:, index]) for index in range(len(names))]
        return pa.table(arrays, names=names)


def _pandas_column(column: Any) -> Any:
    """Convert a column of a pandas frame; mixed values become texts."""
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return infer_array([_python_value(value) for value in column])


def _python_value(value: Any) -> Any:
    """Return a cell of a pandas frame as a Python value; None for NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


def check_names(names: Sequence[str], rule: str = "columns must have different names") -> None:
    """Raise an error if two names are equal."""
    repeated = _repeated(names)
    if repeated:
        raise DataFileError(f"{rule}; {min(repeated)!r} appears twice.")


def _repeated(names: Iterable[str]) -> list[str]:
    """Return the names that appear more than once, in the order of their first appearance."""
    return [name for name, count in Counter(names).items() if count > 1]


def validate_columns(table: Any) -> Any:
    """Return the table with decoded categories; raise an error if a column is broken."""
    for index, name in enumerate(table.column_names):
        column = table.column(index)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
            table = table.set_column(index, name, column)
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            raise DataFileError(
                f"column {name!r} is broken, or its text is not UTF-8 ({reason(error)})."
            ) from error
    return table


def _read_binary(source: Path | bytes, suffix: str) -> Any:
    """Read a .parquet or .feather file."""
    try:
        if suffix == ".feather":
            from pyarrow import feather

            return feather.read_table(_arrow_input(source))
        return parquet.ParquetFile(_arrow_input(source)).read()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(suffix, error) from error


def _read_sheet(source: Path | bytes, texts: Collection[str]) -> Any:
    """Read the sheet of an Excel workbook that has rows; there must be one such sheet."""
    sheets = _load_sheets(source)
    if len(sheets) != 1:
        raise DataFileError(
            f"a workbook must have one sheet with rows; got {listed(list(sheets))}. Save the sheet as .csv."
        )
    ((header, *rows),) = sheets.values()
    check_names([str(name) for name in header if name is not None])
    columns = {}
    for index, name in enumerate(header):
        cells = _sheet_column(rows, index, as_text=name in texts)
        if name is None:
            if _has_value(cells):
                raise DataFileError(
                    f"every column must have a name in the first row; column {index + 1} has none."
                )
            continue
        columns[str(name)] = infer_array(cells)
    return pa.table(columns)


def _sheet_column(rows: Sequence[Sequence[Any]], index: int, as_text: bool) -> list[Any]:
    """Return the cells of a column of a sheet; None if a cell is empty, or its row ends before it."""
    cells = []
    for row in rows:
        cell = None
        if index < len(row):
            cell = row[index]
        if as_text and cell is not None:
            cell = str(cell)
        cells.append(cell)
    return cells


def _has_value(cells: Iterable[Any]) -> bool:
    """Return whether a row or a column of a sheet has a cell that is not empty."""
    return any(cell is not None for cell in cells)


# What openpyxl raises where a file is not a workbook, or is cut off.
_BROKEN_WORKBOOK = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
)


def _load_sheets(source: Path | bytes) -> dict[str, list[Sequence[Any]]]:
    """Return the rows of each sheet of an Excel workbook, by title, without empty rows and sheets."""
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError(
            f"an .xlsx file is read with openpyxl: {install_hint('excel')}. Or save the sheet as .csv."
        ) from error
    sheets = {}
    try:
        book = openpyxl.load_workbook(io.BytesIO(_content(source)), read_only=True, data_only=True)
        for sheet in book.worksheets:
            rows = [row for row in sheet.iter_rows(values_only=True) if _has_value(row)]
            if rows:
                sheets[sheet.title] = rows
    except _BROKEN_WORKBOOK as error:
        raise unreadable(".xlsx", error) from error
    return sheets


def _content(source: Path | bytes) -> bytes:
    """Return the bytes of a file."""
    if isinstance(source, bytes):
        return source
    return source.read_bytes()


def _arrow_input(source: Path | bytes) -> Any:
    """Return a file in the form that Arrow's readers take."""
    if isinstance(source, bytes):
        return pa.BufferReader(source)
    return source


def _block(source: Path | bytes) -> int:
    """Return the size of the block from which Arrow infers types: the whole file, within limits."""
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    return min(max(size + 1, MIN_BLOCK), MAX_BLOCK)


def _parse_options(delimiter: str) -> Any:
    """Say to Arrow how a CSV file is divided into cells."""
    return arrow_csv.ParseOptions(newlines_in_values=True, delimiter=delimiter)


def _read_csv(source: Path | bytes, texts: Collection[str], delimiter: str = ",") -> Any:
    """Read a CSV file; ``texts`` are names and patterns of columns that are text."""
    table = _parse_csv(source, texts, delimiter)
    _check_separator(table.column_names, delimiter)
    # Arrow takes names only. A column that fits a pattern and was read as numbers is read again, as text.
    mistaken = set()
    for field in table.schema:
        if not is_string(field.type) and any(fnmatchcase(field.name, text) for text in texts):
            mistaken.add(field.name)
    if mistaken:
        return _read_csv(source, {*texts, *mistaken}, delimiter)
    return table


def _parse_csv(source: Path | bytes, texts: Collection[str], delimiter: str) -> Any:
    """Parse a CSV file; if Arrow fails, raise an error that names the first wrong line."""
    options = arrow_csv.ReadOptions(block_size=_block(source))
    types = arrow_csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string()))
    try:
        table = arrow_csv.read_csv(_arrow_input(source), options, _parse_options(delimiter), types)
        # Names that are not UTF-8 are an error here.
        _ = table.column_names
    except (pa.ArrowException, UnicodeDecodeError) as error:
        text = _decode(source)
        # Before the rows: commas in them, such as those of decimals, are not what is wrong.
        _check_separator(next(iter(text.splitlines()), "").split(","), delimiter)
        _check_rows(text, delimiter)
        suffix = ".csv"
        if delimiter == "\t":
            suffix = ".tsv"
        raise unreadable(suffix, error) from error
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        # Arrow reads text that is not UTF-8 as bytes.
        _decode(source)
    return table


def _check_separator(names: Sequence[str], delimiter: str) -> None:
    """Raise an error if the header shows a separator other than a comma."""
    if len(names) != 1 or delimiter != ",":
        return
    separator = next((mark for mark in (";", "\t", "|") if mark in names[0]), None)
    if separator is None:
        return
    remedy = "Save it with commas, 0.5 for 0,5"
    if separator == "\t":
        remedy = "Name the file .tsv"
    raise DataFileError(
        f"columns must be separated by commas; found one column {names[0]!r}: is the separator "
        f"{separator!r}? {remedy}."
    )


def _decode(source: Path | bytes) -> str:
    """Return the text of a file; raise an error that names the first line that is not UTF-8."""
    content = _content(source)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataFileError("its text is UTF-16; save it as UTF-8.")
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        position = error.start - before.rfind(b"\n") - 1
        raise DataFileError(
            f"line {line} is not UTF-8 (byte 0x{content[error.start]:02x} at position {position}; Latin-1 "
            f"or Windows-1252, perhaps); save the file as UTF-8."
        ) from error


def _check_rows(text: str, delimiter: str) -> None:
    """Raise an error for the first row of a CSV file with too many or too few cells."""
    delimiters = "commas"
    if delimiter == "\t":
        delimiters = "tabs"
    records = csv_records(text, delimiter)
    for record in records:
        n_columns = records[0].n_cells
        if record.n_cells != n_columns:
            raise DataFileError(
                f"line {record.line} has {count_noun(record.n_cells, 'column')} where the header has "
                f"{n_columns}; a text with {delimiters}, quotes or line breaks must stand in double quotes."
            )


class CsvRecord(NamedTuple):
    """A record of a CSV file that is not empty, the header included."""

    line: int  # number of its first line
    n_cells: int
    text: str  # as it is written, with its line breaks


def csv_records(text: str, delimiter: str) -> list[CsvRecord]:
    """Return the records of a CSV file; a text in quotes may contain line breaks."""
    lines = list(io.StringIO(text, newline=""))
    records = []
    n_read = 0
    # The limit holds for the whole process: it is put back afterwards.
    limit = csv.field_size_limit(MAX_BLOCK)
    try:
        reader = csv.reader(iter(lines), delimiter=delimiter)
        for cells in reader:
            if cells:
                record = "".join(lines[n_read : reader.line_num])
                records.append(CsvRecord(n_read + 1, len(cells), record))
            n_read = reader.line_num
    except csv.Error as error:
        raise DataFileError(f"line {n_read + 1} is not valid CSV ({error}).") from error
    finally:
        csv.field_size_limit(limit)
    return records


def _read_json(source: Path | bytes, texts: Collection[str]) -> Any:
    """Read a list of objects, an object with such a list, or an object of equally long lists.

    A file of JSON lines is often named .json, too.
    """
    text = _decode(source)
    try:
        content = json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError as error:
        raise unreadable(".json", error) from error
    except DataFileError:
        raise
    except ValueError as error:
        if "\n" in text.strip() and text.lstrip()[:1] == "{" and "Extra data" in str(error):
            return _read_json_lines(source, texts)
        raise DataFileError(f"it is not a readable .json file ({error}).") from error
    if isinstance(content, dict) and _is_by_column(content):
        return pa.table({name: infer_array(column) for name, column in content.items()})
    rows = _rows_of(content)
    if rows is None:
        raise DataFileError(
            "a .json file must hold a list of objects, one per row, or one list per column; it is "
            f"{short(text.strip())}."
        )
    if not rows:
        return table_of_objects(rows)
    lines = "\n".join(json.dumps(row) for row in rows)
    return _read_json_lines(lines.encode(), texts)


def _rows_of(content: Any) -> list[dict[str, Any]] | None:
    """Return the rows of a JSON value as a list of objects; None if it does not hold a table."""
    if _is_rows(content):
        rows: list[dict[str, Any]] = content
        return rows
    if not isinstance(content, dict) or not content:
        return None
    values = list(content.values())
    if len(values) == 1 and _is_rows(values[0]):
        # A list of objects under a name, such as {"data": [...]}.
        rows = values[0]
        return rows
    if _is_by_index(content):
        # As pandas writes a frame: {column: {index: value}}.
        cells = [column.values() for column in values]
        return [dict(zip(content, row, strict=True)) for row in zip(*cells, strict=True)]
    if _are_all(values, list):
        return None
    return [content]


def _is_by_column(content: dict[str, Any]) -> bool:
    """Return whether an object has equally long lists of values, and not one list of objects."""
    values = list(content.values())
    if not values or not _are_all(values, list):
        return False
    if len(values) == 1 and _is_rows(values[0]):
        return False
    return len(set(map(len, values))) == 1


def _is_by_index(content: dict[str, Any]) -> bool:
    """Return whether an object maps columns to ``{"0": value, ...}``, all with the same keys."""
    columns = list(content.values())
    if not columns or not _are_all(columns, dict):
        return False
    index = list(columns[0])
    if not all(key.isdigit() for key in index):
        return False
    return all(list(column) == index for column in columns)


def _is_rows(value: Any) -> bool:
    """Return whether a value is a list of objects."""
    return isinstance(value, list) and _are_all(value, dict)


def _are_all(values: Iterable[Any], kind: type) -> bool:
    """Return whether all values are of a type; also if there are none."""
    return all(isinstance(value, kind) for value in values)


def table_of_objects(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Make an Arrow table of objects; keys that one of them lacks are empty."""
    return pa.table({name: infer_array(values) for name, values in _columns_of(rows).items()})


def _read_json_lines(source: Path | bytes, texts: Collection[str]) -> Any:
    """Read a file with one JSON object per line; a key that a line lacks is empty there."""
    try:
        first = json.loads(_first_line(source))
        # Arrow would read texts such as dates as dates.
        names = [name for name in first if name in texts and isinstance(first[name], str)]
        schema = None
        if names:
            schema = pa.schema(dict.fromkeys(names, pa.string()))
        parse = arrow_json.ParseOptions(explicit_schema=schema)
        options = arrow_json.ReadOptions(block_size=_block(source))
        table = arrow_json.read_json(_arrow_input(source), options, parse)
        table.validate(full=True)
        return table
    except (pa.ArrowException, TypeError, ValueError):
        # Numbers among booleans, or a broken line or a key twice: Python reads the former and names the
        # latter.
        return table_of_objects(read_objects(source))


def _first_line(source: Path | bytes) -> bytes:
    """Return the first line of a file that is not empty, or no bytes."""
    if isinstance(source, bytes):
        return _first_filled(io.BytesIO(source))
    with open(source, "rb") as lines:
        return _first_filled(lines)


def _first_filled(lines: Iterable[bytes]) -> bytes:
    for line in lines:
        if line.strip():
            return line
    return b""


def read_objects(source: Path | bytes) -> list[dict[str, Any]]:
    """Return the objects of a file with one JSON object per line; any other line is an error."""
    objects = []
    for number, line in enumerate(_decode(source).split("\n"), start=1):
        if line.strip():
            objects.append(_parse_line(number, line))
    return objects


def _parse_line(number: int, line: str) -> dict[str, Any]:
    """Return the object of a line; ``number`` is its number, for messages."""
    reason = ""
    try:
        value = json.loads(line, object_pairs_hook=unique_keys)
        if isinstance(value, dict):
            # An error if it holds half a character, which no file can hold.
            json.dumps(value, ensure_ascii=False).encode()
            return value
    except DataFileError as error:
        raise DataFileError(f"line {number}: {error}") from error
    except UnicodeEncodeError as error:
        raise DataFileError(f"line {number} holds half a character (a lone surrogate).") from error
    except (ValueError, RecursionError) as error:
        reason = f" ({error})"
    raise DataFileError(
        f"line {number} must be one JSON object; it is {short(line.strip())}{reason}."
    )


def unique_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of keys and values; raise an error if a key appears twice.

    >>> unique_keys([("small", 1), ("large", 0)])
    {'small': 1, 'large': 0}
    """
    pairs = list(pairs)
    by_key = dict(pairs)
    if len(by_key) == len(pairs):
        return by_key
    repeated = _repeated(key for key, _ in pairs)[0]
    values = listed([short(value) for key, value in pairs if key == repeated])
    raise DataFileError(
        f"the keys of an object must differ; {short(repeated)} appears twice, with {values}. Keep one of "
        f"them."
    )


def infer_array(values: list[Any]) -> Any:
    """Make an Arrow array of Python values that need not have one type.

    Numbers and booleans together become numbers; values that have no common type become texts. Objects
    become structures, whose fields are inferred one by one in the same way, also within lists.

    Parameters
    ----------
    values : list
        Python values; None where one is missing.

    Returns
    -------
    pyarrow.Array
        The values, in the same order.

    Examples
    --------
    >>> infer_array([1, True, None]).to_pylist(), infer_array([1, "two"]).to_pylist()
    ([1.0, 1.0, None], ['1', 'two'])
    """
    present = [value for value in values if value is not None]
    types = set(map(type, present))
    try:
        if bool in types and len(types) > 1 and types <= {bool, int, float}:
            # Arrow does not convert booleans among numbers.
            return pa.array([_float(value) for value in values])
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # The values have no common type.
        pass
    if types == {dict}:
        return _infer_objects(values)
    if types == {list} and _hold_objects(present):
        return _infer_lists_of_objects(values)
    return pa.array([_as_text(value) for value in values], pa.string())


def _float(value: Any) -> float | None:
    if value is None:
        return None
    return float(value)


def _hold_objects(lists: list[list[Any]]) -> bool:
    """Return whether all entries of all lists are objects."""
    return all(_are_all(entries, dict) for entries in lists)


def _infer_objects(values: list[dict[str, Any] | None]) -> Any:
    """Make an Arrow array of objects whose fields are inferred one by one."""
    columns = _columns_of([value or {} for value in values])
    # Fields of a missing object are missing, too; only those of the others count.
    arrays = list(map(infer_array, columns.values()))
    is_missing = pa.array([value is None for value in values])
    return pa.StructArray.from_arrays(arrays, list(columns), mask=is_missing)


def _infer_lists_of_objects(values: list[list[dict[str, Any]] | None]) -> Any:
    """Make an Arrow array of lists of objects whose fields are inferred one by one."""
    entries: list[dict[str, Any]] = []
    # List i has the entries from offset i to offset i + 1; a missing list has none.
    offsets = [0]
    for value in values:
        entries += value or []
        offsets.append(len(entries))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), infer_array(entries))


def _as_text(value: Any) -> str | None:
    """Return a value as text; objects and numbers as JSON."""
    if isinstance(value, str | None):
        return value
    return json.dumps(value, ensure_ascii=False)


# Columns


def choose_columns(parameter: str, named: str | Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the columns that a list names, or comma-separated names and patterns such as ``"age, f_*"``.

    ``parameter`` is the one that names them, for error messages.
    """
    names = named
    patterns_allowed = False
    if isinstance(named, str):
        names = _comma_separated(named)
        patterns_allowed = True
    chosen: dict[str, None] = {}
    for name in names:
        matching = []
        if name in columns:
            matching = [name]
        elif patterns_allowed:
            matching = [column for column in columns if fnmatchcase(column, name)]
        if not matching:
            raise _unknown_column(parameter, name, columns)
        chosen.update(dict.fromkeys(matching))
    if not chosen:
        rule = f"must name at least one column; got {named!r}."
        raise DataFileError(parameter=parameter, rule=rule)
    return list(chosen)


def _unknown_column(parameter: str, name: str, columns: Sequence[str]) -> DataFileError:
    """Return the error for a name that no column has."""
    hint = f"; found {listed(columns)}."
    similar = difflib.get_close_matches(name, columns, n=1, cutoff=0.5)
    if similar:
        hint = f"; did you mean {similar[0]!r}?"
    rule = f"must name columns of the file; {name!r} is not one{hint}"
    return DataFileError(parameter=parameter, rule=rule)


def is_numeric(kind: Any) -> bool:
    """Return whether an Arrow type holds numbers; booleans count as numbers."""
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(fits(kind) for fits in tests)


def is_scalar(kind: Any) -> bool:
    """Return whether an Arrow type is a number or a text."""
    return is_numeric(kind) or is_string(kind)


def is_string(kind: Any) -> bool:
    """Return whether an Arrow type is text."""
    return str(kind) in ("string", "large_string", "string_view")


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list, of any length or of a fixed one."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text, or a list of texts."""
    return is_string(kind) or (is_list(kind) and is_string(kind.value_type))


def text_columns(schema: Any) -> list[str]:
    """Return the names of the columns that are text, or lists of texts."""
    return columns_of_type(schema, is_text)


def columns_of_type(schema: Any, fits: Callable[[Any], bool]) -> list[str]:
    """Return the names of the columns of a table, or of the fields of an object, whose type fits."""
    return [field.name for field in schema if fits(field.type)]


def names_except(names: Iterable[str], left_out: Collection[str | None]) -> list[str]:
    """Return names without those that are left out, in their order.

    >>> names_except(["prompt", "score", "id"], {"score"})
    ['prompt', 'id']
    """
    return [name for name in names if name not in left_out]


def column_kind(kind: Any) -> str:
    """Say what an Arrow type holds, however it is stored: files of a dataset may store it differently."""
    if is_numeric(kind):
        return "numbers"
    if is_string(kind):
        return "text"
    if pa.types.is_fixed_size_binary(kind) or (is_list(kind) and is_numeric(kind.value_type)):
        return "vectors"
    if is_text(kind):
        return "lists of texts"
    if pa.types.is_null(kind):
        # A column without any value fits every kind.
        return "nothing"
    return str(kind)


def numbers(name: str, column: Any, truths: bool = False) -> Any:
    """Return a column as a float array, NaN where it is empty; float32 stays float32.

    Texts count as numbers where all of them are: "0.5", "True", "nan", "", and with ``truths`` "yes" and
    "no" and the other words in TRUTHS.
    """
    if is_string(column.type):
        parsed = parse_numbers(column, truths)
        if parsed is not None:
            column = parsed
    if not (is_numeric(column.type) or pa.types.is_null(column.type)):
        raise _no_numbers(name, column, truths)
    arrow_type = pa.float64()
    dtype: type[np.floating[Any]] = np.float64
    if column.type == pa.float32():
        arrow_type = pa.float32()
        dtype = np.float32
    # to_numpy imports pandas, and a cast the functions of Arrow, which takes longer than most tables.
    is_plain = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    if column.null_count or not is_plain:
        column = column.cast(arrow_type, safe=False)
    if column.null_count:
        column = column.fill_null(float("nan"))
    chunks = [np.from_dlpack(chunk).astype(dtype) for chunk in column.chunks]
    if not chunks:
        return np.empty(0, dtype)
    return np.concatenate(chunks)


def _no_numbers(name: str, column: Any, truths: bool) -> DataFileError:
    """Return the error for a column that must hold numbers, or with ``truths`` also yes and no."""
    allowed = "numbers, such as 0.5 or 1"
    words: Collection[str] = ()
    if truths:
        allowed = "numbers such as 0.5 or 1, or yes and no"
        words = TRUTHS
    contents = str(column.type)
    if is_string(column.type):
        contents = "text"
    example = first_text(column, words)
    if example is None:
        return DataFileError(f"column {name!r} must hold numbers; it holds {contents}.")
    return DataFileError(
        f"column {name!r} must hold numbers; it holds {contents} such as {short(example)}. Write only "
        f"{allowed}."
    )


def parse_numbers(column: Any, truths: bool = False) -> Any:
    """Convert a column of texts to numbers; None if one of the texts is not a number."""
    words = {"true": 1.0, "false": 0.0, "": None, "none": None, "null": None, "n/a": None}
    if truths:
        words |= TRUTHS
    values: list[float | None] = []
    for text in column.to_pylist():
        stripped = (text or "").strip()
        if stripped.lower() in words:
            values.append(words[stripped.lower()])
        elif is_number(stripped):
            values.append(float(stripped))
        else:
            return None
    return pa.chunked_array([pa.array(values, pa.float64())])


def number_matrix(table: Any, names: Sequence[str]) -> NDArray[Any]:
    """Return columns of numbers side by side (n_rows, n_columns); float32 if all of them are."""
    dtype: type[np.floating[Any]] = np.float64
    if all(table.schema.field(name).type == pa.float32() for name in names):
        dtype = np.float32
    matrix = np.empty((table.num_rows, len(names)), dtype)
    for index, name in enumerate(names):
        matrix[:, index] = numbers(name, table[name])
    return matrix


def first_text(column: Any, words: Collection[str] = ()) -> Any:
    """Return the first value of a column that is neither a number nor one of ``words``."""
    for value in column.drop_null().to_pylist():
        if not is_number(value) and str(value).strip().lower() not in words:
            return value
    return None


def is_number(value: Any) -> bool:
    """Return whether a value is a number, perhaps as text."""
    try:
        float(value)
        return True
    except (TypeError, ValueError):
        return False


# Messages


def unreadable(suffix: str, error: Exception) -> DataFileError:
    """Return the error to raise if Arrow cannot read a file."""
    return DataFileError(f"it is not a readable {suffix} file, or it is cut off ({reason(error)}).")


def reason(error: Exception) -> str:
    """Return the reason of an error, as a part of a sentence."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return shown(text.splitlines()[0].rstrip(".")[:200])


def shown(address: str) -> str:
    """Return an address without user name and password."""
    return re.sub(r"://[^/\s@]*@", "://", address)


def short(value: object) -> str:
    """Return a value for a message, cut at 60 characters."""
    text = repr(value)
    if len(text) <= 60:
        return text
    return f"{text[:60]}..."
