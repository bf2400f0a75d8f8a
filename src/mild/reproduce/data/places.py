"""Where a data set is looked for, and what is said when it is not there or is damaged."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mild.arrays import check_labels
from mild.exceptions import DataFileError
from mild.reproduce.data.images import Labels
from mild.reproduce.data.sources import SOURCES, UNPACKED
from mild.tables.columns import listed

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """A data set in a folder.

    Attributes
    ----------
    dataset : name in the registry
    data_dir : folder that the user named

    Examples
    --------
    >>> Place("cifar10", Path("my data")).command
    "mild reproduce fetch cifar10 --data-dir 'my data'"
    """

    dataset: str
    data_dir: Path

    @property
    def home(self) -> Path:
        """Folder that the data set's own folder lies in, also where ``data_dir`` is that folder."""
        source = SOURCES.get(self.dataset)
        inside = source is not None and source.folder and self.data_dir.name == source.folder
        return self.data_dir.parent if inside else self.data_dir

    @property
    def command(self) -> str:
        """Command that fetches the data set."""
        return f"mild reproduce fetch {self.dataset} --data-dir {shlex.quote(str(self.home))}"

    @property
    def remedy(self) -> str:
        """What to do about a file that is not there or is damaged."""
        if self.dataset in SOURCES:
            return f"fetch it with `{self.command}`."
        return "it has no official source, so place it there by hand."

    def find(self, folders: Sequence[str], names: Sequence[str | tuple[str, ...]]) -> list[Path]:
        """Paths of all ``names`` in the first of ``folders`` that holds them all.

        A tuple of names stands for any one of them, the first that is there. A folder "" is the data
        folder itself.
        """
        if not self.data_dir.is_dir():
            state = "is a file" if self.data_dir.exists() else "does not exist"
            raise DataFileError(
                f"{self.dataset} is looked for in a data folder, but {self.data_dir} {state}; "
                f"name another folder, or {self.remedy}"
            )
        best: list[Path] = []
        lacking = Path()
        for folder in folders:
            paths: list[Path] = []
            for name in names:
                choices = (name,) if isinstance(name, str) else name
                there = [
                    path for choice in choices if (path := self.data_dir / folder / choice).exists()
                ]
                if not there:
                    break
                paths.append(there[0])
            if len(paths) == len(names):
                return paths
            if len(paths) > len(best) or lacking == Path():
                best, lacking = paths, Path(folder) / choices[0]
        raise DataFileError(
            f"{self.dataset} needs the file {lacking}, which is not in {self.data_dir} "
            f"({self._contents()}); {self.remedy}"
        )

    def broken(self, file: Path, reason: str) -> DataFileError:
        """Error for a file that is there but cannot be used."""
        return DataFileError(f"{file} {reason.rstrip('.')}{self._official(file)}; {self.remedy}")

    def labels(self, file: Path, values: Any, n_images: int, n_classes: int) -> Labels:
        """Labels of a file as int64, one per image and each in [0, n_classes)."""
        try:
            return check_labels(values, n_images, n_classes).astype(np.int64)
        except ValueError as error:
            raise self.broken(file, f"does not fit its {n_images:,} images: {error}") from error

    def _official(self, file: Path) -> str:
        """Size and md5 sum that the official file has."""
        source = SOURCES.get(self.dataset)
        if source is None:
            return ""
        known: dict[str, tuple[str, int | None]] = {
            remote.name: (remote.md5, remote.size) for remote in source.files
        }
        md5, size = known.get(file.name) or UNPACKED.get(f"{source.folder}/{file.name}", ("", None))
        if not md5:
            return ""
        amount = f"{size:,} bytes, " if size else ""
        return f"; the official file has {amount}md5 {md5}"

    def _contents(self) -> str:
        names = sorted(path.name for path in self.data_dir.iterdir())
        source = SOURCES.get(self.dataset)
        if source is not None and source.archive and source.files[0].name in names:
            return f"its archive {source.files[0].name} is there, not yet unpacked"
        return f"which holds {listed(names, most=6)}" if names else "which is empty"
