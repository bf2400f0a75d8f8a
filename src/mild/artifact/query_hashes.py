"""Hashes of the training queries: a tensor beside the router by which they are recognised later."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.errors import ArtifactError

__all__ = ["HASHES_DTYPES", "HASHES_TENSOR", "check_query_hashes"]

HASHES_TENSOR = "seen.marks"
HASHES_DTYPES: dict[str, np.dtype[Any]] = {"U64": np.dtype("<u8")}


def check_query_hashes(hashes: NDArray[Any] | None) -> NDArray[np.uint64] | None:
    """Refuse hashes that are not ascending 64-bit numbers; None stays None."""
    if hashes is None:
        return None
    if hashes.dtype != np.uint64 or hashes.ndim != 1 or not (hashes[1:] > hashes[:-1]).all():
        raise ArtifactError(
            f"tensor {HASHES_TENSOR!r} must be ascending uint64 numbers; got {hashes.dtype} of shape "
            f"{hashes.shape}."
        )
    return np.ascontiguousarray(hashes)
