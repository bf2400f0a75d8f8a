"""The router's inputs from the columns of a dataset: texts, vectors, or columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mild.artifact import Router
from mild.core.arrays import invalid
from mild.data.queries import Recipe, RecipeError, choose_query, query_texts
from mild.data.tables import choose_columns, column_kind, is_numeric, is_text, number_matrix
from mild.data.vectors import VECTOR_NAMES, no_vectors, vector_lengths, vector_matrix
from mild.errors import DataFileError, InvalidInputError, listed

# Where it is not known how queries are made.
NO_RECIPE = Recipe(())
# Types of numbers that float32 holds exactly.
SINGLE = (pa.float32(), pa.float16())


class RowError(DataFileError):
    """A row that cannot be read; ``row`` is its position in the batch."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class Inputs:
    """Which columns are read, and as what."""

    kind: str  # "texts", "vectors" or "columns"
    columns: tuple[str, ...]
    width: int  # number of features of the router
    recipe: Recipe = NO_RECIPE  # how texts are made
    exact: bool = False  # whether float64 vectors stay float64; those of an outcome table do not

    def of(self, batch: Any) -> tuple[Any, NDArray[np.bool_]]:
        """Texts or X (n, width) of a record batch, and which rows are empty, (n,)."""
        if self.kind == "vectors":
            column = batch.column(self.columns[0])
            return vector_rows(column, self.width, single=not self.exact or _is_single(column))
        table = pa.Table.from_batches([batch])
        if self.kind == "columns":
            return number_matrix(table, self.columns), np.zeros(batch.num_rows, bool)
        columns = [batch.column(name) for name in self.recipe.columns]
        return query_texts(table, self.recipe), _all_null(columns)

    def check(self, schema: Any) -> None:
        """Refuse a file whose vectors do not have the router's width, as far as their type shows it."""
        column_type = schema.field(self.columns[0]).type
        if self.kind == "vectors" and not pa.types.is_null(column_type):
            check_vectors(self.columns[0], column_type, self.width)


def query_recipe(router: Router) -> Recipe:
    """How the queries that a router was fitted on were made; an empty recipe if that is not known."""
    if router.info.query is None:
        return NO_RECIPE
    return Recipe.from_dict(router.info.query)


def choose_inputs(
    router: Router,
    schema: Any,
    query: str | None = None,
    vectors: str | None = None,
    features: str | None = None,
) -> Inputs:
    """Choose the columns of a data set that a router reads.

    At most one of ``query``, ``vectors`` and ``features`` names columns in place of those that the router
    was fitted on.

    Parameters
    ----------
    router : Router
        A loaded router.
    schema : pyarrow.Schema
        The columns of the data set.
    query : str, default=None
        Column of the query.
    vectors : str, default=None
        Column of vectors.
    features : str, default=None
        Columns of numbers: names and patterns, separated by commas. A router of vectors reads none, so
        that they are refused.

    Returns
    -------
    Inputs
    """
    if sum(option is not None for option in (query, vectors, features)) > 1:
        raise InvalidInputError("query, vectors and features cannot go together; give one of them.")
    if router.text is not None and router.text.kind != "vectors":
        if vectors is not None or features is not None:
            raise InvalidInputError("this router takes texts; name their column with query=COLUMN.")
        recipe = _text_recipe(schema, query, query_recipe(router))
        columns = (*recipe.columns, *recipe.choices)
        return Inputs("texts", columns, router.n_features, recipe)
    if query is not None:
        if router.text is not None:
            raise InvalidInputError(
                "this router takes vectors; name their column with vectors=COLUMN."
            )
        raise InvalidInputError(
            "this router takes numbers; name their columns with features=NAMES, or one of vectors with "
            "vectors=COLUMN."
        )
    if router.text is not None and features is not None:
        rule = "must not be given for a router of vectors, which reads no columns of numbers"
        remedy = "Name the column of its vectors with vectors=COLUMN."
        raise invalid("features", f"{rule}; got {features!r}. {remedy}")
    if router.text is None and vectors is None:
        if features is not None:
            return _feature_inputs(router, schema, features)
        fit_names = router.feature_names or []
        if not set(fit_names).isdisjoint(schema.names):
            return _feature_inputs(router, schema, fit_names)
    return _vector_inputs(router, schema, vectors)


def _feature_inputs(router: Router, schema: Any, names: str | Sequence[str]) -> Inputs:
    """Read columns of numbers, one per feature of the router."""
    columns = choose_columns("features", names, list(schema.names))
    if len(columns) != router.n_features:
        raise DataFileError(
            f"features must be the {router.n_features} columns that the router was fitted with; got "
            f"{len(columns)}: {listed(columns)}."
        )
    for name in columns:
        column_type = schema.field(name).type
        if not is_numeric(column_type):
            raise DataFileError(f"column {name!r} must hold numbers; it holds {column_type}.")
    return Inputs("columns", tuple(columns), router.n_features)


