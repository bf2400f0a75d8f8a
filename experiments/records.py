"""Results files: JSON lines, one record per finished training, written by one process at a time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import subprocess
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mild
from mild.errors import DataFileError, InvalidInputError, MildWarning

#: Version of the record's shape; raised when a field changes its meaning.
SCHEMA = 1
Record = dict[str, Any]
#: Says what a training is doing.
Report = Callable[[str], None]
# Fields of a record and of its cell, and what they must be.
FIELDS = {"cell": dict, "outcomes": dict, "reference": dict, "training": dict, "finished": str}
CELL_FIELDS = {
    "table": str,
    "dataset": str,
    "setup": str,
    "experts": str,
    "cost": str,
    "protocol": dict,
    "method": dict,
    "seed": int,
}
# Names the commit of a copy of the source that git does not know.
COMMIT_VARIABLE = "MILD_COMMIT"


class DivergedError(InvalidInputError):
    """A training ended in numbers that are not finite."""

    code = "training_diverged"


def content_key(value: object) -> str:
    """SHA-256 of a value as JSON with sorted keys: 64 hexadecimal digits.

    >>> content_key({"a": 1, "b": (2,)}) == content_key({"b": [2], "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def cell_key(cell: Mapping[str, Any]) -> str:
    """Key of a cell: the first 16 digits of its content key."""
    return content_key(cell)[:16]


class ResultsFile:
    """A results file that this process alone adds to.

    Parameters
    ----------
    path : the file; it is created with its first record
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.records: dict[str, Record] = {}

    @contextmanager
    def locked(self) -> Iterator[ResultsFile]:
        """Hold the file's lock and read what it holds; a second process gets an error."""
        folder = self.path.absolute().parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.path.with_name(f".{self.path.name}.lock"), "w")  # noqa: SIM115
        except OSError as error:
            raise DataFileError(f"cannot write to {folder}: {error.strerror or error}.") from error
        with lock:
            try:
                # Ends with the process, or with the file.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise DataFileError(
                    f"{self.path} is in use by another process; wait for it, or name another file "
                    f"(--results)."
                ) from None
            if self.path.exists():
                self.records = {record["key"]: record for record in read_records(self.path)}
            yield self

    def add(self, record: Record) -> Record:
        """Append one record; a reader or a kill finds the file with it or without it."""
        problem = record_problem(record)
        if problem:
            raise InvalidInputError(f"a record {problem}.")
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        old = self.path.read_bytes() if self.path.exists() else b""
        if old and not old.endswith(b"\n"):
            old += b"\n"
        try:
            write_whole(self.path, old + line)
        except OSError as error:
            raise DataFileError(
                f"cannot add a record to {self.path}: {error.strerror or error}; what it held is "
                f"untouched."
            ) from error
        self.records[record["key"]] = record
        return record

    def run(
        self,
        cells: Sequence[tuple[str, Callable[[Report], Record]]],
        progress: Callable[[int, int, str], Any] | None = None,
    ) -> list[Record]:
        """Records of cells, each a title and a function that makes its record.

        A cell whose training diverges does not keep the others from being run; the error comes at the end.
        """
        records, diverged = [], []
        for place, (title, make) in enumerate(cells):

            def report(message: str, place: int = place, title: str = title) -> None:
                if progress is not None:
                    progress(place, len(cells), f"{title}: {message}" if message else title)

            report("")
            try:
                records.append(make(report))
            except DivergedError as error:
                diverged.append(f"{title} ({error})")
        if diverged:
            raise DivergedError(
                f"{len(diverged)} of {len(cells)} trainings diverged, and the others are in {self.path}: "
                f"{'; '.join(diverged)}"
            )
        return records

    def same_training(self, training: str) -> Record | None:
        """A record of the same training under another name, as ``twin`` says it."""
        return next((r for r in self.records.values() if r.get("twin") == training), None)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a kill, finds the old content or the new."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(fresh, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def read_records(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Record]:
    """Records of results files, and of the ``*.jsonl`` files of folders, one per key.

    Of records with one key the one that finished last is kept; a warning counts those that differ.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    kept: dict[str, Record] = {}
    superseded = 0
    for file in _files(map(Path, given)):
        for record in _read(file):
            known = kept.setdefault(record["key"], record)
            superseded += known["outcomes"] != record["outcomes"]
            if _finished(record) > _finished(known):
                kept[record["key"]] = record
    if superseded:
        warnings.warn(
            f"{superseded} record(s) superseded: another record of the same cell finished later.",
            MildWarning,
            stacklevel=2,
        )
    return list(kept.values())


def record_problem(record: object) -> str | None:
    """The first rule that a record breaks, as "must ...; got ..."; None for a good record."""
    if not isinstance(record, dict):
        return f"must be a JSON object; got {record!r:.60}"
    if record.get("schema") != SCHEMA:
        return f"must have schema {SCHEMA}; got {record.get('schema')!r}: another version wrote it"
    for fields, entry, where in ((FIELDS, record, ""), (CELL_FIELDS, record.get("cell"), "cell.")):
        for name, kind in fields.items():
            value = entry.get(name) if isinstance(entry, dict) else None
            if not isinstance(value, kind):
                return f"must have {where}{name} of type {kind.__name__}; got {value!r:.60}"
    try:
        datetime.fromisoformat(record["finished"])
    except ValueError:
        return f"must have finished as a date in ISO format; got {record['finished']!r:.60}"
    if record.get("key") != cell_key(record["cell"]):
        return (
            f"must have the key of its cell, {cell_key(record['cell'])}; got {record.get('key')!r}"
        )
    if not record["outcomes"] or not set(record["outcomes"]) <= {"argmax", "stationary"}:
        return f"must have outcomes by argmax or stationary; got {sorted(record['outcomes'])}"
    for rule, outcome in record["outcomes"].items():
        loss = outcome.get("loss") if isinstance(outcome, dict) else None
        if not isinstance(loss, (int, float)) or not 0 <= loss < float("inf"):
            return f"must have a loss of 0 or more in outcomes.{rule}; got {loss!r:.60}"
    return None


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.is_file() else []
        if not found:
            raise DataFileError(
                f"{path} must be a results file or a folder of *.jsonl files; there is none. Run an "
                f"experiment first: python -m experiments.images table1."
            )
        yield from found


def _read(file: Path) -> Iterator[Record]:
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_constant=_refuse)
            problem = record_problem(record)
        except (ValueError, RecursionError) as error:
            problem = f"must be one JSON object per line; this line is damaged ({error})"
        if problem:
            raise DataFileError(
                f"{file}, line {number}: a record {problem}. Remove the line, and its training is run "
                f"again."
            )
        yield record


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finished(record: Record) -> datetime:
    moment = datetime.fromisoformat(record["finished"])
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def surroundings(device: str = "cpu", torch: bool = True) -> dict[str, Any]:
    """Versions, hardware, commit and time of a record that is finished now."""
    packages = ("numpy", "scikit-learn", *(("torch",) if torch else ()))
    versions = {"python": platform.python_version(), "mild": mild.__version__}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "versions": versions,
        "hardware": _hardware(device),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _hardware(device: str) -> str:
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(torch.device(device)))
    return processor_name() or f"{platform.machine()} processor"


def processor_name() -> str:
    """Name of the processor, on Linux from a file; empty if it is unknown."""
    source = Path("/proc/cpuinfo")
    lines = source.read_text(errors="replace").splitlines() if source.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


@cache
def commit() -> str | None:
    """The commit of the checkout, with "+" where a file was changed; MILD_COMMIT outside one."""
    root = Path(__file__).parents[1]
    try:
        words = [
            ["rev-parse", "HEAD"],
            ["status", "--porcelain", "--", "src", "gateway/src", "experiments"],
        ]
        found, changed = (
            subprocess.run(
                ["git", *each], cwd=root, capture_output=True, text=True, timeout=5, check=True
            ).stdout.strip()
            for each in words
        )
    except (OSError, subprocess.SubprocessError):
        return os.environ.get(COMMIT_VARIABLE)
    return os.environ.get(COMMIT_VARIABLE) or (f"{found}+" if changed else found)
