"""A table with answers, and routers that read them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

import mild
from mild.artifact import Router
from mild.data import Outcomes
from mild.features import HashingFeatures
from mild.routers.cascade import CascadeRouter
from mild.routers.linear import LinearRouter
from mild.tuning.fitting import feature_inputs

NAMES = ["little", "other", "strong"]
RIGHT = {"little": 0.8, "other": 0.75, "strong": 0.95}
PRICES = {"little": 0.001, "other": 0.001, "strong": 0.02}
SECONDS = {"little": 0.2, "other": 0.4, "strong": 2.0}


def answer_columns(rows: int = 300, seed: int = 0) -> dict[str, list[object]]:
    """Sums whose wrong answers differ: experts that agree are nearly always right."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(10, 99, size=(2, rows))
    columns: dict[str, list[object]] = {
        "prompt": [
            f"What is {a} + {b}? ({i})" for i, (a, b) in enumerate(zip(first, second, strict=True))
        ],
        "topic": ["even" if i % 2 == 0 else "odd" for i in range(rows)],
    }
    for name in NAMES:
        right = rng.random(rows) < RIGHT[name]
        said = np.where(right, first + second, first + second + rng.integers(1, 50, rows))
        columns[f"correct__{name}"] = right.astype(int).tolist()
        columns[f"cost__{name}"] = [PRICES[name]] * rows
        columns[f"latency_ms__{name}"] = [1000 * SECONDS[name]] * rows
        columns[f"answer__{name}"] = [str(value) for value in said]
    return columns


def answer_table(rows: int = 300, seed: int = 0, answers: bool = True) -> Outcomes:
    """The table, with or without its answers."""
    columns = answer_columns(rows, seed)
    if not answers:
        columns = {name: cells for name, cells in columns.items() if "answer" not in name}
    return mild.read_outcomes(pa.table(columns))


def fitted_cascade(table: Outcomes, price_weight: float = 5.0, **options: object) -> Router:
    """A cascade with a linear router as the one without answers."""
    direct = mild.fit(
        table,
        router=LinearRouter(),
        price_weight=price_weight,
        text=HashingFeatures(n_components=16),
    )
    X = direct.features(feature_inputs(table, direct.text))
    fitted = CascadeRouter(price_weight, **options).fit(  # type: ignore[arg-type]
        X, 1 - table.scores, answers=table.answers, prices=table.prices, direct=direct.policy
    )
    return replace(direct, policy=fitted.policy_)
