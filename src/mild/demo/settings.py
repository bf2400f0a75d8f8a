"""What the demo runs: setups, experts, cost types, seeds, and the grids that are searched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mild.datasets import COSTS, EXPERTS, SETUPS
from mild.exceptions import InvalidInputError, check_option

__all__ = ["DemoSettings", "choose"]


@dataclass(frozen=True)
class DemoSettings:
    """Everything that shapes the numbers; ``jobs`` shapes only the time.

    Attributes
    ----------
    setups, experts, costs : which of the digits scenarios
    seeds : how many splits, with random states 0, 1, ...
    alphas : L2 strengths searched for every linear method
    margin_factors : factors searched on each margin ratio of the tuned MILD
    neighbours : numbers of neighbours searched for kNN
    folds : folds of the cross-validation on the training half
    region_samples : points of the region case, half to train and half to test
    confidence : of the paired intervals
    jobs : worker processes
    """

    setups: tuple[str, ...] = tuple(SETUPS)
    experts: tuple[str, ...] = EXPERTS
    costs: tuple[str, ...] = COSTS
    seeds: int = 5
    alphas: tuple[float, ...] = (1e-5, 1e-4, 1e-3)
    margin_factors: tuple[float, ...] = (0.5, 1.0, 2.0)
    neighbours: tuple[int, ...] = (3, 5, 10, 20, 40)
    folds: int = 3
    region_samples: int = 2000
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
        for name in ("seeds", "jobs"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be at least 1; got {getattr(self, name)}.")

    @classmethod
    def quick(cls, jobs: int = 2) -> DemoSettings:
        """A look in seconds: setups I and severe, two seeds, smaller grids."""
        return cls(
            setups=("I", "severe"),
            seeds=2,
            alphas=(1e-5, 1e-4),
            neighbours=(5, 20),
            region_samples=1000,
            jobs=jobs,
        )


def choose(name: str, asked: Iterable[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The asked values in the order of ``known``, each once; all of them if none was asked."""
    values = list(asked or known)
    for value in values:
        check_option(name, value, known)
    return tuple(value for value in known if value in values)
