"""Plots of an evaluation with matplotlib, in the manner of scikit-learn's displays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from mild.core.arrays import invalid
from mild.errors import MissingExtraError, install_hint

#: A point of the frontier in the content of a report: kind, name, quality and prices.
Point: TypeAlias = Mapping[str, Any]


class Display:
    """A plot: ``plot(ax)`` draws it; ``ax_`` and ``figure_`` are set then."""

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure; the display is returned."""
        try:
            import matplotlib.pyplot as plt
            from matplotlib.axes import Axes
        except ImportError as error:
            hint = install_hint("plot")
            raise MissingExtraError(
                f"plots need matplotlib: {hint}", code="missing_extra"
            ) from error
        if ax is not None and not isinstance(ax, Axes):
            raise invalid("ax", f"must be axes of matplotlib, or None for new ones; got {ax!r}.")
        if ax is None:
            _, ax = plt.subplots()
        self.ax_ = ax
        self.figure_ = self.ax_.figure
        self._draw(self.ax_)
        return self

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError


class FrontierDisplay(Display):
    """Quality against price: the experts, the router, its other trade-offs, and perfect choice."""

    def __init__(self, frontier: Mapping[str, Any], cascade: bool = False) -> None:
        self.frontier = frontier  # as in the content of a report: axis, label, points, target
        self.cascade = cascade  # whether the router reads answers, and its trade-offs do not

    def _draw(self, ax: Any) -> None:
        points = [point for point in self.frontier["points"] if point["quality"] is not None]
        if not points:
            raise invalid("data", "must have scores for a frontier; features and costs have none.")
        if self.frontier["axis"] is None:
            ax.set_xticks([])
        self._draw_sweep(ax, points)
        for kind in KINDS:
            self._draw_kind(ax, kind, _of_kind(points, kind))
        for point in _of_kind(points, "constant"):
            position = (self._x(point), point["quality"])
            ax.annotate(
                point["name"], position, xytext=(5, -10), textcoords="offset points", fontsize=8
            )
        target = self.frontier.get("target")
        if target is not None and target["quality"] is not None:
            ax.axhline(target["quality"], color="grey", linestyle=":", label="quality asked for")
        ax.set_xlabel(self.frontier["label"] or "")
        ax.set_ylabel("quality (mean score)")
        ax.margins(x=0.18)  # leaves room for the names
        _add_legend_below(ax)

    def _draw_sweep(self, ax: Any, points: Sequence[Point]) -> None:
        """A line through the trade-offs of one router; a cascade is not one of those without answers."""
        sweep = _of_kind(points, "operating")
        if not self.cascade:
            sweep += _of_kind(points, "router")
        sweep.sort(key=self._x)
        ax.plot(*self._coordinates(sweep), color="C0", linewidth=1, alpha=0.5)

    def _draw_kind(self, ax: Any, kind: str, points: Sequence[Point]) -> None:
        if not points:
            return
        style = KINDS[kind]
        label = style.label
        if self.cascade:
            label = CASCADE_LABELS.get(kind, label)
        x, y = self._coordinates(points)
        ax.scatter(x, y, label=label, marker=style.marker, color=style.color, zorder=3)

    def _coordinates(self, points: Sequence[Point]) -> tuple[list[float], list[float]]:
        x = []
        y = []
        for point in points:
            x.append(self._x(point))
            y.append(point["quality"])
        return x, y

    def _x(self, point: Point) -> float:
        """Where a point is on the horizontal axis; 0 if there is none."""
        axis = self.frontier["axis"]
        if axis is None:
            return 0
        return point[axis]


# Room for the name of an expert below its point, in points of type; most room, as a share of the axes.
NAME_POINTS = 18
MOST_ROOM = 0.6


def _add_legend_below(ax: Any) -> None:
    """A legend at the bottom, in room of its own: the axis of quality begins further down."""
    legend = ax.legend(loc="lower center", ncols=2, fontsize=8)
    low, high = ax.get_ylim()
    # In units of the axes, from 0 at the bottom to 1 at the top.
    legend_top = legend.get_window_extent().transformed(ax.transAxes.inverted()).y1
    name_room = NAME_POINTS * ax.figure.dpi / 72 / ax.bbox.height
    share = min(legend_top + name_room, MOST_ROOM)
    bottom = low - (high - low) * share / (1 - share)
    ticks = ax.get_yticks()
    ax.set_ylim(bottom, high)
    ax.set_yticks([tick for tick in ticks if low <= tick <= high])


class PointStyle(NamedTuple):
    """How points of one kind are drawn."""

    label: str
    marker: str
    color: str


KINDS = {
    "constant": PointStyle("single experts", "s", "C1"),
    "operating": PointStyle("other trade-offs", ".", "C0"),
    "router": PointStyle("router", "o", "C0"),
    "oracle": PointStyle("perfect choice", "*", "C2"),
}
CASCADE_LABELS = {"operating": "router without answers", "router": "cascade"}


def _of_kind(points: Sequence[Point], kind: str) -> list[Point]:
    return [point for point in points if point["kind"] == kind]


class CalibrationDisplay(Display):
    """Each expert's predicted share of the reward against the share that it had."""

    def __init__(self, calibration: Mapping[str, Any], expert_names: Sequence[str]) -> None:
        self.calibration = calibration  # as in the content of a report
        self.expert_names = expert_names

    def _draw(self, ax: Any) -> None:
        ax.plot([0, 1], [0, 1], color="grey", linestyle=":", label="perfectly calibrated")
        for name, curve in zip(self.expert_names, self.calibration["experts"], strict=True):
            predicted = []
            observed = []
            for content in curve["bins"]:
                predicted.append(content["predicted"])
                observed.append(content["realised"])
            ax.plot(predicted, observed, marker="o", label=name)
        ax.set_xlabel("predicted share of the reward")
        ax.set_ylabel("observed share of the reward")
        ax.legend()


class SharesDisplay(Display):
    """How often the router, and perfect choice, ask each expert."""

    def __init__(
        self, expert_names: Sequence[str], shares: Sequence[float], oracle_shares: Sequence[float]
    ) -> None:
        self.expert_names = expert_names
        self.shares = shares
        self.oracle_shares = oracle_shares

    def _draw(self, ax: Any) -> None:
        positions = np.arange(len(self.expert_names))
        ax.barh(positions - 0.2, self.shares, 0.4, label="router")
        ax.barh(positions + 0.2, self.oracle_shares, 0.4, label="perfect choice")
        ax.set_yticks(positions, self.expert_names)
        ax.invert_yaxis()
        ax.set_xlabel("share of queries")
        ax.legend()
