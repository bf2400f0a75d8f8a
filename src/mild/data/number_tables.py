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
from mild.data.formats.base import (
    ANSWER,
    CORRECT,
    LOGPROB,
    PRICE,
    SCORE,
    ReadArguments,
    price_columns,
)
from mild.data.formats.nested import parse_objects
from mild.data.formats.wide import split_name
from mild.data.queries import usual_query
from mild.data.selection import Where, matching_rows
from mild.data.tables import (
    check_file,
    check_names,
    choose_columns,
    find_tables,
    first_text,
    is_number,
    is_numeric,
    is_string,
    names_except,
    number_matrix,
    peek_table,
    read_table,
    short,
    table_suffix,
)
from mild.errors import DataFileError, count_noun, listed

ARCHIVE = ".npz"
# Files whose types are inferred, and not declared.
INFERRED = (".csv", ".tsv", ".xlsx")
# Columns that number or name the rows, those of an index that pandas wrote among them.
_IDENTIFIER = re.compile(
    r"|(.*[_ -])?(id|uuid|guid)|index|unnamed: \d+|__index_level_\d+__", re.IGNORECASE
)
# A text of at least this many words is a query, not a category.
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
        """Return the same rows with these experts only."""
        indices = [self.expert_names.index(name) for name in names]
        return replace(self, costs=self.costs[:, indices], expert_names=list(names))


