"""Features and costs from a .npz, .parquet, .csv or .tsv file."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mild.core.arrays import FloatArray, IntArray
from mild.data.data_quality import ROW_ONE, row_number
from mild.data.formats.base import ANSWER, LOGPROB
from mild.data.selection import Where, kept_rows
from mild.data.tables import (
    check_file,
    check_names,
    choose_columns,
    first_text,
    is_number,
    is_numeric,
    naming,
    number_matrix,
    read_table,
    short,
    table_suffix,
)
from mild.errors import DataFileError, counted, listed

SUFFIXES = (".npz", ".parquet", ".csv", ".tsv")
COST_PREFIX = "cost__"
# Columns that number or name the rows, those of an index that pandas wrote among them.
_IDENTIFIER = re.compile(
    r"|(.*[_ -])?(id|uuid|guid)|index|unnamed: \d+|__index_level_\d+__", re.IGNORECASE
)
# Number of texts that tell a damaged column of numbers from a column of text.
PROBE = 1000
# Costs beyond it are too large to be learned from: their squares must be finite in single precision.
LARGEST = 1e18

Names = str | Sequence[str] | None


@dataclass(frozen=True, eq=False)
class Matrices:
    """Features and costs of a file."""

    X: FloatArray  # (n_samples, n_features) float32 or float64, finite
    costs: FloatArray | None  # (n_samples, n_experts), NaN where an expert was never asked
    feature_names: list[str] | None  # None if the file does not name them
    expert_names: list[str]  # expert_0, ... if the file does not name them
    experts_named: bool = True
    left_out: tuple[str, ...] = ()  # columns that are neither: no numbers, or identifiers of rows
    selection: str | None = None  # which rows a split column chose, in words; None for all

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.X)

    def costs_of(self, expert_names: Sequence[str]) -> FloatArray:
        """Costs with one column per named expert, in that order.

        A file that does not name its experts must have as many, in the same order.
        """
        if self.costs is None:
            raise DataFileError("there must be cost columns to judge a router by; found none.")
        if not self.experts_named and len(expert_names) == len(self.expert_names):
            return self.costs
        missing = [name for name in expert_names if name not in self.expert_names]
        if missing:
            rule = "there must be a cost column for each of the router's experts"
            found = listed(self.expert_names)
            raise DataFileError(f"{rule}; {missing[0]!r} has none, found {found}.")
        return self.costs[:, [self.expert_names.index(name) for name in expert_names]]


def read_matrices(
    path: str | os.PathLike[str],
    features: Names = None,
    costs: Names = None,
    need_costs: bool = True,
    where: Where = None,
    part: str | None = None,
) -> Matrices:
    """Read features and costs from a .npz, .parquet, .csv or .tsv file.

    A .npz holds arrays ``X`` and ``costs`` and may hold ``feature_names`` and ``expert_names``; the others
    hold one column each. ``features`` and ``costs`` are names, or comma-separated names and shell patterns
    (``"age,f_*"``); by default costs are the columns ``cost__<expert>``, and features all other columns of
    numbers but identifiers (``id``, ``query_id``, ``index``). A file without costs is refused if
    ``need_costs``. ``where`` and ``part`` select rows as in ``read_outcomes``.

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
    with naming(file):
        row_numbers: IntArray | None = None
        if check_file(file, SUFFIXES) == ".npz":
            if where:
                rule = "is for tables with columns, and a .npz has none"
                raise DataFileError(parameter="where", rule=f"{rule}; select its rows beforehand.")
            matrices = _read_archive(file, features, costs, need_costs)
        else:
            matrices, row_numbers = _read_columns(file, features, costs, need_costs, where, part)
        if matrices.rows == 0:
            raise DataFileError("there must be at least one row; got none.")
        for what, names in (("feature", matrices.feature_names), ("expert", matrices.expert_names)):
            check_names(names or [], f"{what} names must differ")
        if matrices.costs is not None:
            _check_costs(matrices.costs, matrices.expert_names, row_numbers, need_costs)
        bad = np.argwhere(~np.isfinite(matrices.X))
        if len(bad):
            row, column = (int(index) for index in bad[0])
            names, value = matrices.feature_names, matrices.X[row, column]
            shown = column if names is None else repr(names[column])
            empty = " or is empty" if np.isnan(value) else ""
            raise DataFileError(
                f"features must be finite (only costs may be missing); column {shown} is {value}{empty} in "
                f"row {row_number(row, row_numbers)} ({ROW_ONE}).",
                parameter="features",
            )
    return matrices


