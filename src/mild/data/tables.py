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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    counted,
    install_hint,
    listed,
)

SUFFIXES = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".feather", ".xlsx")
#: Files that ``read_columns`` reads.
COLUMN_SUFFIXES = (".parquet", ".csv", ".jsonl")
PICKLES = (".pkl", ".pickle")
#: The name of the standard input.
STDIN = "-"
#: Column with the file of each row, where several files are one table.
SOURCE_FILE = "source_file"
# Types are inferred from one block: as large as the file, so that a late value counts too.
MIN_BLOCK, MAX_BLOCK = 1 << 20, 2**31 - 1
#: Words for right and wrong, in upper or lower case.
TRUTHS = {
    **dict.fromkeys(("yes", "y", "true", "t", "right", "correct", "pass", "passed"), 1.0),
    **dict.fromkeys(("no", "n", "false", "f", "wrong", "incorrect", "fail", "failed"), 0.0),
}
# Bytes that show the columns of a CSV file and their types, and rows that show what they hold.
PEEK, PEEK_ROWS = 1 << 22, 100


@contextmanager
def naming(file: object) -> Iterator[None]:
    """Put the name of a file before the messages of errors about it."""
    try:
        yield
    except OptionError:
        raise
    except (DataFileError, InvalidInputError) as error:
        # An array has the name of the option that says which columns hold it.
        rule = error.rule if isinstance(error, DataFileError) else None
        place = f"{file}: {error.place}"
        raise DataFileError(
            f"{file}: {error}", parameter=error.parameter, rule=rule, place=place
        ) from error
    except OSError as error:
        raise DataFileError(f"{file}: it cannot be read: {reason(error)}.") from error


def check_file(file: Path, suffixes: Sequence[str] = SUFFIXES) -> str:
    """The lower-case suffix, without ``.gz``, of a file that exists and has one of these suffixes.

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
    """The lower-case suffix of a file, that before ``.gz`` for a compressed one.

    >>> table_suffix("log.CSV.gz"), table_suffix("log.parquet")
    ('.csv', '.parquet')
    """
    path = Path(file)
    compressed = path.suffix.lower() == ".gz"
    suffix = Path(path.stem if compressed else path).suffix.lower()
    return ".parquet" if suffix in (".parq", ".pq") else suffix


def find_tables(source: str | os.PathLike[str]) -> list[Path]:
    """The files of a source: one file, a folder, a pattern, or several of them separated by commas."""
    text = os.fspath(source)
    path = Path(text)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if _is_table(file))
        if not files:
            kinds = ", ".join(SUFFIXES)
            raise DataFileError(f"the folder must hold files that end in {kinds}; found none.")
        return files
    if path.exists() or text == STDIN:
        return [path]
    if any(mark in text for mark in "*?["):
        # Patterns may contain commas, too, but hardly ever do.
        parts = [glob.glob(part.strip(), recursive=True) for part in text.split(",")]
        files = [Path(name) for part in parts for name in sorted(part) if not Path(name).is_dir()]
        if not files:
            raise DataFileError(f"no file fits the pattern {short(text)}.")
        return files
    parts_named = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts_named) > 1 and any(Path(part).exists() for part in parts_named):
        return [file for part in parts_named for file in find_tables(part)]
    return [path]


def _is_table(file: Path) -> bool:
    return file.is_file() and file.name[0] not in "._" and table_suffix(file) in SUFFIXES


def read_table(source: Any, texts: Collection[str] = ()) -> Any:
    """Arrow table with at least one row, of files or of a frame with ``__arrow_c_stream__``.

    A source is a file, a pipe, ``"-"`` for the standard input, a folder, a pattern, or several files
    separated by commas or in a list. The columns ``texts`` of a file, names or patterns, are text whatever
    they look like: a prompt ``007`` is not a number.
    """
    if isinstance(source, (str, os.PathLike)):
        files = find_tables(source)
    elif (
        isinstance(source, (list, tuple))
        and source
        and all(isinstance(part, (str, os.PathLike)) for part in source)
    ):
        files = [file for part in source for file in find_tables(part)]
    else:
        return _checked(_read_frame(source))
    if len(files) == 1:
        return _read_file(files[0], texts)
    return _joined(files, texts)


def read_columns(source: Any) -> dict[str, list[Any]]:
    """Columns of a .parquet, .csv or .jsonl file, or of a frame, as lists of Python values.

    Cells of a .csv are texts as they stand in it: ``007`` is not 7. Keys that an object of a .jsonl lacks
    are None.

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
        texts = ["*"] if suffix == ".csv" else []
        columns = read_table(file, texts).to_pydict()
        return columns


