"""Hashes of the queries that a router was trained on: enough to recognise them, not to read them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.artifact import LoadedRouter
from mild.data import OutcomeTable

__all__ = ["MOST_MARKS", "Overlap", "TrainingQueryIndex"]

Marks: TypeAlias = NDArray[np.uint64]

#: Marks that are kept: 800 KB of them.
MOST_MARKS = 100_000


@dataclass(frozen=True)
class Overlap:
    """How many of some queries were trained on.

    Attributes
    ----------
    seen : queries that were in the training table
    checked : queries for which that can be told; fewer than all if not every mark was kept
    """

    seen: int
    checked: int

    @property
    def share(self) -> float:
        """Share of the queries that were seen."""
        return self.seen / self.checked if self.checked else 0.0


@dataclass(frozen=True, eq=False)
class TrainingQueryIndex:
    """64 bits of a hash for each training query, whitespace aside; of very many, the smallest.

    Keeping the smallest marks is a fair sample of the queries, and for any other query below the
    largest of them it is known whether it was there.

    Attributes
    ----------
    marks : (n,) uint64, ascending, different
    complete : whether every training query has its mark

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> def table(*texts):
    ...     ones = [1] * len(texts)
    ...     return read_outcomes(pa.table({"prompt": texts, "correct__s": ones, "correct__l": ones}))
    >>> TrainingQueryIndex.of(table("one", "two")).overlap(table(" two ", "three"))
    Overlap(seen=1, checked=2)
    """

    marks: Marks
    complete: bool = True

    @classmethod
    def of(cls, table: OutcomeTable, most: int = MOST_MARKS) -> TrainingQueryIndex:
        """Marks of a table's queries."""
        marks = np.unique(_marks(table))
        return cls(marks[:most], marks.size <= most)

    @classmethod
    def by(cls, router: LoadedRouter) -> TrainingQueryIndex | None:
        """What a router was trained on; None if that was not written down."""
        notes = router.metadata.get("notes") or {}
        if router.marks is None:
            return None
        return cls(router.marks, bool(notes.get("marks_complete", True)))

    def overlap(self, table: OutcomeTable) -> Overlap:
        """How many of a table's queries are among the seen."""
        asked = _marks(table)
        if not self.complete and self.marks.size:
            asked = asked[asked <= self.marks[-1]]
        return Overlap(int(np.isin(asked, self.marks).sum()), asked.size)


def _marks(table: OutcomeTable) -> Marks:
    if any(table.queries) or table.vectors is None:
        contents: Sequence[Any] = table.queries
        encoded = (" ".join(text.split()).encode("utf-8", "surrogatepass") for text in contents)
    else:
        encoded = (row.tobytes() for row in table.vectors)
    digests = b"".join(hashlib.blake2b(content, digest_size=8).digest() for content in encoded)
    return np.frombuffer(digests, "<u8").astype(np.uint64)
