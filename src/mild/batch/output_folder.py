"""A folder of results that appears when it is complete, or not at all."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyarrow import fs

from mild.batch.parquet_files import open_file_system
from mild.data.tables import reason, shown
from mild.errors import DataFileError, InvalidInputError, MildError, OutputExistsError

#: Written last; it holds the summary of the job.
SUCCESS_FILE = "_SUCCESS"
ROUTED_FILES = re.compile(rf"part-\d+\.parquet|{SUCCESS_FILE}")


def part_name(number: int) -> str:
    """The name of the file that holds a piece of the results."""
    return f"part-{number:06d}.parquet"


class OutputFolder:
    """A folder, by path or address, whose files are written beside it first.

    On a local file system the complete folder gets its name in one step. An object store has no such step:
    the files get their names one by one, ``_SUCCESS`` last.
    """

    def __init__(self, out: str, overwrite: bool) -> None:
        if not out.strip():
            raise InvalidInputError(
                f"the folder to write to must have a name; got {out!r}.", parameter="out"
            )
        self.shown = shown(out)
        self.file_system, self.path = open_file_system(out)
        self.path = self.path.rstrip("/")
        self.overwrite = overwrite
        parent, _, name = self.path.rpartition("/")
        self.unfinished = f"{parent}/.{name}.{secrets.token_hex(4)}.unfinished"

    def check(self) -> None:
        """Refuse an output that exists, unless it holds routed parts that may be replaced."""
        with self._writing_errors():
            info = self.file_system.get_file_info(self.path)
            if info.type == fs.FileType.File:
                raise OutputExistsError(f"{self.shown} must be a folder; a file is there.")
            names = self._names(self.path)
        for name in names:
            if not ROUTED_FILES.fullmatch(name):
                raise OutputExistsError(
                    f"{self.shown} holds more than routed parts ({name!r}); choose another folder."
                )
        if names and not self.overwrite:
            raise OutputExistsError(
                f"{self.shown} exists; choose another folder, or replace it with overwrite=True."
            )

    @contextmanager
    def writing(self) -> Iterator[str]:
        """The folder to write parts to; it is removed when this context ends without ``publish``."""
        with self._writing_errors():
            self.file_system.create_dir(self.unfinished, recursive=True)
            try:
                yield self.unfinished
            finally:
                with suppress(pa.ArrowException, OSError):
                    self.file_system.delete_dir(self.unfinished)

    def publish(self, summary: Mapping[str, Any]) -> None:
        """Give the complete folder its name."""
        with self.file_system.open_output_stream(f"{self.unfinished}/{SUCCESS_FILE}") as stream:
            stream.write((json.dumps(summary, indent=1, ensure_ascii=False) + "\n").encode())
        if self.file_system.get_file_info(self.path).type == fs.FileType.Directory:
            self.file_system.delete_dir(self.path)
        if isinstance(self.file_system, fs.LocalFileSystem):
            self.file_system.move(self.unfinished, self.path)
            return
        self.file_system.create_dir(self.path, recursive=True)
        names = self._names(self.unfinished)
        names.remove(SUCCESS_FILE)
        for name in [*names, SUCCESS_FILE]:
            self.file_system.move(f"{self.unfinished}/{name}", f"{self.path}/{name}")

    def _names(self, folder: str) -> list[str]:
        """Names of the files in a folder, in order; none if there is no such folder."""
        selector = fs.FileSelector(folder, allow_not_found=True)
        return sorted(entry.base_name for entry in self.file_system.get_file_info(selector))

    @contextmanager
    def _writing_errors(self) -> Iterator[None]:
        """Raise errors of the file system as those of mild."""
        try:
            yield
        except MildError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(f"cannot write to {self.shown}: {reason(error)}.") from error
