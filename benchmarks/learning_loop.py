"""Claim: a router that learns from its own ledger gets close to one that saw every outcome.

``python -m benchmarks.learning loop --data FOLDER [--jobs N]`` plays MMLU-Pro (29 models, public outcomes)
as traffic: a first router from a few complete rows, 20,000 requests drawn from the training part with
``explore = "auto"``, every answer graded, and ``learn`` every 2,000 requests. Router, exploration, training
and the judge are those of mild; only the ledger is kept in memory. All routers are compared on test rows
that nobody learns from. The gap left is ``(last - all) / (first - all)`` of mean losses over the
repetitions, where "all" is trained on every outcome of the training part. A promotion is truly worse if
the promoted router's loss on the test rows is higher. Settings were chosen on seeds below 1,000. The
figures are kept in ``results/learning_loop.json``; without ``--data`` they are printed again.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import mild
from benchmarks.measure import environment
from mild.artifact import Router
from mild.artifact.info import RouterInfo
from mild.core.arrays import FloatArray
from mild.features import make_features
from mild.policies import ConstantPolicy
from mild_gateway.learning.learn import Learning, TriedRouter
from mild_gateway.learning.logged_outcomes import (
    CostWeights,
    LoggedOutcomes,
    TableRows,
    fit_candidate,
)
from mild_gateway.selection.exploration import AutoExploration

KEPT = Path(__file__).parent.parent / "results" / "learning_loop.json"
TABLE = Path("routing", "mmlupro_29models.parquet")
REQUESTS, PERIOD, TEST_ROWS, FIRST_SEED = 20_000, 2_000, 3_500, 1_000
FIRST_ROWS = (10, 20, 50, 100)


@lru_cache(maxsize=1)
def load_table(folder: str) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    """Features and errors of the queries that every model answered."""
    table = mild.read_outcomes(Path(folder, TABLE))
    known = ~np.isnan(table.scores).any(axis=1)
    X = make_features("hashing").fit_transform(table.queries)[known].astype(np.float32)
    return X, 1 - table.scores[known], tuple(table.experts)


def logged(X: FloatArray, names: tuple[str, ...], columns: dict[str, Any]) -> LoggedOutcomes:
    """Answers that were all graded, as ``read_logged`` would give them."""
    n = len(X)
    time = np.arange(n, dtype=float)
    return LoggedOutcomes(
        X=X,
        request_id=np.arange(n).astype("S8"),
        time=time,
        expert=columns["chosen"],
        chosen=columns["chosen"],
        preferred=columns["preferred"],
        propensity=columns["propensity"],
        draws=columns["draws"],
        selected=np.zeros(n, bool),
        error=columns["error"],
        rate=np.ones(n),
        dollars=np.zeros(n),
        latency=np.zeros(n),
        source=np.ones(n, np.int16),
        router=np.zeros(n, np.int32),
        reported=np.full(n, -1, np.int32),
        episode=np.arange(n),
        expert_names=names,
        routers=("served",),
        reports=(),
        requests=n,
        from_text=n,
        from_features=0,
        left_out={},
    )


def play(folder: str, seed: int, first_rows: int, most: float, confidence: float) -> dict[str, Any]:
    """One repetition."""
    X, errors, names = load_table(folder)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    test, train = order[:TEST_ROWS], order[TEST_ROWS:]
    p, info = len(names), RouterInfo(fingerprint="served")
    blank = Router(ConstantPolicy(np.zeros(p), X.shape[1]), list(names), info=info)
    weights = CostWeights.of(blank)

    def known(rows: Any) -> TableRows:
        none = np.full((len(rows), p), np.nan)
        return TableRows(X[rows], errors[rows], none, none)

    def loss(router: Router) -> float:
        return float(errors[test, router.policy.predict(X[test])].mean())

    empty = logged(X[:0], names, {name: np.empty(0) for name in ("propensity", "error")} | {
        "chosen": np.empty(0, np.intp), "preferred": np.empty(0, np.intp), "draws": np.empty((0, p)),
    })  # fmt: skip
    first = fit_candidate(blank, known(train[:first_rows]), empty, weights)
    complete = fit_candidate(blank, known(train), empty, weights)
    serving, learned_until, candidate = first, None, None
    rows: list[int] = []
    columns: dict[str, list[Any]] = {
        name: [] for name in ("chosen", "preferred", "propensity", "draws", "error")
    }
    promotions, explored = [], 0
    for _ in range(REQUESTS // PERIOD):
        asked = rng.choice(train[first_rows:], PERIOD)
        found = serving.policy.decide(X[asked])
        auto = AutoExploration(serving, None if candidate is None else candidate.router, most)
        for i, row in enumerate(asked.tolist()):
            best = int(found.chosen[i])
            draws = auto.probabilities(best, range(p), found.costs[i], X[row])
            chosen = int(rng.choice(p, p=np.array(draws) / sum(draws)))
            explored += chosen != best
            values = (chosen, best, draws[chosen], draws, errors[row, chosen])
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
        rows += asked.tolist()
        log = logged(X[rows], names, {name: np.array(one) for name, one in columns.items()})
        learning = Learning(
            serving, log, known(train[:first_rows]), weights, False, confidence, 100, "better"
        )
        learned = learning.find(learned_until, candidate)
        waiting, candidate = candidate, None
        if learned.promotes:
            promotions.append((loss(serving), loss(learned.router)))
            serving, learned_until = learned.router, learned.learned_until
        elif waiting is not None and learned.router is waiting.router:
            candidate = waiting
        elif learned.differs and learned.learned_until is not None:
            candidate = TriedRouter(learned.router, learned.learned_until)
    constant = errors[train].mean(axis=0).argmin()
    return {
        "first": loss(first),
        "all": loss(complete),
        "last": loss(serving),
        "constant": float(errors[test, constant].mean()),
        "promotions": promotions,
        "explored": explored / REQUESTS,
        "served": float(np.mean(columns["error"])),
    }


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over repetitions, with standard errors by the bootstrap."""
    losses = np.array(
        [[run[name] for name in ("first", "last", "all", "constant")] for run in runs]
    )

    def left(values: FloatArray) -> float:
        first, last, whole = values.mean(axis=0)[:3]
        return float((last - whole) / (first - whole))

    rng = np.random.default_rng(0)
    drawn = [left(losses[rng.integers(len(runs), size=len(runs))]) for _ in range(1000)]
    promotions = [pair for run in runs for pair in run["promotions"]]
    worse = sum(new > old for old, new in promotions)
    return {
        "repetitions": len(runs),
        **dict(
            zip(("first", "last", "all", "constant"), losses.mean(axis=0).tolist(), strict=True)
        ),
        "gap_left": left(losses),
        "gap_left_interval": np.quantile(drawn, [0.025, 0.975]).tolist(),
        "promotions": len(promotions),
        "worse": worse,
        "worse_share": worse / max(len(promotions), 1),
        "explored": float(np.mean([run["explored"] for run in runs])),
        "served": float(np.mean([run["served"] for run in runs])),
    }


