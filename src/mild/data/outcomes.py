"""Queries, several experts, who was right, what each cost: a table of outcomes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, IntArray
from mild.data.findings import Finding
from mild.data.recipe import Recipe
from mild.errors import DataFileError, InvalidInputError, OptionError, listed

if TYPE_CHECKING:
    from mild.data.formats.layout import Named

__all__ = ["FORMS", "OutcomeTable", "is_outcome_table", "read_outcomes"]

FORMS = ("wide", "routerbench", "routellm", "llmrouter", "plain")


@dataclass(frozen=True, eq=False)
class OutcomeTable:
    """What each expert made of each query.

    Attributes
    ----------
    queries : n_samples texts; empty texts where the table has vectors and no query
    expert_names : n_experts different names
    scores : (n_samples, n_experts) float64 in [0, 1], NaN where an expert was never asked; every row
        has a score
    prices : the same in dollars per query, NaN where unknown; None if the table has none
    latencies : the same in seconds, to the nanosecond; None if the table has none
    columns : Arrow table of all other columns, same rows
    vectors : (n_samples, n_features) float32, or None
    form : shape of the source, one of FORMS
    explanation : how the source was read, in one sentence
    findings : what is odd about it
    recipe : which columns make the query, and how; None if that is not known
    places : (n_samples,) numbers of the rows in their file; None where they are those of the table
    """

    queries: list[str]
    expert_names: list[str]
    scores: FloatArray
    prices: FloatArray | None
    latencies: FloatArray | None
    columns: Any
    vectors: FloatArray | None = None
    form: str = "wide"
    explanation: str = ""
    findings: tuple[Finding, ...] = ()
    recipe: Recipe | None = None
    places: IntArray | None = None

    @property
    def rows(self) -> int:
        """Number of queries."""
        return len(self.queries)

    def take(self, rows: ArrayLike) -> OutcomeTable:
        """Some of the rows, by number or by a mask, in that order; findings count for the whole only."""
        index = np.asarray(rows)
        if index.dtype == np.bool_:
            index = np.flatnonzero(index)
        index = index.astype(np.intp, copy=False)

        def picked(values: FloatArray | None) -> FloatArray | None:
            return None if values is None else values[index]

        return replace(
            self,
            queries=[self.queries[i] for i in index.tolist()],
            scores=self.scores[index],
            prices=picked(self.prices),
            latencies=picked(self.latencies),
            columns=self.columns.take(index),
            vectors=picked(self.vectors),
            findings=(),
            places=index if self.places is None else self.places[index],
        )

    def column(self, name: str) -> list[Any]:
        """Values of one of the other columns."""
        if name not in self.columns.column_names:
            raise DataFileError(
                f"there must be a column {name!r}; found {listed(self.columns.column_names)}."
            )
        values: list[Any] = self.columns[name].to_pylist()
        return values

    def place(self, row: int) -> int:
        """Number, in the file, of one of the rows: what messages name it by."""
        return row if self.places is None else int(self.places[row])

    def fingerprint(self) -> str:
        """SHA-256 over queries, experts, scores, prices, latencies and vectors, as 64 digits.

        The same outcomes have the same one whatever file they came from; other columns do not count.
        """
        digest = hashlib.sha256()
        for texts in (self.expert_names, self.queries):
            digest.update(f"{len(texts)} texts;".encode())
            for text in texts:
                encoded = text.encode()
                digest.update(b"%d:" % len(encoded) + encoded)
        for name in ("scores", "prices", "latencies", "vectors"):
            values = getattr(self, name)
            digest.update(f"{name} {None if values is None else values.shape};".encode())
            if values is not None:
                # One NaN is like another, and so are the zeros.
                plain = np.where(np.isnan(values), np.nan, values + 0.0)
                digest.update(plain.astype(plain.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()


def read_outcomes(
    source: Any,
    *,
    form: str | None = None,
    query: str | Sequence[str] | None = None,
    experts: str | Sequence[str] | None = None,
    scores: Named = None,
    prices: Named = None,
    latencies: Named = None,
    vectors: str | None = None,
    choices: bool = True,
) -> OutcomeTable:
    """Read a table of outcomes in one of the field's shapes.

    Parameters
    ----------
    source : path of a .parquet, .csv, .jsonl or .ndjson file, or a frame: anything with
        ``__arrow_c_stream__`` (pandas, polars, DuckDB, pyarrow)
    form : one of FORMS; None finds out, and asks where two shapes fit or none

        - "wide": ``correct__<model>`` (0, 1) or ``score__<model>`` ([0, 1]; it goes first where both
          are there), ``cost__<model>`` in dollars, ``latency_ms__<model>``
        - "routerbench": ``<model>`` holds the score, ``<model>|total_cost`` the dollars
        - "routellm": a query, and every true-or-false column is a model
        - "llmrouter": a row per query and model, with ``model_name`` and ``performance`` and perhaps
          ``cost`` and ``response_time``
        - "plain": the columns named by ``scores``
    query : column of the query, or several to be joined by line breaks; None takes the first of
        prompt, question, query, text, instruction, input that is text
    experts : experts to keep, in this order, by name, short name or shell pattern
    scores, prices, latencies : columns, instead of the usual ones: names and shell patterns separated
        by commas, a list, or expert -> column (``"large=acc_large,small=acc_small"``). Latencies are
        seconds unless ``ms`` is a part of the column's name
    vectors : column of lists of numbers, or of float32 as fixed-size binary; None takes embedding,
        embeddings, vector or vectors
    choices : whether the choices of a column ``question``, which stand in columns A, B, C, ... or in
        ``options`` or ``choices``, are set behind it, one per line as ``A. ...``: a router must see what
        the experts saw

    Raises
    ------
    DataFileError
        Unreadable, no shape or several, no query, scores outside [0, 1], negative prices.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["2 + 2?", "Who wrote Faust?"],
    ...     "correct__small": [1, 0],
    ...     "correct__large": [1, None],
    ... }))
    >>> table.explanation
    "read as wide: 2 experts, 2 queries; the query is column 'prompt'."
    >>> table.scores
    array([[ 1.,  1.],
           [ 0., nan]])
    """
    # pyarrow is slow to import, and much of mild does without.
    from mild.data.reading import build_outcomes
    from mild.data.sources import load_file, load_frame

    is_path = isinstance(source, (str, os.PathLike))
    wanted = Wanted(form, query, experts, scores, prices, latencies, vectors, choices)
    try:
        table = load_file(Path(source), wanted.texts()) if is_path else load_frame(source)
        return build_outcomes(table, wanted)
    except (DataFileError, InvalidInputError) as error:
        if not is_path or isinstance(error, OptionError):
            raise
        raise DataFileError(f"{Path(source)}: {error}") from error


@dataclass(frozen=True)
class Wanted:
    """What the caller of ``read_outcomes`` asked for."""

    form: str | None
    query: str | Sequence[str] | None
    experts: str | Sequence[str] | None
    scores: Named
    prices: Named
    latencies: Named
    vectors: str | None
    choices: bool

    def texts(self) -> set[str]:
        """Columns that are text whatever they look like."""
        from mild.data.formats.layout import as_pairs
        from mild.data.queries import TEXTS

        named: set[str] = set()
        for columns in (self.scores, self.prices, self.latencies):
            pairs = as_pairs(columns)
            if pairs is not None:
                named.update(pairs.values())
            elif columns is not None:
                named.update(columns.split(",") if isinstance(columns, str) else columns)
        query = [self.query, *self.query.split(",")] if isinstance(self.query, str) else self.query
        return {*TEXTS, *(name.strip() for name in query or ())} - {name.strip() for name in named}


def is_outcome_table(path: str | os.PathLike[str]) -> bool:
    """Whether a file looks like a table of outcomes, by its first lines or its schema.

    Otherwise it may be one of features and costs, for ``read_matrices``. A file that cannot be read counts
    as one of outcomes: their reader says best what is wrong with it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.csv"
    ...     _ = file.write_text("length,cost__small,cost__large\\n3,0,1\\n")
    ...     before = is_outcome_table(file)
    ...     _ = file.write_text("prompt,correct__small,correct__large\\nwhy?,0,1\\n")
    ...     before, is_outcome_table(file)
    (False, True)
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if not file.is_file() or suffix not in (".parquet", ".csv", ".jsonl", ".ndjson"):
        return False
    if suffix in (".jsonl", ".ndjson"):
        # Features and costs are never kept as JSON lines.
        return True
    from mild.data.formats import possible_forms
    from mild.data.sources import peek_schema

    schema = peek_schema(file)
    return schema is None or (bool(possible_forms(schema)) and not _has_other_costs(schema))


def _has_other_costs(schema: Any) -> bool:
    """Whether there are costs, but of none of the scored: then ``score__bm25`` is a feature."""
    from mild.data.queries import usual_query

    experts: dict[str, set[str]] = {}
    for name in schema.names:
        prefix, mark, expert = name.partition("__")
        if mark:
            experts.setdefault(prefix, set()).add(expert)
    scored = experts.get("correct", set()) | experts.get("score", set())
    priced = experts.get("cost", set())
    return usual_query(schema) is None and bool(priced) and bool(scored) and not scored & priced
