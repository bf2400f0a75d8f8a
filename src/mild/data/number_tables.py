"""Tables of numbers: features, and the whole cost of each expert, in place of queries and scores."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mild.artifact.expert_names import match_experts
from mild.artifact.facts import feature_line
from mild.core.arrays import FloatArray, IntArray, invalid
from mild.data.data_quality import ROW_ONE, row_number
from mild.data.formats import possible_forms
from mild.data.formats.base import ANSWER, LOGPROB, PRICE, ReadArguments
from mild.data.formats.nested import parse_objects
from mild.data.queries import usual_query
from mild.data.selection import Where, kept_rows
from mild.data.tables import (
    check_file,
    check_names,
    choose_columns,
    find_tables,
    first_text,
    is_number,
    is_numeric,
    is_string,
    number_matrix,
    peek_table,
    read_table,
    short,
    table_suffix,
)
from mild.errors import DataFileError, counted, listed

ARCHIVE = ".npz"
# Files whose types are inferred, and not declared.
INFERRED = (".csv", ".tsv", ".xlsx")
# Columns that number or name the rows, those of an index that pandas wrote among them.
_IDENTIFIER = re.compile(
    r"|(.*[_ -])?(id|uuid|guid)|index|unnamed: \d+|__index_level_\d+__", re.IGNORECASE
)
# A text of so many words is a query, and no category.
WORDS = 3
# Number of texts that tell a damaged column of numbers from a column of text.
PROBE = 1000
# Costs beyond it are too large to be learned from: their squares must be finite in single precision.
LARGEST_COST = 1e18

Names = str | Sequence[str] | None


@dataclass(frozen=True, eq=False)
class NumberColumns:
    """Features and costs, with their names, and the other columns of their source."""

    X: FloatArray  # (n_samples, n_features) float32 or float64
    costs: FloatArray  # (n_samples, n_experts), NaN where an expert was never asked
    feature_names: list[str] | None  # None if the source does not name them
    expert_names: list[str]  # expert_0, ... if the source does not name them
    others: Any  # Arrow table of all other columns, same rows
    row_numbers: IntArray | None = None  # (n_samples,) numbers of the rows, from 0, if not all
    explanation: str = ""  # how the source was read, in one sentence

    def of_experts(self, names: Sequence[str]) -> NumberColumns:
        """The same with these experts only."""
        indices = [self.expert_names.index(name) for name in names]
        return replace(self, costs=self.costs[:, indices], expert_names=list(names))


def is_number_source(source: Any) -> bool:
    """Whether a path is that of a table of numbers, by its suffix or its first rows.

    A path whose first rows cannot be read on their own, such as a pipe or JSON, counts as none.
    """
    if not isinstance(source, (str, os.PathLike)):
        return False
    try:
        file = find_tables(source)[0]
    except DataFileError:
        return False
    if table_suffix(file) == ARCHIVE:
        return True
    if not file.is_file():
        return False
    table = peek_table(file)
    return table is not None and is_number_table(table)


def is_number_table(table: Any) -> bool:
    """Whether an Arrow table has columns ``cost__<expert>`` and neither queries nor scores."""
    names = table.column_names
    if not any(name.startswith(PRICE) for name in names) or has_queries(table):
        return False
    schema = parse_objects(table).schema
    parts = [name.partition("__") for name in schema.names]
    scored = {expert for prefix, mark, expert in parts if mark and prefix in ("correct", "score")}
    priced = {expert for prefix, mark, expert in parts if mark and prefix == "cost"}
    if scored and not scored & priced:
        # Where there are costs, but none of a scored expert, score__bm25 is a feature.
        return True
    return not possible_forms(schema)


def has_queries(table: Any) -> bool:
    """Whether the rows hold texts to route by: a column of a usual name, or one of several words a row.

    Identifiers and categories, which tables of numbers may have, are single words.
    """
    if usual_query(table.schema) is not None:
        return True
    for field in table.schema:
        if is_string(field.type):
            texts = [text for text in table[field.name].to_pylist() if text]
            if texts and 2 * sum(len(text.split()) >= WORDS for text in texts) > len(texts):
                return True
    return False


def read_number_columns(
    source: Any, options: ReadArguments, part: str | None = None, table: Any = None
) -> NumberColumns:
    """Read features and costs from a file or a frame.

    A .npz holds arrays ``X`` and ``costs`` and may hold ``feature_names`` and ``expert_names``; other
    sources hold one column each. ``table`` is what ``read_table`` gave, if it is known already.
    """
    _check_options(options)
    if _is_archive(source):
        _refuse_where(options.where)
        found = _read_archive(Path(source), options.features, options.costs)
    else:
        if table is None:
            table = read_table(source)
        found = _read_columns(table, options, part, _has_inferred_types(source))
    if options.experts is not None:
        found = found.of_experts(match_experts(options.experts, found.expert_names))
    check_numbers(found)
    return found


def _refuse_where(where: Where) -> None:
    """Refuse a selection of rows of a .npz, which has no columns to select by."""
    if where:
        rule = "is for tables with columns, and a .npz has none; select its rows beforehand."
        raise DataFileError(parameter="where", rule=rule)


def read_features(
    source: Any, names: Sequence[str] | None, where: Where = None
) -> tuple[FloatArray, Any]:
    """Features (n_samples, n_features) of a file, whether it has costs or not, and its table.

    ``names`` are those of a router; None for all columns of numbers that may be features. The table of a
    .npz has no columns.
    """
    if _is_archive(source):
        _refuse_where(where)
        arrays = _load_arrays(Path(source))
        X, feature_names = _archive_features(arrays, names)
        table, row_numbers = no_columns(len(X)), None
    else:
        table = read_table(source)
        kept, _ = kept_rows(table, where)
        row_numbers = None
        if kept is not None:
            table = table.filter(pa.array(kept))
            row_numbers = np.flatnonzero(kept)
        if names is None:
            feature_names = default_features(table.schema)
        else:
            feature_names = list(names)
            for name in feature_names:
                if name not in table.column_names:
                    found = listed(list(table.column_names))
                    raise DataFileError(
                        f"there must be a column {name!r}, which the router reads; found {found}."
                    )
        if not feature_names:
            found = listed(list(table.column_names))
            raise DataFileError(f"there must be columns of numbers to route by; found {found}.")
        X = number_matrix(table, feature_names)
    _check_features(X, feature_names, row_numbers)
    return X, table


def array_columns(
    X: Any,
    costs: Any,
    expert_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
) -> NumberColumns:
    """Features and costs that are given as arrays or frames, checked."""
    features = _given_matrix("X", X)
    cost_matrix = _given_matrix("costs", costs).astype(np.float64, copy=False)
    if len(features) != len(cost_matrix):
        got = f"{len(features):,} and {len(cost_matrix):,}"
        raise invalid("costs", f"must have as many rows as X; got {got}.")
    names_of_features = _given_names("feature_names", feature_names, X, features.shape[1])
    names = _given_names("expert_names", expert_names, costs, cost_matrix.shape[1])
    if names is None:
        names = numbered_experts(cost_matrix.shape[1])
    found = NumberColumns(
        features, cost_matrix, names_of_features, names, no_columns(len(features))
    )
    check_numbers(found)
    return replace(found, explanation=_explanation(found))


def numbered_experts(count: int) -> list[str]:
    """Names of experts that have none.

    >>> numbered_experts(2)
    ['expert_0', 'expert_1']
    """
    return [f"expert_{k}" for k in range(count)]


def no_columns(rows: int) -> Any:
    """An Arrow table with a number of rows and no columns."""
    return pa.table({"row": np.zeros(rows, np.int8)}).select([])


def default_features(schema: Any) -> list[str]:
    """Columns of numbers that are features unless others are named."""
    names = []
    for field in schema:
        if not is_numeric(field.type) or _IDENTIFIER.fullmatch(field.name):
            continue
        if not field.name.startswith((PRICE, ANSWER, LOGPROB)):
            names.append(field.name)
    return names


def neutral_columns(table: Any) -> list[str]:
    """Columns of an Arrow table that are read neither as a query, nor as a feature, nor as a cost."""
    features = default_features(table.schema)
    names = []
    for name in table.column_names:
        if name in features or name.startswith(PRICE):
            continue
        if not has_queries(table.select([name])):
            names.append(name)
    return names


def check_readable(feature_names: Sequence[str]) -> None:
    """Refuse names of features that would be read as something else in a file."""
    columns = {name: pa.array([0.0]) for name in feature_names}
    readable = default_features(pa.table(columns).schema)
    hidden = [name for name in feature_names if name not in readable]
    if hidden:
        raise DataFileError(
            f"feature {hidden[0]!r} would not be read as a feature from a file, because of its name; "
            "rename it first.",
            parameter="features",
        )


def check_numbers(found: NumberColumns) -> None:
    """Refuse features and costs that cannot be learned from."""
    if len(found.X) == 0:
        raise DataFileError("there must be at least one row; got none.")
    check_names(found.feature_names or [], "feature names must differ")
    check_names(found.expert_names, "expert names must differ")
    _check_costs(found.costs, found.expert_names, found.row_numbers)
    _check_features(found.X, found.feature_names, found.row_numbers)


def _check_features(X: FloatArray, names: Sequence[str] | None, row_numbers: Any) -> None:
    bad = np.argwhere(~np.isfinite(X))
    if not len(bad):
        return
    row, column = (int(index) for index in bad[0])
    value = X[row, column]
    shown: object = column
    if names is not None:
        shown = repr(names[column])
    empty = ""
    if np.isnan(value):
        empty = " or is empty"
    raise DataFileError(
        f"features must be finite (only costs may be missing); column {shown} is {value}{empty} in "
        f"row {row_number(row, row_numbers)} ({ROW_ONE}).",
        parameter="features",
    )


def _check_costs(
    costs: FloatArray, expert_names: Sequence[str], row_numbers: IntArray | None
) -> None:
    rule = "be finite and not negative"
    remedy = "Leave out what is unknown"
    wrong = np.isinf(costs) | (costs < 0)
    if not wrong.any():
        rule = f"be at most {LARGEST_COST:g}"
        remedy = "Divide all costs by the same number, or leave out what is unknown"
        wrong = costs > LARGEST_COST
    if wrong.any():
        row, k = (int(index) for index in np.argwhere(wrong)[0])
        place = f"row {row_number(row, row_numbers)} of expert {expert_names[k]!r} ({ROW_ONE})"
        got = f"got {costs[row, k]:g} in {place}"
        raise DataFileError(f"costs must {rule}; {got}. {remedy}.", parameter="costs")
    empty = np.flatnonzero(np.isnan(costs).all(axis=1))
    # A single column may be read to look at it; there is nothing to route then.
    if empty.size and len(expert_names) > 1:
        place = f"row {row_number(int(empty[0]), row_numbers)} has none ({ROW_ONE})"
        raise DataFileError(
            f"costs must be known for at least one expert in every row; {place}. Leave out "
            f"{counted(empty.size, 'such row')}.",
            parameter="costs",
        )


def _check_options(options: ReadArguments) -> None:
    """Refuse arguments that are only for tables with queries and scores."""
    for name in (
        *("query", "scores", "prices", "latencies", "vectors", "tokens"),
        *("model_column", "answer_column", "id_column", "answer_kind"),
    ):
        if getattr(options, name) is not None:
            raise DataFileError(
                parameter=name,
                rule="is for tables with queries and scores; this is a table of numbers.",
            )


def _is_archive(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike)) and table_suffix(source) == ARCHIVE


def _has_inferred_types(source: Any) -> bool:
    if not isinstance(source, (str, os.PathLike)):
        return False
    return table_suffix(find_tables(source)[0]) in INFERRED


def _read_columns(
    table: Any, options: ReadArguments, part: str | None, inferred: bool
) -> NumberColumns:
    """Features and costs from the columns of an Arrow table; ``inferred`` are the types of a CSV."""
    names = list(table.column_names)
    usual = [name for name in names if name.startswith(PRICE)]
    cost_columns = usual
    if options.costs is not None:
        cost_columns = choose_columns("costs", options.costs, names)
    if not cost_columns:
        rule = f"there must be cost columns, named {PRICE}<expert> or by costs=NAMES"
        raise DataFileError(f"{rule}; found {listed(names)}.", parameter="costs")
    if options.features is None:
        feature_columns = [n for n in default_features(table.schema) if n not in cost_columns]
    else:
        feature_columns = choose_columns("features", options.features, names)
    if not feature_columns:
        rule = "there must be numeric columns besides the costs, to route by"
        raise DataFileError(f"{rule}; found {listed(names)}.", parameter="features")
    both = [name for name in feature_columns if name in cost_columns]
    if both:
        rule = f"a column is either a feature or a cost; {both[0]!r} is both"
        raise DataFileError(f"{rule}. Narrow the features.", parameter="features")
    used = {*feature_columns, *cost_columns, *usual}
    others = [name for name in names if name not in used]
    if inferred and options.features is None:
        for name in others:
            _refuse_damaged(name, table[name])
    kept, selection = kept_rows(table, options.where, part)
    row_numbers = None
    if kept is not None:
        table = table.filter(pa.array(kept))
        row_numbers = np.flatnonzero(kept)
    found = NumberColumns(
        number_matrix(table, feature_columns),
        number_matrix(table, cost_columns).astype(np.float64, copy=False),
        feature_columns,
        [column.removeprefix(PRICE) or column for column in cost_columns],
        table.select(others) if others else no_columns(table.num_rows),
        row_numbers,
    )
    return replace(found, explanation=_explanation(found, selection))


def _explanation(found: NumberColumns, selection: str | None = None) -> str:
    """How a table of numbers was read, in one sentence."""
    features = feature_line(found.feature_names, found.X.shape[1])
    experts = counted(len(found.expert_names), "expert")
    parts = [
        f"read as numbers: {experts}, {counted(len(found.X), 'row')}",
        f"features: {features}",
        f"the whole cost of each expert is given ({PRICE}<expert>)",
    ]
    if found.others.column_names:
        left_out = listed(found.others.column_names, 8)
        parts.append(f"columns left out (text, or identifiers of rows): {left_out}")
    if selection is not None:
        parts.append(selection)
    return f"{'; '.join(parts)}."


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


def _read_archive(file: Path, features: Names, costs: Names) -> NumberColumns:
    """Arrays X, costs and, if they are there, feature_names and expert_names."""
    arrays = _load_arrays(file)
    if not {"X", "costs"} <= set(arrays):
        found = listed(list(arrays))
        raise DataFileError(f"a .npz must hold the arrays X and costs; found {found}.")
    X, feature_names = _archive_features(arrays, features)
    matrix = _archive_matrix("costs", arrays["costs"])
    if len(matrix) != len(X):
        shapes = f"{X.shape} and {matrix.shape}"
        raise DataFileError(f"X and costs must have as many rows; got shapes {shapes}.")
    names = _archive_names("expert_names", arrays, matrix.shape[1])
    if names is None:
        names = numbered_experts(matrix.shape[1])
    columns = NumberColumns(
        X, matrix.astype(np.float64, copy=False), feature_names, names, no_columns(len(X))
    )
    if costs is not None:
        columns = columns.of_experts(_archive_experts(costs, names))
    return replace(columns, explanation=_explanation(columns))


def _archive_experts(costs: str | Sequence[str], names: Sequence[str]) -> list[str]:
    """Experts by name, or by the name that their column would have in a table."""
    try:
        return choose_columns("costs", costs, names)
    except DataFileError:
        columns = choose_columns("costs", costs, [PRICE + name for name in names])
        return [column.removeprefix(PRICE) for column in columns]


def _archive_features(
    arrays: dict[str, np.ndarray[Any, Any]], features: Names
) -> tuple[FloatArray, list[str] | None]:
    """The array X and the names of its columns; those that ``features`` choose."""
    if "X" not in arrays:
        raise DataFileError(f"a .npz must hold the array X; found {listed(list(arrays))}.")
    X = _archive_matrix("X", arrays["X"])
    names = _archive_names("feature_names", arrays, X.shape[1])
    if features is None:
        return X, names
    if names is not None:
        chosen = choose_columns("features", features, names)
        return X[:, [names.index(name) for name in chosen]], chosen
    if not isinstance(features, str) and len(features) == X.shape[1]:
        # A router that names as many features as there are takes them in their order.
        return X, list(features)
    rule = f"features cannot be chosen by name: the file has {X.shape[1]} without names"
    raise DataFileError(f"{rule}. Add an array feature_names.", parameter="features")


def _load_arrays(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an archive; pickled objects are never loaded."""
    check_file(file, (ARCHIVE,))
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