def _read_columns(
    file: Path, features: Names, costs: Names, need_costs: bool, where: Where, part: str | None
) -> tuple[Matrices, IntArray | None]:
    """Matrices from the columns of a .parquet, .csv or .tsv file, and the numbers of their rows."""
    table = read_table(file)
    names = list(table.column_names)
    numeric = [field.name for field in table.schema if is_numeric(field.type)]
    usual = [name for name in names if name.startswith(COST_PREFIX)]
    cost_columns = usual if costs is None else choose_columns("costs", costs, names)
    if need_costs and not cost_columns:
        rule = f"there must be cost columns, named {COST_PREFIX}<expert> or by --costs"
        raise DataFileError(f"{rule}; found {listed(names)}.", parameter="costs")
    if features is None:
        identifiers = [name for name in numeric if _IDENTIFIER.fullmatch(name)]
        said = [name for name in numeric if name.startswith((ANSWER, LOGPROB))]
        taken = {*cost_columns, *usual, *identifiers, *said}
        feature_columns = [name for name in numeric if name not in taken]
    else:
        feature_columns = choose_columns("features", features, names)
    if not feature_columns:
        rule = "there must be numeric columns besides the costs, to route by"
        raise DataFileError(f"{rule}; found {listed(names)}.", parameter="features")
    both = [name for name in feature_columns if name in cost_columns]
    if both:
        rule = f"a column is either a feature or a cost; {both[0]!r} is both"
        raise DataFileError(f"{rule}. Narrow the features.", parameter="features")
    used = {*feature_columns, *cost_columns, *usual}
    others = [name for name in names if features is None and name not in used]
    # Parquet declares its types; those of a CSV file are inferred.
    for name in others if table_suffix(file) != ".parquet" else ():
        _refuse_damaged(name, table[name])
    kept, selection = kept_rows(table, where, part)
    if kept is not None:
        table = table.filter(pa.array(kept))
    matrices = Matrices(
        number_matrix(table, feature_columns),
        number_matrix(table, cost_columns) if cost_columns else None,
        feature_columns,
        [column.removeprefix(COST_PREFIX) or column for column in cost_columns],
        left_out=tuple(others),
        selection=selection,
    )
    return matrices, None if kept is None else np.flatnonzero(kept)


def _check_costs(
    costs: FloatArray, expert_names: Sequence[str], row_numbers: IntArray | None, needed: bool
) -> None:
    """Refuse costs that cannot be learned from; where they are not ``needed`` only those too large."""
    rule, remedy = "be finite and not negative", "Leave out what is unknown"
    wrong = (np.isinf(costs) | (costs < 0)) & needed
    if not wrong.any():
        rule = f"be at most {LARGEST:g}"
        remedy = "Divide all costs by the same number, or leave out what is unknown"
        wrong = np.isfinite(costs) & (np.abs(costs) > LARGEST)
    if wrong.any():
        row, k = (int(index) for index in np.argwhere(wrong)[0])
        place = f"row {row_number(row, row_numbers)} of expert {expert_names[k]!r} ({ROW_ONE})"
        got = f"got {costs[row, k]:g} in {place}"
        raise DataFileError(f"costs must {rule}; {got}. {remedy}.", parameter="costs")
    empty = np.flatnonzero(np.isnan(costs).all(axis=1))
    # A single column may be read to look at it; there is nothing to route then.
    if needed and empty.size and len(expert_names) > 1:
        place = f"row {row_number(int(empty[0]), row_numbers)} has none ({ROW_ONE})"
        raise DataFileError(
            f"costs must be known for at least one expert in every row; {place}. Leave out "
            f"{counted(empty.size, 'such row')}.",
            parameter="costs",
        )


