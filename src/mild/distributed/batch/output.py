"""The output folder of a job: its manifest, its finished partitions and its summary."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from pyarrow import fs

from mild.data.tables import reason, shown
from mild.distributed.locks import LOCK_FILE
from mild.distributed.partitions import READERS, Partition, open_system
from mild.errors import DataFileError, MildError, OutputExistsError

#: Column of the output that names the chosen expert.
EXPERT, FIRST_STEP = "expert", "first_step"
MANIFEST_FILE = "_manifest.json"
#: Written when a job is complete; it holds the summary.
SUCCESS_FILE = "_SUCCESS"
FORMAT = 1
OWN = re.compile(rf"part-\d{{6,}}\.parquet|{MANIFEST_FILE}|{SUCCESS_FILE}|{LOCK_FILE}|_tmp-\w+")
REMEDY = "Choose another folder, or replace what is there (--overwrite, overwrite=True)."


@dataclass(frozen=True)
class RoutedPartition:
    """Counts of a finished partition: rows written, rows sent to each expert, and rows without a query."""

    number: int
    rows: int
    counts: tuple[int, ...]
    bad: int


def digest(value: Any) -> str:
    """Fingerprint of a JSON-ready value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


class Output:
    """An output folder, by path or address; files that are not complete are in a folder in it."""

    def __init__(self, out: str) -> None:
        self.out = shown(out)
        self.system, self.path = open_system(out)
        self.unfinished = f"{self.path}/_tmp-{secrets.token_hex(4)}"

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except MildError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(f"cannot write to {self.out}: {reason(error)}.") from error

    def create(self) -> None:
        """Make the folder; refuse one that holds other things, before anything is written."""
        if self.system.get_file_info(self.path).type == fs.FileType.File:
            raise OutputExistsError(f"{self.out} must be a folder; a file is there.")
        others = [name for name in self._names() if not OWN.fullmatch(name)]
        if others:
            raise OutputExistsError(
                f"{self.out} holds more than routed parts ({others[0]!r}); choose another folder."
            )
        self.system.create_dir(self.path, recursive=True)

    def begin(
        self, fingerprints: Mapping[str, str], manifest: Mapping[str, Any], overwrite: bool
    ) -> None:
        """Begin a job in the folder: a new one, the same again, or in place of another."""
        names = self._names()
        known = self._read_manifest() if MANIFEST_FILE in names else None
        if not overwrite:
            if known is not None:
                self._compare(known, fingerprints)
            elif any(name.startswith("part-") for name in names):
                raise OutputExistsError(
                    f"{self.out} holds parts, but no {MANIFEST_FILE} that describes their job. {REMEDY}"
                )
        for name in names:
            if name.startswith("_tmp-"):
                self.system.delete_dir(f"{self.path}/{name}")
            elif name == SUCCESS_FILE or (overwrite and name != LOCK_FILE):
                self.system.delete_file(f"{self.path}/{name}")
        self.system.create_dir(self.unfinished, recursive=True)
        if known is None or overwrite:
            content = {"format": FORMAT, "fingerprints": dict(fingerprints), **manifest}
            self.write(MANIFEST_FILE, content)

    def finished(
        self, partitions: Sequence[Partition], names: Sequence[str], fingerprint: str
    ) -> dict[int, RoutedPartition]:
        """Counts of every partition whose file is there and whole, by its number."""
        there = set(self._names())
        known = [partition for partition in partitions if partition.name in there]
        with ThreadPoolExecutor(READERS) as pool:
            found = pool.map(lambda partition: self._counts(partition, names, fingerprint), known)
            return {one.number: one for one in found if one is not None}

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file, complete or not at all."""
        unfinished = f"{self.unfinished}/{name}"
        with self.system.open_output_stream(unfinished) as stream:
            stream.write((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
        self.system.move(unfinished, f"{self.path}/{name}")

    def clear(self) -> None:
        """Remove the unfinished files of this run; where that fails, the next run does it."""
        with suppress(pa.ArrowException, OSError):
            self.system.delete_dir(self.unfinished)

    def _counts(
        self, partition: Partition, names: Sequence[str], fingerprint: str
    ) -> RoutedPartition | None:
        """Counts of a partition whose file is there; None if it must be routed again."""
        counts = dict.fromkeys(names, 0)
        try:
            with self.system.open_input_file(f"{self.path}/{partition.name}") as stream:
                file = parquet.ParquetFile(stream)
                if (file.schema_arrow.metadata or {}).get(b"mild.job") != fingerprint.encode():
                    return None
                rows = file.metadata.num_rows
                for batch in file.iter_batches(columns=[EXPERT]):
                    for entry in pc.value_counts(batch.column(0).drop_null()).to_pylist():
                        counts[entry["values"]] += entry["counts"]
        except (pa.ArrowException, OSError, KeyError):
            return None
        # Bad rows have no expert in the file, or were left out of it.
        bad = partition.rows - sum(counts.values())
        return RoutedPartition(partition.number, rows, tuple(counts.values()), bad)

    def _compare(self, known: Mapping[str, Any], fingerprints: Mapping[str, str]) -> None:
        if known.get("format") != FORMAT:
            raise OutputExistsError(
                f"{self.out} holds the parts of a job of another version of mild. {REMEDY}"
            )
        changed = {
            "router": f"with another router ({known.get('router')}), or it was saved again since",
            "input": f"on another input ({known.get('source')}), or its files were changed since",
            "options": "with other options (columns, prices or decision)",
        }
        for name, difference in changed.items():
            if (known.get("fingerprints") or {}).get(name) != fingerprints[name]:
                raise OutputExistsError(f"{self.out} was begun {difference}. {REMEDY}")

    def _names(self) -> list[str]:
        entries = self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(entry.base_name for entry in entries)

    def _read_manifest(self) -> dict[str, Any] | None:
        file = f"{self.path}/{MANIFEST_FILE}"
        unreadable = suppress(pa.ArrowException, OSError, ValueError, TypeError)
        with unreadable, self.system.open_input_stream(file) as stream:
            return dict(json.loads(stream.read()))
        return None
