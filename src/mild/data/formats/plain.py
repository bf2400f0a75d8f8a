"""Plain: columns that the caller names."""

from __future__ import annotations

from typing import Any

from mild.data.columns import choose_columns
from mild.data.formats.layout import CORRECT, SCORE, Format, Layout, Named, as_pairs
from mild.errors import DataFileError, listed

__all__ = ["PLAIN", "named_scores"]


def named_scores(schema: Any, scores: Named) -> Layout:
    """Score columns by name or pattern, or as ``expert=column``; experts are named after them.

    Examples
    --------
    >>> import pyarrow as pa
    >>> schema = pa.schema([(name, pa.float64()) for name in ("id", "acc_a", "acc_b")])
    >>> named_scores(schema, "acc_*").scores
    {'acc_a': 'acc_a', 'acc_b': 'acc_b'}
    >>> named_scores(schema, {"small": "acc_a", "large": "acc_b"}).scores
    {'small': 'acc_a', 'large': 'acc_b'}
    """
    names = list(schema.names)
    if scores is None:
        raise DataFileError(
            f"plain columns must be named: --scores NAMES, with --prices and --latencies where there "
            f"are any; found {listed(names)}.",
            parameter="scores",
        )
    pairs = as_pairs(scores)
    if pairs is not None:
        choose_columns("scores", list(pairs.values()), names)
        return Layout("plain", pairs)
    columns = choose_columns("scores", scores if isinstance(scores, str) else list(scores), names)
    experts = {_expert(column): column for column in columns}
    if len(experts) < len(columns):
        raise DataFileError(
            f"each expert must have one score column; got {listed(columns)} for {listed(list(experts))}.",
            parameter="scores",
        )
    return Layout("plain", experts)


def _expert(column: str) -> str:
    prefixes = (prefix for prefix in (CORRECT, SCORE) if column.startswith(prefix))
    return column.removeprefix(next(prefixes, "")) or column


# It has no marks of its own: it is read where scores are named.
PLAIN = Format("plain", "plain columns", "plain columns (named with --scores)", lambda schema: None)
