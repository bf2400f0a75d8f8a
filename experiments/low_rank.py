"""Does it help that experts share directions? Reduced-rank against full ridge regression of costs.

``python -m experiments.low_rank --data FOLDER`` draws a few labelled rows of public tables, learns the
differences in cost between experts from hashed n-grams, and judges 4,000 other rows. With a rank r the
weights of all experts are combinations of r directions: ridge regression, projected onto the first r
principal directions of its fitted values. Strength and rank are those that explain most of the differences
on held-out folds. A blend also has nearest neighbours and clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from experiments.clusters import ClusterRouter
from experiments.console import main, progress_bar
from experiments.published import FOLDS, Floats, write_results
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.data.splits import folds
from mild.features import make_features
from mild.policies import believed_costs
from mild.routers import KNNRouter
from mild.routers.stack import blend, explained, products
from mild.tuning.tasks import make_task

app = typer.Typer(add_completion=False)

TABLES = ("mmlupro_29models", "zellinger_mmlu", "routerdc_7models")
LABELS = (300, 1_000)
ALPHAS = (1e2, 3e2, 1e3, 3e3, 1e4, 3e4)
RANKS = (1, 2, 3, 4, 6, 8, 12)
#: Rows that are judged, at most.
TEST_ROWS = 4_000
MEMBERS = {"nearest": KNNRouter(40), "clusters": ClusterRouter()}
BLENDS = {
    "blend": ("full rank", *MEMBERS),
    "blend, low rank instead": ("low rank", *MEMBERS),
    "blend, low rank as well": ("full rank", "low rank", *MEMBERS),
}


def estimates(
    X: Floats, differences: Floats, new: Floats, ranks: Sequence[int]
) -> dict[tuple[float, int], Floats]:
    """Expected differences (n_new, p) by strength and rank."""
    mean, level = X.mean(axis=0), differences.mean(axis=0)
    left, sizes, right = np.linalg.svd(X - mean, full_matrices=False)
    along, inputs = left.T @ (differences - level), (new - mean) @ right.T
    found = {}
    for alpha in ALPHAS:
        weights = (sizes / (sizes**2 + alpha))[:, None] * along
        directions = np.linalg.svd(sizes[:, None] * weights, full_matrices=False)[2]
        for rank in ranks:
            few = directions[:rank]
            found[alpha, rank] = level + inputs @ weights @ few.T @ few
    return found


def run_draw(
    X: Floats, costs: Floats, test: Floats, test_costs: Floats, bundle: Any
) -> dict[str, Any]:
    """Mean cost of every router on the test rows, and the rank that was chosen."""
    differences = costs - costs.mean(axis=1, keepdims=True)
    p = costs.shape[1]
    ranks = [rank for rank in RANKS if rank < p - 1] + [p - 1]
    parts = folds(bundle, FOLDS, 0)
    held: dict[Any, Floats] = {}
    for train, out in parts:
        for key, values in estimates(X[train], differences[train], X[out], ranks).items():
            held.setdefault(key, np.empty(costs.shape))[out] = values
        for name, router in MEMBERS.items():
            policy = router.fit(X[train], costs[train]).policy_
            held.setdefault(name, np.empty(costs.shape))[out] = believed_costs(policy, X[out])
    tried = [(alpha, rank) for alpha in ALPHAS for rank in ranks]
    merit = {key: explained(products(held[key], costs, None)) for key in tried}
    chosen = {
        "full rank": max((key for key in tried if key[1] == p - 1), key=merit.__getitem__),
        "low rank": max(tried, key=merit.__getitem__),
    }
    everything = estimates(X, differences, test, ranks)
    expected: dict[str, Any] = {name: everything[key] for name, key in chosen.items()}
    inner = {name: held[key] for name, key in chosen.items()}
    for name, router in MEMBERS.items():
        inner[name] = held[name]
        expected[name] = believed_costs(router.fit(X, costs).policy_, test)
    for name, members in BLENDS.items():
        weights, means, _ = blend(np.array([inner[m] for m in members]), costs, None, parts, 150.0)
        total = sum(
            w * (each - each.mean(axis=1, keepdims=True))
            for w, each in zip(weights, [expected[m] for m in members], strict=False)
        )
        expected[name] = total + weights[-1] * means
    rows = np.arange(len(test))
    paid = {n: float(test_costs[rows, each.argmin(axis=1)].mean()) for n, each in expected.items()}
    paid["constant"] = float(test_costs[:, costs.mean(axis=0).argmin()].mean())
    return {"costs": paid, "rank": chosen["low rank"][1]}


def run_table(file: Path, labels: int, draws: int, report: Any) -> dict[str, Any]:
    """Draws of labelled rows of a table, and the rest of it, as far as every expert was asked."""
    task = make_task(read_outcomes(file), CostTerms())
    known = np.flatnonzero(~np.isnan(task.costs).any(axis=1))
    found = []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(known)
        train = np.sort(order[:labels])
        rest = order[labels:]
        test = rest[~np.isin(task.groups[rest], task.groups[train])][:TEST_ROWS]
        step = make_features("hashing").fit([task.table.queries[i] for i in train])
        X, new = (
            step.transform([task.table.queries[i] for i in rows]).astype(np.float64)
            for rows in (train, test)
        )
        found.append(run_draw(X, task.costs[train], new, task.costs[test], task.groups[train]))
        report(draw + 1, draws, f"{file.stem}, {labels} labels")
    costs = pd.DataFrame([one["costs"] for one in found])
    change = costs.sub(costs["full rank"], axis=0)
    for name in BLENDS:
        change[name] = costs[name] - costs["blend"]
    spread = change.std(ddof=1) / np.sqrt(draws)
    return {
        "mean cost": costs.mean().to_dict(),
        "difference": change.mean().to_dict(),
        "standard error": spread.to_dict(),
        "ranks": [one["rank"] for one in found],
        "experts": len(task.table.experts),
    }


@app.command(help=__doc__)
def experiment(
    data: Annotated[Path, typer.Option(help="Folder of the tables, as .parquet.")],
    draws: Annotated[int, typer.Option(min=2, help="Draws of labelled rows.")] = 10,
    out: Annotated[Path, typer.Option(help="Results file.")] = Path(
        "results/published/low_rank.json"
    ),
) -> None:
    """Run and write the results."""
    results: dict[str, Any] = {"draws": draws, "tables": {}}
    with progress_bar("low rank") as report:
        for name in TABLES:
            for labels in LABELS:
                found = run_table(data / f"{name}.parquet", labels, draws, report)
                results["tables"][f"{name}, {labels} labels"] = found
                write_results(out, results)
    frame = {
        key: {name: f"{mean:.4f}" for name, mean in found["mean cost"].items()}
        for key, found in results["tables"].items()
    }
    typer.echo(pd.DataFrame(frame).T.to_string())


if __name__ == "__main__":
    main(app)
