"""Cells: one training each, in an order in which data and experts are loaded once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mild.reproduce.experts import PEOPLE, Setup
from mild.reproduce.images.protocol import Protocol, recipe
from mild.reproduce.methods import Method
from mild.reproduce.requests import Request

__all__ = ["Cell", "plan"]


@dataclass(frozen=True)
class Cell:
    """One router to train: everything that its result depends on, but for the data themselves.

    ``expert_seed`` and ``expert_protocol`` are None for synthetic experts, whose guesses are drawn
    anew with every seed.
    """

    table: str
    dataset: str
    setup: Setup
    experts: str
    cost: str
    scale: str
    holdout: bool
    expert_seed: int | None
    protocol: Protocol
    expert_protocol: Protocol | None
    method: Method
    seed: int
    ambiguous: float | None = None
    validation: bool = False

    def as_dict(self, data: str, **more: Any) -> dict[str, Any]:
        """The cell of a record; ``data`` is the digest of the images."""
        experts = self.expert_protocol
        # Left out where they are as ever: cells of older results keep their keys.
        if self.ambiguous is not None:
            more["ambiguous"] = self.ambiguous
        if self.validation:
            more["validation"] = True
        return {
            "table": self.table,
            "dataset": self.dataset,
            "data": data,
            "setup": self.setup.name,
            "coverage": list(self.setup.coverage),
            "experts": self.experts,
            "cost": self.cost,
            "scale": self.scale,
            "holdout": self.holdout,
            "expert_seed": self.expert_seed,
            "expert_protocol": None if experts is None else experts.as_dict(),
            "protocol": self.protocol.as_dict(),
            "method": self.method.as_dict(),
            "seed": self.seed,
            **recipe(),
            **more,
        }

    @property
    def title(self) -> str:
        """The cell in a few words."""
        setup = "" if self.experts == "people" else f" {self.setup.name}"
        return (
            f"{self.dataset}{setup}, {self.experts} experts, {self.cost}, {self.method.label}, "
            f"seed {self.seed}"
        )


def plan(request: Request) -> list[Cell]:
    """All cells of a request: methods of one seed follow one another, so that pairs are there early."""
    setups = (Setup(PEOPLE, ()),) if request.with_people else request.setups
    return [
        Cell(
            table=request.table,
            dataset=dataset,
            setup=setup,
            experts=experts,
            cost=cost,
            scale=request.scale,
            holdout=request.holdout and experts == "real",
            expert_seed=None if experts == "synthetic" else request.expert_seed,
            protocol=request.protocol,
            expert_protocol=None
            if experts == "synthetic"
            else request.expert_protocol or request.protocol,
            method=method,
            seed=seed,
            ambiguous=request.ambiguous,
            validation=request.validation,
        )
        for dataset in request.datasets
        for experts in request.experts
        for setup in setups
        for seed in range(request.seeds)
        for cost in request.costs
        for method in request.methods
    ]