def _columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns of objects, in the order in which their keys appear."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _read_file(file: Path, texts: Collection[str]) -> Any:
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
    """The rows of several files, with the name of its file in each; columns that one lacks are empty."""
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
    """The table, refused if it has no rows, equal names or a broken column."""
    names = list(table.column_names)
    check_names(names)
    if table.num_rows == 0:
        raise DataFileError(f"there must be at least one row; got none, columns {listed(names)}.")
    return validate_columns(table)


def _decompressed(content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise unreadable(".gz", error) from error


def _read_content(content: bytes, texts: Collection[str], suffix: str = "") -> Any:
    """Table of the bytes of a file; without a suffix, as its first bytes say."""
    if not content.strip():
        raise DataFileError("the file is empty.")
    if not suffix:
        if content[:2] == b"\x1f\x8b":
            content = _decompressed(content)
        suffix = _suffix_by_content(content)
    return _read_source(content, suffix, texts)


def _suffix_by_content(content: bytes) -> str:
    first = {b"PAR1": ".parquet", b"ARRO": ".feather", b"FEA1": ".feather", b"PK\3\4": ".xlsx"}
    if content[:4] in first:
        return first[content[:4]]
    start = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] in (b"{", b"["):
        return ".json"
    header = start.partition(b"\n")[0]
    return ".tsv" if b"\t" in header and b"," not in header else ".csv"


def _read_source(source: Path | bytes, suffix: str, texts: Collection[str]) -> Any:
    if suffix in (".parquet", ".feather"):
        return _read_binary(source, suffix)
    if suffix == ".xlsx":
        return _read_sheet(source, texts)
    if suffix in (".csv", ".tsv"):
        return _read_csv(source, texts, "\t" if suffix == ".tsv" else ",")
    return (_read_json if suffix == ".json" else _read_json_lines)(source, texts)


