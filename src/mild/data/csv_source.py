"""CSV with queries in it: line breaks inside quotes, and one sentence for what is broken, with its line."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv

from mild.data.arrow import MAX_BLOCK, unreadable
from mild.errors import DataFileError

__all__ = ["load_csv", "peek_csv", "starts_as_text"]

# Enough of a file to tell its columns and their types.
PEEK = 1 << 22
# How UTF-16 begins.
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def load_csv(file: Path, texts: Collection[str]) -> Any:
    """Arrow table of a CSV file in UTF-8, separated by commas."""
    try:
        # Types are guessed from one block: as large as the file, so that a late value counts too.
        table = _read(file, texts, min(max(file.stat().st_size, 1 << 20), MAX_BLOCK))
        header = table.column_names
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _explained(file) or unreadable(file.suffix, error) from error
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        # Arrow takes text that is not UTF-8 for bytes.
        raise _explained(file) or DataFileError("its text is not UTF-8.")
    if table.num_columns == 1:
        separator = next((mark for mark in (";", "\t", "|") if mark in header[0]), None)
        if separator:
            raise DataFileError(
                f"columns must be separated by commas; found one column {header[0]!r}: is the "
                f"separator {separator!r}?"
            )
    return table


def peek_csv(file: Path) -> Any:
    """Schema by the first lines; types are null where those are broken."""
    try:
        return arrow_csv.open_csv(
            file,
            read_options=arrow_csv.ReadOptions(block_size=PEEK),
            parse_options=_quoted_breaks(),
        ).schema
    except (pa.ArrowException, UnicodeDecodeError):
        with open(file, encoding="utf-8-sig", errors="replace", newline="") as stream:
            header = stream.readline(PEEK)
        names = next(csv.reader([header]), [])
        return pa.schema([(name, pa.null()) for name in names])


def _read(file: Path, texts: Collection[str], block: int) -> Any:
    return arrow_csv.read_csv(
        file,
        read_options=arrow_csv.ReadOptions(block_size=block),
        parse_options=_quoted_breaks(),
        convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string())),
    )


def _quoted_breaks() -> Any:
    return arrow_csv.ParseOptions(newlines_in_values=True)


def starts_as_text(file: Path) -> bool:
    """Whether a file begins as text of single bytes; an empty one does not, nor one of UTF-16."""
    with open(file, "rb") as stream:
        return stream.read(2) not in (b"", *UTF_16)


def _explained(file: Path) -> DataFileError | None:
    """The first line that is wrong, and what is; None if none is found."""
    with open(file, "rb") as stream:
        start = stream.read(2)
    if start in UTF_16:
        return DataFileError("its text is UTF-16; save it as UTF-8.")
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return DataFileError(
                    f"line {number} is not UTF-8 (byte 0x{line[error.start]:02x} at position "
                    f"{error.start}; Latin-1 or Windows-1252, perhaps); save the file as UTF-8."
                )
    return _ragged(file)


def _ragged(file: Path) -> DataFileError | None:
    """The first row with too many or too few cells."""
    usual = csv.field_size_limit(MAX_BLOCK)
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
        return DataFileError(f"line {first} is no CSV ({error}).")
    finally:
        csv.field_size_limit(usual)
    return None
