"""Arrays from a .npz archive; pickled objects in it are never loaded."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mild.exceptions import DataFileError

__all__ = ["read_npz"]


def read_npz(path: Path, wanted: Callable[[str], bool]) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of the archive whose name is ``wanted``.

    Raises
    ------
    DataFileError
        With a reason that continues the sentence "<file> ...".
    """
    name = "it"
    try:
        # Opened here: np.load leaves a broken archive open.
        with open(path, "rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataFileError("must be a .npz archive; it is a single array")
            found = {}
            for name in archive.files:
                if wanted(name):
                    found[name] = archive[name]
            return found
    except OSError as error:
        raise DataFileError(f"cannot be read ({error.strerror or error})") from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        MemoryError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise DataFileError(f"is not a .npz archive, or it is cut off ({error})") from error
    except ValueError as error:
        if isinstance(error, DataFileError):
            raise
        if "allow_pickle" in str(error):
            raise DataFileError(
                f"must hold plain arrays; {name} holds Python objects (a pickle), which are never loaded"
            ) from error
        raise DataFileError(f"is damaged: {name} cannot be read ({error})") from error
