"""Claim: planned labels reach the loss of random labels for at most 60 % of their dollars.

``python -m benchmarks.learning plan --data FOLDER`` halves each table. In one half only 20 queries have
outcomes, of all experts; the other outcomes are bought in eight rounds, for a tenth of what all of them
cost together, in the dollars of the table (0.001 a call where it has none). After every round the pooled
heads are fitted on what is known and judged on the other half: error + price weight * dollars. Strategies:
``plan`` (experiments.planning), ``random`` (random experts about random queries) and ``all_experts`` (all
experts about random queries). ``ratio`` is the spend at which the mean curve of a strategy reaches the loss
of ``random`` at its full spend, over that spend; curves are made monotone by isotonic regression, and the
interval is over the draws. The rule was chosen with seeds 100 to 109; seeds from 1000 judge. ``--judge
priced`` fits a PricedRouter of strength 1 on all features instead of the heads, ``--judge priced_weak`` one
of strength 0.1.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

from benchmarks.measure import environment
from experiments.planning.cells import head_features, plan_cells, random_cells, row_cells
from mild.core.arrays import BoolArray, FloatArray
from mild.data import read_outcomes
from mild.features import HashingFeatures
from mild.routers.base import unwarned
from mild.routers.cost_models import PricedRouter
from mild_gateway.learning.pooled_heads import PooledHeads, SparseOutcomes, pooled_heads

KEPT = Path(__file__).parent.parent / "results" / "learning_plan.json"
# Table, and wrong answers that a dollar is worth.
TABLES = {
    "more/bfcl_answers": 5.0,
    "routing/routerdc_7models": 0.0,
    "routing/zellinger_mmlu": 100.0,
    "routing/zellinger_triviaqa": 50.0,
    "routing/mmlupro_29models": 0.0,
    "more/zeroeval_crux_answers": 5.0,
    "more/zeroeval_math_l5_answers": 5.0,
    "more/zeroeval_gsm8k_answers": 5.0,
}
STRATEGIES = ("random", "all_experts", "plan")
DRAWS, FIRST_SEED = 24, 1000
SEED_QUERIES, ROUNDS, SHARE, MOST_ROWS = 20, 8, 0.1, 6_000
TARGET = 0.6
# Router that judges -> strength of its heads; None for the pooled heads of the plan.
JUDGES = {"heads": None, "priced": 1.0, "priced_weak": 0.1}


@lru_cache(maxsize=1)
def load(path: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Features, errors and dollars of the rows of which everything is known."""
    table = read_outcomes(path)
    complete = ~np.isnan(table.scores).any(axis=1)
    if table.prices is not None:
        complete &= ~np.isnan(table.prices).any(axis=1)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(complete))[:MOST_ROWS]
    table = table[np.sort(rows)]
    X = HashingFeatures().fit_transform(table.queries)
    dollars = np.full(table.scores.shape, 1e-3) if table.prices is None else table.prices
    return X, 1 - table.scores, dollars


def fit_heads(X: FloatArray, errors: FloatArray) -> PooledHeads:
    """Heads by the known errors (n, p)."""
    return pooled_heads(X, SparseOutcomes.of_matrix(errors), errors.shape[1])


def choices(
    judge: str,
    X: FloatArray,
    heads: FloatArray,
    errors: FloatArray,
    dollars: FloatArray,
    weight: float,
) -> Any:
    """The expert (n,) that a router chooses for every row, fitted on the known errors."""
    mean = np.nanmean(dollars, axis=0)
    if judge == "heads":
        return (fit_heads(heads, errors).expected(heads) + weight * mean).argmin(axis=1)
    known = ~np.isnan(errors).all(axis=1)
    router = PricedRouter(alpha=JUDGES[judge], price_weight=weight)
    unwarned(router.fit)(X[known], errors[known], None, mean)
    return router.predict(X)


