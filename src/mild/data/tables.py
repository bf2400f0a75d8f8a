"""A Parquet, CSV or JSON-lines file, or a data frame, as one Arrow table; types and choice of its columns.

Arrow does the reading. Where it fails, the file is searched for the first line that is wrong, so that the
error can name it.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from mild.errors import DataFileError, InvalidInputError, OptionError, listed

SUFFIXES = (".parquet", ".csv", ".jsonl", ".ndjson")
# Types are inferred from one block: as large as the file, so that a late value counts too.
MIN_BLOCK, MAX_BLOCK = 1 << 20, 2**31 - 1
# Bytes that show the columns of a CSV file and their types.
PEEK = 1 << 22
QUOTED_BREAKS = arrow_csv.ParseOptions(newlines_in_values=True)


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
    """The lower-case suffix of a file that exists, is not empty and has one of these suffixes."""
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


def read_table(source: Any, texts: Collection[str] = ()) -> Any:
    """Arrow table with at least one row, of a file or of a frame with ``__arrow_c_stream__``.

    The columns ``texts`` of a file are text whatever they look like: a prompt ``007`` is not a number.
    """
    if isinstance(source, (str, os.PathLike)):
        file = Path(source)
        try:
            suffix = check_file(file)
            if suffix == ".parquet":
                table = read_parquet(file)
            else:
                table = (_read_csv if suffix == ".csv" else _read_json_lines)(file, texts)
        except OSError as error:
            raise DataFileError(f"it cannot be read: {reason(error)}.") from error
    else:
        table = _read_frame(source)
    names = list(table.column_names)
    check_names(names)
    if table.num_rows == 0:
        raise DataFileError(f"there must be at least one row; got none, columns {listed(names)}.")
    return validate_columns(table)


def _read_frame(source: Any) -> Any:
    try:
        if hasattr(source, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(source).read_all()
        if hasattr(source, "columns") and hasattr(source, "iloc"):
            return pa.Table.from_pandas(source, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataFileError(f"the frame cannot be read through Arrow ({reason(error)}).") from error
    raise InvalidInputError(
        f"a table must be a path, or a frame with __arrow_c_stream__ (pandas, polars, DuckDB, "
        f"pyarrow); got {type(source).__name__}.",
        parameter="source",
    )


def peek_schema(file: Path) -> Any:
    """Arrow schema of a .parquet or .csv file from its beginning; None if the file cannot be read."""
    try:
        if file.suffix.lower() == ".parquet":
            return parquet.read_schema(file)
        options = arrow_csv.ReadOptions(block_size=PEEK)
        return arrow_csv.open_csv(file, options, QUOTED_BREAKS).schema
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None


def check_names(names: Sequence[str], rule: str = "columns must have different names") -> None:
    """Refuse two equal names."""
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


def read_parquet(file: Path, columns: list[str] | None = None) -> Any:
    """Arrow table of a Parquet file, or of some of its columns."""
    try:
        return parquet.ParquetFile(file).read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(".parquet", error) from error


def _block(file: Path) -> int:
    return min(max(file.stat().st_size + 1, MIN_BLOCK), MAX_BLOCK)


def _read_csv(file: Path, texts: Collection[str]) -> Any:
    options = arrow_csv.ReadOptions(block_size=_block(file))
    types = arrow_csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string()))
    try:
        table = arrow_csv.read_csv(file, options, QUOTED_BREAKS, types)
        names = table.column_names
    except (pa.ArrowException, UnicodeDecodeError) as error:
        _check_rows(_decode(file))
        raise unreadable(".csv", error) from error
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        # Arrow reads text that is not UTF-8 as bytes.
        _decode(file)
    separator = next((mark for mark in (";", "\t", "|") if mark in names[0]), None)
    if len(names) == 1 and separator:
        found = f"one column {names[0]!r}: is the separator {separator!r}?"
        raise DataFileError(f"columns must be separated by commas; found {found}")
    return table


def _decode(file: Path) -> str:
    """Text of a file; an error that names the first line that is not UTF-8."""
    content = file.read_bytes()
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


def _check_rows(text: str) -> None:
    """Refuse the first row of a CSV file with too many or too few cells."""
    limit = csv.field_size_limit(MAX_BLOCK)
    line = 1
    try:
        rows = csv.reader(io.StringIO(text, newline=""))
        header = next(rows, [])
        line = rows.line_num + 1
        for row in rows:
            if row and len(row) != len(header):
                raise DataFileError(
                    f"line {line} has {len(row)} column(s) where the header has {len(header)}; a text "
                    f"with commas, quotes or line breaks must stand in double quotes."
                )
            line = rows.line_num + 1
    except csv.Error as error:
        raise DataFileError(f"line {line} is not valid CSV ({error}).") from error
    finally:
        csv.field_size_limit(limit)


def _read_json_lines(file: Path, texts: Collection[str]) -> Any:
    """Arrow table of a file with one JSON object per line; a key that a line lacks is empty there."""
    try:
        with open(file, "rb") as lines:
            first = json.loads(next((line for line in lines if line.strip()), b""))
        # Arrow would read texts such as dates as dates.
        names = [name for name in first if name in texts and isinstance(first[name], str)]
        schema = pa.schema([(name, pa.string()) for name in names]) if names else None
        parse = arrow_json.ParseOptions(explicit_schema=schema)
        table = arrow_json.read_json(file, arrow_json.ReadOptions(block_size=_block(file)), parse)
        table.validate(full=True)
        return table
    except (pa.ArrowException, TypeError, ValueError):
        # Numbers among booleans, or a broken line: Python reads the former and names the latter.
        text = _decode(file)
    rows = [_parse(i, line) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]
    keys = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _array([row.get(name) for row in rows]) for name in keys})


def _parse(number: int, line: str) -> dict[str, Any]:
    reason = ""
    try:
        found = json.loads(line)
        if isinstance(found, dict):
            json.dumps(found, ensure_ascii=False).encode()
            return found
    except UnicodeEncodeError as error:
        raise DataFileError(f"line {number} holds half a character (a lone surrogate).") from error
    except (ValueError, RecursionError) as error:
        reason = f" ({error})"
    raise DataFileError(
        f"line {number} must be one JSON object; it is {short(line.strip())}{reason}."
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
            rule = f"must name columns of the file; {name!r} is none{hint}"
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
    """Whether an Arrow type is text."""
    return str(kind) in ("string", "large_string", "string_view")


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is a list of anything."""
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


def numbers(name: str, column: Any) -> Any:
    """A column as a float array, NaN where it is empty; float32 stays float32."""
    if not (is_numeric(column.type) or pa.types.is_null(column.type)):
        example = first_text(column)
        shown = "" if example is None else f" such as {short(example)}"
        kind = "text" if is_string(column.type) else column.type
        raise DataFileError(f"column {name!r} must hold numbers; it holds {kind}{shown}.")
    kind = pa.float32() if column.type == pa.float32() else pa.float64()
    return column.cast(kind, safe=False).to_numpy()


def number_matrix(table: Any, names: Sequence[str]) -> NDArray[Any]:
    """Columns of numbers side by side; float32 if all of them are."""
    single = all(table.schema.field(name).type == pa.float32() for name in names)
    matrix = np.empty((table.num_rows, len(names)), np.float32 if single else np.float64)
    for place, name in enumerate(names):
        matrix[:, place] = numbers(name, table[name])
    return matrix


def first_text(column: Any) -> Any:
    """First value of a column that is not a number."""
    return next((value for value in column.drop_null().to_pylist() if not is_number(value)), None)


def is_number(value: Any) -> bool:
    """Whether a value can be parsed as a number."""
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