def _read_frame(source: Any) -> Any:
    try:
        if hasattr(source, "iloc") and hasattr(source, "columns"):
            return _read_pandas(source)
        if hasattr(source, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(source).read_all()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataFileError(f"the frame cannot be read through Arrow ({reason(error)}).") from error
    raise InvalidInputError(
        f"a table must be a path, or a frame with __arrow_c_stream__ (pandas, polars, DuckDB, "
        f"pyarrow); got {type(source).__name__}.",
        parameter="source",
    )


def _read_pandas(frame: Any) -> Any:
    """A pandas frame as an Arrow table; columns of mixed values are texts, as in a file."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        names = [str(name) for name in frame.columns]
        arrays = [_pandas_column(frame.iloc[:, place]) for place in range(len(names))]
        return pa.table(arrays, names=names)


def _pandas_column(column: Any) -> Any:
    """A column of a pandas frame; texts if its values are mixed."""
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        values = [value.item() if isinstance(value, np.generic) else value for value in column]
        is_missing = [isinstance(value, float) and math.isnan(value) for value in values]
        known = [
            None if missing else value for value, missing in zip(values, is_missing, strict=True)
        ]
        return infer_array(known)


def peek_table(file: Path) -> Any:
    """The first rows of a .parquet, .csv or .tsv file; None for another or one that cannot be read."""
    try:
        table = _first_rows(file)
        if table is not None:
            # Names and texts that are not UTF-8 are errors here.
            check_names(table.column_names)
            table.validate(full=True)
        return table
    except (pa.ArrowException, DataFileError, OSError, EOFError, UnicodeDecodeError, StopIteration):
        return None


def _first_rows(file: Path) -> Any:
    suffix = table_suffix(file)
    compressed = file.suffix.lower() == ".gz"
    if suffix == ".parquet" and not compressed:
        opened = parquet.ParquetFile(file, buffer_size=MIN_BLOCK)
        first = next(opened.iter_batches(PEEK_ROWS), None)
        return pa.Table.from_batches([] if first is None else [first], opened.schema_arrow)
    if suffix in (".csv", ".tsv"):
        options = arrow_csv.ReadOptions(block_size=PEEK)
        # Arrow decompresses by the suffix.
        reader = arrow_csv.open_csv(file, options, _parse_options(suffix))
        return pa.Table.from_batches([next(iter(reader))[:PEEK_ROWS]])
    return None


def check_names(names: Sequence[str], rule: str = "columns must have different names") -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataFileError(f"{rule}; {min(twice)!r} appears twice.")


def validate_columns(table: Any) -> Any:
    """The table with categories decoded; refused if a column is broken."""
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
            table = table.set_column(place, name, column)
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            raise DataFileError(
                f"column {name!r} is broken, or its text is not UTF-8 ({reason(error)})."
            ) from error
    return table


def _read_binary(source: Path | bytes, suffix: str) -> Any:
    try:
        if suffix == ".feather":
            from pyarrow import feather

            return feather.read_table(_arrow_input(source))
        return parquet.ParquetFile(_arrow_input(source)).read()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(suffix, error) from error


def _read_sheet(source: Path | bytes, texts: Collection[str]) -> Any:
    """Arrow table of the only sheet of an Excel workbook that has rows."""
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError(
            f"an .xlsx file is read with openpyxl: {install_hint('excel')}. Or save the sheet as .csv."
        ) from error
    try:
        content = source if isinstance(source, bytes) else source.read_bytes()
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        sheets = {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book.worksheets}
    except (
        *(OSError, ValueError, KeyError, EOFError, SyntaxError),
        *(zipfile.BadZipFile, zlib.error),
    ) as error:
        raise unreadable(".xlsx", error) from error
    filled = {
        title: [row for row in rows if any(cell is not None for cell in row)]
        for title, rows in sheets.items()
    }
    filled = {title: rows for title, rows in filled.items() if rows}
    if len(filled) != 1:
        raise DataFileError(
            f"a workbook must have one sheet with rows; got {listed(list(filled))}. Save the sheet as .csv."
        )
    header, *rows = next(iter(filled.values()))
    columns: dict[str, Any] = {}
    check_names([str(name) for name in header if name is not None])
    for place, name in enumerate(header):
        cells = [row[place] if place < len(row) else None for row in rows]
        if name is None and any(cell is not None for cell in cells):
            raise DataFileError(
                f"every column must have a name in the first row; column {place + 1} has none."
            )
        if name in texts:
            cells = [cell if cell is None else str(cell) for cell in cells]
        if name is not None:
            columns[str(name)] = infer_array(cells)
    return pa.table(columns)


def _arrow_input(source: Path | bytes) -> Any:
    return pa.BufferReader(source) if isinstance(source, bytes) else source


def _block(source: Path | bytes) -> int:
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    return min(max(size + 1, MIN_BLOCK), MAX_BLOCK)


def _parse_options(suffix_or_mark: str) -> Any:
    mark = "\t" if suffix_or_mark in (".tsv", "\t") else ","
    return arrow_csv.ParseOptions(newlines_in_values=True, delimiter=mark)


def _read_csv(source: Path | bytes, texts: Collection[str], mark: str = ",") -> Any:
    options = arrow_csv.ReadOptions(block_size=_block(source))
    types = arrow_csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string()))
    try:
        table = arrow_csv.read_csv(_arrow_input(source), options, _parse_options(mark), types)
        names = table.column_names
    except (pa.ArrowException, UnicodeDecodeError) as error:
        text = _decode(source)
        # Before the rows: commas in them, such as those of decimals, are not what is wrong.
        _check_separator(next(iter(text.splitlines()), "").split(","), mark)
        _check_rows(text, mark)
        raise unreadable(".csv" if mark == "," else ".tsv", error) from error
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        # Arrow reads text that is not UTF-8 as bytes.
        _decode(source)
    _check_separator(names, mark)
    guessed = [field.name for field in table.schema if not is_string(field.type)]
    meant = {name for name in guessed for text in texts if fnmatchcase(name, text)}
    return _read_csv(source, {*texts, *meant}, mark) if meant else table


def _check_separator(names: Sequence[str], mark: str) -> None:
    """Refuse a header without commas that has another separator."""
    separator = next((other for other in (";", "\t", "|") if other in names[0]), None)
    if len(names) == 1 and separator and mark == ",":
        found = f"one column {names[0]!r}: is the separator {separator!r}?"
        remedy = "Name the file .tsv" if separator == "\t" else "Save it with commas, 0.5 for 0,5"
        raise DataFileError(f"columns must be separated by commas; found {found} {remedy}.")


def _decode(source: Path | bytes) -> str:
    """Text of a file; an error that names the first line that is not UTF-8."""
    content = source if isinstance(source, bytes) else source.read_bytes()
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataFileError("its text is UTF-16; save it as UTF-8.")
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, place = before.count(b"\n") + 1, error.start - before.rfind(b"\n") - 1
        raise DataFileError(
            f"line {line} is not UTF-8 (byte 0x{content[error.start]:02x} at position {place}; Latin-1 or "
            f"Windows-1252, perhaps); save the file as UTF-8."
        ) from error


def _check_rows(text: str, mark: str) -> None:
    """Refuse the first row of a CSV file with too many or too few cells."""
    records = csv_records(text, mark)
    for record in records:
        n_columns = records[0].n_cells
        if record.n_cells != n_columns:
            raise DataFileError(
                f"line {record.line} has {counted(record.n_cells, 'column')} where the header has "
                f"{n_columns}; a text with {'commas' if mark == ',' else 'tabs'}, quotes or line "
                f"breaks must stand in double quotes."
            )


class CsvRecord(NamedTuple):
    """A record of a CSV file that is not empty, the header included."""

    line: int  # number of its first line
    n_cells: int
    text: str  # as it is written, with its line breaks


def csv_records(text: str, delimiter: str) -> list[CsvRecord]:
    """The records of a CSV file; a text in quotes may hold line breaks."""
    lines = list(io.StringIO(text, newline=""))
    records = []
    n_read = 0
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
    """Arrow table of a list of objects, of an object with such a list or of equally long lists.

    A file of JSON lines is often named .json, too.
    """
    text = _decode(source)
    try:
        found = json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError as error:
        raise unreadable(".json", error) from error
    except DataFileError:
        raise
    except ValueError as error:
        if "\n" in text.strip() and text.lstrip()[:1] == "{" and "Extra data" in str(error):
            return _read_json_lines(source, texts)
        raise DataFileError(f"it is not a readable .json file ({error}).") from error
    if isinstance(found, dict):
        if len(found) == 1 and _is_rows(next(iter(found.values()))):
            found = next(iter(found.values()))
        elif _is_by_index(found):
            # As pandas writes a frame: {column: {index: value}}.
            columns = [list(column.values()) for column in found.values()]
            found = [dict(zip(found, row, strict=True)) for row in zip(*columns, strict=True)]
        elif found and all(isinstance(column, list) for column in found.values()):
            lengths = {len(column) for column in found.values()}
            if len(lengths) == 1:
                return pa.table({name: infer_array(column) for name, column in found.items()})
        elif found:
            found = [found]
    if not _is_rows(found):
        raise DataFileError(
            "a .json file must hold a list of objects, one per row, or one list per column; it is "
            f"{short(text.strip())}."
        )
    lines = "\n".join(json.dumps(row) for row in found)
    return _read_json_lines(lines.encode(), texts) if found else _table_of(found)


def _is_by_index(found: dict[str, Any]) -> bool:
    columns = list(found.values())
    if not columns or not all(isinstance(column, dict) for column in columns):
        return False
    index = list(columns[0])
    return all(key.isdigit() for key in index) and all(list(c) == index for c in columns)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _table_of(rows: list[dict[str, Any]]) -> Any:
    return pa.table({name: infer_array(values) for name, values in _columns_of(rows).items()})


def _read_json_lines(source: Path | bytes, texts: Collection[str]) -> Any:
    """Arrow table of a file with one JSON object per line; a key that a line lacks is empty there."""
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as lines:
            first = json.loads(next((line for line in lines if line.strip()), b""))
        # Arrow would read texts such as dates as dates.
        names = [name for name in first if name in texts and isinstance(first[name], str)]
        schema = pa.schema([(name, pa.string()) for name in names]) if names else None
        parse = arrow_json.ParseOptions(explicit_schema=schema)
        options = arrow_json.ReadOptions(block_size=_block(source))
        table = arrow_json.read_json(_arrow_input(source), options, parse)
        table.validate(full=True)
        return table
    except (pa.ArrowException, TypeError, ValueError):
        # Numbers among booleans, or a broken line or a key twice: Python reads the former and names the
        # latter.
        return _table_of(read_objects(source))


def read_objects(source: Path | bytes) -> list[dict[str, Any]]:
    """The objects of a file with one JSON object per line; a line that is none is refused."""
    lines = enumerate(_decode(source).split("\n"), start=1)
    return [_parse(number, line) for number, line in lines if line.strip()]


def _parse(number: int, line: str) -> dict[str, Any]:
    reason = ""
    try:
        found = json.loads(line, object_pairs_hook=unique_keys)
        if isinstance(found, dict):
            json.dumps(found, ensure_ascii=False).encode()
            return found
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
    """An object of keys and values, refused if it has a key twice: nobody knows which value is meant.

    >>> unique_keys([("small", 1), ("large", 0)])
    {'small': 1, 'large': 0}
    """
    pairs = list(pairs)
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        values = listed([short(value) for key, value in pairs if key == twice])
        raise DataFileError(
            f"the keys of an object must differ; {short(twice)} appears twice, with {values}. Keep one of "
            f"them."
        )
    return found


def infer_array(values: list[Any]) -> Any:
    """An Arrow array of any values: numbers if all are numbers or booleans, otherwise what Arrow infers.

    Values that have no common type become texts. Fields of objects, and of objects in lists, are inferred
    one by one.

    Examples
    --------
    >>> infer_array([1, True, None]).to_pylist(), infer_array([1, "two"]).to_pylist()
    ([1.0, 1.0, None], ['1', 'two'])
    """
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    try:
        if bool in kinds and len(kinds) > 1 and kinds <= {bool, int, float}:
            values = [None if value is None else float(value) for value in values]
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        if kinds == {dict}:
            names = dict.fromkeys(name for value in known for name in value)
            fields = [infer_array([(value or {}).get(name) for value in values]) for name in names]
            missing = pa.array([value is None for value in values])
            return pa.StructArray.from_arrays(fields, list(names), mask=missing)
        if kinds == {list} and all(isinstance(entry, dict) for value in known for entry in value):
            ends = np.cumsum([0, *(len(value or ()) for value in values)])
            entries = infer_array([entry for value in known for entry in value])
            return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), entries)
        texts = [
            value if isinstance(value, str | None) else json.dumps(value, ensure_ascii=False)
            for value in values
        ]
        return pa.array(texts, pa.string())


# Columns


def choose_columns(what: str, wanted: str | Sequence[str], columns: Sequence[str]) -> list[str]:
    """Columns named by a list, or by comma-separated names and patterns such as ``"age, f_*"``.

    ``what`` is the parameter that names them, for error messages.
    """
    by_pattern = isinstance(wanted, str)
    parts = wanted.split(",") if isinstance(wanted, str) else wanted
    names = [part.strip() for part in parts if part.strip()] if by_pattern else parts
    chosen: dict[str, None] = {}
    for name in names:
        if name in columns:
            found = [name]
        else:
            found = [column for column in columns if by_pattern and fnmatchcase(column, name)]
        if not found:
            close = difflib.get_close_matches(name, columns, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]!r}?" if close else f"; found {listed(columns)}."
            rule = f"must name columns of the file; {name!r} is not one{hint}"
            raise DataFileError(parameter=what, rule=rule)
        chosen.update(dict.fromkeys(found))
    if not chosen:
        raise DataFileError(parameter=what, rule=f"must name at least one column; got {wanted!r}.")
    return list(chosen)


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type holds numbers; booleans count as numbers."""
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(fits(kind) for fits in tests)


def is_string(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def is_list(kind: Any) -> bool:
    test = pa.types
    return bool(test.is_list(kind) or test.is_large_list(kind) or test.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or a list of texts."""
    return is_string(kind) or (is_list(kind) and is_string(kind.value_type))


def column_kind(kind: Any) -> str:
    """What an Arrow type holds, however it is stored: files of a dataset may store it differently."""
    if is_numeric(kind):
        return "numbers"
    if is_string(kind):
        return "text"
    if pa.types.is_fixed_size_binary(kind) or (is_list(kind) and is_numeric(kind.value_type)):
        return "vectors"
    if is_text(kind):
        return "lists of texts"
    # A column without any value fits every kind.
    return "nothing" if pa.types.is_null(kind) else str(kind)


def numbers(name: str, column: Any, truths: bool = False) -> Any:
    """A column as a float array, NaN where it is empty; float32 stays float32.

    Texts count as numbers where all of them are: "0.5", "True", "nan", "", and with ``truths`` "yes" and
    "no" and the other words in TRUTHS.
    """
    if is_string(column.type):
        parsed = parse_numbers(column, truths)
        column = column if parsed is None else parsed
    if not (is_numeric(column.type) or pa.types.is_null(column.type)):
        example = first_text(column, TRUTHS if truths else ())
        shown = "" if example is None else f" such as {short(example)}"
        kind = "text" if is_string(column.type) else column.type
        allowed = (
            "numbers such as 0.5 or 1, or yes and no" if truths else "numbers, such as 0.5 or 1"
        )
        remedy = "" if example is None else f" Write only {allowed}."
        raise DataFileError(f"column {name!r} must hold numbers; it holds {kind}{shown}.{remedy}")
    kind = pa.float32() if column.type == pa.float32() else pa.float64()
    # to_numpy imports pandas, and a cast the functions of Arrow, which takes longer than most tables.
    types = pa.types
    plain = types.is_floating(column.type) or types.is_integer(column.type)
    if column.null_count or not plain:
        column = column.cast(kind, safe=False)
    if column.null_count:
        column = column.fill_null(float("nan"))
    wanted = np.float32 if kind == pa.float32() else np.float64
    parts = [np.from_dlpack(chunk).astype(wanted) for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.empty(0, wanted)


def parse_numbers(column: Any, truths: bool = False) -> Any:
    """Numbers of a column of texts; None where one of the texts is no number."""
    words = {"true": 1.0, "false": 0.0, "": None, "none": None, "null": None, "n/a": None}
    words |= TRUTHS if truths else {}
    values: list[float | None] = []
    for text in column.to_pylist():
        plain = (text or "").strip()
        if plain.lower() in words:
            values.append(words[plain.lower()])
        elif is_number(plain):
            values.append(float(plain))
        else:
            return None
    return pa.chunked_array([pa.array(values, pa.float64())])


def number_matrix(table: Any, names: Sequence[str]) -> NDArray[Any]:
    """Columns of numbers side by side; float32 if all of them are."""
    single = all(table.schema.field(name).type == pa.float32() for name in names)
    matrix = np.empty((table.num_rows, len(names)), np.float32 if single else np.float64)
    for place, name in enumerate(names):
        matrix[:, place] = numbers(name, table[name])
    return matrix


def first_text(column: Any, words: Collection[str] = ()) -> Any:
    """First value of a column that is neither a number nor one of some words."""
    values = column.drop_null().to_pylist()
    return next(
        (v for v in values if not is_number(v) and str(v).strip().lower() not in words), None
    )


def is_number(value: Any) -> bool:
    try:
        float(value)
        return True
    except (TypeError, ValueError):
        return False


# Messages


def unreadable(suffix: str, error: Exception) -> DataFileError:
    """The error to raise where Arrow cannot read a file."""
    return DataFileError(f"it is not a readable {suffix} file, or it is cut off ({reason(error)}).")


def reason(error: Exception) -> str:
    """The reason of an error, as a part of a sentence."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return shown(text.splitlines()[0].rstrip(".")[:200])


def shown(address: str) -> str:
    """An address without user name and password."""
    return re.sub(r"://[^/\s@]*@", "://", address)


def short(value: object) -> str:
    """A value for a message, cut at 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
