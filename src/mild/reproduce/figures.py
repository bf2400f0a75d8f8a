"""One figure per table: each method's loss beside TDEF's level and the paper's. Needs matplotlib."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from mild.exceptions import InvalidInputError, MissingExtraError
from mild.reproduce.labels import TABLES
from mild.reproduce.summary import Block, Row

__all__ = ["check_matplotlib", "draw_table"]

# Okabe and Ito's palette, told apart by colour-blind readers too.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
BLACK, GREY = "#000000", "#666666"
#: The decision is what moves the numbers most, so it has the colour.
COLOURS = {"stationary": BLUE, "argmax": ORANGE}
LEGEND = {
    "TDEF": BLACK,
    "MILD, equal margins": GREEN,
    "MILD by argmax": ORANGE,
    "MILD, stationary": BLUE,
    "other": PINK,
}
MAX_COLUMNS = 3
#: Beyond the anchors (TDEF, the paper, the best row) by this many of their spans: off the scale.
ROOM = 1.5
ROW_HEIGHT = 0.24
# Letters of a title over a panel.
TITLE_WIDTH = 54


def check_matplotlib() -> None:
    """Say in one sentence what to install if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "the figures of the tables need matplotlib, which is not installed. "
            "Install it with: pip install 'mild-learn[demo]'."
        ) from error


def draw_table(blocks: Sequence[Block]) -> bytes:
    """A PNG of the blocks of one table: one panel each, one line per method.

    A dot is our mean with a bar of one standard deviation to each side, a hollow diamond the paper's
    figure with its own, the vertical line our TDEF. Values far off are arrows with their number.

    Parameters
    ----------
    blocks : of one table, as ``summarise`` gives them
    """
    check_matplotlib()
    names = sorted({block.table for block in blocks})
    if len(names) != 1:
        raise InvalidInputError(
            f"a figure must show the blocks of one table; got {', '.join(names) or 'none'}."
        )
    lines = _lines(blocks)
    columns = max(len(line) for line in lines)
    heights = [0.75 + ROW_HEIGHT * max(len(_methods(block)) for block in line) for line in lines]
    figure, axes = _figure(heights, columns, max(_labelled(line) for line in lines))
    for line, panels in zip(lines, axes, strict=True):
        for place, panel in enumerate(panels):
            if place >= len(line):
                panel.set_visible(False)
                continue
            _draw_panel(panel, line[place])
            same = place > 0 and _labels(line[place]) == _labels(line[place - 1])
            ticks = range(len(_methods(line[place])))
            panel.set_yticks(ticks, [] if same else _labels(line[place]), fontsize=8)
    figure.suptitle(TABLES.get(names[0], names[0]), fontsize=13)
    _legend(figure, blocks)
    image = io.BytesIO()
    figure.savefig(image, dpi=130, format="png", bbox_inches="tight")
    return image.getvalue()


def _lines(blocks: Sequence[Block]) -> list[list[Block]]:
    """Panels line by line: blocks that differ in the setup alone stand side by side."""

    def others(block: Block) -> list[str]:
        apart = ("setup", "coverage", "data")
        return [f"{name} {value}" for name, value in block.cell.items() if name not in apart]

    groups: dict[str, list[Block]] = {}
    for block in blocks:
        groups.setdefault(" ".join(others(block)), []).append(block)
    if all(len(group) == 1 for group in groups.values()):
        groups = {"": list(blocks)}
    return [
        group[start : start + MAX_COLUMNS]
        for group in groups.values()
        for start in range(0, len(group), MAX_COLUMNS)
    ]


def _methods(block: Block) -> list[Row]:
    return [row for row in block.rows if not row.yardstick]


def _labels(block: Block) -> list[str]:
    return [row.label for row in _methods(block)]


def _labelled(line: Sequence[Block]) -> int:
    """Panels of a line that need names of their own: their methods are not those to the left."""
    names = [_labels(block) for block in line]
    return 1 + sum(own != left for left, own in pairwise(names))


def _figure(heights: Sequence[float], columns: int, labelled: int) -> tuple[Any, Any]:
    # The object interface and the Agg canvas: no global state, no display needed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(3.2 * labelled + max(5.0, 3.3 * columns), 1.3 + sum(heights)), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
    return figure, axes


def _colour(row: Row) -> str:
    name = row.method["name"]
    if name == "tdef":
        return BLACK
    if name != "mild":
        return PINK
    # A search may find equal margins, too: both rules choose alike then.
    if row.method.get("margins") == "uniform" or len(set(row.margins or ())) == 1:
        return GREEN
    return COLOURS.get(row.decision or "", GREY)


