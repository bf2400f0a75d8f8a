"""Matrices from a .npz archive; pickled objects in it are never loaded."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray
from mild.data.columns import COST_PREFIX, choose_columns
from mild.data.matrices import Matrices
from mild.errors import DataFileError, listed

__all__ = ["read_archive"]


def read_archive(
    file: Path,
    features: str | Sequence[str] | None,
    costs: str | Sequence[str] | None,
    need_costs: bool,
) -> Matrices:
    """Matrices from arrays X, costs and, if they are there, feature_names and expert_names."""
    arrays = _arrays(file)
    if "X" not in arrays or (need_costs and "costs" not in arrays):
        raise DataFileError(
            f"a .npz must hold the arrays X{' and costs' if need_costs else ''}; found "
            f"{listed(list(arrays))}."
        )
    X = _matrix("X", arrays["X"])
    feature_names = _names("feature_names", arrays, X.shape[1])
    if features is not None:
        X, feature_names = _chosen_features(X, feature_names, features)
    if "costs" not in arrays:
        return Matrices(X, None, feature_names, [])
    matrix = _matrix("costs", arrays["costs"])
    if len(matrix) != len(X):
        raise DataFileError(
            f"X and costs must have as many rows; got shapes {X.shape} and {matrix.shape}."
        )
    expert_names = _names("expert_names", arrays, matrix.shape[1])
    names = expert_names or [f"expert_{k}" for k in range(matrix.shape[1])]
    if costs is not None:
        matrix, names = _chosen_costs(matrix, names, costs)
    return Matrices(X, matrix, feature_names, names, expert_names is not None)


def _arrays(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Every array that matters, or one sentence."""
    wanted = ("X", "costs", "feature_names", "expert_names")
    name = "it"
    try:
        # Opened here: np.load leaves a broken archive open.
        with open(file, "rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataFileError(
                    "it is a single array; a .npz with the arrays X and costs is needed (np.savez)."
                )
            found: dict[str, np.ndarray[Any, Any]] = {}
            for name in archive.files:
                # Arrays of no interest may be anything; they are listed, not read.
                found[name] = archive[name] if name in wanted else np.empty(0)
            return found
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataFileError(f"it is not a .npz archive, or it is cut off ({error}).") from error
    except ValueError as error:
        if isinstance(error, DataFileError):
            raise
        if "allow_pickle" in str(error):
            raise DataFileError(
                f"{name} holds Python objects (a pickle), which are never loaded; save numbers, and "
                f"names as text (dtype str)."
            ) from error
        raise DataFileError(f"{name} cannot be read ({error}); the file may be cut off.") from error


def _matrix(name: str, array: np.ndarray[Any, Any]) -> FloatArray:
    if array.dtype.kind not in "fiub":
        example = f" such as {array.ravel()[0]!r}" if array.size else ""
        raise DataFileError(f"array {name} must hold numbers; got {array.dtype}{example}.")
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataFileError(
            f"array {name} must have two dimensions, a row per input; got shape {array.shape}."
        )
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _names(key: str, arrays: dict[str, np.ndarray[Any, Any]], count: int) -> list[str] | None:
    if key not in arrays:
        return None
    array = arrays[key]
    if array.shape != (count,) or array.dtype.kind not in "US":
        raise DataFileError(
            f"array {key} must be {count} texts; got {array.dtype}, shape {array.shape}."
        )
    return [value.decode() if isinstance(value, bytes) else str(value) for value in array.tolist()]


def _chosen_features(
    X: FloatArray, names: list[str] | None, features: str | Sequence[str]
) -> tuple[FloatArray, list[str] | None]:
    if names is None:
        if not isinstance(features, str) and len(features) == X.shape[1]:
            # A router asks for its features by name; without names their order must do.
            return X, None
        raise DataFileError(
            f"features cannot be chosen by name: the file has {X.shape[1]} without names. Add an "
            f"array feature_names."
        )
    chosen = choose_columns("features", features, names)
    return X[:, [names.index(name) for name in chosen]], chosen


def _chosen_costs(
    costs: FloatArray, names: list[str], wanted: str | Sequence[str]
) -> tuple[FloatArray, list[str]]:
    """Experts by name, or by the name that their column would have in a table."""
    as_columns = [COST_PREFIX + name for name in names]
    try:
        chosen = [names.index(name) for name in choose_columns("costs", wanted, names)]
    except DataFileError:
        found = choose_columns("costs", wanted, as_columns)
        chosen = [as_columns.index(column) for column in found]
    return costs[:, chosen], [names[k] for k in chosen]