def draw(path: str, weight: float, seed: int, judge: str) -> dict[str, list[list[float]]]:
    """Curves of every strategy, as pairs of dollars spent and loss on the other half."""
    X, errors, dollars = load(path)
    heads = head_features(X)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(errors))
    test, pool = np.split(order, [len(order) // 2])
    costs = errors + weight * dollars
    budget = SHARE * dollars[pool].sum()
    found: dict[str, list[list[float]]] = {}
    for strategy in STRATEGIES:
        known: BoolArray = np.zeros(errors.shape, bool)
        known[pool[:SEED_QUERIES]] = True
        rng, spent, curve = np.random.default_rng(seed), 0.0, []
        for number in range(ROUNDS + 1):
            seen, paid = np.where(known, errors, np.nan), np.where(known, dollars, np.nan)
            chosen = choices(judge, X, heads, seen, paid, weight)
            curve.append([spent, float(costs[test, chosen[test]].mean())])
            if number == ROUNDS:
                break
            left = budget * (number + 1) / ROUNDS - spent
            expected = np.broadcast_to(np.nanmean(paid, axis=0), (len(pool), errors.shape[1]))
            unknown = ~known[pool]
            if strategy == "plan":
                fitted = fit_heads(heads, seen)
                asking = fitted.expected(heads[pool]) + weight * expected
                cells = plan_cells(asking, fitted, unknown, expected, left, rng)
            else:
                pick = random_cells if strategy == "random" else row_cells
                cells = pick(unknown, expected, left, rng)
            rows = pool[cells[:, 0]]
            known[rows, cells[:, 1]] = True
            spent += float(dollars[rows, cells[:, 1]].sum())
        found[strategy] = curve
    return found


def ratios(curves: dict[str, FloatArray]) -> dict[str, float]:
    """Spend at which a strategy reaches the last loss of ``random``, as a share of its spend.

    ``curves`` (draws, rounds + 1, 2) are averaged over the draws; infinite where it is never reached.
    """
    means = {name: curve.mean(axis=0) for name, curve in curves.items()}
    smooth = {
        name: IsotonicRegression(increasing=False).fit_transform(mean[:, 0], mean[:, 1])
        for name, mean in means.items()
    }
    level, full = smooth["random"][-1], means["random"][-1, 0]
    found = {}
    for name, mean in means.items():
        loss = smooth[name]
        first = int(np.argmax(loss <= level)) if (loss <= level).any() else None
        if first is None:
            found[name] = np.inf
        elif first == 0:
            found[name] = 0.0
        else:
            part = (loss[first - 1] - level) / (loss[first - 1] - loss[first])
            found[name] = float(mean[first - 1, 0] + part * np.diff(mean[:, 0])[first - 1]) / full
    return found


def summary(draws: Sequence[dict[str, list[list[float]]]], weight: float) -> dict[str, Any]:
    """Mean curves, and the ratio of every strategy with its interval over draws."""
    curves = {name: np.array([one[name] for one in draws]) for name in STRATEGIES}
    rng = np.random.default_rng(0)
    again = []
    for _ in range(1_000):
        rows = rng.integers(0, len(draws), len(draws))
        again.append(ratios({name: curve[rows] for name, curve in curves.items()}))
    return {
        "price_weight": weight,
        "draws": len(draws),
        "strategies": {
            name: {
                "ratio": ratio if np.isfinite(ratio) else None,
                "ratio_interval": [
                    float(edge) if np.isfinite(edge) else None
                    for edge in np.quantile(
                        [one[name] for one in again], (0.025, 0.975), method="inverted_cdf"
                    )
                ],
                "dollars": curves[name].mean(axis=0)[:, 0].tolist(),
                "loss": curves[name].mean(axis=0)[:, 1].tolist(),
                "loss_deviation": curves[name].std(axis=0)[:, 1].tolist(),
            }
            for name, ratio in ratios(curves).items()
        },
    }


def main(arguments: Sequence[str]) -> int:
    """Measure, print and keep the ratios."""
    parser = argparse.ArgumentParser(prog="benchmarks.learning plan", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with routing/ and more/")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--judge", choices=list(JUDGES), default="heads")
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--out", type=Path, default=KEPT)
    chosen = parser.parse_args(arguments)
    kept = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    for name in chosen.tables if chosen.data is not None else ():
        path, start = chosen.data / f"{name}.parquet", time.perf_counter()
        if not path.exists():
            print(f"{path} is not there; skipped.")
            continue
        seeds = range(FIRST_SEED, FIRST_SEED + chosen.draws)
        work = (repeat(str(path)), repeat(TABLES[name]), seeds, repeat(chosen.judge))
        if chosen.jobs > 1:
            with ProcessPoolExecutor(chosen.jobs) as workers:
                draws = list(workers.map(draw, *work))
        else:
            draws = list(map(draw, *work))
        found = summary(draws, TABLES[name])
        found["seconds"] = round(time.perf_counter() - start, 1)
        kept.setdefault("environment", environment())
        kept.setdefault(chosen.judge, {})[name] = found
        chosen.out.write_text(json.dumps(kept, indent=1) + "\n")
        _show(chosen.judge, name, found)
    if chosen.data is None:
        for judge in JUDGES:
            for name, found in kept.get(judge, {}).items():
                _show(judge, name, found)
    met = [name for name, found in kept.get("heads", {}).items() if _meets(found)]
    print(f"plan needs at most {TARGET:.0%} of the dollars of random labels on: {', '.join(met)}")
    return 0 if len(met) >= 2 else 1


def _meets(found: dict[str, Any]) -> bool:
    ratio = found["strategies"]["plan"]["ratio"]
    return ratio is not None and 0 < ratio <= TARGET


def _show(judge: str, name: str, found: dict[str, Any]) -> None:
    for strategy, one in found["strategies"].items():
        low, high = ("never" if edge is None else f"{edge:.2f}" for edge in one["ratio_interval"])
        ratio = "never" if one["ratio"] is None else f"{one['ratio']:.2f}"
        curve = f"loss {one['loss'][0]:.4f} to {one['loss'][-1]:.4f}"
        print(
            f"{judge:12s}{name:32s}{strategy:12s} ratio {ratio} ({low} to {high}), {curve}",
            flush=True,
        )
