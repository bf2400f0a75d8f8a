"""Question: does a searched strength of the baseline beat ``contrast`` (0) and ``others`` (1)?

Linear routers with equal margins on the embedded digits and the embedded table of outcomes. Half of the
rows train, half test; alpha, and for the searched column the strength as well, by cross-validation on the
training half. A row of the table is the mean over splits.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.preprocessing import StandardScaler

from mild.core.arrays import FloatArray
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.datasets import COSTS, SETUPS, digits_scenario, outcomes_file
from mild.errors import MildWarning
from mild.features import HashingFeatures
from mild.metrics import deferral_loss
from mild.routers import LinearRouter, RouterCV
from mild.tuning.tasks import make_task

STRENGTHS = (0.0, 0.25, 0.5, 1.0, 2.0)
PRICES = {"errors": CostTerms(), "errors + 0.1 per second": CostTerms(latency_weight=0.1)}

Split = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


def problems(seed: int) -> Iterator[tuple[str, Split]]:
    """Name, training features and costs, test features and costs."""
    for setup in SETUPS:
        for cost in COSTS:
            data = digits_scenario(setup, cost=cost, random_state=seed)
            train, test = data.train, data.test
            yield f"digits {setup}, {cost}", (train.X, train.costs, test.X, test.costs)
    table = read_outcomes(outcomes_file())
    texts = np.array(table.queries, dtype=object)
    rows = np.random.default_rng(seed).permutation(len(texts))
    train, test = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    features = HashingFeatures(n_components=256).fit(list(texts[train]))
    X = features.transform(list(texts))
    for name, terms in PRICES.items():
        costs = make_task(table, terms).costs
        yield f"outcomes, {name}", (X[train], costs[train], X[test], costs[test])


def split_costs(split: Split, seed: int) -> list[float]:
    """Test cost of each fixed strength, and of the one that cross-validation takes."""
    scaler = StandardScaler().fit(split[0])
    X, X_test = scaler.transform(split[0]), scaler.transform(split[2])
    paid, judged = [], []
    for strength in STRENGTHS:
        router = LinearRouter(rewards="baseline", strength=strength, margins="uniform")
        search = RouterCV(
            router, margin_factors=(1.0,), one_standard_error=False, random_state=seed
        ).fit(X, split[1])
        paid.append(deferral_loss(split[3], search.predict(X_test)))
        judged.append(min(search.cv_results_["mean_cost"]))
    return [*paid, paid[int(np.argmin(judged))]]


def run(splits: int = 10) -> str:
    """The table, as Markdown."""
    found: dict[str, list[list[float]]] = {}
    for seed in range(splits):
        for name, split in problems(seed):
            found.setdefault(name, []).append(split_costs(split, seed))
    heads = [*(f"s = {strength:g}" for strength in STRENGTHS), "searched"]
    lines = [
        f"| mean cost over {splits} splits | "
        + " | ".join(heads)
        + " | minus contrast | minus others |",
        "|---" * (len(heads) + 3) + "|",
    ]
    for name, rows in found.items():
        costs = np.array(rows)
        cells = [f"{mean:.4f}" for mean in costs.mean(axis=0)]
        for column in (0, STRENGTHS.index(1.0)):
            difference = costs[:, -1] - costs[:, column]
            error = difference.std(ddof=1) / np.sqrt(splits)
            cells.append(f"{difference.mean():+.4f} ± {error:.4f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    warnings.simplefilter("ignore", MildWarning)
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
