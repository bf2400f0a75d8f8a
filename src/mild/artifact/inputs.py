"""Inputs of a router's methods: features X, checked, and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mild.artifact.parts import RouterParts
from mild.core.arrays import invalid
from mild.errors import count_noun
from mild.features.base import is_table
from mild.policies import mix_of
from mild.policies.mix import needs_text


def checked_inputs(X: Any, router: RouterParts) -> Any:
    """X as a float array or CSR matrix of the right width; float32 stays float32.

    Whether its numbers are finite is not checked here.
    """
    if router.feature_names is not None and hasattr(X, "columns"):
        _check_columns(X.columns, router.feature_names)
    inputs = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X)
    _check_numbers(inputs, has_text=router.text is not None)
    _check_shape(inputs, router)
    if inputs.dtype in (np.float32, np.float64):
        return inputs
    try:
        return inputs.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise invalid("X", f"must hold numbers; got {error}.") from error


def _check_columns(columns: Sequence[Any], feature_names: Sequence[str]) -> None:
    """Refuse a frame whose columns are in another order than in the fit."""
    for index, (name, column) in enumerate(zip(feature_names, map(str, columns), strict=False)):
        if name != column:
            rule = "must have the columns that the router was fitted with, in that order"
            raise invalid("X", f"{rule}; column {index} must be {name!r}, got {column!r}.")


def _check_numbers(inputs: Any, has_text: bool) -> None:
    """Refuse an array of another type than numbers, such as one of texts."""
    if inputs.dtype.kind in "fiubO":
        return
    example = ""
    if inputs.size > 0:
        example = f" such as {np.ravel(inputs)[0]!r}"
    remedy = ""
    if has_text:
        remedy = " For texts use route or predict_texts."
    raise invalid("X", f"must hold numbers; got {inputs.dtype}{example}.{remedy}")


def _check_shape(inputs: Any, router: RouterParts) -> None:
    """Refuse an array that is no matrix with a column per feature."""
    n_features = router.policy.n_features
    if inputs.ndim != 2:
        shape = f"{count_noun(inputs.ndim, 'dimension')}, shape {inputs.shape}"
        rule = f"must have shape (n_samples, n_features) = (n_samples, {n_features})"
        raise invalid("X", f"{rule}; got {shape}. For one input use X.reshape(1, -1).")
    n_columns = inputs.shape[1]
    if n_columns == router.policy.n_columns:
        return
    if n_columns == n_features and mix_of(router.policy) is not None:
        raise needs_text()
    rule = f"must have {count_noun(n_features, 'feature')}, as many as the router was fitted with"
    raise invalid("X", f"{rule}; got {n_columns}.")


def check_finite(block: Any, first_row: int, feature_names: Sequence[str] | None) -> None:
    """Refuse rows with a number that is not finite; ``first_row`` is the first of them in X."""
    values = block
    if hasattr(block, "tocsr"):
        values = block.data
    # Faster than isfinite: a sum of squares is finite only if every number is.
    with np.errstate(over="ignore", invalid="ignore"):
        flat = values.ravel(order="K")
        if np.isfinite(np.dot(flat, flat)):
            return
    if np.isfinite(values).all():
        return
    rows = block
    if hasattr(block, "tocsr"):
        rows = block.toarray()
    row, column = np.argwhere(~np.isfinite(rows))[0]
    name = ""
    if feature_names is not None:
        name = f" ({feature_names[column]!r})"
    entry = f"X[{first_row + row}, {column}] = {rows[row, column]}{name}"
    raise invalid("X", f"must be finite; got {entry}.")


def as_texts(texts: Any) -> Any:
    """A column of pyarrow as a list; other texts, and tables, as they are."""
    if hasattr(texts, "to_pylist") and not is_table(texts):
        return texts.to_pylist()
    return texts
