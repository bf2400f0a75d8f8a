"""Arrays of the parts: in memory, or in a folder from which they are mapped when they are needed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from mild.errors import InvalidInputError

__all__ = ["Store"]


class Store:
    """Arrays by the number of a part and a name.

    Parameters
    ----------
    folder : where arrays are kept; None for memory. Nothing stays mapped between two calls of ``get``.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._held: dict[tuple[int, str], np.ndarray[Any, Any]] = {}

    def new(self, part: int, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array, to be filled."""
        if self.folder is None or 0 in shape:
            self._held[part, name] = np.empty(shape, dtype)
            return self._held[part, name]
        return np.lib.format.open_memmap(
            self._file(part, name), mode="w+", dtype=np.dtype(dtype), shape=shape
        )

    def get(self, part: int, name: str, write: bool = False) -> Any:
        """An array that was filled before."""
        if (part, name) in self._held:
            return self._held[part, name]
        return np.lib.format.open_memmap(self._file(part, name), mode="r+" if write else "r")

    def has(self, part: int, name: str) -> bool:
        """Whether the array is there."""
        if (part, name) in self._held:
            return True
        return self.folder is not None and self._file(part, name).exists()

    def check_room(self, wanted: int) -> None:
        """Refuse to begin what would fill the disk."""
        if self.folder is None:
            return
        free = shutil.disk_usage(self.folder).free
        if wanted > free:
            raise InvalidInputError(
                f"the features of all rows take {wanted / 1e9:.3g} GB of disk while they are fitted on; "
                f"{self.folder} has {free / 1e9:.3g} GB left. Name a roomier folder with --scratch, or use "
                f"--engine ray, which keeps them in its workers' memory."
            )

    def _file(self, part: int, name: str) -> Path:
        if self.folder is None:
            raise KeyError((part, name))
        return self.folder / f"{part:06d}.{name}.npy"
