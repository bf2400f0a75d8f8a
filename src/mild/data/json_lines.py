"""JSON lines, one object each: by Arrow, and where it gives up, line by line with the line's number."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as arrow_json

from mild.data.arrow import MAX_BLOCK, short
from mild.errors import DataFileError

__all__ = ["load_json_lines"]


def load_json_lines(file: Path, texts: Collection[str]) -> Any:
    """Arrow table of a file with one JSON object per line; a key that a line lacks is empty there."""
    try:
        table = _by_arrow(file, texts)
        table.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError):
        # Numbers among booleans, or a broken line: Python reads the former and can name the latter.
        table = _by_lines(file)
    return table


def _by_arrow(file: Path, texts: Collection[str]) -> Any:
    schema = [(name, pa.string()) for name in _first_keys(file) if name in texts]
    return arrow_json.read_json(
        file,
        # One block, so that a long line fits and a late type counts.
        read_options=arrow_json.ReadOptions(
            block_size=min(max(file.stat().st_size + 1, 1 << 20), MAX_BLOCK)
        ),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema(schema) if schema else None
        ),
    )


def _first_keys(file: Path) -> list[str]:
    """Texts of the first object: only their type is declared, or dates among them are guessed."""
    with open(file, "rb") as lines:
        for line in lines:
            if line.strip():
                try:
                    first = json.loads(line)
                except ValueError:
                    return []
                if not isinstance(first, dict):
                    return []
                return [name for name, value in first.items() if isinstance(value, str)]
    return []


def _by_lines(file: Path) -> Any:
    columns: dict[str, list[Any]] = {}
    rows = 0
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            for name, value in _object(number, line).items():
                column = columns.setdefault(name, [])
                column.extend([None] * (rows - len(column)))
                column.append(value)
            rows += 1
    for column in columns.values():
        column.extend([None] * (rows - len(column)))
    return pa.table({name: _array(column) for name, column in columns.items()})


def _object(number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        # Half a character, such as "\ud800", cannot be stored as text.
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise DataFileError(
            f"line {number} is not UTF-8 (byte 0x{line[error.start]:02x} at position "
            f"{error.start}); save the file as UTF-8."
        ) from error
    except UnicodeEncodeError as error:
        raise DataFileError(f"line {number} holds half a character (a lone surrogate).") from error
    except (ValueError, RecursionError) as error:
        raise DataFileError(
            f"line {number} must be one JSON object; it is {short(line.decode().strip())} ({error})."
        ) from error
    if not isinstance(found, dict):
        raise DataFileError(
            f"line {number} must be one JSON object; it is {short(line.decode().strip())}."
        )
    return found


def _array(values: list[Any]) -> Any:
    """Numbers where all are, texts where not."""
    kinds = {type(value) for value in values if value is not None}
    try:
        if kinds == {bool, float} or kinds == {bool, int} or kinds == {bool, int, float}:
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