def _vector_inputs(router: Router, schema: Any, vectors: str | None) -> Inputs:
    """Read a column of vectors: the one that is named, the one of the fit, or a usual one."""
    names = list(schema.names)
    if vectors is None:
        column = _usual_vector_column(router, names)
    else:
        column = choose_columns("vectors", [vectors], names)[0]
    check_vectors(column, schema.field(column).type, router.n_features)
    return Inputs("vectors", (column,), router.n_features, exact=router.text is None)


def _usual_vector_column(router: Router, names: Sequence[str]) -> str:
    """The column that the vectors of the fit were in, or one with a usual name."""
    usual_names = vector_names(query_recipe(router))
    for name in usual_names:
        if name in names:
            return name
    if router.text is None and router.feature_names is not None:
        raise DataFileError(
            f"column {router.feature_names[0]!r}, a feature of this router, is missing; found "
            f"{listed(names)}. Name the columns with features=NAMES, or one of vectors with vectors=COLUMN."
        )
    raise DataFileError(
        f"column {usual_names[0]!r} of vectors is missing; found {listed(names)}. Name it with "
        "vectors=COLUMN."
    )


def vector_names(recipe: Recipe) -> tuple[str, ...]:
    """Names of a column of vectors, the one of the fit first."""
    if recipe.vectors is None:
        return VECTOR_NAMES
    return (recipe.vectors, *VECTOR_NAMES)


def check_vectors(name: str, column_type: Any, width: int) -> None:
    """Refuse a column that cannot hold vectors of this width, as far as its type shows it."""
    if pa.types.is_fixed_size_binary(column_type):
        stored_width = column_type.byte_width / 4
    elif column_kind(column_type) != "vectors":
        raise no_vectors(name, column_type)
    elif pa.types.is_fixed_size_list(column_type):
        stored_width = column_type.list_size
    else:
        # Only the rows show how long these lists are.
        return
    if stored_width != width:
        raise DataFileError(f"{_width_rule(width)}; column {name!r} holds {stored_width:g} each.")


def _width_rule(width: int) -> str:
    return f"vectors must have the {width} numbers that the router was fitted with"


def _is_single(column: Any) -> bool:
    """Whether a column of vectors holds float32, or numbers that fit into it."""
    value_type = getattr(column.type, "value_type", column.type)
    return pa.types.is_fixed_size_binary(value_type) or value_type in SINGLE


def vector_rows(
    array: Any, width: int, single: bool = True
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Vectors (n, width) of a column, and which rows are null, (n,).

    Parameters
    ----------
    array : pyarrow.Array
        A column of vectors.
    width : int
        How many numbers a vector must have.
    single : bool, default=True
        Whether numbers are converted to float32; otherwise to float64.
    """
    if pa.types.is_null(array.type):
        return np.zeros((len(array), width), np.float32), np.ones(len(array), bool)
    empty = _all_null([array])
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        lengths = vector_lengths(array)
        wrong_rows = np.flatnonzero((lengths != width) & ~empty)
        if wrong_rows.size:
            row = int(wrong_rows[0])
            raise RowError(f"{_width_rule(width)}; it holds {lengths[row]}.", row)
    return vector_matrix(array, width, single), empty


def _text_recipe(schema: Any, query: str | None, recipe: Recipe) -> Recipe:
    """How texts are made: of the column that was named, of those of the fit, or of a usual one."""
    names = list(schema.names)
    if query is not None or not recipe.columns:
        chosen = choose_query(schema, query)
        if chosen is None:
            raise DataFileError(
                "there must be a column of the query; name it with query=COLUMN. Found "
                f"{listed(names)}."
            )
        return chosen
    try:
        recipe.check(names)
    except RecipeError as error:
        remedy = "Name the column of the whole query with query=COLUMN."
        raise DataFileError(f"{error}; found the columns {listed(names)}. {remedy}") from error
    for name in recipe.columns:
        column_type = schema.field(name).type
        if not is_text(column_type):
            raise DataFileError(f"the query must be text; column {name!r} holds {column_type}.")
    choices = tuple(name for name in recipe.choices if name in names)
    return Recipe(recipe.columns, choices)


def _all_null(columns: Sequence[Any]) -> NDArray[np.bool_]:
    """Which rows are null in all columns, (n,)."""
    n_rows = len(columns[0])
    if any(column.null_count == 0 for column in columns):
        return np.zeros(n_rows, bool)
    all_null = np.ones(n_rows, bool)
    for column in columns:
        all_null &= pc.is_null(column).to_numpy(zero_copy_only=False)
    return all_null
