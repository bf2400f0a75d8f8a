"""Tables of outcomes of the same shape, one under the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mild.core.arrays import FloatArray
from mild.data import OutcomeTable
from mild.errors import DataFileError

__all__ = ["joined"]


def joined(tables: Sequence[OutcomeTable]) -> OutcomeTable:
    """All rows in one table; experts and columns are those of the first."""
    first = tables[0]
    if len(tables) == 1:
        return first

    def stacked(name: str) -> FloatArray | None:
        parts = [getattr(table, name) for table in tables]
        if parts[0] is None:
            return None
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise DataFileError(
                f"vectors must all have the same length; some have {widths[0]} and others {widths[-1]} "
                f"numbers."
            )
        return np.concatenate(parts)

    scores = stacked("scores")
    return replace(
        first,
        queries=[text for table in tables for text in table.queries],
        scores=first.scores if scores is None else scores,
        prices=stacked("prices"),
        latencies=stacked("latencies"),
        vectors=stacked("vectors"),
        columns=pa.concat_tables([table.columns for table in tables]),
        # Rows of several files: no number in one of them says which row it is.
        places=None,
    )