def _limits(block: Block) -> tuple[float, float]:
    """Ends of the axis: what is near TDEF, the paper's figures and the best row."""
    rows = _methods(block)
    spans = {id(row): _reach(row.mean, row.std) for row in rows}
    papers = [_reach(row.paper.loss, row.paper.std) for row in rows if row.paper]
    anchors = [spans[id(row)] for row in rows if row.method["name"] == "tdef"]
    anchors += [spans[id(min(rows, key=lambda row: row.mean))], *papers]
    low, high = min(a for a, _ in anchors), max(b for _, b in anchors)
    span = max(high - low, 0.05 * high, 1e-3)
    far_low, far_high = low - ROOM * span, high + ROOM * span
    off = sorted((max(low - row.mean, row.mean - high), row.mean) for row in rows)
    # Where half of the rows or more would be arrows, the scale reaches the nearest of them.
    reached = [mean for _, mean in off[: len(rows) // 2 + 1]]
    far_low, far_high = min([far_low, *reached]), max([far_high, *reached])
    near = [spans[id(row)] for row in rows if far_low <= row.mean <= far_high]
    low = min([low, *(max(a, far_low) for a, _ in near)])
    high = max([high, *(min(b, far_high) for _, b in near)])
    pad = 0.08 * max(high - low, 0.02 * high, 1e-4)
    return low - pad, high + pad


def _reach(mean: float | None, std: float | None) -> tuple[float, float]:
    centre = mean or 0.0
    return centre - (std or 0.0), centre + (std or 0.0)


def _draw_panel(panel: Any, block: Block) -> None:
    rows = _methods(block)
    low, high = _limits(block)
    off_right = any(row.mean > high for row in rows)
    if off_right:
        # Room for arrows and their numbers.
        high += 0.22 * (high - low)
    tdef = block.named("tdef")
    if tdef is not None:
        panel.axvline(tdef.mean, color=BLACK, linewidth=0.9, alpha=0.6, zorder=1)
    for place, row in enumerate(rows):
        colour = _colour(row)
        if row.paper is not None:
            _draw_paper(panel, place, row, colour)
        if low <= row.mean <= high:
            start, end = _reach(row.mean, row.std)
            panel.plot([start, end], [place, place], color=colour, linewidth=1.6, zorder=3)
            panel.plot(row.mean, place, "o", ms=5.5, color=colour, zorder=4)
        else:
            _draw_arrow(panel, place, row.mean, (low, high), colour)
    panel.set_xlim(low, high)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    named = _draw_yardsticks(panel, block, (low, high))
    # The names of the dotted lines stand between panel and title.
    panel.set_title(_panel_title(block), fontsize=8.5, pad=13 if named else 5)
    panel.locator_params(axis="x", nbins=5)
    panel.tick_params(labelsize=8)
    panel.grid(color="#EEEEEE")
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _draw_paper(panel: Any, place: int, row: Row, colour: str) -> None:
    if row.paper is None or row.paper.loss is None:
        return
    start, end = _reach(row.paper.loss, row.paper.std)
    lower = place + 0.24
    panel.plot([start, end], [lower, lower], color=colour, linewidth=0.8, zorder=2)
    panel.plot(
        row.paper.loss,
        lower,
        "D",
        ms=4.5,
        markerfacecolor="white",
        markeredgecolor=colour,
        zorder=3,
    )


def _draw_arrow(
    panel: Any, place: int, value: float, limits: tuple[float, float], colour: str
) -> None:
    """A value off the scale: an arrow at the edge, and the number."""
    low, high = limits
    right = value > high
    step = 0.02 * (high - low) * (-1 if right else 1)
    edge = high if right else low
    panel.plot(edge + step, place, ">" if right else "<", color=colour, ms=5.5)
    panel.text(
        edge + 2.5 * step,
        place,
        f"{value:.3f}",
        ha="right" if right else "left",
        va="center",
        fontsize=7.5,
        color=GREY,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    )


def _draw_yardsticks(panel: Any, block: Block, limits: tuple[float, float]) -> bool:
    """Dotted lines where they are near; otherwise their values under the axis. Whether any is near."""
    low, high = limits
    shown = [row for row in map(block.named, ("oracle", "constant")) if row is not None]
    near = [row for row in shown if low <= row.mean <= high]
    close = len(near) == 2 and near[1].mean - near[0].mean < 0.3 * (high - low)
    for row, side in zip(near, ("right", "left") if close else ("center", "center"), strict=False):
        panel.axvline(row.mean, color=GREY, linewidth=1.1, linestyle=":", zorder=1)
        panel.text(
            *(row.mean, 1.0, row.label),
            transform=panel.get_xaxis_transform(),
            ha=side,
            va="bottom",
            fontsize=7,
            color=GREY,
        )
    away = [f"{row.label} {row.mean:.3f}" for row in shown if row not in near]
    aside = f" (off the scale: {', '.join(away)})" if away else ""
    panel.set_xlabel(f"deferral loss{aside}", fontsize=7.5, color=GREY, labelpad=1)
    return bool(near)


def _panel_title(block: Block) -> str:
    """The block's title in lines that fit the panel, broken between its parts where that is enough."""
    lines = [""]
    for part in block.title.split(" · "):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if len(longer) <= TITLE_WIDTH:
            lines[-1] = longer
        else:
            lines += textwrap.wrap(part, TITLE_WIDTH)
    return "\n".join(filter(None, lines))


def _legend(figure: Any, blocks: Sequence[Block]) -> None:
    from matplotlib.lines import Line2D

    rows = [row for block in blocks for row in _methods(block)]
    present = {_colour(row) for row in rows}

    def entry(label: str, colour: str, marker: str | None, **style: Any) -> Any:
        return Line2D([], [], color=colour, marker=marker, markersize=5.5, label=label, **style)

    handles = [
        entry(label, colour, "o", linewidth=1.6)
        for label, colour in LEGEND.items()
        if colour in present
    ]
    if any(row.paper for row in rows):
        handles.append(entry("the paper's", GREY, "D", linewidth=0.8, markerfacecolor="white"))
    handles.append(entry("off the scale, with its value", GREY, ">", linewidth=0))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 3 if figure.get_figwidth() < 10 else 7),
        fontsize=8.5,
        frameon=False,
        title="dot and bar: mean ± standard deviation over seeds; vertical line: our TDEF",
        title_fontsize=8.5,
    )
