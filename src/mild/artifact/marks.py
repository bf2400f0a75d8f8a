"""Hashes of training queries beside a router: one more tensor, that decides nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.errors import ArtifactError

__all__ = ["MARKS_DTYPES", "MARKS_TENSOR", "check_marks"]

MARKS_TENSOR = "seen.marks"
MARKS_DTYPES: dict[str, np.dtype[Any]] = {"U64": np.dtype("<u8")}


def check_marks(marks: NDArray[Any] | None) -> NDArray[np.uint64] | None:
    """Refuse marks that are not ascending 64-bit numbers; None stays None."""
    if marks is None:
        return None
    if marks.dtype != np.uint64 or marks.ndim != 1 or not (marks[1:] > marks[:-1]).all():
        raise ArtifactError(
            f"tensor {MARKS_TENSOR!r} must be ascending uint64 numbers; got {marks.dtype} of shape "
            f"{marks.shape}."
        )
    return np.ascontiguousarray(marks)
