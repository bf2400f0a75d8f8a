"""What a router was trained on: hashes of its queries, its cost, and how much of a table it has seen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact import Router, fingerprint
from mild.core.arrays import BoolArray, FloatArray
from mild.data import Outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import InvalidInputError, count_noun, listed

#: Hashes of training queries that are kept: 800 KB of them.
MAX_HASHES = 100_000
#: Rows of which less than this percentage was trained on are judged without those that were.
FEW_PERCENT = 5


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
        return cls.of_hashes(query_hashes(table), most)

    @classmethod
    def of_hashes(cls, hashes: NDArray[np.uint64], most: int = MAX_HASHES) -> TrainingQueryIndex:
        """Index of hashes of queries."""
        different = np.unique(hashes)
        return cls(different[:most], different.size <= most)

    def __add__(self, other: TrainingQueryIndex) -> TrainingQueryIndex:
        hashes = np.union1d(self.hashes, other.hashes)
        complete = self.complete and other.complete and hashes.size <= MAX_HASHES
        return TrainingQueryIndex(hashes[:MAX_HASHES], complete)

    @classmethod
    def by(cls, router: Router) -> TrainingQueryIndex | None:
        """Index of what a saved router was trained on; None if it is not recorded."""
        if router.query_hashes is None:
            return None
        return cls(router.query_hashes, router.info.hashes_complete is not False)

    def seen(self, table: Outcomes) -> BoolArray:
        """Whether the query of each row (n,) is known to have been trained on."""
        return np.isin(query_hashes(table), self.hashes)

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


def without_seen(router: Router, table: Outcomes) -> tuple[Outcomes, str | None]:
    """A table without the few rows that a router was trained on, and a sentence about them.

    Where they are ``FEW_PERCENT`` of the rows or more, where there are none, and where it is not recorded
    what the router was trained on, the table is as before, and the sentence None.
    """
    index = TrainingQueryIndex.by(router)
    if index is None:
        return table, None
    overlap = index.overlap(table)
    n_seen = overlap["queries"]
    n_checked = overlap["checked"]
    if not 0 < 100 * n_seen < FEW_PERCENT * n_checked:
        return table, None
    unseen = replace(table[~index.seen(table)], findings=table.findings)
    sentence = _left_out_sentence(n_seen, n_checked)
    if n_checked < len(table):
        sentence += (
            f" {len(table) - n_checked:,} other rows could not be checked: of a large training table only "
            f"{index.hashes.size:,} hashes of queries are kept."
        )
    return unseen, sentence


def _left_out_sentence(n_seen: int, n_checked: int) -> str:
    """Which rows are left out because they were trained on, and how to keep them."""
    verb = "are"
    pronoun = "them"
    if n_seen == 1:
        verb = "is"
        pronoun = "it"
    share = f"{100 * n_seen / n_checked:.2g} %"
    return (
        f"{count_noun(n_seen, 'row')} ({share}) {verb} left out because the query was in the training "
        f"data; keep_seen=True keeps {pronoun}."
    )


def training_overlap(
    router: Router, table: Outcomes | None, costs: FloatArray, X: Any, left_out: int = 0
) -> dict[str, Any]:
    """Whether a router was fitted on these rows, and how many of their queries, if that is recorded.

    ``table`` has all rows, ``left_out`` of which are not in ``X`` because the router was trained on them.
    """
    sources = (router.info.data, router.info.table)
    fitted_on = [source.fingerprint for source in sources if source is not None]
    is_same = fingerprint(X, costs) in fitted_on
    seen = None
    if table is not None:
        is_same = is_same or table.fingerprint() in fitted_on
        index = TrainingQueryIndex.by(router)
        if index is not None:
            seen = {**index.overlap(table), "left_out": left_out}
    return {"same_data_as_fit": is_same, "seen_in_fit": seen}