def main(arguments: list[str]) -> int:
    """Run the simulation, or print what is kept."""
    parser = argparse.ArgumentParser(prog="benchmarks.learning loop", description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--first-rows", type=int, nargs="+", default=FIRST_ROWS)
    parser.add_argument("--most", type=float, default=0.2, help="explore_max")
    parser.add_argument("--confidence", type=float, default=0.98)
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=KEPT)
    options = parser.parse_args(arguments)
    if options.data is None:
        print(options.out.read_text(encoding="utf-8"))
        return 0
    results = {}
    seeds = range(options.seed, options.seed + options.repetitions)
    with ProcessPoolExecutor(options.jobs) as pool:
        for first_rows in options.first_rows:
            work = [
                pool.submit(play, options.data, seed, first_rows, options.most, options.confidence)
                for seed in seeds
            ]
            results[str(first_rows)] = summarise([one.result() for one in work])
            print(first_rows, json.dumps(results[str(first_rows)]), flush=True)
    kept = {
        "claim": (__doc__ or "").splitlines()[0],
        "settings": {
            "requests": REQUESTS, "learn_every": PERIOD, "explore_max": options.most,
            "confidence": options.confidence,
            "first_seed": options.seed, "test_rows": TEST_ROWS,
        },
        "by_rows_of_the_first_table": results,
        "environment": environment(),
    }  # fmt: skip
    options.out.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return 0
