"""Documents and pages to files and back: whole, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mild.artifact.files import check_free, replacing
from mild.errors import DataFileError
from mild.evaluation.report.document import SCHEMA
from mild.evaluation.report.page import render

__all__ = ["EVALUATION_FILE", "check_report", "read_document", "write_document", "write_report"]

#: Name of a saved evaluation in a router's folder.
EVALUATION_FILE = "evaluation.json"
SUFFIXES = (".html", ".htm")


def check_report(path: str | os.PathLike[str], overwrite: bool = True) -> Path:
    """Refuse, before any work, a page that could not be written at the end."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise DataFileError(f"{target}: a report must end in .html; got {target.suffix!r}.")
    return check_free(target, overwrite)


def write_report(
    document: Mapping[str, Any], path: str | os.PathLike[str], overwrite: bool = True
) -> Path:
    """Write a document as an HTML page; a report that is there is replaced, unless told otherwise."""
    target = check_report(path, overwrite)
    return _replace(target, render(document).encode())


def write_document(document: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a document as JSON, to be rendered later."""
    target = check_free(Path(path), overwrite=True)
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    return _replace(target, text.encode(errors="replace"))


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a document that ``write_document`` wrote."""
    file = Path(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise DataFileError(f"cannot read {file}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise DataFileError(
            f"{file} must be a saved evaluation; it is not JSON ({error})."
        ) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else None
        raise DataFileError(
            f"{file} must be a saved evaluation of schema {SCHEMA}; got schema {found!r}."
        )
    return content


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _replace(target: Path, content: bytes) -> Path:
    try:
        with replacing(target) as file:
            file.write(content)
    except OSError as error:
        raise DataFileError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target
