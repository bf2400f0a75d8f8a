"""What 100 answers of a new expert are worth to a router that is fitted again.

``python -m benchmarks.new_expert --data FOLDER [--jobs N]`` takes three tables. In each of ten draws 500
rows train, and one expert is new: the best in the first draw, the second best in the next one, and so on.
100 random rows of the training part have its score and price, the others have NaN. The figure is the mean
cost on test rows of a router that is fitted or tuned on this table, beside that of one without the new
expert. Without ``--data`` it prints what is kept in ``results/``; "added" there is a way that was given up,
which estimated the new expert as a mixture of the known ones.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import mild
from benchmarks.measure import environment

RESULTS = Path(__file__).parent.parent / "results" / "new_expert.json"
# Table -> price weight; the dearest expert of a table costs about a tenth of a wrong answer, or nothing.
TABLES: dict[str, float | None] = {
    "routing/zellinger_mmlu": 100.0,
    "more/bfcl_answers": 10.0,
    "routing/routerdc_7models": None,
}
# Kinds of routers, with settings of those that are not searched.
ROUTERS: dict[str, dict[str, Any]] = {
    "tune": {},
    "ridge": {"alpha": 1000.0},
    "priced": {"alpha": 0.1},
}
N_TRAIN = 500
MOST_TEST = 3000
N_LABELS = 100
N_DRAWS = 10


def fitted(kind: str, table: mild.Outcomes, price_weight: float | None) -> mild.Router:
    """Return a router of a kind."""
    if kind == "tune":
        search = mild.RouterCV(n_jobs=1)
        return mild.tune(table, price_weight=price_weight or 0.0, search=search).router
    return mild.fit(table, kind, price_weight=price_weight, **ROUTERS[kind])


def draw_result(job: tuple[str, str, int]) -> list[dict[str, Any]]:
    """Mean costs on the test part of one draw, and CPU seconds, for every kind of router."""
    folder, name, draw = job
    warnings.simplefilter("ignore")
    price_weight = TABLES[name]
    table = mild.read_outcomes(str(Path(folder) / f"{name}.parquet"))
    best_first = np.argsort(table.costs(price_weight=price_weight).mean(axis=0), kind="stable")
    new = int(best_first[draw % len(best_first)])
    train, test = table.split(test_size=1 - N_TRAIN / len(table), random_state=draw)
    rng = np.random.default_rng(draw)
    test = test[rng.permutation(len(test))[:MOST_TEST]]
    asked = rng.choice(len(train), N_LABELS, replace=False)
    known = train.select([expert for k, expert in enumerate(train.experts) if k != new])
    partly_asked = with_answers_to(train, new, asked)
    costs = test.costs(price_weight=price_weight)

    def mean_cost(router: mild.Router) -> float:
        chosen = [test.experts.index(expert) for expert in router.route(test.queries)]
        return float(costs[np.arange(len(costs)), chosen].mean())

    rows = []
    for kind in ROUTERS:
        start = time.process_time()
        again = fitted(kind, partly_asked, price_weight)
        seconds = time.process_time() - start
        rows.append(
            {
                "table": name,
                "draw": draw,
                "new": table.experts[new],
                "router": kind,
                "without": mean_cost(fitted(kind, known, price_weight)),
                "again": mean_cost(again),
                "seconds": {"again": seconds},
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
    """Print mean costs over the draws, CPU seconds, and differences with their standard errors."""
    print(content["environment"])
    results = content["results"]
    for table, kind in dict.fromkeys((row["table"], row["router"]) for row in results):
        rows = [row for row in results if (row["table"], row["router"]) == (table, kind)]
        parts = []
        for name in ("without", "again", "added"):
            if name not in rows[0]:
                continue
            part = f"{name} {np.mean([row[name] for row in rows]):.4f}"
            if name in rows[0]["seconds"]:
                part += f" ({np.mean([row['seconds'][name] for row in rows]):.1f} s)"
            if name != "again":
                differences = np.array([row["again"] - row[name] for row in rows])
                error = differences.std(ddof=1) / np.sqrt(len(rows))
                part += f", again minus it {differences.mean():+.4f} ± {error:.4f}"
            parts.append(part)
        print(f"{table}, {kind}: {'; '.join(parts)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.new_expert")
    parser.add_argument("--data", help="folder of the public tables")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    if given.data is None:
        show(json.loads(RESULTS.read_text()))
        return
    measured_on = environment()
    jobs = [(given.data, table, draw) for table in TABLES for draw in range(N_DRAWS)]
    with ProcessPoolExecutor(given.jobs) as pool:
        results = [row for rows in pool.map(draw_result, jobs) for row in rows]
    content = {
        "environment": measured_on,
        "labels": N_LABELS,
        "train": N_TRAIN,
        "results": results,
    }
    RESULTS.write_text(json.dumps(content) + "\n")
    show(content)


if __name__ == "__main__":
    main()
