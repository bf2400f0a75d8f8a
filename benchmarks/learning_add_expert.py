"""Claim: 100 labels of a new expert leave at most a quarter of what all its labels bring.

``python -m benchmarks.learning add-expert --data FOLDER [--jobs N]`` leaves every model of mmlupro out
once. A router is fitted on the training part without it, then the model is added from random labels
(``mild.add_expert``). The gap is the mean loss of the router without the model less that of a router fitted
with all its labels. The share of the gap that is left is a ratio of means over models: models that bring
nothing count, too. Beside it is a head that is fitted on these labels only. Without ``--data`` it prints
what is kept in ``results/``.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import mild
from benchmarks.measure import environment
from experiments.records import commit
from mild.policies.adding import Labels, add_to_policy
from mild.routers import RidgeRouter
from mild.routers.cost_models import PricedRouter

RESULTS = Path(__file__).parent.parent / "results"
# Routers that are add_to_policy: heads that are drawn strongly to the constant, and linear costs.
ROUTERS: dict[str, dict[str, Any]] = {
    "priced": {"router": "priced", "alpha": 0.1},
    "ridge": {"router": "ridge", "alpha": 1000.0},
}
# Labels with outcomes of the known experts, with their heads only, and a head of the labels only.
WAYS = (("known", 30), ("known", 100), ("known", 300), ("heads", 100), ("only", 100))
CASES = {"mmlupro_29models": None, "zellinger_mmlu": 100.0}  # table -> price weight
SHARE = 0.25


def add_expert(options: argparse.Namespace) -> None:
    """Run the claim, or print what is kept."""
    file = RESULTS / "learning_add_expert.json"
    if options.data is None:
        show_added(json.loads(file.read_text()))
        return
    jobs = [
        (str(Path(options.data) / f"{table}.parquet"), weight, kind, split, options.repetitions)
        for table, weight in CASES.items()
        if table in (options.tables or CASES)
        for split in range(options.splits)
        for kind in ROUTERS
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        parts = list(pool.map(added_split, jobs))
    content = {
        "environment": f"{environment()}, commit {commit()}",
        "splits": options.splits,
        "repetitions": options.repetitions,
        "test_share": 0.3,
        "results": [row for part in parts for row in part],
    }
    file.write_text(json.dumps(content) + "\n")
    show_added(content)


def added_split(job: tuple[str, float | None, str, int, int]) -> list[dict[str, Any]]:
    """Losses on the test part of one split, for every model that is left out.

    The heads of a router are fitted one by one, so that a router without a model is the one with it, less
    its head. Features are computed once.
    """
    file, weight, kind, split, repetitions = job
    warnings.simplefilter("ignore")
    table = mild.read_outcomes(file)
    train, test = table.split(test_size=0.3, random_state=split)
    terms: dict[str, Any] = {} if weight is None else {"price_weight": weight}
    whole = mild.fit(train, **ROUTERS[kind], **terms)
    costs, outcomes = test.costs(**terms), train.costs(**terms)
    complete = ~np.isnan(costs).any(axis=1)  # every choice has a known loss there
    costs = costs[complete]
    X, Xt = whole.features(train.queries), whole.features(test.queries)[complete]

    def loss(policy: Any, columns: list[int]) -> float:
        return float(costs[np.arange(len(costs)), np.array(columns)[policy.predict(Xt)]].mean())

    found, n = [], len(table.experts)
    for k, name in enumerate(table.experts):
        others = [j for j in range(n) if j != k]
        policy = whole.without(name).policy
        asked = np.flatnonzero(~np.isnan(outcomes[:, k]))
        losses = {"without": loss(policy, others), "all": loss(whole.policy, list(range(n)))}
        row: dict[str, Any] = {
            "table": Path(file).stem, "router": kind, "split": split, "model": name, **losses, "added": {},
        }  # fmt: skip
        for way, count in WAYS:
            for seed in range(repetitions):
                rows = np.random.default_rng((split, k, seed)).choice(asked, count, replace=False)
                errors = 1 - train.scores[rows]
                labels = Labels(
                    X[rows], X, errors[:, others], outcomes[rows][:, others], errors[:, k],
                    outcomes[rows, k],
                    0.0 if train.prices is None else float(np.nanmean(train.prices[rows, k])),
                )  # fmt: skip
                if way == "heads":
                    unknown = np.full((count, n - 1), np.nan)
                    labels = replace(
                        labels, reference=X[rows], expert_errors=unknown, known_costs=unknown
                    )
                scratch = way == "only"
                larger = (
                    from_scratch(policy, labels, kind)
                    if scratch
                    else add_to_policy(policy, labels)[0]
                )
                row["added"].setdefault(f"{way} {count}", []).append(loss(larger, [*others, k]))
        found.append(row)
    return found


def from_scratch(policy: Any, labels: Labels, kind: str) -> Any:
    """The policy with a head of the new expert that is fitted on its labels only, of the same strength."""
    alpha = ROUTERS[kind]["alpha"]
    if kind == "priced":
        router: Any = PricedRouter(alpha=alpha)
        own = router.fit(labels.X, labels.errors[:, None], prices=[labels.price]).policy_
    else:
        own = RidgeRouter(alpha).fit(labels.X, labels.costs[:, None]).policy_
    arrays = {n: np.concatenate([getattr(policy, n), getattr(own, n)]) for n in own.tensor_names}
    if policy.ranks is not None:
        arrays["ranks"] = np.append(policy.ranks, policy.n_experts)
    return replace(policy, **arrays)


def show_added(content: dict[str, Any]) -> None:
    """Print the share of the gap that labels leave, by table, router, way and number of labels."""
    print(content["environment"])
    print(f"{content['splits']} splits, {content['repetitions']} draws of labels each")
    kinds = dict.fromkeys((row["table"], row["router"]) for row in content["results"])
    for table, router in kinds:
        rows = [r for r in content["results"] if (r["table"], r["router"]) == (table, router)]
        gap = np.mean([row["without"] - row["all"] for row in rows])
        print(f"\n{table}, {router}: loss with all labels {np.mean([r['all'] for r in rows]):.4f}, "
              f"mean gap {gap:.5f}")  # fmt: skip
        for way in rows[0]["added"]:
            # Ratio of means: models without a gap count in both, so that harm by a weak model counts.
            draws = np.array([row["added"][way] for row in rows]) - [[r["all"]] for r in rows]
            shares = draws.mean(axis=0) / gap
            models = {r["model"] for r in rows}
            each = [np.mean([d.mean() for d, r in zip(draws, rows, strict=True) if r["model"] == m])
                    for m in sorted(models)]  # fmt: skip
            print(f"  {way:12} leaves {draws.mean() / gap:7.3f} of the gap (draws {shares.min():.2f} to "
                  f"{shares.max():.2f}), median model {np.median(each):+.5f} loss"
                  + ("" if way != "known 100" else
                     f": bar {SHARE:g} {'met' if draws.mean() <= SHARE * gap else 'NOT met'}"))  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning add-expert")
    parser.add_argument("--data", help="folder of the public tables")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--splits", type=int, default=4, help="of training and test rows")
    parser.add_argument("--repetitions", type=int, default=5, help="draws of labels")
    parser.add_argument("--tables", nargs="*", help="names of tables; by default all")
    add_expert(parser.parse_args(arguments))
    return 0
