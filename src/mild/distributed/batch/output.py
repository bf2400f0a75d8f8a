"""The folder of a job: what it is of, what of it is done, and what it came to."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from pyarrow import fs

from mild.data.footers import READERS
from mild.data.location import open_system, reason, shown
from mild.distributed.batch.job import EXPERT
from mild.distributed.batch.lock import LOCK_FILE
from mild.distributed.batch.partitions import Partition
from mild.distributed.batch.routing import Done
from mild.errors import DataFileError, OutputExistsError

__all__ = ["MANIFEST_FILE", "SUCCESS_FILE", "Output", "Parts", "digest"]

MANIFEST_FILE = "_manifest.json"
#: There when a job is complete, as elsewhere; it holds the summary.
SUCCESS_FILE = "_SUCCESS"
FORMAT = 1
OWN = re.compile(rf"part-\d{{6,}}\.parquet|{MANIFEST_FILE}|{SUCCESS_FILE}|{LOCK_FILE}|_tmp-\w+")
REMEDY = "Choose another folder, or replace what is there (--overwrite, overwrite=True)."


@dataclass(frozen=True)
class Parts:
    """Fingerprints of what decides about the output's rows.

    Attributes
    ----------
    router, input, options : one each
    """

    router: str
    input: str
    options: str

    @property
    def mark(self) -> str:
        """All of them as one."""
        return digest([FORMAT, self.router, self.input, self.options])


def digest(value: Any) -> str:
    """Fingerprint of a JSON-ready value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


class Output:
    """A folder of output.

    Parameters
    ----------
    out : path or address
    """

    def __init__(self, out: str) -> None:
        self.out = shown(out)
        self.system, self.path = open_system(out)

    def create(self) -> None:
        """Make the folder; refuse one with other things in it, before anything is written."""
        try:
            info = self.system.get_file_info(self.path)
        except (pa.ArrowException, OSError) as error:
            raise self._unwritable(error) from error
        if info.type == fs.FileType.File:
            raise OutputExistsError(f"{self.out} must be a folder; a file is there.")
        strangers = [name for name in self._names() if not OWN.fullmatch(name)]
        if strangers:
            raise OutputExistsError(
                f"{self.out} holds more than routed parts ({strangers[0]!r}); choose another folder."
            )
        self._make_folder(self.path)

    def begin(self, parts: Parts, described: dict[str, Any], token: str, overwrite: bool) -> None:
        """Take the folder for a job: a new one, the same again, or in place of another."""
        names = self._names()
        known = self._read(MANIFEST_FILE) if MANIFEST_FILE in names else None
        if known is None and any(name.startswith("part-") for name in names) and not overwrite:
            raise OutputExistsError(
                f"{self.out} holds parts, but no {MANIFEST_FILE} that says of what. {REMEDY}"
            )
        if known is not None and not overwrite:
            self._compare(known, parts)
        for name in names:
            stale = name.startswith("_tmp-") or (overwrite and name != LOCK_FILE)
            if stale or name == SUCCESS_FILE:
                self._remove(name)
        self._make_folder(f"{self.path}/_tmp-{token}")
        if known is None or overwrite:
            fingerprints = {"router": parts.router, "input": parts.input, "options": parts.options}
            content = {"format": FORMAT, "fingerprints": fingerprints, **described}
            self.write(MANIFEST_FILE, content, token)

    def finished(self, partition: Partition, names: Sequence[str], mark: str) -> Done | None:
        """What became of a partition whose file is there and whole; None if it must be done again."""
        try:
            with self.system.open_input_file(f"{self.path}/{partition.name}") as stream:
                file = parquet.ParquetFile(stream)
                if (file.schema_arrow.metadata or {}).get(b"mild.job") != mark.encode():
                    return None
                rows, bad = file.metadata.num_rows, 0
                counts = dict.fromkeys(names, 0)
                for batch in file.iter_batches(columns=[EXPERT]):
                    for entry in pc.value_counts(batch.column(0)).to_pylist():
                        if entry["values"] is None:
                            bad += entry["counts"]
                        else:
                            counts[entry["values"]] += entry["counts"]
        except (pa.ArrowException, OSError, KeyError):
            return None
        # Rows that were left out are not in the file.
        bad += partition.rows - rows
        return Done(partition.number, rows, tuple(counts[name] for name in names), bad)

    def all_finished(
        self, partitions: Sequence[Partition], names: Sequence[str], mark: str
    ) -> dict[int, Done]:
        """What became of every partition that need not be done again, by its number."""
        there = set(self._names())
        known = [partition for partition in partitions if partition.name in there]
        with ThreadPoolExecutor(READERS) as pool:
            found = pool.map(lambda partition: self.finished(partition, names, mark), known)
            return {done.number: done for done in found if done is not None}

    def end(self, summary: dict[str, Any], token: str) -> None:
        """Write the summary, and clear away what is not of the output."""
        self.write(SUCCESS_FILE, summary, token)
        self.clear(token)

    def clear(self, token: str) -> None:
        """Remove what this run has begun; where that fails, the next run will."""
        with suppress(pa.ArrowException, OSError, DataFileError):
            if f"_tmp-{token}" in self._names():
                self._remove(f"_tmp-{token}")

    def write(self, name: str, content: dict[str, Any], token: str) -> None:
        """Write a JSON file, complete or not at all."""
        fresh = f"{self.path}/_tmp-{token}/{name}"
        try:
            with self.system.open_output_stream(fresh) as stream:
                stream.write((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
            self.system.move(fresh, f"{self.path}/{name}")
        except (pa.ArrowException, OSError) as error:
            raise self._unwritable(error) from error

    def _compare(self, known: dict[str, Any], parts: Parts) -> None:
        marks = known.get("fingerprints") or {}
        if known.get("format") != FORMAT:
            raise OutputExistsError(
                f"{self.out} holds the parts of a job of another version of mild. {REMEDY}"
            )
        changed = {
            "router": f"with another router ({known.get('router')}), or it was saved again since",
            "input": f"on another input ({known.get('source')}), or its files were changed since",
            "options": "with other options (columns, prices or decision)",
        }
        for name, words in changed.items():
            if marks.get(name) != getattr(parts, name):
                raise OutputExistsError(f"{self.out} was begun {words}. {REMEDY}")

    def _names(self) -> list[str]:
        try:
            entries = self.system.get_file_info(
                fs.FileSelector(self.path, recursive=False, allow_not_found=True)
            )
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(f"cannot read {self.out}: {reason(error)}.") from error
        return sorted(entry.base_name for entry in entries)

    def _make_folder(self, path: str) -> None:
        try:
            self.system.create_dir(path, recursive=True)
        except (pa.ArrowException, OSError) as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: Exception) -> DataFileError:
        return DataFileError(f"cannot write to {self.out}: {reason(error)}.")

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            with self.system.open_input_stream(f"{self.path}/{name}") as stream:
                content = json.loads(stream.read())
        except (pa.ArrowException, OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def _remove(self, name: str) -> None:
        path = f"{self.path}/{name}"
        try:
            if self.system.get_file_info(path).type == fs.FileType.Directory:
                self.system.delete_dir(path)
            else:
                self.system.delete_file(path)
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(f"cannot remove {path}: {reason(error)}.") from error
