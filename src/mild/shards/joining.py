"""Tables of outcomes of the same shape, one under the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mild.arrays import FloatArray
from mild.tables import OutcomeTable

__all__ = ["joined"]


def joined(tables: Sequence[OutcomeTable]) -> OutcomeTable:
    """All rows in one table; experts and columns are those of the first."""
    first = tables[0]
    if len(tables) == 1:
        return first

    def stacked(name: str) -> FloatArray | None:
        parts = [getattr(table, name) for table in tables]
        return None if parts[0] is None else np.concatenate(parts)

    scores = stacked("scores")
    return replace(
        first,
        queries=[text for table in tables for text in table.queries],
        scores=first.scores if scores is None else scores,
        prices=stacked("prices"),
        latencies=stacked("latencies"),
        vectors=stacked("vectors"),
        columns=pa.concat_tables([table.columns for table in tables]),
    )
