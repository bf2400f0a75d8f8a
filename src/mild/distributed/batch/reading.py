"""From columns of a dataset to what a router takes: texts, vectors, or numbers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mild.artifact import LoadedRouter
from mild.data.arrow import is_numeric, numbers
from mild.data.columns import choose_columns
from mild.data.queries import choose_query, is_text, query_texts
from mild.data.recipe import Recipe
from mild.data.vectors import VECTOR_NAMES
from mild.distributed.batch.vectors import check_vectors, vector_rows
from mild.errors import DataFileError, InvalidInputError, listed

__all__ = ["Reading", "choose_reading"]

Bad = NDArray[np.bool_]


@dataclass(frozen=True)
class Reading:
    """Which columns are read, and what is made of them.

    Attributes
    ----------
    kind : "texts", "vectors" or "columns"
    columns : to be read
    width : features of the router
    recipe : how texts are made; None for others
    exact : whether vectors of double precision keep it; those of a table are learned from as float32
    """

    kind: str
    columns: tuple[str, ...]
    width: int
    recipe: Recipe | None = None
    exact: bool = False

    def inputs(self, batch: Any) -> tuple[Any, Bad | None]:
        """What the router takes of a record batch, and which rows hold nothing; None if all do."""
        if self.kind == "vectors":
            column = batch.column(self.columns[0])
            return vector_rows(column, self.width, not (self.exact and _is_double(column.type)))
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
        """Refuse a file whose vectors are not of the router's width, as far as their type tells."""
        kind = schema.field(self.columns[0]).type
        if self.kind == "vectors" and not pa.types.is_null(kind):
            check_vectors(self.columns[0], kind, self.width)


def choose_reading(
    router: LoadedRouter,
    schema: Any,
    query: str | None = None,
    vectors: str | None = None,
    features: str | None = None,
) -> Reading:
    """How a dataset of this schema is read for a router.

    Parameters
    ----------
    router : what ``mild.artifact.load`` gave; it knows the columns that it learned from
    schema : Arrow schema of the dataset
    query, vectors, features : columns of the text, of vectors, of numbers, in place of those; at most one
    """
    if sum(option is not None for option in (query, vectors, features)) > 1:
        raise InvalidInputError("query, vectors and features cannot go together; give one of them.")
    notes = (router.metadata.get("notes") or {}).get("query")
    recipe = None if notes is None else Recipe.from_dict(notes)
    if router.text is not None and router.text.kind != "vectors":
        _refuse(vectors or features, "texts", "--query")
        chosen = _texts(schema, query, recipe)
        columns = (*chosen.columns, *chosen.choices)
        return Reading("texts", columns, router.n_features, chosen)
    _refuse(query, "vectors or columns of numbers", "--vectors or --features")
    if router.text is None and vectors is None:
        wanted = features or _present(router.feature_names, schema.names)
        if wanted is not None:
            return _columns(router, schema, wanted)
    own = recipe.vectors if recipe else None
    column = _vector_column(schema, vectors, own)
    if column is None:
        raise DataFileError(_no_vectors(router, schema.names, own))
    check_vectors(column, schema.field(column).type, router.n_features)
    return Reading("vectors", (column,), router.n_features, exact=router.text is None)


def _texts(schema: Any, query: str | None, recipe: Recipe | None) -> Recipe:
    names = list(schema.names)
    if query is None and recipe is not None and recipe.columns:
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
    found = choose_query(schema, query)
    if found is None:
        raise DataFileError(
            f"there must be a column of the query; name it with --query. Found {listed(names)}."
        )
    return found


def _columns(router: LoadedRouter, schema: Any, wanted: str | Sequence[str]) -> Reading:
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
    return Reading("columns", tuple(columns), router.n_features)


def _present(names: Sequence[str] | None, columns: Sequence[str]) -> list[str] | None:
    """The saved names of the features where the dataset has any of them."""
    known = set(columns)
    return list(names) if names is not None and any(name in known for name in names) else None


def _vector_column(schema: Any, wanted: str | None, own: str | None) -> str | None:
    names = list(schema.names)
    if wanted is not None:
        return choose_columns("vectors", [wanted], names)[0]
    usual = [own, *VECTOR_NAMES] if own else VECTOR_NAMES
    return next((name for name in usual if name in names), None)


def _no_vectors(router: LoadedRouter, names: Sequence[str], own: str | None) -> str:
    if router.text is None and router.feature_names is not None:
        missing = next(name for name in router.feature_names if name not in names)
        return (
            f"column {missing!r}, a feature of this router, is missing; found {listed(names)}. Name the "
            f"columns with --features, or one of vectors with --vectors."
        )
    wanted = own or VECTOR_NAMES[0]
    return (
        f"column {wanted!r} of vectors is missing; found {listed(names)}. Name it with --vectors."
    )


def _refuse(option: str | None, takes: str, remedy: str) -> None:
    if option is not None:
        raise InvalidInputError(f"this router takes {takes}; name their column with {remedy}.")


def _is_double(kind: Any) -> bool:
    value = getattr(kind, "value_type", kind)
    return not (pa.types.is_float32(value) or pa.types.is_float16(value)) and not (
        pa.types.is_fixed_size_binary(kind)
    )


def _all_null(columns: Sequence[Any]) -> Bad | None:
    if any(column.null_count == 0 for column in columns):
        return None
    empty = np.ones(len(columns[0]), bool)
    for column in columns:
        empty &= pc.is_null(column).to_numpy(zero_copy_only=False)
    return empty if empty.any() else None
