"""Timing: interleaved repeats, medians and spread; and what the numbers were measured on."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

__all__ = ["Report", "Timing", "environment", "interleave", "seconds"]


@dataclass(frozen=True)
class Timing:
    """Repeated seconds of one contender."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        low, high = min(self.seconds), max(self.seconds)
        scale, unit = (1e6, "µs") if self.median < 1e-3 else (1.0, "s")
        return f"{self.median * scale:.3g} {unit} ({low * scale:.3g} to {high * scale:.3g})"


@dataclass
class Report:
    """A table of results: what, figure, bar, met or not.

    ``contenders`` are what the figure shows, the first of them ours: one value a round, in ``unit``.
    """

    title: str
    notes: list[str] = field(default_factory=list)
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)
    unit: str = "seconds"
    contenders: dict[str, list[float]] = field(default_factory=dict)

    def add(self, what: str, figure: str, bar: str = "", met: bool | None = None) -> None:
        self.rows.append((what, figure, bar, "" if met is None else "yes" if met else "**no**"))

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", *(f"{note}\n" for note in self.notes)]
        lines += ["| what | measured | bar | met |", "|---|---|---|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def draw(self, path: Path) -> None:
        """The contenders as multiples of ours: medians, with the range of the rounds."""
        from matplotlib.figure import Figure

        names = list(self.contenders)[::-1]
        ours = statistics.median(next(iter(self.contenders.values())))
        figure = Figure(figsize=(7, 0.9 + 0.4 * len(names)), layout="constrained")
        axes = figure.subplots()
        for place, name in enumerate(names):
            values = [value / ours for value in self.contenders[name]]
            middle = statistics.median(values)
            ends = [[middle - min(values)], [max(values) - middle]]
            color = "tab:orange" if place == len(names) - 1 else "tab:gray"
            axes.barh(place, middle, xerr=ends, color=color, capsize=3)
            axes.text(max(values), place, f"  {middle:.3g} x", va="center")
        axes.set_yticks(range(len(names)), names)
        axes.margins(x=0.12)
        axes.set_xlabel(f"{self.unit}, as a multiple of {names[-1]}")
        axes.spines[["top", "right"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleave(contenders: dict[str, Callable[[], float]], repeats: int) -> dict[str, Timing]:
    """Each contender in turn, ``repeats`` times: what disturbs one disturbs all."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            taken[name].append(contender())
    return {name: Timing(tuple(values)) for name, values in taken.items()}


def ratio_spread(a: Timing, b: Timing) -> str:
    """Median of the per-round ratios a / b, with their range."""
    ratios = [x / y for x, y in zip(a.seconds, b.seconds, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def median_ratio(a: Timing, b: Timing) -> float:
    """Median of the per-round ratios a / b."""
    return statistics.median(x / y for x, y in zip(a.seconds, b.seconds, strict=True))


def environment(packages: Sequence[str] = ("numpy", "scipy", "scikit-learn")) -> str:
    """One line: hardware, versions, commit; MILD_COMMIT names that of a copy which git does not know."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip() or os.environ.get("MILD_COMMIT")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return (
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python "
        f"{platform.python_version()}, {versions}, commit {commit or 'unknown'}"
    )
