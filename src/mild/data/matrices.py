"""A file of past inputs and what each expert cost on them, as matrices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mild.core.arrays import FloatArray
from mild.errors import DataFileError, listed

__all__ = ["Matrices", "read_matrices"]

SUFFIXES = (".npz", ".parquet", ".csv")


@dataclass(frozen=True, eq=False)
class Matrices:
    """What a file holds.

    Attributes
    ----------
    X : (n_samples, n_features) float32 or float64 array, finite
    costs : (n_samples, n_experts) array, NaN where an expert was never asked; None if not there
    feature_names : names of the columns of X, or None if the file does not name them
    expert_names : names of the columns of costs; ``expert_0``, ... if the file does not name them
    experts_named : whether the file names them
    left_out : columns that are neither, because they do not hold numbers
    """

    X: FloatArray
    costs: FloatArray | None
    feature_names: list[str] | None
    expert_names: list[str]
    experts_named: bool = True
    left_out: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.X)

    def costs_of(self, expert_names: Sequence[str]) -> FloatArray:
        """Costs with one column per named expert, in that order; others are left out.

        A file that does not name its experts must have as many, in the same order.
        """
        if self.costs is None:
            raise DataFileError("there must be cost columns to judge a router by; found none.")
        if not self.experts_named and len(expert_names) == len(self.expert_names):
            return self.costs
        missing = [name for name in expert_names if name not in self.expert_names]
        if missing:
            raise DataFileError(
                f"there must be a cost column for each of the router's experts; {missing[0]!r} has "
                f"none, found {listed(self.expert_names)}."
            )
        return self.costs[:, [self.expert_names.index(name) for name in expert_names]]


def read_matrices(
    path: str | os.PathLike[str],
    features: str | Sequence[str] | None = None,
    costs: str | Sequence[str] | None = None,
    need_costs: bool = True,
) -> Matrices:
    """Read features and costs from a .npz, .parquet or .csv file.

    Parameters
    ----------
    path : file; a .npz holds arrays ``X`` and ``costs`` and may hold ``feature_names`` and
        ``expert_names``; the others hold one column each
    features : names, or comma-separated names and shell patterns (``"age,f_*"``); None for all
        numeric columns that are not costs
    costs : the same for costs; None for the columns named ``cost__<expert>``
    need_costs : whether a file without costs is refused

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.csv"
    ...     _ = file.write_text("id,length,cost__small,cost__large\\na,3,0,1\\nb,9,1,\\n")
    ...     table = read_matrices(file)
    >>> table.feature_names, table.expert_names, table.left_out
    (['length'], ['small', 'large'], ('id',))
    >>> table.costs
    array([[ 0.,  1.],
           [ 1., nan]])
    """
    file = Path(path)
    try:
        matrices = _read(file, features, costs, need_costs)
        _check(matrices)
    except DataFileError as error:
        raise DataFileError(f"{file}: {error}") from error
    return matrices


def _read(
    file: Path,
    features: str | Sequence[str] | None,
    costs: str | Sequence[str] | None,
    need_costs: bool,
) -> Matrices:
    if not file.exists():
        raise DataFileError("there is no such file.")
    if not file.is_file():
        raise DataFileError("it must be a file; got a folder.")
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataFileError(f"the file must end in {', '.join(SUFFIXES)}; got {file.suffix!r}.")
    try:
        if file.stat().st_size == 0:
            raise DataFileError("the file is empty.")
        if suffix == ".npz":
            from mild.data.archives import read_archive

            return read_archive(file, features, costs, need_costs)
        # pyarrow is slow to import and a .npz does without.
        from mild.data.arrow import read_arrow

        return read_arrow(file, features, costs, need_costs)
    except OSError as error:
        raise DataFileError(f"it cannot be read: {error.strerror or error}.") from error


def _check(matrices: Matrices) -> None:
    if matrices.rows == 0:
        raise DataFileError("there must be at least one row; got none.")
    for what, names in (
        ("feature", matrices.feature_names),
        ("expert", matrices.expert_names),
    ):
        twice = {name for name in names or [] if (names or []).count(name) > 1}
        if twice:
            raise DataFileError(f"{what} names must differ; {min(twice)!r} appears twice.")
    bad = ~np.isfinite(matrices.X)
    if bad.any():
        row, column = (int(index) for index in np.argwhere(bad)[0])
        names = matrices.feature_names
        where = f"column {column}" if names is None else f"column {names[column]!r}"
        value = matrices.X[row, column]
        hint = " or is empty" if np.isnan(value) else ""
        raise DataFileError(
            f"features must be finite (only costs may be missing); {where} is {value}{hint} in row "
            f"{row}."
        )