def is_number_source(source: Any) -> bool:
    """Return whether a path is that of a table of numbers, judging by its suffix or its first rows.

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
    """Return whether an Arrow table has columns ``cost__<expert>`` and neither queries nor scores."""
    names = table.column_names
    if not price_columns(names) or has_queries(table):
        return False
    schema = parse_objects(table).schema
    scored = set()
    priced = set()
    for name in schema.names:
        prefix, expert = split_name(name)
        if prefix in (CORRECT, SCORE):
            scored.add(expert)
        elif prefix == PRICE:
            priced.add(expert)
    if scored and not scored & priced:
        # Where there are costs, but none of a scored expert, score__bm25 is a feature.
        return True
    return not possible_forms(schema)


def has_queries(table: Any) -> bool:
    """Return whether a column holds texts to route by: it has a usual name, or several words in most rows.

    Identifiers and categories, which tables of numbers may have, are single words.
    """
    if usual_query(table.schema) is not None:
        return True
    for field in table.schema:
        if is_string(field.type):
            texts = [text for text in table[field.name].to_pylist() if text]
            n_long = sum(len(text.split()) >= WORDS for text in texts)
            if n_long > len(texts) / 2:
                return True
    return False


def read_number_columns(source: Any, options: ReadArguments, table: Any = None) -> NumberColumns:
    """Read features and costs from a file or a frame.

    A .npz holds arrays ``X`` and ``costs`` and may hold ``feature_names`` and ``expert_names``; other
    sources hold one column each. ``table`` is what ``read_table`` gave, if it is known already.
    """
    _check_options(options)
    if _is_archive(source):
        _refuse_where(options.where)
        columns = _read_archive(Path(source), options.features, options.costs)
    else:
        if table is None:
            table = read_table(source)
        columns = _read_columns(table, options, _has_inferred_types(source))
    if options.experts is not None:
        columns = columns.of_experts(match_experts(options.experts, columns.expert_names))
    check_numbers(columns)
    return columns


def _refuse_where(where: Where) -> None:
    """Raise an error if rows of a .npz are selected, which has no columns to select by."""
    if where:
        rule = "is for tables with columns, and a .npz has none; select its rows beforehand."
        raise DataFileError(parameter="where", rule=rule)


def read_features(
    source: Any, names: Sequence[str] | None, where: Where = None
) -> tuple[FloatArray, Any]:
    """Read the features (n_samples, n_features) of a file with or without costs, and its table.

    ``names`` are those of a router; None for all columns of numbers that may be features. The table of a
    .npz has no columns.
    """
    if _is_archive(source):
        _refuse_where(where)
        X, feature_names = _archive_features(_load_arrays(Path(source)), names)
        _check_features(X, feature_names, None)
        return X, no_columns(len(X))
    table, row_numbers = _selected_rows(read_table(source), where)
    feature_names = _present_features(table, names)
    X = number_matrix(table, feature_names)
    _check_features(X, feature_names, row_numbers)
    return X, table


def _selected_rows(table: Any, where: Where) -> tuple[Any, IntArray | None]:
    """Return the selected rows, and their numbers; None for all rows."""
    if not where:
        return table, None
    selected = matching_rows(table, where)
    return table.filter(pa.array(selected)), np.flatnonzero(selected)


def _present_features(table: Any, names: Sequence[str] | None) -> list[str]:
    """Return the columns that a router reads, which must exist; None takes all that may be features."""
    columns = list(table.column_names)
    if names is None:
        names = default_features(table.schema)
    for name in names:
        if name not in columns:
            raise DataFileError(
                f"there must be a column {name!r}, which the router reads; found {listed(columns)}."
            )
    if not names:
        raise DataFileError(
            f"there must be columns of numbers to route by; found {listed(columns)}."
        )
    return list(names)


def array_columns(
    X: Any,
    costs: Any,
    experts: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
) -> NumberColumns:
    """Return features and costs from arrays or frames, checked."""
    feature_matrix = _given_matrix("X", X)
    cost_matrix = _given_matrix("costs", costs).astype(np.float64, copy=False)
    n_rows, n_features = feature_matrix.shape
    n_experts = cost_matrix.shape[1]
    if len(cost_matrix) != n_rows:
        got = f"{n_rows:,} and {len(cost_matrix):,}"
        raise invalid("costs", f"must have as many rows as X; got {got}.")
    names_of_features = _given_names("feature_names", feature_names, X, n_features)
    names_of_experts = _given_names("experts", experts, costs, n_experts)
    if names_of_experts is None:
        names_of_experts = numbered_experts(n_experts)
    if not np.isfinite(feature_matrix).all():
        row, column = np.argwhere(~np.isfinite(feature_matrix))[0].tolist()
        got = f"X[{row}, {column}] = {feature_matrix[row, column]}"
        raise invalid("X", f"must be finite, only costs may be missing; got {got}.")
    columns = NumberColumns(
        X=feature_matrix,
        costs=cost_matrix,
        feature_names=names_of_features,
        expert_names=names_of_experts,
        others=no_columns(n_rows),
    )
    check_numbers(columns)
    return replace(columns, explanation=_explanation(columns))


def numbered_experts(count: int) -> list[str]:
    """Make names for experts that have none.

    >>> numbered_experts(2)
    ['expert_0', 'expert_1']
    """
    return [f"expert_{k}" for k in range(count)]


def no_columns(rows: int) -> Any:
    """Return an Arrow table with this number of rows and no columns."""
    return pa.table({"row": np.zeros(rows, np.int8)}).select([])


def default_features(schema: Any) -> list[str]:
    """Return the columns of numbers that are features unless the caller names others."""
    names = []
    for field in schema:
        if not is_numeric(field.type) or _IDENTIFIER.fullmatch(field.name):
            continue
        if not field.name.startswith((PRICE, ANSWER, LOGPROB)):
            names.append(field.name)
    return names


def neutral_columns(table: Any) -> list[str]:
    """Return the columns of an Arrow table that are not read as query, feature or cost."""
    features = default_features(table.schema)
    names = []
    for name in table.column_names:
        if name in features or name.startswith(PRICE):
            continue
        if not has_queries(table.select([name])):
            names.append(name)
    return names


def check_readable(feature_names: Sequence[str]) -> None:
    """Raise an error for names of features that would be read as something else in a file."""
    columns = dict.fromkeys(feature_names, pa.array([0.0]))
    readable = default_features(pa.table(columns).schema)
    hidden = names_except(feature_names, readable)
    if hidden:
        raise DataFileError(
            f"feature {hidden[0]!r} would not be read as a feature from a file, because of its name; "
            "rename it first.",
            parameter="features",
        )


def check_numbers(columns: NumberColumns) -> None:
    """Raise an error for features and costs that cannot be learned from."""
    if len(columns.X) == 0:
        raise DataFileError("there must be at least one row; got none.")
    check_names(columns.feature_names or [], "feature names must differ")
    check_names(columns.expert_names, "expert names must differ")
    _check_costs(columns.costs, columns.expert_names, columns.row_numbers)
    _check_features(columns.X, columns.feature_names, columns.row_numbers)


def _check_features(X: FloatArray, names: Sequence[str] | None, row_numbers: Any) -> None:
    """Raise an error if features are missing or infinite."""
    bad = np.argwhere(~np.isfinite(X))
    if not len(bad):
        return
    row, column = bad[0].tolist()
    value = X[row, column]
    name: object = column
    if names is not None:
        name = repr(names[column])
    or_empty = ""
    if np.isnan(value):
        or_empty = " or is empty"
    raise DataFileError(
        f"features must be finite (only costs may be missing); column {name} is {value}{or_empty} in "
        f"row {row_number(row, row_numbers)} ({ROW_ONE}).",
        parameter="features",
    )


def _check_costs(
    costs: FloatArray, expert_names: Sequence[str], row_numbers: IntArray | None
) -> None:
    """Raise an error for costs that are infinite, negative or too large, and for rows without any."""
    rule = "be finite and not negative"
    remedy = "Leave out what is unknown"
    is_wrong = np.isinf(costs) | (costs < 0)
    if not is_wrong.any():
        rule = f"be at most {LARGEST_COST:g}"
        remedy = "Divide all costs by the same number, or leave out what is unknown"
        is_wrong = costs > LARGEST_COST
    if is_wrong.any():
        row, index = np.argwhere(is_wrong)[0].tolist()
        number = row_number(row, row_numbers)
        got = f"{costs[row, index]:g} in row {number} of expert {expert_names[index]!r} ({ROW_ONE})"
        raise DataFileError(f"costs must {rule}; got {got}. {remedy}.", parameter="costs")
    empty_rows = np.flatnonzero(np.isnan(costs).all(axis=1))
    # A single column may be read to look at it; there is nothing to route then.
    if empty_rows.size and len(expert_names) > 1:
        number = row_number(int(empty_rows[0]), row_numbers)
        raise DataFileError(
            f"costs must be known for at least one expert in every row; row {number} has none "
            f"({ROW_ONE}). Leave out {count_noun(empty_rows.size, 'such row')}.",
            parameter="costs",
        )


# Arguments that are only for tables with queries and scores.
_SCORE_ARGUMENTS = (
    "query",
    "scores",
    "prices",
    "latencies",
    "vectors",
    "tokens",
    "model_column",
    "answer_column",
    "id_column",
    "answer_kind",
)


def _check_options(options: ReadArguments) -> None:
    """Raise an error for arguments that are only for tables with queries and scores."""
    for name in _SCORE_ARGUMENTS:
        if getattr(options, name) is not None:
            raise DataFileError(
                parameter=name,
                rule="is for tables with queries and scores; this is a table of numbers.",
            )


def _is_archive(source: Any) -> bool:
    """Return whether a source is the path of a .npz file."""
    return isinstance(source, (str, os.PathLike)) and table_suffix(source) == ARCHIVE


def _has_inferred_types(source: Any) -> bool:
    """Return whether a source is a file whose columns have no declared types."""
    if not isinstance(source, (str, os.PathLike)):
        return False
    return table_suffix(find_tables(source)[0]) in INFERRED


def _read_columns(table: Any, options: ReadArguments, inferred: bool) -> NumberColumns:
    """Return features and costs from an Arrow table; ``inferred`` says that it was a CSV without types."""
    names = list(table.column_names)
    usual_costs = price_columns(names)
    cost_columns = _cost_columns(names, usual_costs, options)
    feature_columns = _feature_columns(table.schema, cost_columns, options)
    others = names_except(names, {*feature_columns, *cost_columns, *usual_costs})
    if inferred and options.features is None:
        for name in others:
            _refuse_damaged(name, table[name])
    table, row_numbers = _selected_rows(table, options.where)
    other_columns = no_columns(table.num_rows)
    if others:
        other_columns = table.select(others)
    columns = NumberColumns(
        X=number_matrix(table, feature_columns),
        costs=number_matrix(table, cost_columns).astype(np.float64, copy=False),
        feature_names=feature_columns,
        expert_names=[column.removeprefix(PRICE) or column for column in cost_columns],
        others=other_columns,
        row_numbers=row_numbers,
    )
    return replace(columns, explanation=_explanation(columns))


def _cost_columns(
    names: Sequence[str], usual_costs: Sequence[str], options: ReadArguments
) -> list[str]:
    """Return the cost columns that the caller named, or those with the usual names."""
    if options.costs is not None:
        return choose_columns("costs", options.costs, names)
    if not usual_costs:
        rule = f"there must be cost columns, named {PRICE}<expert> or by costs=NAMES"
        raise DataFileError(f"{rule}; found {listed(names)}.", parameter="costs")
    return list(usual_costs)


def _feature_columns(schema: Any, cost_columns: Sequence[str], options: ReadArguments) -> list[str]:
    """Return the feature columns that the caller named, or all that may be features."""
    names = list(schema.names)
    if options.features is None:
        columns = names_except(default_features(schema), cost_columns)
    else:
        columns = choose_columns("features", options.features, names)
    if not columns:
        rule = "there must be numeric columns besides the costs, to route by"
        raise DataFileError(f"{rule}; found {listed(names)}.", parameter="features")
    for name in columns:
        if name in cost_columns:
            rule = f"a column is either a feature or a cost; {name!r} is both"
            raise DataFileError(f"{rule}. Narrow the features.", parameter="features")
    return columns


def _explanation(columns: NumberColumns) -> str:
    """Say in one sentence how a table of numbers was read."""
    n_experts = count_noun(len(columns.expert_names), "expert")
    features = feature_line(columns.feature_names, columns.X.shape[1])
    clauses = [
        f"read as numbers: {n_experts}, {count_noun(len(columns.X), 'row')}",
        f"features: {features}",
        f"the whole cost of each expert is given ({PRICE}<expert>)",
    ]
    if columns.others.column_names:
        left_out = listed(columns.others.column_names, 8)
        clauses.append(f"columns left out (text, or identifiers of rows): {left_out}")
    return f"{'; '.join(clauses)}."


def _refuse_damaged(name: str, column: Any) -> None:
    """Raise an error for a column that is text only because of a few words among its numbers."""
    if not pa.types.is_string(column.type):
        return
    values = column.drop_null().slice(0, PROBE).to_pylist()
    if 2 * sum(map(is_number, values)) > len(values):
        raise DataFileError(
            f"column {name!r} must hold numbers; it holds some, but also text such as "
            f"{short(first_text(column))}. Correct it, or choose the features by name."
        )


def _read_archive(file: Path, features: Names, costs: Names) -> NumberColumns:
    """Read the arrays X, costs and, if they exist, feature_names and expert_names."""
    arrays = _load_arrays(file)
    if "X" not in arrays or "costs" not in arrays:
        raise DataFileError(
            f"a .npz must hold the arrays X and costs; found {listed(list(arrays))}."
        )
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
    """Return experts by name, or by the name that their cost column would have in a table."""
    try:
        return choose_columns("costs", costs, names)
    except DataFileError:
        columns = choose_columns("costs", costs, [PRICE + name for name in names])
        return [column.removeprefix(PRICE) for column in columns]


def _archive_features(
    arrays: dict[str, np.ndarray[Any, Any]], features: Names
) -> tuple[FloatArray, list[str] | None]:
    """Return the columns of X that ``features`` names, or all, and their names."""
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
    """Load the arrays of an archive by name; pickled objects are never loaded."""
    check_file(file, (ARCHIVE,))
    name = "it"
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    try:
        # Opened here: np.load leaves a broken archive open.
        with open(file, "rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            for name in getattr(archive, "files", ()):
                if name in ("X", "costs", "feature_names", "expert_names"):
                    arrays[name] = archive[name]
                else:
                    # It may be anything; it is listed, not read.
                    arrays[name] = np.empty(0)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataFileError(f"it is not a .npz archive, or it is cut off ({error}).") from error
    except ValueError as error:
        problem = f"cannot be read ({error}); the file may be cut off"
        if "allow_pickle" in str(error):
            problem = "holds Python objects (a pickle), which are never loaded; save names as text"
        raise DataFileError(f"{name} {problem}.") from error
    if isinstance(archive, np.ndarray):
        raise DataFileError("it is a single array, not a .npz of X and costs (np.savez).")
    return arrays


def _archive_matrix(name: str, array: np.ndarray[Any, Any]) -> FloatArray:
    """Return an array as floats; it must hold numbers and have two dimensions."""
    if array.dtype.kind not in "fiub":
        example = ""
        if array.size:
            example = f" such as {array.ravel()[0]!r}"
        raise DataFileError(f"array {name} must hold numbers; got {array.dtype}{example}.")
    if array.ndim != 2 or array.shape[1] == 0:
        rule = f"array {name} must have two dimensions, a row per input"
        raise DataFileError(f"{rule}; got shape {array.shape}.")
    return _as_float(array)


def _archive_names(
    key: str, arrays: dict[str, np.ndarray[Any, Any]], count: int
) -> list[str] | None:
    """Return the names in an array of texts; None if the archive does not have it."""
    if key not in arrays:
        return None
    array = arrays[key]
    if array.shape != (count,) or array.dtype.kind not in "US":
        got = f"{array.dtype}, shape {array.shape}"
        raise DataFileError(f"array {key} must hold {count} strings; got {got}.")
    if array.dtype.kind == "S":
        array = np.char.decode(array)
    names: list[str] = array.tolist()
    return names


def _as_float(array: np.ndarray[Any, Any]) -> FloatArray:
    """Return the array itself if it is float32 or float64, otherwise as float64."""
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float64)


def _given_matrix(name: str, values: Any) -> FloatArray:
    """Return an array or a frame as a matrix of floats; it must have two dimensions."""
    if hasattr(values, "toarray"):
        rule = "must be dense in a table; use its toarray(), or fit a router such as LinearRouter to it."
        raise invalid(name, rule)
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
    """Return the names from the caller, or else of the columns of a frame; None if there are none."""
    if names is None:
        names = getattr(values, "columns", None)
    if names is None:
        return None
    if isinstance(names, str) or len(names) != count:
        raise invalid(parameter, f"must hold {count} names; got {names!r}.")
    return list(map(str, names))