def _refuse_damaged(name: str, column: Any) -> None:
    """Refuse a column that is mostly numbers but was inferred as text because of a few words."""
    if not pa.types.is_string(column.type):
        return
    values = column.drop_null().slice(0, PROBE).to_pylist()
    if 2 * sum(map(is_number, values)) > len(values):
        raise DataFileError(
            f"column {name!r} must hold numbers; it holds some, but also text such as "
            f"{short(first_text(column))}. Correct it, or choose the features by name."
        )


def _read_archive(file: Path, features: Names, costs: Names, need_costs: bool) -> Matrices:
    """Matrices from arrays X, costs and, if they are there, feature_names and expert_names."""
    arrays = _load_arrays(file)
    needed = ["X", "costs"] if need_costs else ["X"]
    if not set(needed) <= set(arrays):
        found = listed(list(arrays))
        raise DataFileError(f"a .npz must hold the arrays {' and '.join(needed)}; found {found}.")
    X = _matrix("X", arrays["X"])
    feature_names = _names("feature_names", arrays, X.shape[1])
    if features is not None and feature_names is not None:
        chosen = choose_columns("features", features, feature_names)
        X, feature_names = X[:, [feature_names.index(name) for name in chosen]], chosen
    elif features is not None and (isinstance(features, str) or len(features) != X.shape[1]):
        # A router that names as many features as there are takes them in their order.
        rule = f"features cannot be chosen by name: the file has {X.shape[1]} without names"
        raise DataFileError(f"{rule}. Add an array feature_names.", parameter="features")
    if "costs" not in arrays:
        return Matrices(X, None, feature_names, [])
    matrix = _matrix("costs", arrays["costs"])
    if len(matrix) != len(X):
        shapes = f"{X.shape} and {matrix.shape}"
        raise DataFileError(f"X and costs must have as many rows; got shapes {shapes}.")
    expert_names = _names("expert_names", arrays, matrix.shape[1])
    names = expert_names or [f"expert_{k}" for k in range(matrix.shape[1])]
    if costs is not None:
        # Experts by name, or by the name that their column would have in a table.
        try:
            chosen = choose_columns("costs", costs, names)
        except DataFileError:
            columns = choose_columns("costs", costs, [COST_PREFIX + name for name in names])
            chosen = [column.removeprefix(COST_PREFIX) for column in columns]
        matrix, names = matrix[:, [names.index(name) for name in chosen]], chosen
    return Matrices(X, matrix, feature_names, names, expert_names is not None)


def _load_arrays(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an archive; pickled objects are never loaded."""
    name = "it"
    found: dict[str, np.ndarray[Any, Any]] = {}
    try:
        # Opened here: np.load leaves a broken archive open.
        with open(file, "rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            for name in getattr(archive, "files", ()):
                # Other arrays may be anything; they are listed, not read.
                used = name in ("X", "costs", "feature_names", "expert_names")
                found[name] = archive[name] if used else np.empty(0)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataFileError(f"it is not a .npz archive, or it is cut off ({error}).") from error
    except ValueError as error:
        problem = f"cannot be read ({error}); the file may be cut off"
        if "allow_pickle" in str(error):
            problem = "holds Python objects (a pickle), which are never loaded; save names as text"
        raise DataFileError(f"{name} {problem}.") from error
    if isinstance(archive, np.ndarray):
        raise DataFileError("it is a single array, not a .npz of X and costs (np.savez).")
    return found


def _matrix(name: str, array: np.ndarray[Any, Any]) -> FloatArray:
    if array.dtype.kind not in "fiub":
        example = f" such as {array.ravel()[0]!r}" if array.size else ""
        raise DataFileError(f"array {name} must hold numbers; got {array.dtype}{example}.")
    if array.ndim != 2 or array.shape[1] == 0:
        rule = f"array {name} must have two dimensions, a row per input"
        raise DataFileError(f"{rule}; got shape {array.shape}.")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _names(key: str, arrays: dict[str, np.ndarray[Any, Any]], count: int) -> list[str] | None:
    if key not in arrays:
        return None
    array = arrays[key]
    if array.shape != (count,) or array.dtype.kind not in "US":
        got = f"{array.dtype}, shape {array.shape}"
        raise DataFileError(f"array {key} must hold {count} strings; got {got}.")
    return [value.decode() if isinstance(value, bytes) else str(value) for value in array.tolist()]
