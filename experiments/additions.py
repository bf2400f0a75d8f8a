"""What would the small network, or static embeddings beside hashed n-grams, add to ``mild tune``?

``python -m experiments.additions --data FOLDER`` draws labelled rows of public tables, fits what ``mild
tune`` returns by default, the same with the network among its families, and the same on hashed n-grams
beside the static embeddings of the package wordllama, and judges 4,000 other rows: the mean cost of the
choices, and the share of the differences in cost between experts that the expected costs explain.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from experiments.console import main, progress_bar
from experiments.published import FOLDS, write_results
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.data.splits import folds
from mild.features import HashingFeatures
from mild.features.base import flat_scale
from mild.routers import LinearRouter, RouterCV
from mild.routers.stack import explained, products
from mild.tuning.tasks import make_task

app = typer.Typer(add_completion=False)

#: Rows to label; the others, or as many, are judged.
TABLES = {"routellm_mmlu_test": 1_500, "routerdc_7models": 1_500, "zellinger_mmlu": 1_200}
TEST_ROWS = 4_000
#: Families of the search, and features.
VARIANTS = {
    "default": ("auto", ("hashing",)),
    "with the network": ("all", ("hashing",)),
    "with static embeddings": ("auto", ("hashing", "static")),
}


def hashed(seen: list[str], new: list[str]) -> tuple[Any, Any]:
    """Hashed n-grams of the rows that are fitted on, and of new ones."""
    features = HashingFeatures().fit(seen)
    return features.transform(seen), features.transform(new)


def embedded(seen: list[str], new: list[str]) -> tuple[Any, Any]:
    """Static embeddings of both, centred and scaled by one number."""
    from wordllama import WordLlama

    model = WordLlama.load()
    rows = model.embed(seen)
    centre, scale = flat_scale(rows)
    return (rows - centre) / scale, (model.embed(new) - centre) / scale


FEATURES = {"hashing": hashed, "static": embedded}


def run_draw(task: Any, labels: int, seed: int, variants: dict[str, Any]) -> dict[str, Any]:
    """Cost on the rows that are judged, explained differences and processor seconds of every variant."""
    known = np.flatnonzero(~np.isnan(task.costs).any(axis=1))
    order = np.random.default_rng(seed).permutation(known)
    train, rest = np.sort(order[:labels]), order[labels:]
    test = rest[~np.isin(task.groups[rest], task.groups[train])][:TEST_ROWS]
    seen, new = ([task.table.queries[i] for i in rows] for rows in (train, test))
    found = {}
    for name, (families, kinds) in variants.items():
        start = time.process_time()
        both = [FEATURES[kind](seen, new) for kind in kinds]
        X, Z = (np.hstack(columns) for columns in zip(*both, strict=True))
        search = RouterCV(
            LinearRouter(ties="first"),
            families=families,
            cv=folds(task.groups[train], FOLDS, 0),
            constant_if_better=False,
        ).fit(X, task.costs[train])
        expected = -search.policy_.decision_function(Z).astype(np.float64)
        costs = task.costs[test]
        found[name] = {
            "cost": float(costs[np.arange(len(test)), expected.argmin(axis=1)].mean()),
            "explained": explained(products(expected, costs, None)),
            "processor seconds": round(time.process_time() - start, 1),
        }
    return found


@app.command(help=__doc__)
def experiment(
    data: Annotated[Path, typer.Option(help="Folder of the tables, as .parquet.")],
    draws: Annotated[int, typer.Option(min=1, help="Draws of labelled rows.")] = 2,
    out: Annotated[Path, typer.Option(help="Results file.")] = Path(
        "results/published/additions.json"
    ),
) -> None:
    """Run and write the results after every draw."""
    results: dict[str, Any] = {"tables": {}}
    with progress_bar("additions") as report:
        for draw in range(draws):
            for table, labels in TABLES.items():
                task = make_task(read_outcomes(data / f"{table}.parquet"), CostTerms())
                found = run_draw(task, labels, draw, VARIANTS)
                results["tables"].setdefault(table, []).append(found)
                write_results(out, results)
                report(draw + 1, draws, table)
    frame = {
        f"{table}, draw {draw}": {name: f"{one['cost']:.4f}" for name, one in found.items()}
        for table, draws_found in results["tables"].items()
        for draw, found in enumerate(draws_found)
    }
    typer.echo(pd.DataFrame(frame).T.to_string())


if __name__ == "__main__":
    main(app)
