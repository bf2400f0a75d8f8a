"""How many of the first queries of a stream or data set are novel to a router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mild.artifact import Router
from mild.core.arrays import FloatArray
from mild.errors import counted

#: Queries that are checked; to check all of them would take as long as to route them.
SAMPLE = 1000
# Of queries like those of the training, 1 % is novel. From this share, and this number, on there are many.
MANY_SHARE, MANY = 0.1, 5


@dataclass(frozen=True)
class NovelQueries:
    """Queries that were checked, and those of them that are novel.

    >>> NovelQueries(200, 4).sentence is None
    True
    >>> NovelQueries(200, 90).sentence
    '90 of the first 200 queries are novel: unlike the training queries. Their choices are guesses.'
    """

    n_checked: int = 0
    n_novel: int = 0

    @classmethod
    def of(cls, router: Router, texts: Sequence[Any], X: FloatArray) -> NovelQueries:
        """Count among texts with their features; nothing is checked if the router cannot tell."""
        if router.novelty is None or not len(texts):
            return cls()
        first = texts[:SAMPLE]
        novel = router.is_novel(first, X[: len(first)])
        return cls(len(first), int(novel.sum()))

    def __add__(self, other: NovelQueries) -> NovelQueries:
        return NovelQueries(self.n_checked + other.n_checked, self.n_novel + other.n_novel)

    @property
    def sentence(self) -> str | None:
        """What to know where many are novel; None elsewhere."""
        if self.n_novel < max(MANY, MANY_SHARE * self.n_checked):
            return None
        first = counted(self.n_checked, "query", "queries")
        return (
            f"{self.n_novel:,} of the first {first} are novel: unlike the training queries. Their choices "
            "are guesses."
        )
