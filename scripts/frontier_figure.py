"""The picture of the README: quality against dollars of single experts, a router and a cascade.

    python scripts/frontier_figure.py FOLDER     FOLDER has bfcl_answers.parquet

The table is the Berkeley Function Calling Leaderboard of August 2024: 1,700 tool calls, 16 models with
their answers and list prices. As in ``benchmarks.cascades``, it is halved 40 times (seeds 100 to 139),
equal queries together. One half fits, and chooses what is best for a sum of dollars; the other half
judges. A point of a curve is the mean over the draws for one sum. The file itself says at which commit,
with which versions and seeds it was drawn.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, PercentFormatter

from benchmarks.cascades import (
    DRAWS,
    FIRST_SEED,
    cascades,
    halves,
    read,
    routers,
    singles,
    strongest,
    text_features,
)
from benchmarks.measure import environment
from mild.routers import CascadeRouter

PICTURE = Path(__file__).parents[1] / "docs" / "figures" / "frontier.svg"
BUDGETS = np.geomspace(0.02, 2.5, 15) / 1000  # dollars per query
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


def draw(folder: Path, seed: int) -> dict[str, Any]:
    """(dollars, quality) on the judged half: of each expert, and of what was best for each sum."""
    table = read(folder, "bfcl")
    train, test = halves(table.queries, seed)
    X = text_features(table.queries, train)
    experts = singles(table, train, test)
    weight = 1 / max(experts, key=lambda one: one.quality).price
    cascade = CascadeRouter(0.1 * weight).fit(
        X[train],
        1 - table.scores[train],
        answers=table.answers.take(train),
        prices=table.prices[train],
    )
    found = {
        "router": experts + routers(table, X, train, test, weight),
        "cascade": cascades(cascade, table, X, test),
    }

    def place(choice: Any) -> tuple[float, float]:
        scores, dollars = choice.judged()
        return 1000 * float(dollars.mean()), float(scores.mean())

    places = {"experts": [place(one) for one in experts]}
    for name, choices in found.items():
        places[name] = [place(strongest(choices, budget)) for budget in BUDGETS]
    return places


def main() -> None:
    """Draw the picture from the folder that is named."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    draws = [draw(folder, seed) for seed in range(FIRST_SEED, FIRST_SEED + DRAWS)]
    means = {name: np.mean([one[name] for one in draws], axis=0) for name in draws[0]}
    plt.rcParams |= {"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "mild"}
    colours = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    plt.rcParams |= dict.fromkeys(colours, GREY)
    figure, ax = plt.subplots(figsize=(7.2, 4.3), layout="constrained")
    ax.scatter(*means["experts"].T, marker="s", s=22, color=GREY, label="one model for all queries")
    columns = expert_names(folder)
    for name, (label, offset, side) in NAMES.items():
        place = means["experts"][columns.index(name)]
        ax.annotate(label, place, offset, textcoords="offset points", ha=side, fontsize=8.5)
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
    made = f"{environment()}; BFCL answers, seeds {FIRST_SEED} to {FIRST_SEED + DRAWS - 1}"
    figure.savefig(PICTURE, transparent=True, metadata={"Date": None, "Description": made})
    best = means["experts"][np.argmax(means["experts"][:, 1])]
    print(f"best expert: {best[1]:.3f} at ${best[0]:.2f}")
    for name in ("router", "cascade"):
        print(name, *(f"{quality:.3f} at ${dollars:.3f}" for dollars, quality in means[name]))


def expert_names(folder: Path) -> list[str]:
    """The experts of the table, in its order."""
    import pyarrow.parquet as pq

    from mild.data.expert_order import name_order

    columns = pq.read_schema(folder / "bfcl_answers.parquet").names
    names = [name.removeprefix("answer__") for name in columns if name.startswith("answer__")]
    return [names[index] for index in name_order(names)]


if __name__ == "__main__":
    main()
