"""What a router was trained on: hashes of its queries, its cost, and how much of a table it has seen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact import Router, fingerprint
from mild.core.arrays import FloatArray
from mild.data import Outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import InvalidInputError, listed

#: Hashes of training queries that are kept: 800 KB of them.
MAX_HASHES = 100_000


def terms_of(router: Router) -> CostTerms | None:
    """Terms of the cost that a saved router was fitted with; None if they are not recorded."""
    cost = router.info.cost
    if cost is None:
        return None
    return CostTerms(cost.beta, cost.price_weight, cost.latency_weight)


def constant_at_fit(router: Router) -> int | None:
    """The expert of least mean loss when a saved router was fitted; None if it is not recorded."""
    name = router.info.constant
    if name not in router.experts:
        return None
    return router.experts.index(name)


@dataclass(frozen=True, eq=False)
class TrainingQueryIndex:
    """64-bit hashes of the training queries, whitespace aside: enough to recognise, not to read them.

    If there are very many, only the smallest hashes are kept. They are a fair sample, and every query
    whose hash is below the largest of them can still be checked.
    """

    hashes: NDArray[np.uint64]  # (n,) uint64 hashes, ascending, different
    complete: bool = True  # whether every training query has its hash

    @classmethod
    def of(cls, table: Outcomes, most: int = MAX_HASHES) -> TrainingQueryIndex:
        """Index of a table's queries."""
        different = np.unique(query_hashes(table))
        return cls(different[:most], different.size <= most)

    @classmethod
    def by(cls, router: Router) -> TrainingQueryIndex | None:
        """Index of what a saved router was trained on; None if it is not recorded."""
        if router.query_hashes is None:
            return None
        return cls(router.query_hashes, router.info.hashes_complete is not False)

    def overlap(self, table: Outcomes) -> dict[str, int]:
        """How many of a table's queries were trained on, of those that could be checked."""
        checked = query_hashes(table)
        if not self.complete and self.hashes.size:
            checked = checked[checked <= self.hashes[-1]]
        return {"queries": int(np.isin(checked, self.hashes).sum()), "checked": checked.size}


def query_hashes(table: Outcomes) -> NDArray[np.uint64]:
    """Hash (n,) of the query of each row."""
    if any(table.queries) or table.vectors is None:
        return text_hashes(table.queries)
    return vector_hashes(table.vectors)


def text_hashes(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Hash (n,) of each text, whitespace aside."""
    words = (" ".join(text.split()) for text in texts)
    return _hashes(text.encode("utf-8", "surrogatepass") for text in words)


def vector_hashes(vectors: Iterable[FloatArray]) -> NDArray[np.uint64]:
    """Hash (n,) of each vector."""
    return _hashes(vector.tobytes() for vector in vectors)


def _hashes(contents: Iterable[bytes]) -> NDArray[np.uint64]:
    digests = [hashlib.blake2b(content, digest_size=8).digest() for content in contents]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def with_router_experts(router: Router, table: Outcomes) -> Outcomes:
    """A table with the experts of a router only; refused if it lacks one of them."""
    experts = router.experts
    missing = [name for name in experts if name not in table.experts]
    if missing:
        raise InvalidInputError(
            f"the router was trained on {listed(experts, 6)}; the table has no {listed(missing, 6)}, only "
            f"{listed(table.experts, 6)}.",
            parameter="data",
        )
    return table.select(experts)


def training_overlap(router: Router, table: Outcomes, costs: FloatArray, X: Any) -> dict[str, Any]:
    """Whether a router was fitted on these rows, and how many of their queries, if that is recorded."""
    sources = (router.info.data, router.info.table)
    fitted_on = [source.fingerprint for source in sources if source is not None]
    is_same = fingerprint(X, costs) in fitted_on or table.fingerprint() in fitted_on
    index = TrainingQueryIndex.by(router)
    seen = None if index is None else index.overlap(table)
    return {"same_data_as_fit": is_same, "seen_in_fit": seen}


def optimism(overlap: Mapping[str, Any]) -> str | None:
    """Return a warning if a router was trained on rows that it is judged by, otherwise None.

    >>> seen = {"queries": 3, "checked": 50}
    >>> optimism({"same_data_as_fit": False, "seen_in_fit": seen})  # doctest: +ELLIPSIS
    '3 of 50 queries were in the training data, too: the figures are optimistic. Judge ...'
    """
    remedy = "Judge the router by other rows: mild tune has a holdout, and tables have split."
    if overlap["same_data_as_fit"]:
        return f"the router was fitted on these rows: the figures are optimistic. {remedy}"
    seen = overlap["seen_in_fit"]
    if not seen or not seen["queries"]:
        return None
    return (
        f"{seen['queries']:,} of {seen['checked']:,} queries were in the training data, too: the "
        f"figures are optimistic. {remedy}"
    )
