"""The router's inputs from the columns of a dataset: texts, vectors, or columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mild.artifact import LoadedRouter
from mild.data.queries import Recipe, choose_query, query_texts
from mild.data.tables import choose_columns, column_kind, is_numeric, is_text, numbers
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
        if self.kind == "columns":
            single = all(batch.schema.field(name).type == pa.float32() for name in self.columns)
            matrix = np.empty((batch.num_rows, self.width), np.float32 if single else np.float64)
            for place, name in enumerate(self.columns):
                matrix[:, place] = numbers(name, pa.chunked_array([batch.column(name)]))
            return matrix, None
        recipe = self.recipe or Recipe(self.columns)
        empty = _all_null([batch.column(name) for name in recipe.columns])
        return query_texts(pa.Table.from_batches([batch]), recipe), empty

    def check(self, schema: Any) -> None:
        """Refuse a file whose vectors do not have the router's width, as far as their type shows it."""
        kind = schema.field(self.columns[0]).type
        if self.kind == "vectors" and not pa.types.is_null(kind):
            check_vectors(self.columns[0], kind, self.width)


def choose_inputs(
    router: LoadedRouter,
    schema: Any,
    query: str | None = None,
    vectors: str | None = None,
    features: str | None = None,
) -> Inputs:
    """How a dataset of this Arrow schema is read for a router.

    ``query``, ``vectors`` and ``features`` name columns in place of those that the router was fitted on; at
    most one of them is given.
    """
    if sum(option is not None for option in (query, vectors, features)) > 1:
        raise InvalidInputError("query, vectors and features cannot go together; give one of them.")
    notes = (router.metadata.get("notes") or {}).get("query")
    recipe = None if notes is None else Recipe.from_dict(notes)
    names = list(schema.names)
    if router.text is not None and router.text.kind != "vectors":
        if vectors is not None or features is not None:
            raise InvalidInputError("this router takes texts; name their column with --query.")
        chosen = _texts(schema, query, recipe)
        return Inputs("texts", (*chosen.columns, *chosen.choices), router.n_features, chosen)
    if query is not None:
        raise InvalidInputError(
            "this router takes vectors or columns of numbers; name their column with --vectors or "
            "--features."
        )
    saved = router.feature_names if router.text is None else None
    if router.text is None and vectors is None:
        if features is not None:
            return _columns(router, schema, features)
        if saved is not None and not set(saved).isdisjoint(names):
            return _columns(router, schema, saved)
    own = recipe.vectors if recipe else None
    column: str | None
    if vectors is not None:
        column = choose_columns("vectors", [vectors], names)[0]
    else:
        column = next((name for name in (own, *VECTOR_NAMES) if name in names), None)
    if column is None and saved is not None:
        raise DataFileError(
            f"column {saved[0]!r}, a feature of this router, is missing; found {listed(names)}. Name the "
            f"columns with --features, or one of vectors with --vectors."
        )
    if column is None:
        raise DataFileError(
            f"column {own or VECTOR_NAMES[0]!r} of vectors is missing; found {listed(names)}. Name it with "
            f"--vectors."
        )
    check_vectors(column, schema.field(column).type, router.n_features)
    return Inputs("vectors", (column,), router.n_features, exact=router.text is None)


def check_vectors(name: str, kind: Any, width: int) -> None:
    """Refuse a column that cannot hold vectors of this width, as far as its type shows it.

    Vectors are lists of numbers, of fixed size or not, or float32 as fixed-size bytes, which read faster.
    """
    if pa.types.is_fixed_size_binary(kind):
        got = kind.byte_width / 4
    elif column_kind(kind) == "vectors":
        got = kind.list_size if pa.types.is_fixed_size_list(kind) else width
    else:
        raise no_vectors(name, kind)
    if got != width:
        raise DataFileError(
            f"vectors must have the {width} numbers that the router was fitted with; column {name!r} "
            f"holds {got:g} each."
        )


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
            raise RowError(
                f"vectors must have the {width} numbers that the router was fitted with; it holds "
                f"{lengths[odd[0]]}.",
                int(odd[0]),
            )
    return vector_matrix(array, width, single), empty


def _texts(schema: Any, query: str | None, recipe: Recipe | None) -> Recipe:
    names = list(schema.names)
    if query is not None or recipe is None or not recipe.columns:
        found = choose_query(schema, query)
        if found is None:
            raise DataFileError(
                f"there must be a column of the query; name it with --query. Found {listed(names)}."
            )
        return found
    for name in recipe.columns:
        if name not in names:
            raise DataFileError(
                f"column {name!r}, of which this router's queries are made, is missing; found "
                f"{listed(names)}. Name the column of the query with --query."
            )
        if not is_text(schema.field(name).type):
            raise DataFileError(
                f"the query must be text; column {name!r} holds {schema.field(name).type}."
            )
    present = tuple(name for name in recipe.choices if name in names)
    if recipe.choices and not present:
        raise DataFileError(
            f"column {recipe.columns[0]!r} is without its choices: this router learned it followed by "
            f"those in {listed(recipe.choices)}. Name the column of the whole query with --query."
        )
    return Recipe(recipe.columns, present)


def _columns(router: LoadedRouter, schema: Any, wanted: str | Sequence[str]) -> Inputs:
    columns = choose_columns("features", wanted, list(schema.names))
    if len(columns) != router.n_features:
        raise DataFileError(
            f"features must be the {router.n_features} columns that the router was fitted with; got "
            f"{len(columns)}: {listed(columns)}."
        )
    for name in columns:
        kind = schema.field(name).type
        if not is_numeric(kind):
            raise DataFileError(f"column {name!r} must hold numbers; it holds {kind}.")
    return Inputs("columns", tuple(columns), router.n_features)


def _all_null(columns: Sequence[Any]) -> Bad | None:
    if any(column.null_count == 0 for column in columns):
        return None
    empty = np.ones(len(columns[0]), bool)
    for column in columns:
        empty &= pc.is_null(column).to_numpy(zero_copy_only=False)
    return empty if empty.any() else None
