"""What the demo runs: setups, experts, cost types, seeds, and the grids that are searched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from mild.data.datasets import COSTS, EXPERTS, SETUPS
from mild.errors import InvalidInputError, check_option

__all__ = ["DemoSettings"]


@dataclass(frozen=True)
class DemoSettings:
    """Everything that shapes the numbers; ``jobs`` shapes only the time.

    Attributes
    ----------
    setups, experts, costs : which of the digits scenarios
    seeds : how many splits, with random states 0, 1, ...
    alphas : L2 strengths searched for every linear method
    margin_factors : factors on the margins of the tuned MILD: all combinations of the ratios to the
        first where they are at most 81, else one margin at a time
    neighbours : numbers of neighbours searched for kNN
    folds : folds of the cross-validation on the training half
    region_samples : points of the region case, half to train and half to test
    tail_draws : repetitions of the case with a long tail of experts
    confidence : of the paired intervals
    jobs : worker processes
    """

    setups: tuple[str, ...] = tuple(SETUPS)
    experts: tuple[str, ...] = EXPERTS
    costs: tuple[str, ...] = COSTS
    seeds: int = 5
    alphas: tuple[float, ...] = (1e-5, 1e-4, 1e-3)
    margin_factors: tuple[float, ...] = (0.5, 0.7, 1.0, 1.4, 2.0)
    neighbours: tuple[int, ...] = (3, 5, 10, 20, 40)
    folds: int = 3
    region_samples: int = 2000
    tail_draws: int = 10
    confidence: float = 0.95
    jobs: int = 2

    def __post_init__(self) -> None:
        for name, chosen, known in (
            ("setups", self.setups, tuple(SETUPS)),
            ("experts", self.experts, EXPERTS),
            ("costs", self.costs, COSTS),
        ):
            if not chosen:
                raise InvalidInputError(f"{name} must name at least one of {', '.join(known)}.")
            for value in chosen:
                check_option(name, value, known)
        for name, least in (("seeds", 1), ("tail_draws", 2), ("jobs", 1)):
            if getattr(self, name) < least:
                raise InvalidInputError(
                    f"{name} must be at least {least}; got {getattr(self, name)}."
                )

    def changed(
        self,
        setups: Iterable[str] | None = None,
        experts: Iterable[str] | None = None,
        costs: Iterable[str] | None = None,
        seeds: int | None = None,
        jobs: int | None = None,
    ) -> DemoSettings:
        """The same with what is given in place of what was; names in their usual order, once each.

        Examples
        --------
        >>> DemoSettings().changed(setups=["severe", "I"], seeds=3).setups
        ('I', 'severe')
        """
        changes: dict[str, Any] = {}
        for name, asked, known in (
            ("setups", setups, tuple(SETUPS)),
            ("experts", experts, EXPERTS),
            ("costs", costs, COSTS),
        ):
            values = list(asked or ())
            for value in values:
                check_option(name, value, known)
            if values:
                changes[name] = tuple(value for value in known if value in values)
        if seeds is not None:
            changes["seeds"] = seeds
        if jobs is not None:
            changes["jobs"] = jobs
        return replace(self, **changes)

    @classmethod
    def quick(cls) -> DemoSettings:
        """A look in seconds: setups I and severe, two seeds, smaller grids."""
        return cls(
            setups=("I", "severe"),
            seeds=2,
            alphas=(1e-5, 1e-4),
            margin_factors=(0.5, 1.0, 2.0),
            neighbours=(5, 20),
            region_samples=1000,
            tail_draws=3,
        )
