"""Fingerprint of the training data."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from mild.errors import InvalidInputError

__all__ = ["fingerprint"]

# Rows per block: a large X is hashed without a second copy of it.
BLOCK = 16_384


def fingerprint(X: Any, costs: Any) -> str:
    """SHA-256 over the shapes, types and bytes of X and costs.

    Parameters
    ----------
    X : (n_samples, n_features) array, table, or scipy sparse matrix
    costs : (n_samples, n_experts) array or table

    Returns
    -------
    str of 64 hexadecimal digits. The same numbers in another order, another type (float32 against
    float64) or another layout (sparse against dense) have another fingerprint.

    Examples
    --------
    >>> fingerprint([[1.0], [2.0]], [[0, 1], [1, 0]])[:12]
    '94f0e668695f'
    """
    digest = hashlib.sha256()
    for name, values in (("X", X), ("costs", costs)):
        if hasattr(values, "tocsr"):
            _add_sparse(digest, name, values.tocsr())
        else:
            _add_dense(digest, name, np.asarray(values))
    return digest.hexdigest()


def _add_dense(digest: Any, name: str, array: np.ndarray[Any, Any]) -> None:
    if array.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{name} must hold numbers to have a fingerprint; got type {array.dtype}."
        )
    little = array.dtype.newbyteorder("<")
    digest.update(f"{name} {little.str} {array.shape};".encode())
    for start in range(0, len(array) if array.ndim else 0, BLOCK):
        digest.update(np.ascontiguousarray(array[start : start + BLOCK], dtype=little))


def _add_sparse(digest: Any, name: str, matrix: Any) -> None:
    # The same entries may be stored in another order.
    matrix = matrix.copy()
    matrix.sum_duplicates()
    digest.update(f"{name} sparse {matrix.shape};".encode())
    _add_dense(digest, "row ends", matrix.indptr.astype(np.int64))
    _add_dense(digest, "columns", matrix.indices.astype(np.int64))
    _add_dense(digest, "values", matrix.data)
