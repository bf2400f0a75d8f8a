"""Files of plain classifiers: a JSON list of records. Reading one needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mild.exceptions import DataFileError
from mild.reproduce.files import check_regular
from mild.reproduce.records import classifier_problem

__all__ = ["classifier_records", "holds_classifiers"]


def holds_classifiers(path: Path) -> bool:
    """Whether a file begins as those of classifiers do: a list, where results are lines of objects."""
    if not path.is_file():
        return False
    try:
        with open(path, "rb") as file:
            return file.read(64).lstrip().startswith(b"[")
    except OSError:
        return False


def classifier_records(path: Path) -> list[dict[str, Any]]:
    """Records of a file that ``run_classifier`` wrote; none where there is no file yet."""
    if not path.exists():
        return []
    check_regular(path, "a file of classifiers")
    try:
        records: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(records, list):
            raise ValueError("it is no list of records")
        for number, record in enumerate(records, 1):
            problem = classifier_problem(record)
            if problem is not None:
                raise ValueError(f"record {number} {problem}")
    except (OSError, ValueError, RecursionError) as error:
        raise DataFileError(
            f"{path} must hold records of classifiers as this version writes them; it cannot be read "
            f"({error}). Name another file."
        ) from error
    return records
