"""The two figures: an overview of all blocks, and the regions that routers learn. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from mild import datasets
from mild.core.arrays import FloatArray, IntArray
from mild.core.costs import cheapest
from mild.datasets.synthetic import BETAS, SPAN
from mild.routers.linear import LinearRouter

ALPHA = 1e-4
REGION_GAMMA = 25.0
GRID = 1001
SIDE = 160
#: Label and options of the routers that are drawn.
ROUTERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("TDEF", {"loss": "tdef"}),
    ("MILD theory, stationary", {"counts": "best", "decision": "stationary"}),
    ("MILD theory, argmax", {"counts": "best", "decision": "argmax"}),
)
# Okabe and Ito's palette, which colour-blind readers can distinguish.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
GREY = "#666666"
VERDICT_COLOURS = {"better": BLUE, "worse": ORANGE, "level": "white"}
CLASS_COLOURS = ("#56B4E9", PINK, GREEN, "#F0E442")
REGION_COLOURS = ("#E6E6E6", BLUE, ORANGE, GREEN)
EXPERT_GREYS = ("#D0D0D0", "#8C8C8C", "#262626")
# Differences up to this size are on a linear scale, larger ones on a logarithmic one.
LINEAR = 0.02


@dataclass(frozen=True, eq=False)
class Picture:
    """A problem with its best regions and those that routers learned."""

    data: datasets.RoutingData  # the sample that was trained on
    grid: FloatArray  # (n_grid, n_features) points
    best: IntArray  # (n_grid,) expert of least expected cost
    learned: tuple[IntArray, ...]  # (n_grid,) choices of each router
    found: dict[str, Any]  # figures, JSON-ready

    @property
    def maps(self) -> list[tuple[str, IntArray]]:
        """Titles and choices on the grid: the best ones, then those of the routers."""
        titles = [f"best possible: cost {self.found['best_loss']:.4f}"]
        titles += [f"{one['label']}: cost {one['loss']:.4f}" for one in self.found["learned"]]
        return list(zip(titles, (self.best, *self.learned), strict=True))


def draw_line(n_samples: int = 4000, random_state: int = 0) -> Picture:
    """The line: linear routers on cubic splines of x; the figures also give the regions."""
    data = datasets.one_dimensional(n_samples, random_state)
    splines = SplineTransformer(n_knots=14, degree=3, include_bias=False)
    x = np.linspace(*SPAN, GRID)
    best = cheapest(1 - datasets.expert_accuracies(x) + np.array(BETAS))
    picture = _picture(data, x[:, None], best, splines)
    picture.found["best_regions"] = segments(x, best)
    for one, chosen in zip(picture.found["learned"], picture.learned, strict=True):
        one["regions"] = segments(x, chosen)
    return picture


def draw_plane(n_samples: int = 4000, random_state: int = 0) -> Picture:
    """The plane: linear routers on radial features of the point."""
    data = datasets.regions(n_samples, random_state)
    ticks = (np.arange(SIDE) + 0.5) / SIDE
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    return _picture(data, grid, datasets.region_of(grid), radial_features(data.X, REGION_GAMMA))


def _picture(
    data: datasets.RoutingData, grid: FloatArray, best: IntArray, features: Any
) -> Picture:
    expected = np.asarray(data.expected_costs)
    learned, figures = [], []
    for label, options in ROUTERS:
        router = make_pipeline(features, LinearRouter(alpha=ALPHA, ties="first", **options))
        chosen = router.fit(data.X, data.costs).predict(data.X)
        loss = float(expected[np.arange(len(expected)), chosen].mean())
        agreement = float((chosen == cheapest(expected)).mean())
        figures.append({"label": label, "loss": loss, "agreement_with_best": agreement})
        learned.append(router.predict(grid))
    found = {
        "n_samples": len(data.X),
        "expert_names": list(data.expert_names),
        "betas": [float(beta) for beta in data.betas],
        "best_loss": float(expected.min(axis=1).mean()),
        "constant_loss": float(expected.mean(axis=0).min()),
        "learned": figures,
    }
    return Picture(data, grid, best, tuple(learned), found)


def radial_features(X: FloatArray, gamma: float, n_components: int = 128) -> Nystroem:
    """Nystroem features of the kernel ``exp(-gamma ||x - z||^2)``: a linear router gets curved borders."""
    kept = min(n_components, len(X))
    return Nystroem(kernel="rbf", gamma=gamma, n_components=kept, random_state=0).fit(X)


def segments(positions: FloatArray, chosen: Sequence[int] | IntArray) -> list[dict[str, Any]]:
    """Runs of one expert along a line: where each starts and ends."""
    experts = np.asarray(chosen)
    changes = np.flatnonzero(np.diff(experts)) + 1
    middles = (positions[changes - 1] + positions[changes]) / 2
    edges = [float(positions[0]), *middles.tolist(), float(positions[-1])]
    starts = [0, *changes.tolist()]
    return [
        {"expert": int(experts[start]), "start": edges[i], "end": edges[i + 1]}
        for i, start in enumerate(starts)
    ]


def _figure(width: float, height: float) -> Any:
    # The object interface and the Agg canvas: no global state, no display needed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_overview(results: Any, path: Path) -> None:
    """Difference to TDEF of every method in every block, with its interval."""
    settings, blocks = results.document["settings"], results.document["blocks"]
    setups = settings["setups"]
    lines = [(experts, cost) for experts in settings["experts"] for cost in settings["costs"]]
    figure = _figure(2.0 + 2.9 * len(setups), 1.5 + 2.75 * len(lines))
    axes = figure.subplots(len(lines), len(setups), squeeze=False, sharex=True, sharey=True)
    for block in blocks:
        line, column = lines.index((block["experts"], block["cost"])), setups.index(block["setup"])
        panel, rows = axes[line, column], {row["method"]: row for row in block["rows"]}
        panel.axvline(0, color=GREY, linewidth=0.8, zorder=0)
        shown = [row for key, row in rows.items() if key not in ("tdef", "oracle")]
        for place, row in enumerate(shown):
            gap, colour = row["minus_tdef"], VERDICT_COLOURS[row["verdict_against_tdef"]]
            edge = GREY if row["verdict_against_tdef"] == "level" else colour
            panel.plot([gap["low"], gap["high"]], [place, place], color=edge, linewidth=1.4)
            panel.plot(gap["estimate"], place, "o", ms=6, mfc=colour, mec=edge)
        panel.set_xscale("symlog", linthresh=LINEAR)
        panel.set_yticks(range(len(shown)), [row["label"] for row in shown])
        panel.set_ylim(len(shown) - 0.5, -0.5)
        panel.tick_params(labelsize=8)
        panel.grid(axis="x", color="#EEEEEE")
        coverage = "-".join(map(str, datasets.SETUPS[block["setup"]]))
        title = f"setup {block['setup']} ({coverage})\n" if line == 0 else ""
        panel.set_title(f"{title}TDEF {rows['tdef']['mean']:.4f}", fontsize=9)
        panel.set_xlabel(f"{block['experts']} experts, {block['cost']}", fontsize=8)
    figure.suptitle("Deferral loss minus TDEF's on the digits: left of 0 is better", fontsize=13)
    splits = "one split" if settings["seeds"] == 1 else f"{settings['seeds']} splits"
    figure.supxlabel(
        f"difference with its {100 * settings['confidence']:g} % paired interval over {splits}, "
        f"logarithmic beyond ±{LINEAR:g}\nblue: better, orange: worse, hollow: undecided",
        fontsize=9,
    )
    figure.savefig(path, dpi=130, format="png")


def draw_pictures(results: Any, path: Path) -> None:
    """The line on the left, the plane on the right: best and learned regions."""
    figure = _figure(15.0, 7.6)
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.02))
    _draw_line(left, results.line)
    _draw_plane(right, results.plane)
    figure.savefig(path, dpi=130, format="png")


def _draw_map(
    axis: Any, chosen: FloatArray | IntArray, colours: Sequence[str], extent: Any
) -> None:
    from matplotlib.colors import ListedColormap

    axis.imshow(
        chosen,
        cmap=ListedColormap(list(colours)),
        vmin=0,
        vmax=len(colours) - 1,
        aspect="auto",
        origin="lower",
        extent=extent,
        interpolation="nearest",
    )


def _draw_line(figure: Any, picture: Picture) -> None:
    """Densities and accuracies on top, one strip of regions per router below."""
    heights = [6.0] + [1.0] * len(picture.maps)
    top, *strips = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    x = picture.grid[:, 0]
    densities = datasets.class_densities(x)
    for density, colour in zip(densities.T, CLASS_COLOURS, strict=True):
        top.fill_between(x, 0.85 * density / densities.max(), color=colour, alpha=0.45, linewidth=0)
    for k, accuracy in enumerate(datasets.expert_accuracies(x).T):
        label = f"{picture.data.expert_names[k]} (cost {picture.data.betas[k]:.2f})"
        top.plot(x, accuracy, color=EXPERT_GREYS[k], linewidth=2.6, label=label)
    top.set_ylim(0, 1.16)
    top.set_yticks([0, 0.5, 1])
    top.set_ylabel("accuracy of the experts (lines)\nclass densities (fills)", fontsize=9)
    top.legend(loc="upper center", ncols=3, fontsize=9, frameon=False)
    for axis, (title, chosen) in zip(strips, picture.maps, strict=True):
        _draw_map(axis, chosen[None], EXPERT_GREYS, (x[0], x[-1], 0, 1))
        axis.set_yticks([])
        axis.set_title(title, fontsize=9, loc="left", pad=2)
    figure.suptitle(
        "Four classes, three experts of rising cost: which expert for which x", fontsize=12
    )


def _draw_plane(figure: Any, picture: Picture) -> None:
    """Labels without a pattern, the best regions, and two learned maps."""
    from matplotlib.patches import Patch

    points, *maps = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    side = round(len(picture.grid) ** 0.5)
    data = picture.data
    colours = np.array(CLASS_COLOURS)[data.labels[:900]]
    points.scatter(*data.X[:900].T, c=colours, s=9, linewidths=0)
    points.set_title("inputs, coloured by label: no pattern", fontsize=10)
    shown = [one for one in picture.maps if not one[0].startswith("TDEF")]
    for axis, (title, chosen) in zip(maps, shown, strict=True):
        _draw_map(axis, chosen.reshape(side, side), REGION_COLOURS, (0, 1, 0, 1))
        axis.set_title(title, fontsize=10)
    for axis in (points, *maps):
        axis.set(aspect="equal", xticks=[0, 1], yticks=[0, 1])
    pairs = zip(data.expert_names, REGION_COLOURS, strict=True)
    handles = [Patch(color=colour, label=f"expert of {name}") for name, colour in pairs]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    figure.suptitle("Experts by region, not by label: which expert is asked where", fontsize=12)
