"""Write and read the content of a report, which is one JSON-ready document."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mild.artifact.files import check_free, replacing
from mild.artifact.served import served_folder
from mild.errors import DataFileError

SCHEMA = 1
#: Name of a saved evaluation in a router's folder.
EVALUATION_FILE = "evaluation.json"

Document = dict[str, Any]


def optimism(document: Mapping[str, Any]) -> str | None:
    """Return a warning if the router was fitted on some of the rows that were judged, otherwise None.

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
    """Write a document as JSON, to be rendered later.

    Parameters
    ----------
    document : dict
        The content of a report.
    path : str or path
        The file to write; one that is there is replaced.

    Returns
    -------
    Path
        The file that was written.
    """
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    return write_text(check_free(Path(path), overwrite=True), text)


def read_document(path: str | os.PathLike[str]) -> Document:
    """Read a document written by ``write_document``.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    dict
        The document.

    Raises
    ------
    DataFileError
        The file cannot be read, is not JSON, or holds a document of another schema.
    """
    file = Path(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise DataFileError(f"cannot read {file}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise DataFileError(
            f"{file} must be a saved evaluation; it is not JSON ({error})."
        ) from error
    schema = None
    if isinstance(content, dict):
        schema = content.get("schema")
    if schema != SCHEMA:
        raise DataFileError(
            f"{file} must be a saved evaluation of schema {SCHEMA}; got schema {schema!r}."
        )
    return Document(content)


def _refuse_constant(constant: str) -> Any:
    """Refuse NaN and infinities, which Python's JSON reader would accept."""
    raise ValueError(f"{constant} is not a JSON number")


def read_evaluation(path: str | os.PathLike[str]) -> Document:
    """Read what ``Evaluation.save`` wrote.

    Parameters
    ----------
    path : str or path
        Folder of a router, or a file of results.

    Returns
    -------
    dict
        The document of the evaluation; for a folder with versions, that of the version that serves.

    Raises
    ------
    DataFileError
        Nothing is there, or no evaluation is saved there.
    """
    file = Path(path)
    if not file.exists():
        raise DataFileError(f"{file}: there is no such folder or file.")
    if file.is_dir():
        file = served_folder(file) / EVALUATION_FILE
    if not file.is_file():
        raise DataFileError(
            f"there is no saved evaluation {file}; name a table to judge the router by with table=FILE, "
            "or save an evaluation first: Evaluation.save, or `mild evaluate`."
        )
    return read_document(file)


def read_comparison(path: str | os.PathLike[str]) -> Document:
    """Read the comparison in a file that ``Comparison.save`` wrote.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    dict
        The comparison, as ``Comparison.as_dict`` gives it.

    Raises
    ------
    DataFileError
        The file cannot be read, or holds no comparison.
    """
    comparison = read_document(path).get("comparison")
    if not isinstance(comparison, dict):
        raise DataFileError(
            f"{path} must hold a comparison that Comparison.save wrote; it has none."
        )
    return comparison


def report_title(folder: str | os.PathLike[str]) -> str:
    """Return the title of the report on a router."""
    return f"Router report: {Path(folder).resolve().name}"


def write_text(target: Path, text: str) -> Path:
    """Write a file whole or not at all."""
    try:
        with replacing(target) as file:
            file.write(text.encode(errors="replace"))
    except OSError as error:
        raise DataFileError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target