def _archive_matrix(name: str, array: np.ndarray[Any, Any]) -> FloatArray:
    if array.dtype.kind not in "fiub":
        example = f" such as {array.ravel()[0]!r}" if array.size else ""
        raise DataFileError(f"array {name} must hold numbers; got {array.dtype}{example}.")
    if array.ndim != 2 or array.shape[1] == 0:
        rule = f"array {name} must have two dimensions, a row per input"
        raise DataFileError(f"{rule}; got shape {array.shape}.")
    return _as_float(array)


def _archive_names(
    key: str, arrays: dict[str, np.ndarray[Any, Any]], count: int
) -> list[str] | None:
    if key not in arrays:
        return None
    array = arrays[key]
    if array.shape != (count,) or array.dtype.kind not in "US":
        got = f"{array.dtype}, shape {array.shape}"
        raise DataFileError(f"array {key} must hold {count} strings; got {got}.")
    return [value.decode() if isinstance(value, bytes) else str(value) for value in array.tolist()]


def _as_float(array: np.ndarray[Any, Any]) -> FloatArray:
    """The array itself if it is float32 or float64, otherwise as float64."""
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float64)


def _given_matrix(name: str, values: Any) -> FloatArray:
    """An array or a frame of numbers with two dimensions."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise invalid(name, f"must hold numbers; got {error}.") from error
    if array.ndim != 2 or array.shape[1] == 0:
        raise invalid(name, f"must have two dimensions, a row per input; got shape {array.shape}.")
    return _as_float(array)


def _given_names(
    parameter: str, names: Sequence[str] | None, values: Any, count: int
) -> list[str] | None:
    """Names that are given, or those of the columns of a frame; None if there are none."""
    if names is None:
        names = getattr(values, "columns", None)
    if names is None:
        return None
    if isinstance(names, str) or len(names) != count:
        raise invalid(parameter, f"must hold {count} names; got {names!r}.")
    return [str(name) for name in names]
