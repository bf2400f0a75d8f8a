"""The demo's router, fitted on questions whose right expert is known."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

__all__ = ["DOLLARS", "fit_demo_router"]

# What one question costs, in dollars; and how many wrong answers a dollar is worth.
DOLLARS = {"calculator": 0.00001, "atlas": 0.0001, "scholar": 0.002}
PRICE_WEIGHT = 100.0
# Who knows what, by the family of a question; the scholar stands for a model that knows all of them.
KNOWN = {"arithmetic": ("calculator", "scholar"), "facts": ("atlas", "scholar")}
# What people ask a model for, besides questions with one answer.
VERBS = (
    "Write a poem about",
    "Explain",
    "Tell me something about",
    "Hello, can you help me with",
    "Summarise the history of",
    "Write a program for",
    "Why do people like",
    "Translate into French:",
)
TOPICS = (
    "autumn.",
    "recursion in simple words.",
    "my garden, please?",
    "the theory of music",
    "a sorting algorithm in Python.",
    "long walks in the rain?",
    "the moon and the tides.",
    "cooking for many guests",
)


def _spoken_sums(seed: int, count: int = 120) -> list[str]:
    rng = Random(seed)
    signs = ("times", "plus", "minus", "multiplied by", "*", "+", "-")
    starts = ("What is", "How much is", "Calculate", "Please compute")
    return [
        f"{rng.choice(starts)} {rng.randint(2, 99)} {rng.choice(signs)} {rng.randint(2, 99)}?"
        for _ in range(count)
    ]


def fit_demo_router(
    folder: Path,
    n_questions: int = 800,
    seed: int = 0,
    dimensions: int = 24,
    max_terms: int = 2048,
) -> Any:
    """Fit and save the router that ``mild serve --demo`` serves: a small one, it travels with the package.

    Run it again after a change of the questions or of the features::

        python -c "from pathlib import Path; from mild.gateway.demo.fitting import *;
                   fit_demo_router(Path('src/mild/gateway/demo/router'))"
    """
    import numpy as np

    from mild.artifact import load, save
    from mild.datasets.questions import make_questions
    from mild.routers.priced import PricedRouter
    from mild.text import HashingFeatures

    names = list(DOLLARS)
    rows = [row for row in make_questions(n_questions, seed) if row["options"] is None]
    asked = [(row["query"], row["source"].split("/")[0]) for row in rows]
    asked += [(text, "arithmetic") for text in _spoken_sums(seed)]
    asked += [(f"{verb} {topic}", "open") for verb in VERBS for topic in TOPICS]
    texts, families = zip(*asked, strict=True)
    errors = np.array(
        [
            [float(name not in KNOWN.get(family, ("scholar",))) for name in names]
            for family in families
        ]
    )
    features = HashingFeatures(dimensions=dimensions, max_terms=max_terms).fit(texts)
    router = PricedRouter(price_weight=PRICE_WEIGHT, alpha=1e-4)
    router.fit(features.transform(texts), errors, prices=list(DOLLARS.values()))
    notes = {"cost": {"price_weight": PRICE_WEIGHT}, "table": "questions of the demo"}
    save(router, folder, expert_names=names, text=features, notes=notes, overwrite=True)
    return load(folder)
