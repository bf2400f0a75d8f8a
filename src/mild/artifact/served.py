"""Which router of a folder serves, where a gateway has learned further versions of it."""

from __future__ import annotations

import json
from pathlib import Path

from mild.errors import RouterFileError

VERSIONS_FILE = "versions.json"
VERSIONS_FOLDER = "versions"
#: What belongs to the versions in a router's folder, with the lock of who writes one.
VERSION_FILES = (VERSIONS_FILE, VERSIONS_FOLDER, ".versions.lock")


def served_folder(folder: Path) -> Path:
    """The folder of the version that serves, which ``versions.json`` names; without one, ``folder``."""
    try:
        versions = json.loads((folder / VERSIONS_FILE).read_text(encoding="utf-8"))
        return folder / VERSIONS_FOLDER / f"{versions['serving']:04d}"
    except (FileNotFoundError, NotADirectoryError):
        return folder
    except (KeyError, TypeError, ValueError) as error:
        raise RouterFileError(
            f"{folder / VERSIONS_FILE} does not say which version serves; restore it, or delete it for "
            "the router as it was first saved."
        ) from error
