"""A file (Parquet, CSV, JSON lines) or a data frame as one Arrow table.

Arrow does the reading. Where it fails, the file is searched for the first line that is wrong, so that the
error can name it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.parquet as parquet

from mild.data.arrow import short, unreadable
from mild.errors import DataFileError, InvalidInputError, OptionError, listed

__all__ = [
    "SUFFIXES",
    "check_file",
    "check_names",
    "load_file",
    "load_frame",
    "naming",
    "peek_schema",
    "sound",
]

SUFFIXES = (".parquet", ".csv", ".jsonl", ".ndjson")
# Types are inferred from one block: as large as the file, so that a late value counts too.
MIN_BLOCK, MAX_BLOCK = 1 << 20, 2**31 - 1
# Bytes that show the columns of a CSV file and their types.
PEEK = 1 << 22
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
QUOTED_BREAKS = arrow_csv.ParseOptions(newlines_in_values=True)


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
        raise DataFileError(f"{file}: it cannot be read: {error.strerror or error}.") from error


def check_file(file: Path, suffixes: Sequence[str]) -> str:
    """The lower-case suffix of a file that is there, is not empty and has one of these suffixes."""
    if not file.exists():
        raise DataFileError("there is no such file.")
    if not file.is_file():
        raise DataFileError("it must be a file; got a folder.")
    suffix = file.suffix.lower()
    if suffix not in suffixes:
        raise DataFileError(f"the file must end in {', '.join(suffixes)}; got {file.suffix!r}.")
    if file.stat().st_size == 0:
        raise DataFileError("the file is empty.")
    return suffix


def load_file(file: Path, texts: Collection[str]) -> Any:
    """Arrow table of a file.

    Parameters
    ----------
    file : .parquet, .csv, .jsonl or .ndjson
    texts : columns that are text whatever they look like: a prompt ``007`` is not a number
    """
    try:
        suffix = check_file(file, SUFFIXES)
        if suffix == ".parquet":
            return _checked(_load_parquet(file))
        return _checked((_load_csv if suffix == ".csv" else _load_json_lines)(file, texts))
    except OSError as error:
        raise DataFileError(f"it cannot be read: {error.strerror or error}.") from error


def load_frame(source: Any) -> Any:
    """Arrow table of a frame: anything with ``__arrow_c_stream__``, and older pandas.

    Examples
    --------
    >>> load_frame(pa.table({"prompt": ["a"], "correct__x": [1]})).column_names
    ['prompt', 'correct__x']
    """
    try:
        if hasattr(source, "__arrow_c_stream__"):
            return _checked(pa.RecordBatchReader.from_stream(source).read_all())
        if hasattr(source, "columns") and hasattr(source, "iloc"):
            return _checked(pa.Table.from_pandas(source, preserve_index=False))
    except DataFileError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataFileError(f"the frame cannot be read through Arrow ({_line(error)}).") from error
    raise InvalidInputError(
        f"a table must be a path, or a frame with __arrow_c_stream__ (pandas, polars, DuckDB, "
        f"pyarrow); got {type(source).__name__}.",
        parameter="source",
    )


def peek_schema(file: Path) -> Any:
    """Arrow schema of a .parquet or .csv file from its beginning; None if the file cannot be read.

    Types are null where the first lines of a .csv are broken.
    """
    try:
        if file.suffix.lower() == ".parquet":
            return parquet.read_schema(file)
        with open(file, "rb") as stream:
            if stream.read(2) in (b"", *UTF_16_MARKS):
                return None
        try:
            options = arrow_csv.ReadOptions(block_size=PEEK)
            return arrow_csv.open_csv(file, options, QUOTED_BREAKS).schema
        except (pa.ArrowException, UnicodeDecodeError):
            with open(file, encoding="utf-8-sig", errors="replace", newline="") as lines:
                names = next(csv.reader([lines.readline(PEEK)]), [])
            return pa.schema([(name, pa.null()) for name in names])
    except (pa.ArrowException, OSError):
        return None


def check_names(names: Sequence[str]) -> None:
    """Refuse two columns of one name."""
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise DataFileError(f"columns must have different names; {min(twice)!r} appears twice.")


def sound(table: Any) -> Any:
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
                f"column {name!r} is broken, or its text is not UTF-8 ({_line(error)})."
            ) from error
    return table


def _checked(table: Any) -> Any:
    names = list(table.column_names)
    check_names(names)
    if table.num_rows == 0:
        raise DataFileError(f"there must be at least one row; got none, columns {listed(names)}.")
    return sound(table)


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")[:200]


def _load_parquet(file: Path) -> Any:
    try:
        return parquet.ParquetFile(file).read()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(".parquet", error) from error


def _block(file: Path) -> int:
    return min(max(file.stat().st_size + 1, MIN_BLOCK), MAX_BLOCK)


def _load_csv(file: Path, texts: Collection[str]) -> Any:
    """Arrow table of a CSV file in UTF-8, separated by commas."""
    types = arrow_csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string()))
    try:
        table = arrow_csv.read_csv(
            file, arrow_csv.ReadOptions(block_size=_block(file)), QUOTED_BREAKS, types
        )
        names = table.column_names
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _not_utf8(file) or _ragged_row(file) or unreadable(".csv", error) from error
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        # Arrow reads text that is not UTF-8 as bytes.
        raise _not_utf8(file) or DataFileError("its text is not UTF-8.")
    separator = next((mark for mark in (";", "\t", "|") if mark in names[0]), None)
    if len(names) == 1 and separator:
        raise DataFileError(
            f"columns must be separated by commas; found one column {names[0]!r}: is the separator "
            f"{separator!r}?"
        )
    return table


def _not_utf8(file: Path) -> DataFileError | None:
    """The error for the first line that is not UTF-8; None if all are."""
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and line[:2] in UTF_16_MARKS:
                return DataFileError("its text is UTF-16; save it as UTF-8.")
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return _bad_byte(number, line, error.start)
    return None


def _bad_byte(number: int, line: bytes, place: int) -> DataFileError:
    return DataFileError(
        f"line {number} is not UTF-8 (byte 0x{line[place]:02x} at position {place}; Latin-1 or "
        f"Windows-1252, perhaps); save the file as UTF-8."
    )


def _ragged_row(file: Path) -> DataFileError | None:
    """The error for the first row with too many or too few cells; None if there is none."""
    usual = csv.field_size_limit(MAX_BLOCK)
    first = 1
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream)
            header = next(rows, [])
            first = rows.line_num + 1
            for row in rows:
                if row and len(row) != len(header):
                    return DataFileError(
                        f"line {first} has {len(row)} column(s) where the header has {len(header)}; "
                        f"a text with commas, quotes or line breaks must stand in double quotes."
                    )
                first = rows.line_num + 1
    except csv.Error as error:
        return DataFileError(f"line {first} is not valid CSV ({error}).")
    finally:
        csv.field_size_limit(usual)
    return None


def _load_json_lines(file: Path, texts: Collection[str]) -> Any:
    """Arrow table of a file with one JSON object per line; a key that a line lacks is empty there."""
    schema = [(name, pa.string()) for name in _first_texts(file) if name in texts]
    parse = arrow_json.ParseOptions(explicit_schema=pa.schema(schema) if schema else None)
    try:
        read = arrow_json.ReadOptions(block_size=_block(file))
        table = arrow_json.read_json(file, read, parse)
        table.validate(full=True)
        return table
    except (pa.ArrowException, UnicodeDecodeError):
        # Numbers among booleans, or a broken line: Python reads the former and names the latter.
        return _parse_lines(file)


def _first_texts(file: Path) -> list[str]:
    """Keys of the first object with texts as values; Arrow would read texts such as dates as dates."""
    with open(file, "rb") as lines:
        line = next((line for line in lines if line.strip()), b"")
    try:
        first = json.loads(line)
    except ValueError:
        return []
    pairs = first.items() if isinstance(first, dict) else ()
    return [name for name, value in pairs if isinstance(value, str)]


def _parse_lines(file: Path) -> Any:
    with open(file, "rb") as lines:
        rows = [_object(i, line) for i, line in enumerate(lines, start=1) if line.strip()]
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _array([row.get(name) for row in rows]) for name in names})


def _object(number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        # Half a character, such as "\ud800", cannot be stored as text.
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise _bad_byte(number, line, error.start) from error
    except UnicodeEncodeError as error:
        raise DataFileError(f"line {number} holds half a character (a lone surrogate).") from error
    except (ValueError, RecursionError) as error:
        raise _not_an_object(number, line, f" ({error})") from error
    if not isinstance(found, dict):
        raise _not_an_object(number, line)
    return found


def _not_an_object(number: int, line: bytes, reason: str = "") -> DataFileError:
    return DataFileError(
        f"line {number} must be one JSON object; it is {short(line.decode().strip())}{reason}."
    )


def _array(values: list[Any]) -> Any:
    """Numbers where all values are numbers or booleans, what Arrow infers elsewhere, or texts."""
    kinds = {type(value) for value in values if value is not None}
    try:
        if bool in kinds and len(kinds) > 1 and kinds <= {bool, int, float}:
            values = [None if value is None else float(value) for value in values]
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        texts = [
            value
            if value is None or isinstance(value, str)
            else json.dumps(value, ensure_ascii=False)
            for value in values
        ]
        return pa.array(texts, pa.string())
