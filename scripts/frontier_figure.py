"""The picture of the README: quality against dollars of single experts, a router and a cascade.

    python scripts/frontier_figure.py FOLDER     FOLDER has bfcl_answers.parquet

The table is the Berkeley Function Calling Leaderboard of August 2024: 1,700 tool calls, 16 models with
their answers and list prices. It is halved 20 times (seeds 100 to 119), equal queries together. On one
half, ``mild.tune`` is called with its defaults, with and without ``cascade=True``; the routers that it
saves are set to a row of targets and judged on the other half. A point of a curve is the mean over the
halves for one target. The file itself says at which commit, with which versions and seeds it was drawn.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, PercentFormatter

import mild
from benchmarks.measure import environment
from mild.artifact import Router
from mild.data import Outcomes, read_outcomes

PICTURE = Path(__file__).parents[1] / "docs" / "figures" / "frontier.svg"
HALVES = 20
FIRST_SEED = 100
# Shares of the best expert's quality that are asked for.
TARGETS = (0.84, 0.87, 0.9, 0.92, 0.94, 0.96, 0.97, 0.98, 0.99, 1.0)
# Experts with a name in the picture, and where it stands.
NAMES = {
    "claude-3-5-sonnet-20240620": ("claude-3.5-sonnet", (7, -3), "left"),
    "claude-3-opus-20240229": ("claude-3-opus", (6, 6), "right"),
    "gpt-4-turbo-2024-04-09": ("gpt-4-turbo", (0, -13), "center"),
    "gpt-4o-2024-08-06-FC": ("gpt-4o", (0, -13), "center"),
    "gpt-4o-mini-2024-07-18": ("gpt-4o-mini", (5, -13), "left"),
    "gemini-1.5-flash-preview-0514": ("gemini-1.5-flash", (7, -4), "left"),
    "claude-3-haiku-20240307": ("claude-3-haiku", (7, -4), "left"),
}
# Readable on white and on black.
GREY, BLUE, ORANGE = "#808080", "#3d8bfd", "#e8650a"


Point = tuple[float, float]  # dollars per 1,000 queries, and quality


def draw(table: Outcomes, seed: int) -> dict[str, list[Point]]:
    """What each expert, and the routers at each target, do on the judged half."""
    train, test = table.split(0.5, random_state=seed)
    curves = {"experts": expert_points(test)}
    for name, cascade in (("router", False), ("cascade", True)):
        found = mild.tune(train, keep_quality=TARGETS[-1], cascade=cascade)
        points = [
            judged_point(found.router.with_target(keep_quality=target), test) for target in TARGETS
        ]
        curves[name] = points
    return curves


def expert_points(table: Outcomes) -> list[Point]:
    """What always asking each expert does."""
    assert table.prices is not None
    dollars = 1000 * table.prices.mean(axis=0)
    quality = table.scores.mean(axis=0)
    return list(zip(dollars.tolist(), quality.tolist(), strict=True))


def judged_point(router: Router, table: Outcomes) -> Point:
    """What a router does on a table."""
    for baseline in mild.evaluate(router, table).figures.baselines:
        if baseline["key"] == "router":
            return baseline["dollars_per_1000"], baseline["accuracy"]
    raise KeyError("router")


def main() -> None:
    """Draw the picture from the folder that is named."""
    warnings.simplefilter("ignore")
    table = read_outcomes(Path(sys.argv[1]) / "bfcl_answers.parquet")
    draws = [draw(table, seed) for seed in range(FIRST_SEED, FIRST_SEED + HALVES)]
    means = {}
    for name in draws[0]:
        means[name] = np.mean([curves[name] for curves in draws], axis=0)
    plt.rcParams |= {"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "mild"}
    colours = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    plt.rcParams |= dict.fromkeys(colours, GREY)
    figure, ax = plt.subplots(figsize=(7.2, 4.3), layout="constrained")
    ax.scatter(*means["experts"].T, marker="s", s=22, color=GREY, label="one model for all queries")
    for name, (label, offset, side) in NAMES.items():
        position = means["experts"][table.experts.index(name)]
        ax.annotate(label, position, offset, textcoords="offset points", ha=side, fontsize=8.5)
    ax.plot(
        *means["router"].T, "o-", color=BLUE, ms=4, label="router: reads the query, asks one model"
    )
    ax.plot(
        *means["cascade"].T,
        "o-",
        color=ORANGE,
        ms=4,
        label="cascade: asks cheap models first, reads their answers",
    )
    ax.set(xscale="log", xlabel="dollars per 1,000 queries (log scale)", ylabel="right answers")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"${x:g}"))
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_xticks([0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10])
    ax.set_yticks([0.75, 0.8, 0.85, 0.9])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    figure.legend(loc="outside upper left", frameon=False)
    made = f"{environment()}; BFCL answers, seeds {FIRST_SEED} to {FIRST_SEED + HALVES - 1}"
    figure.savefig(PICTURE, transparent=True, metadata={"Date": None, "Description": made})
    best = means["experts"][np.argmax(means["experts"][:, 1])]
    print(f"best expert: {best[1]:.3f} at ${best[0]:.2f}")
    for name in ("router", "cascade"):
        print(name, *(f"{quality:.3f} at ${dollars:.3f}" for dollars, quality in means[name]))


if __name__ == "__main__":
    main()
