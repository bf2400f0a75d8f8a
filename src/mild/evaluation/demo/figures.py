"""The figures: one overview of all blocks, one sheet with the two pictures. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mild.data.datasets import SETUPS, class_densities, expert_accuracies
from mild.errors import MissingExtraError
from mild.evaluation.demo.pictures import Picture
from mild.evaluation.demo.run import REFERENCE, Block, DemoResults

__all__ = ["check_matplotlib", "draw_overview", "draw_pictures"]

# Okabe and Ito's palette, told apart by colour-blind readers too.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, YELLOW = "#56B4E9", "#F0E442"
GREY = "#666666"
VERDICT_COLOURS = {"better": BLUE, "worse": ORANGE, "level": "white"}
CLASS_COLOURS = (SKY, PINK, GREEN, YELLOW)
REGION_COLOURS = ("#E6E6E6", BLUE, ORANGE, GREEN)
EXPERT_GREYS = ("#D0D0D0", "#8C8C8C", "#262626")

#: Far off in most panels: they do not set the scale, and an arrow says where they are.
FAR = ("mild_theory_argmax", "constant")


def check_matplotlib() -> None:
    """Say in one sentence what to install if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "the demo's figures need matplotlib, which is not installed. "
            "Install it with: pip install 'mild-learn[demo]'."
        ) from error


def draw_overview(results: DemoResults, path: Path) -> None:
    """Difference to TDEF of every method in every block, with its interval."""
    settings = results.settings
    lines = [
        [block for block in results.blocks if (block.experts, block.cost) == (experts, cost)]
        for experts in settings.experts
        for cost in settings.costs
    ]
    shown = [row.key for row in lines[0][0].rows if row.key not in (REFERENCE, "oracle")]
    width = 2.0 + 2.9 * len(settings.setups)
    height = 1.5 + 2.75 * len(lines)
    figure, axes = _figure(len(lines), len(settings.setups), width, height)
    for line, row_axes in zip(lines, axes, strict=True):
        for block, panel in zip(line, row_axes, strict=True):
            _draw_panel(panel, block, shown)
        first = line[0]
        row_axes[0].set_yticks(range(len(shown)), [first.row(key).label for key in shown])
        row_axes[-1].annotate(
            f"{first.experts} experts, {first.cost.replace('+', ' + ')}",
            (1.03, 0.5),
            xycoords="axes fraction",
            rotation=270,
            va="center",
            fontsize=10,
        )
    for panel, setup in zip(axes[0], settings.setups, strict=True):
        coverage = "-".join(map(str, SETUPS[setup]))
        panel.set_title(f"setup {setup} ({coverage})\n{panel.get_title()}", fontsize=10)
    figure.suptitle(
        "Deferral loss minus TDEF's on the digits: left of 0 is better", fontsize=13, x=0.5
    )
    splits = "one split" if settings.seeds == 1 else f"{settings.seeds} splits"
    figure.supxlabel(
        f"difference with its {100 * settings.confidence:g} % paired interval over "
        f"{splits} · blue: better, orange: worse, hollow: undecided · "
        f"an arrow: off the scale, with its value",
        fontsize=10,
    )
    _save(figure, path)


def draw_pictures(results: DemoResults, path: Path) -> None:
    """The line on the left, the plane on the right: best and learned regions."""
    figure, _ = _figure(0, 0, 15.0, 7.6)
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.02))
    _draw_line(left, results.line)
    _draw_plane(right, results.plane)
    _save(figure, path)


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    # The object interface and the Agg canvas: no global state, no display needed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True) if rows else None
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=130, format="png")


def _draw_panel(panel: Any, block: Block, shown: Sequence[str]) -> None:
    intervals = {key: block.row(key).against_tdef for key in shown}
    near = [interval for key, interval in intervals.items() if interval and key not in FAR]
    low = min(-1e-4, *(interval.low for interval in near))
    high = max(1e-4, *(interval.high for interval in near))
    # Room on both sides of 0 for the arrows and their numbers.
    span = high - low
    low, high = min(low - 0.06 * span, -0.35 * span), max(high + 0.06 * span, 0.35 * span)
    panel.axvline(0, color=GREY, linewidth=0.8, zorder=0)
    for place, key in enumerate(shown):
        row = block.row(key)
        interval = intervals[key]
        if interval is None:
            continue
        colour = VERDICT_COLOURS[row.verdict]
        if not low <= interval.estimate <= high:
            _draw_arrow(panel, place, interval.estimate, (low, high), colour)
            continue
        edge = GREY if row.verdict == "level" else colour
        panel.plot([interval.low, interval.high], [place, place], color=edge, linewidth=1.4)
        panel.plot(
            interval.estimate, place, "o", ms=6, markerfacecolor=colour, markeredgecolor=edge
        )
    panel.set_xlim(low, high)
    panel.set_ylim(len(shown) - 0.5, -0.5)
    panel.locator_params(axis="x", nbins=4)
    panel.tick_params(labelsize=8)
    panel.grid(axis="x", color="#EEEEEE")
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    panel.set_title(f"TDEF {block.row(REFERENCE).mean:.4f}", fontsize=9)


