"""Compare two ways to a router with a new expert that has answered 100 queries.

``python -m benchmarks.new_expert --data FOLDER [--jobs N]`` takes three tables. In each of ten draws a
table is split anew, and one expert is new: the best in the first draw, the second best in the next one,
and so on. 100 random rows of the training part have its score and price. One way is ``mild.add_expert``,
the other is to fit or tune again on the training part with NaN where the new expert was not asked.
Compared is the mean cost on the test part, for the router of ``mild.tune`` and for two kinds of fixed
settings. Without ``--data`` it prints what is kept in ``results/``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import mild
from benchmarks.measure import environment
from mild.errors import UnsupportedError

RESULTS = Path(__file__).parent.parent / "results" / "new_expert.json"
# Table -> price weight; the dearest expert of a table costs about a tenth of a wrong answer, or nothing.
TABLES: dict[str, float | None] = {
    "routing/zellinger_mmlu": 100.0,
    "more/bfcl_answers": 10.0,
    "routing/routerdc_7models": None,
}
N_TRAIN = 500  # rows, drawn at random; the others test, at most MOST_TEST
MOST_TEST = 3000
N_LABELS = 100
N_DRAWS = 10


def fitted(kind: str, table: mild.Outcomes, price_weight: float | None) -> mild.Router:
    """Return a router of a kind: that of ``tune``, or one of fixed settings."""
    if kind == "tune":
        search = mild.RouterCV(n_jobs=1)
        return mild.tune(table, price_weight=price_weight or 0.0, search=search).router
    settings = {"ridge": {"alpha": 1000.0}, "priced": {"alpha": 0.1}}[kind]
    return mild.fit(table, kind, price_weight=price_weight, **settings)


def draw_result(job: tuple[str, str, int, list[str]]) -> list[dict[str, Any]]:
    """Mean costs on the test part of one draw, and CPU seconds, for every kind of router."""
    folder, name, draw, kinds = job
    warnings.simplefilter("ignore")
    price_weight = TABLES[name]
    table = mild.read_outcomes(str(Path(folder) / f"{name}.parquet"))
    best_first = np.argsort(table.costs(price_weight=price_weight).mean(axis=0), kind="stable")
    new = int(best_first[draw % len(best_first)])
    new_name = table.experts[new]
    train, test = table.split(test_size=1 - N_TRAIN / len(table), random_state=draw)
    rng = np.random.default_rng(draw)
    test = test[rng.permutation(len(test))[:MOST_TEST]]
    known = train.select([expert for expert in train.experts if expert != new_name])
    asked = rng.choice(len(train), N_LABELS, replace=False)
    partly_asked = with_answers_to(train, new, asked)
    costs = test.costs(price_weight=price_weight)

    def mean_cost(router: mild.Router) -> float:
        chosen = [test.experts.index(expert) for expert in router.route(test.queries)]
        return float(costs[np.arange(len(costs)), chosen].mean())

    def timed(make: Callable[[], mild.Router]) -> tuple[float | None, float]:
        start = time.process_time()
        try:
            router = make()
        except UnsupportedError:
            return None, 0.0
        seconds = time.process_time() - start
        return mean_cost(router), seconds

    rows = []
    for kind in kinds:
        before = fitted(kind, known, price_weight)
        added, added_seconds = timed(
            lambda before=before: (
                mild.add_expert(before, train[asked], new_name, known=known).router
            )
        )
        again, again_seconds = timed(lambda kind=kind: fitted(kind, partly_asked, price_weight))
        rows.append(
            {
                "table": name,
                "draw": draw,
                "new": new_name,
                "router": kind,
                "without": mean_cost(before),
                "added": added,
                "again": again,
                "seconds": {"added": added_seconds, "again": again_seconds},
            }
        )
    return rows


def with_answers_to(table: mild.Outcomes, expert: int, rows: Any) -> mild.Outcomes:
    """Return the table with NaN for what an expert answered in other rows."""
    unasked = np.ones(len(table), dtype=bool)
    unasked[rows] = False
    changed = {}
    for name in ("scores", "prices", "latencies"):
        array = getattr(table, name)
        if array is not None:
            array = array.copy()
            array[unasked, expert] = np.nan
        changed[name] = array
    return replace(table, **changed)


def show(content: dict[str, Any]) -> None:
    """Print mean costs, the difference of the two ways with its standard error, and seconds."""
    print(content["environment"])
    results = content["results"]
    for table, kind in dict.fromkeys((row["table"], row["router"]) for row in results):
        rows = [row for row in results if (row["table"], row["router"]) == (table, kind)]
        means = {name: np.mean([row[name] for row in rows]) for name in ("without", "again")}
        line = ", ".join(f"{name} {mean:.4f}" for name, mean in means.items())
        line += f", {np.mean([row['seconds']['again'] for row in rows]):.1f} s"
        both = [row for row in rows if row["added"] is not None]
        if both:
            differences = np.array([row["again"] - row["added"] for row in both])
            error = differences.std(ddof=1) / np.sqrt(len(both)) if len(both) > 1 else np.nan
            line += (
                f"; added {np.mean([row['added'] for row in both]):.4f} ({len(both)} of {len(rows)}), "
                f"{np.mean([row['seconds']['added'] for row in both]):.1f} s, "
                f"again - added {differences.mean():+.4f} +- {error:.4f}"
            )
        print(f"{table}, {kind}: {line}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.new_expert")
    parser.add_argument("--data", help="folder of the public tables")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--draws", type=int, default=N_DRAWS)
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--routers", nargs="*", default=["tune", "ridge", "priced"])
    given = parser.parse_args()
    if given.data is None:
        show(json.loads(RESULTS.read_text()))
        return
    jobs = [
        (given.data, table, draw, given.routers)
        for draw in range(given.draws)
        for table in given.tables
    ]
    results = []
    with ProcessPoolExecutor(given.jobs) as pool:
        for rows in pool.map(draw_result, jobs):
            results += rows
            for row in rows:
                print(json.dumps(row), flush=True)
    content = {"environment": environment(), "labels": N_LABELS, "results": results}
    RESULTS.write_text(json.dumps(content) + "\n")
    show(content)


if __name__ == "__main__":
    main()
