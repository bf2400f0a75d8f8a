"""Fingerprints of the training data, and of a fitted text step."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

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
    X : (n_samples, n_features) array, table, or scipy sparse matrix
    costs : (n_samples, n_experts) array or table

    Examples
    --------
    >>> fingerprint([[1.0], [2.0]], [[0, 1], [1, 0]])[:12]
    '94f0e668695f'
    """
    digest: Any = hashlib.sha256()

    def add(name: str, array: np.ndarray[Any, Any]) -> None:
        if array.dtype.kind not in "fiub":
            raise InvalidInputError(
                f"{name} must hold numbers to have a fingerprint; got type {array.dtype}."
            )
        little = array.dtype.newbyteorder("<")
        digest.update(f"{name} {little.str} {array.shape};".encode())
        for start in range(0, len(array) if array.ndim else 0, BLOCK):
            digest.update(np.ascontiguousarray(array[start : start + BLOCK], dtype=little))

    for name, values in (("X", X), ("costs", costs)):
        if not hasattr(values, "tocsr"):
            add(name, np.asarray(values))
            continue
        matrix = values.tocsr().copy()
        # The same entries may be stored in another order.
        matrix.sum_duplicates()
        digest.update(f"{name} sparse {matrix.shape};".encode())
        add("row ends", matrix.indptr.astype(np.int64))
        add("columns", matrix.indices.astype(np.int64))
        add("values", matrix.data)
    return digest.hexdigest()


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
