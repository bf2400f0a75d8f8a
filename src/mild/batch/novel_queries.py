"""How many of the first queries of a stream or data set are novel to a router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mild.artifact import Router
from mild.core.arrays import FloatArray
from mild.errors import count_noun

#: Queries that are checked; to check all of them would take as long as to route them.
SAMPLE = 1000
# Of queries like those of the training, 1 % is novel. There are many from this share and this number on.
MANY_SHARE = 0.1
MANY = 5


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
        """Count the novel ones among the first of some texts; none is checked if the router cannot tell.

        Parameters
        ----------
        router : Router
            The router that decides them.
        texts : sequence
            Texts or vectors.
        X : ndarray of shape (n, d)
            Their features.
        """
        if router.novelty is None or not len(texts):
            return cls()
        sample = texts[:SAMPLE]
        novel = router.is_novel(sample, X[: len(sample)])
        return cls(len(sample), int(novel.sum()))

    def __add__(self, other: NovelQueries) -> NovelQueries:
        return NovelQueries(self.n_checked + other.n_checked, self.n_novel + other.n_novel)

    @property
    def sentence(self) -> str | None:
        """A warning if many of the queries are novel; otherwise None."""
        if self.n_novel < max(MANY, MANY_SHARE * self.n_checked):
            return None
        first = count_noun(self.n_checked, "query", "queries")
        return (
            f"{self.n_novel:,} of the first {first} are novel: unlike the training queries. Their choices "
            "are guesses."
        )
