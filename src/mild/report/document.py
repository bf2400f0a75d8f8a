"""A report's content as one JSON-ready document: written, read, and what it warns about."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mild.artifact.files import check_free, replacing
from mild.artifact.manifest import refuse_old_folder
from mild.artifact.versions import find_version
from mild.errors import ArtifactError, DataFileError

SCHEMA = 1
#: Name of a saved evaluation in a router's folder.
EVALUATION_FILE = "evaluation.json"

Document = dict[str, Any]


def optimism(document: Mapping[str, Any]) -> str | None:
    """A warning if the router was fitted on some of the rows that were judged; None if not.

    >>> optimism({"seen_in_fit": {"queries": 3, "checked": 50}})  # doctest: +ELLIPSIS
    '3 of 50 queries were in the training data, too: the figures are optimistic. Judge ...'
    """
    remedy = "Judge it by other rows: mild data split divides a table before training."
    if document.get("same_data_as_fit"):
        return f"the router was fitted on these rows: the figures are optimistic. {remedy}"
    seen = document.get("seen_in_fit")
    if not seen or not seen["queries"] or seen.get("left_out"):
        return None
    return (
        f"{seen['queries']:,} of {seen['checked']:,} queries were in the training data, too: the "
        f"figures are optimistic. {remedy}"
    )


def write_document(document: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a document as JSON, to be rendered later."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    return write_text(check_free(Path(path), overwrite=True), text)


def read_document(path: str | os.PathLike[str]) -> Document:
    """Read a document that ``write_document`` wrote."""
    file = Path(path)

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not a JSON number")

    try:
        content = json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)
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


def read_evaluation(path: str | os.PathLike[str]) -> Document:
    """Read what ``Evaluation.save`` wrote into a router's folder, or a file of results."""
    place = Path(path)
    if not place.exists():
        raise DataFileError(f"{place}: there is no such folder or file.")
    file = place
    if place.is_dir():
        folder = find_version(place)[0]
        try:
            refuse_old_folder(folder)
        except ArtifactError as error:
            message = f"cannot load a router from {folder}: {error}"
            raise ArtifactError(message, code=error.code) from error
        file = folder / EVALUATION_FILE
    if not file.is_file():
        raise DataFileError(
            f"there is no saved evaluation {file}; name a table to judge the router by with table=FILE, "
            "or save an evaluation first: Evaluation.save, or `mild evaluate`."
        )
    return read_document(file)


def read_comparison(path: str | os.PathLike[str]) -> Document:
    """Read the comparison in a file that ``Comparison.save`` wrote."""
    found = read_document(path).get("comparison")
    if not isinstance(found, dict):
        raise DataFileError(
            f"{path} must hold a comparison that Comparison.save wrote; it has none."
        )
    return found


def report_title(folder: str | os.PathLike[str]) -> str:
    """Title of the report on a router."""
    return f"Router report: {Path(folder).resolve().name}"


def write_text(target: Path, text: str) -> Path:
    """Write a file whole or not at all."""
    try:
        with replacing(target) as file:
            file.write(text.encode(errors="replace"))
    except OSError as error:
        raise DataFileError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target
