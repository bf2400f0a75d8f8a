"""Plots of an evaluation with matplotlib, in the manner of scikit-learn's displays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from mild.core.arrays import invalid
from mild.errors import MissingExtraError, install_hint


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
        self.ax_ = plt.subplots()[1] if ax is None else ax
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
        axis = self.frontier["axis"]
        points = [point for point in self.frontier["points"] if point["quality"] is not None]
        if not points:
            raise invalid("data", "must have scores for a frontier; features and costs have none.")
        if axis is None:
            ax.set_xticks([])
        at = {kind: [p for p in points if p["kind"] == kind] for kind in KINDS}
        own = [] if self.cascade else at["router"]
        sweep = sorted(at["operating"] + own, key=lambda p: p[axis] if axis else 0)
        ax.plot(*_places(sweep, axis), color="C0", linewidth=1, alpha=0.5)
        for kind, (label, marker, color) in KINDS.items():
            if at[kind]:
                if self.cascade:
                    label = CASCADE_LABELS.get(kind, label)
                ax.scatter(
                    *_places(at[kind], axis), label=label, marker=marker, color=color, zorder=3
                )
        for point in at["constant"]:
            x, y = _places([point], axis)
            ax.annotate(
                point["name"], (x[0], y[0]), xytext=(5, -10), textcoords="offset points", fontsize=8
            )
        target = self.frontier.get("target")
        if target is not None and target["quality"] is not None:
            ax.axhline(target["quality"], color="grey", linestyle=":", label="quality asked for")
        ax.set_xlabel(self.frontier["label"] or "")
        ax.set_ylabel("quality (mean score)")
        ax.margins(x=0.18)  # leaves room for the names
        _add_legend_below(ax)


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


# Room for the name of an expert below its point, in points of type; most room, as a share of the axes.
NAME_POINTS = 18
MOST_ROOM = 0.6
# Kind of a point -> label, marker and colour.
KINDS = {
    "constant": ("single experts", "s", "C1"),
    "operating": ("other trade-offs", ".", "C0"),
    "router": ("router", "o", "C0"),
    "oracle": ("perfect choice", "*", "C2"),
}
CASCADE_LABELS = {"operating": "router without answers", "router": "cascade"}


def _places(points: Sequence[Mapping[str, Any]], axis: str | None) -> tuple[list[Any], list[Any]]:
    return [0 if axis is None else point[axis] for point in points], [p["quality"] for p in points]


class CalibrationDisplay(Display):
    """Each expert's predicted share of the reward against the share that it had."""

    def __init__(self, calibration: Mapping[str, Any], expert_names: Sequence[str]) -> None:
        self.calibration = calibration  # as in the content of a report
        self.expert_names = expert_names

    def _draw(self, ax: Any) -> None:
        ax.plot([0, 1], [0, 1], color="grey", linestyle=":", label="perfectly calibrated")
        for name, curve in zip(self.expert_names, self.calibration["experts"], strict=True):
            predicted = [place["predicted"] for place in curve["bins"]]
            observed = [place["realised"] for place in curve["bins"]]
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
        self.shares, self.oracle_shares = shares, oracle_shares

    def _draw(self, ax: Any) -> None:
        places = np.arange(len(self.expert_names))
        ax.barh(places - 0.2, self.shares, 0.4, label="router")
        ax.barh(places + 0.2, self.oracle_shares, 0.4, label="perfect choice")
        ax.set_yticks(places, self.expert_names)
        ax.invert_yaxis()
        ax.set_xlabel("share of queries")
        ax.legend()