def _draw_arrow(
    panel: Any, place: int, value: float, limits: tuple[float, float], colour: str
) -> None:
    """A value off the scale: an arrow at the edge, and the number."""
    low, high = limits
    right = value > high
    step = 0.03 * (high - low) * (-1 if right else 1)
    edge = high if right else low
    panel.plot(edge + step, place, ">" if right else "<", color=colour, ms=6)
    panel.text(
        edge + 2 * step,
        place,
        f"{value:+.2f}",
        ha="right" if right else "left",
        va="center",
        fontsize=8,
        color=GREY,
    )


def _draw_line(figure: Any, picture: Picture) -> None:
    """Densities and accuracies above, one strip of regions per router below."""
    strips = [("best possible", picture.best, picture.best_loss)]
    strips += [(entry.label, entry.chosen, entry.loss) for entry in picture.learned]
    axes = figure.subplots(
        1 + len(strips), 1, sharex=True, height_ratios=[6.0] + [1.0] * len(strips)
    )
    x = picture.grid[:, 0]
    top = axes[0]
    densities = class_densities(x)
    for density, colour in zip(densities.T, CLASS_COLOURS, strict=True):
        top.fill_between(x, 0.85 * density / densities.max(), color=colour, alpha=0.45, linewidth=0)
    for k, accuracy in enumerate(expert_accuracies(x).T):
        beta = picture.data.betas[k]
        label = f"{picture.data.expert_names[k]} (cost {beta:.2f})"
        top.plot(x, accuracy, color=EXPERT_GREYS[k], linewidth=2.6, label=label)
    top.set_ylim(0, 1.16)
    top.set_yticks([0, 0.5, 1])
    top.set_ylabel("accuracy of the experts (lines)\nclass densities (fills)", fontsize=9)
    top.legend(loc="upper center", ncols=3, fontsize=9, frameon=False)
    for axis, (label, chosen, loss) in zip(axes[1:], strips, strict=True):
        _strip(axis, x, chosen)
        axis.set_title(f"{label}: cost {loss:.4f}", fontsize=9, loc="left", pad=2)
    axes[-1].set_xlabel("x", fontsize=9)
    axes[0].set_xlim(x[0], x[-1])
    figure.suptitle("Four classes, three experts of rising cost: who serves which x", fontsize=12)


def _strip(axis: Any, x: Any, chosen: Any) -> None:
    from matplotlib.colors import ListedColormap

    axis.imshow(
        np.asarray(chosen)[None],
        cmap=ListedColormap(list(EXPERT_GREYS)),
        vmin=0,
        vmax=len(EXPERT_GREYS) - 1,
        aspect="auto",
        extent=(x[0], x[-1], 0, 1),
        interpolation="nearest",
    )
    axis.set_yticks([])


def _draw_plane(figure: Any, picture: Picture) -> None:
    """Labels without a pattern, the best regions, and two learned maps."""
    from matplotlib.colors import ListedColormap

    axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    side = round(len(picture.grid) ** 0.5)
    data = picture.data
    points = data.X[:900]
    colours = np.array(CLASS_COLOURS)[data.labels[:900]]
    axes[0].scatter(points[:, 0], points[:, 1], c=colours, s=9, linewidths=0)
    axes[0].set_title("inputs, coloured by label: no pattern", fontsize=10)
    maps = [("best possible", picture.best, picture.best_loss)]
    maps += [
        (entry.label, entry.chosen, entry.loss)
        for entry in picture.learned
        if entry.label.startswith("MILD")
    ]
    for axis, (label, chosen, loss) in zip(axes[1:], maps, strict=True):
        axis.imshow(
            np.asarray(chosen).reshape(side, side),
            cmap=ListedColormap(list(REGION_COLOURS)),
            vmin=0,
            vmax=len(REGION_COLOURS) - 1,
            origin="lower",
            extent=(0, 1, 0, 1),
            interpolation="nearest",
        )
        axis.set_title(f"{label}: cost {loss:.4f}", fontsize=10)
    for axis in axes:
        axis.set_aspect("equal")
        axis.set_xticks([0, 1])
        axis.set_yticks([0, 1])
    handles = _patches(dict(zip(data.expert_names, REGION_COLOURS, strict=True)))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    figure.suptitle("Experts by region, not by label: which expert is asked where", fontsize=12)


def _patches(colours: dict[str, str]) -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(color=colour, label=f"expert of {name}") for name, colour in colours.items()]
