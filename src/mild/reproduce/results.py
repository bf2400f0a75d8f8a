"""Results files: JSON lines, one record per finished training, never half of one."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mild.exceptions import DataFileError, InvalidInputError, MildWarning
from mild.reproduce.files import check_regular, locked, replace_bytes, unwritten
from mild.reproduce.keys import content_key
from mild.reproduce.records import SCHEMA, record_problem

__all__ = ["append_record", "cell_key", "read_records", "records_by_key"]

PathLike = str | os.PathLike[str]


def cell_key(cell: Mapping[str, Any]) -> str:
    """Name of a cell: the first 16 hex digits of its content key.

    Examples
    --------
    >>> cell_key({"seed": 0, "cost": "error"}) == cell_key({"cost": "error", "seed": 0})
    True
    """
    return content_key(cell, "a cell")[:16]


def append_record(path: PathLike, record: Mapping[str, Any]) -> None:
    """Add one record to a results file; the file is made if there is none.

    Whoever reads sees the old lines, or these and the new one; a full disk or a kill leaves the old
    ones. Two processes that append at once wait for one another.
    """
    problem = _problem(record)
    if problem is not None:
        raise InvalidInputError(f"a record {problem}.")
    try:
        line = json.dumps(record, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"a record must be plain JSON; {error}.") from error
    target = Path(os.path.realpath(path))
    check_regular(target, "a results file")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target):
            _append_line(target, line.encode() + b"\n")
    except OSError as error:
        raise unwritten(f"cannot add a record to {target}", target, error) from error


def read_records(paths: PathLike | Iterable[PathLike]) -> list[dict[str, Any]]:
    """Records of results files and of folders with ``*.jsonl`` files, one per key.

    Records of one key that disagree: the one that finished last is kept, and a warning says how many
    were superseded.

    Parameters
    ----------
    paths : a file, a folder, or several of them

    Returns
    -------
    list of records, in the order of the files and lines
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise InvalidInputError("paths must name at least one results file or folder; got none.")
    kept: dict[str, dict[str, Any]] = {}
    superseded = 0
    for file in _files(Path(path) for path in given):
        for record in _read(file):
            known = kept.setdefault(record["key"], record)
            if known is record:
                continue
            superseded += known["outcomes"] != record["outcomes"]
            if _finished(record) > _finished(known):
                kept[record["key"]] = record
    if superseded:
        count = "1 record was" if superseded == 1 else f"{superseded} records were"
        warnings.warn(
            f"{count} superseded: another one of the same cell, with other outcomes, finished later.",
            MildWarning,
            stacklevel=2,
        )
    return list(kept.values())


def records_by_key(path: PathLike) -> dict[str, dict[str, Any]]:
    """Records of one results file by key; none where there is no such file yet."""
    if not Path(path).exists():
        return {}
    return {record["key"]: record for record in read_records(path)}


def _problem(record: object) -> str | None:
    """First rule that the record breaks, its own key included."""
    problem = record_problem(record)
    if problem is None and isinstance(record, Mapping):
        key = cell_key(record["cell"])
        if record["key"] != key:
            problem = f"must carry the key of its cell, {key}; got {record['key']!r}"
    return problem


def _finished(record: Mapping[str, Any]) -> datetime:
    moment = datetime.fromisoformat(record["finished"])
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Each results file once."""
    seen = set()
    for path in paths:
        if path.is_dir():
            found = sorted(path.glob("*.jsonl"))
            if not found:
                raise DataFileError(
                    f"{path} must hold results files (*.jsonl); there is none. Name another folder, "
                    f"or run an experiment first: mild reproduce table1."
                )
        elif path.exists():
            found = [path]
        else:
            raise DataFileError(
                f"{path} must be a results file or a folder with some; there is nothing there. "
                f"Run an experiment first: mild reproduce table1."
            )
        for file in found:
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield file


def _read(file: Path) -> Iterator[dict[str, Any]]:
    check_regular(file, "a results file")
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise DataFileError(f"cannot read {file}: {error.strerror or error}.") from error
    if lines[0].lstrip().startswith(b"["):
        raise DataFileError(
            f"{file} must hold one JSON object per line; it holds a list, as mild reproduce classifier "
            f"writes it. Show it by itself: mild reproduce show {file}."
        )
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        try:
            # Python's parser admits NaN and Infinity, which are no JSON.
            record = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise DataFileError(
                f"{place}: a results file must hold one JSON object per line; this line is damaged "
                f"({error}). Remove it, and its training is run again."
            ) from error
        _check_schema(place, record)
        problem = _problem(record)
        if problem is not None:
            raise DataFileError(
                f"{place}: a record {problem}. Remove the line, and its training is run again."
            )
        yield record


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _check_schema(place: str, record: object) -> None:
    got = record.get("schema") if isinstance(record, dict) else None
    if got == SCHEMA and not isinstance(got, bool):
        return
    what = "none" if got is None else repr(got)
    remedy = (
        "Read it with the version of mild that wrote it, or newer"
        if isinstance(got, int) and got > SCHEMA
        else "Read it with the version of mild that wrote it, or run the experiment again into a new file"
    )
    raise DataFileError(
        f"{place}: a record must have schema version {SCHEMA}; got {what}. {remedy}."
    )


def _append_line(target: Path, line: bytes) -> None:
    """Replace the file by itself and one line more, under the lock."""
    old = target.read_bytes() if target.exists() else b""
    if old and not old.endswith(b"\n"):
        old += b"\n"
    replace_bytes(target, old + line)
