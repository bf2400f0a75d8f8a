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
from mild.data.queries import Recipe, RecipeError, choose_query, query_texts
from mild.data.tables import choose_columns, column_kind, is_numeric, is_text, number_matrix
from mild.data.vectors import VECTOR_NAMES, no_vectors, vector_lengths, vector_matrix
from mild.errors import DataFileError, InvalidInputError, listed

Bad = NDArray[np.bool_]
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
    recipe: Recipe | None = None  # how texts are made
    exact: bool = False  # whether float64 vectors stay float64; those of an outcome table do not

    def of(self, batch: Any) -> tuple[Any, Bad | None]:
        """Texts or X (n, width) of a record batch, and which rows are empty; None if none is."""
        if self.kind == "vectors":
            column = batch.column(self.columns[0])
            value = getattr(column.type, "value_type", column.type)
            stored_single = pa.types.is_fixed_size_binary(value) or value in SINGLE
            return vector_rows(column, self.width, stored_single or not self.exact)
        table = pa.Table.from_batches([batch])
        if self.kind == "columns":
            return number_matrix(table, self.columns), None
        recipe = self.recipe or Recipe(self.columns)
        return query_texts(table, recipe), _all_null(
            [batch.column(name) for name in recipe.columns]
        )

    def check(self, schema: Any) -> None:
        """Refuse a file whose vectors do not have the router's width, as far as their type shows it."""
        kind = schema.field(self.columns[0]).type
        if self.kind == "vectors" and not pa.types.is_null(kind):
            check_vectors(self.columns[0], kind, self.width)


def choose_inputs(
    router: Router,
    schema: Any,
    query: str | None = None,
    vectors: str | None = None,
    features: str | None = None,
) -> Inputs:
    """How a dataset of this Arrow schema is read for a router.

    At most one of ``query``, ``vectors`` and ``features`` names columns in place of those that the router
    was fitted on.
    """
    if sum(option is not None for option in (query, vectors, features)) > 1:
        raise InvalidInputError("query, vectors and features cannot go together; give one of them.")
    parts = router.info.query
    recipe = None if parts is None else Recipe.from_dict(parts)
    names, width = list(schema.names), router.n_features
    if router.text is not None and router.text.kind != "vectors":
        if vectors is not None or features is not None:
            raise InvalidInputError("this router takes texts; name their column with query=COLUMN.")
        chosen = _texts(schema, query, recipe)
        return Inputs("texts", (*chosen.columns, *chosen.choices), width, chosen)
    if query is not None:
        what = (
            "vectors or columns of numbers; name their column with vectors=COLUMN or features=NAMES"
        )
        raise InvalidInputError(f"this router takes {what}.")
    saved = router.feature_names if router.text is None else None
    usual = saved if saved and not set(saved).isdisjoint(names) else None
    wanted = usual if features is None else features
    if router.text is None and vectors is None and wanted is not None:
        columns = choose_columns("features", wanted, names)
        if len(columns) != width:
            rule = f"features must be the {width} columns that the router was fitted with"
            raise DataFileError(f"{rule}; got {len(columns)}: {listed(columns)}.")
        for name in columns:
            if not is_numeric(kind := schema.field(name).type):
                raise DataFileError(f"column {name!r} must hold numbers; it holds {kind}.")
        return Inputs("columns", tuple(columns), width)
    own = recipe.vectors if recipe else None
    known = next((name for name in (own, *VECTOR_NAMES) if name in names), None)
    column = known if vectors is None else choose_columns("vectors", [vectors], names)[0]
    if column is None:
        what = f"{own or VECTOR_NAMES[0]!r} of vectors"
        remedy = "Name it with vectors=COLUMN."
        if saved is not None:
            what = f"{saved[0]!r}, a feature of this router,"
            remedy = "Name the columns with features=NAMES, or one of vectors with vectors=COLUMN."
        raise DataFileError(f"column {what} is missing; found {listed(names)}. {remedy}")
    check_vectors(column, schema.field(column).type, width)
    return Inputs("vectors", (column,), width, exact=router.text is None)


def check_vectors(name: str, kind: Any, width: int) -> None:
    """Refuse a column that cannot hold vectors of this width, as far as its type shows it."""
    if pa.types.is_fixed_size_binary(kind):
        got = kind.byte_width / 4
    elif column_kind(kind) == "vectors":
        got = kind.list_size if pa.types.is_fixed_size_list(kind) else width
    else:
        raise no_vectors(name, kind)
    if got != width:
        raise DataFileError(f"{_width_rule(width)}; column {name!r} holds {got:g} each.")


def _width_rule(width: int) -> str:
    return f"vectors must have the {width} numbers that the router was fitted with"


def vector_rows(array: Any, width: int, single: bool = True) -> tuple[NDArray[Any], Bad | None]:
    """Vectors (n, width) of a column, and which rows are null; None if none is."""
    if pa.types.is_null(array.type):
        return np.zeros((len(array), width), np.float32), np.ones(len(array), bool)
    empty = _all_null([array])
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        lengths = vector_lengths(array)
        wrong = lengths != width
        odd = np.flatnonzero(wrong if empty is None else wrong & ~empty)
        if odd.size:
            raise RowError(f"{_width_rule(width)}; it holds {lengths[odd[0]]}.", int(odd[0]))
    return vector_matrix(array, width, single), empty


def _texts(schema: Any, query: str | None, recipe: Recipe | None) -> Recipe:
    """How texts are made: of the column that was named, of the router's own, or of a usual one."""
    names = list(schema.names)
    if query is not None or recipe is None or not recipe.columns:
        found = choose_query(schema, query)
        if found is None:
            rule = "there must be a column of the query; name it with query=COLUMN"
            raise DataFileError(f"{rule}. Found {listed(names)}.")
        return found
    try:
        recipe.check(names)
    except RecipeError as error:
        remedy = "Name the column of the whole query with query=COLUMN."
        raise DataFileError(f"{error}; found the columns {listed(names)}. {remedy}") from error
    for name in recipe.columns:
        if not is_text(kind := schema.field(name).type):
            raise DataFileError(f"the query must be text; column {name!r} holds {kind}.")
    return Recipe(recipe.columns, tuple(name for name in recipe.choices if name in names))


def _all_null(columns: Sequence[Any]) -> Bad | None:
    if any(column.null_count == 0 for column in columns):
        return None
    nulls = [pc.is_null(column).to_numpy(zero_copy_only=False) for column in columns]
    empty: Bad = np.logical_and.reduce(nulls)
    return empty if empty.any() else None
