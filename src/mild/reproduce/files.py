"""A small file replaced as a whole: a reader, or a kill, finds the old one or the new one."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from mild.exceptions import DataFileError

__all__ = ["replace_json"]


def replace_json(path: Path, content: Any) -> None:
    """Write plain values as JSON, first under another name, then renamed."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(fresh, "x", encoding="utf-8") as file:
                json.dump(content, file, indent=1, allow_nan=False)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise DataFileError(
            f"cannot write {path}: {error.strerror or error}; what it held is untouched."
        ) from error
