"""Cells of the experiments with language models: one method, setting and split each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.arrays import FloatArray, IntArray
from mild.reproduce.llm.costs import (
    Noise,
    noisy_costs,
    query_lengths,
    skewed_prices,
)
from mild.reproduce.llm.requests import LLMRequest
from mild.reproduce.llm.trio import SETUP, is_paper_trio
from mild.reproduce.methods import Method
from mild.reproduce.records import MODELS
from mild.splits import Split, bundles, random_splits
from mild.tables.duplicates import duplicate_groups

__all__ = ["Cell", "Setting", "Settings", "plan"]


@dataclass(frozen=True)
class Cell:
    """One training: everything but the table and the features, which all cells share."""

    experiment: str
    cost: str
    noise: Noise | None
    method: Method
    seed: int

    @property
    def title(self) -> str:
        """The cell in a few words."""
        noise = f", {self.noise.kind} noise" if self.noise else ""
        return f"{self.experiment}, {self.cost}{noise}, {self.method.label}, seed {self.seed}"


def plan(request: LLMRequest) -> list[Cell]:
    """All cells: methods of one split follow one another; noise has its clean twin before it."""
    noises: tuple[Noise | None, ...] = (None,)
    if request.experiment == "noise":
        noises = (None, request.noise)
    return [
        Cell(request.experiment, cost, noise, method, seed)
        for seed in range(request.seeds)
        for cost in request.asked_costs
        for noise in noises
        for method in request.asked_methods
    ]


def _groups(queries: Sequence[str]) -> IntArray:
    """Rows of one text share a number; a table of vectors has no texts, and each row is alone."""
    if not any(query.strip() for query in queries):
        return np.arange(len(queries))
    return bundles(duplicate_groups(queries))


@dataclass(frozen=True, eq=False)
class Setting:
    """One routing problem on one split.

    Attributes
    ----------
    split : rows to train on and rows to test on
    train, test : costs (n, p) of those rows; the former with noise where there is any
    largest : largest possible cost, or the largest that noise made
    """

    split: Split
    train: FloatArray
    test: FloatArray
    largest: float


class Settings:
    """Costs and splits of a request."""

    def __init__(self, request: LLMRequest) -> None:
        self.request = request
        self.errors = 1.0 - request.table.scores
        self.groups: IntArray = _groups(request.table.queries)
        self.splits = random_splits(self.groups, request.seeds, request.test_share)
        self.added: float | None = None
        self._prices: FloatArray = np.tile(request.beta, (len(self.errors), 1))
        if request.experiment == "extreme":
            lengths = query_lengths(request.table.queries)
            self._prices, self.added = skewed_prices(
                self.errors, request.beta, lengths, request.skew.share
            )

    def setting(self, cell: Cell) -> Setting:
        """The problem of a cell."""
        costs = self.errors if cell.cost == "error" else self.errors + self._prices
        largest = 1.0 if cell.cost == "error" else 1.0 + float(self._prices.max())
        split = self.splits[cell.seed]
        train = costs[split.train]
        if cell.noise is not None:
            train = noisy_costs(train, cell.noise, cell.seed)
            largest = max(largest, float(train.max()))
        return Setting(split, train, costs[split.test], largest)

    def entry(self, cell: Cell, protocol: dict[str, Any]) -> dict[str, Any]:
        """The cell of a record."""
        request = self.request
        names = request.table.expert_names
        entry: dict[str, Any] = {
            "table": cell.experiment,
            "dataset": request.name,
            "data": request.table.fingerprint()[:16],
            "setup": SETUP if is_paper_trio(names) else "other",
            "coverage": [round(float(value), 4) for value in request.table.scores.mean(axis=0)],
            "experts": MODELS,
            "models": list(names),
            "cost": cell.cost,
            "beta": list(request.beta) if cell.cost == "cost" else None,
            "noise": None if cell.noise is None else asdict(cell.noise),
            "skew": None,
            "holdout": False,
            "expert_seed": None,
            "test_share": request.test_share,
            "protocol": protocol,
            "method": cell.method.as_dict(),
            "seed": cell.seed,
        }
        if self.added is not None and cell.cost == "cost":
            entry["skew"] = {"share": request.skew.share, "added": round(self.added, 6)}
        return entry

    @property
    def note(self) -> str:
        """What a reader of results must know about the rows."""
        n = len(self.errors)
        repeated = n - len(np.unique(self.groups))
        aside = f", {repeated:,} of which repeat another's text" if repeated else ""
        return f"{n:,} queries{aside}; a split never has one text on both sides"
