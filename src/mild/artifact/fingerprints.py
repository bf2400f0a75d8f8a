"""Fingerprints of the training data, and of a fitted text step."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.errors import InvalidInputError
from mild.features import TextFeatures
from mild.policies import MixPolicy

# Rows per block: a large X is hashed without a second copy of it.
BLOCK = 16_384


def fingerprint(X: Any, costs: Any) -> str:
    """SHA-256, as 64 hexadecimal digits, over the shapes, types and bytes of X and costs.

    The same numbers in another order, type or layout (sparse against dense) have another fingerprint.

    Parameters
    ----------
    X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
        Inputs.
    costs : array-like or table of shape (n_samples, n_experts)
        Cost of each expert.

    Returns
    -------
    str
        The fingerprint.

    Examples
    --------
    >>> fingerprint([[1.0], [2.0]], [[0, 1], [1, 0]])[:12]
    '94f0e668695f'
    """
    digest = hashlib.sha256()
    _add_matrix(digest, "X", X)
    _add_matrix(digest, "costs", costs)
    return digest.hexdigest()


def _add_matrix(digest: Any, name: str, values: Any) -> None:
    """Add an array, a table or a sparse matrix to a digest."""
    if not hasattr(values, "tocsr"):
        _add_array(digest, name, np.asarray(values))
        return
    matrix = values.tocsr().copy()
    # The same entries may be stored in another order.
    matrix.sum_duplicates()
    digest.update(f"{name} sparse {matrix.shape};".encode())
    _add_array(digest, "row ends", matrix.indptr.astype(np.int64))
    _add_array(digest, "columns", matrix.indices.astype(np.int64))
    _add_array(digest, "values", matrix.data)


def _add_array(digest: Any, name: str, array: NDArray[Any]) -> None:
    """Add name, type, shape and bytes of an array to a digest, in an order of bytes that is everywhere."""
    if array.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{name} must hold numbers to have a fingerprint; got type {array.dtype}."
        )
    little_endian = array.dtype.newbyteorder("<")
    digest.update(f"{name} {little_endian.str} {array.shape};".encode())
    if array.ndim == 0:
        return
    for start in range(0, len(array), BLOCK):
        block = array[start : start + BLOCK]
        digest.update(np.ascontiguousarray(block, dtype=little_endian))


def features_tag(step: TextFeatures, mix: MixPolicy | None = None) -> str:
    """A short name of a fitted text step: that of another step differs.

    Where a mix adds the draws of the texts to the features, a ``+`` and a name of its salt follow.
    """
    settings, tensors = step.state()
    digest = hashlib.sha256(json.dumps([step.kind, settings], sort_keys=True, default=str).encode())
    for name in sorted(tensors):
        digest.update(name.encode() + np.ascontiguousarray(tensors[name]).tobytes())
    tag: str = digest.hexdigest()[:12]
    if mix is None:
        return tag
    return f"{tag}+{hashlib.sha256(mix.salt.encode()).hexdigest()[:8]}"
