"""Fit the router that ``mild serve --demo`` serves, on the table of outcomes that comes with mild.

    python scripts/fit_demo_router.py gateway/src/mild_gateway/demo

It writes the folders ``router`` and ``cascade``: in the second one, both models are asked, and the
calculator where they disagree.

Run it again after a change of the table or of the features. The router is small, because it is part of the
package.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from mild import Router, load
from mild.datasets import load_outcomes
from mild.features import HashingFeatures
from mild.policies import AgreementTable, CascadePolicy
from mild.tuning.fit import fit

# How many wrong answers a dollar is worth; a thousand questions cost the dearest model three dollars.
PRICE_WEIGHT = 1.0
STEPS = (("smollm2", "gemma3"), ("rules",))
# Probability of being right from which an answer is accepted.
THRESHOLD = 0.6
# Of the 1,500 questions of the table that comes with mild, how many each group of experts answers rightly,
# in the order of the steps. Right answers agree, and wrong ones are taken to differ.
RIGHT_ANSWERS = {
    (True, True, True): 9,
    (True, True, False): 168,
    (True, False, True): 34,
    (True, False, False): 82,
    (False, True, True): 37,
    (False, True, False): 137,
    (False, False, True): 496,
    (False, False, False): 537,
}


def fit_demo_router(folder: Path) -> Path:
    """Fit the router and save it to a folder."""
    features = HashingFeatures(n_components=24, n_features=2048)
    router = fit(load_outcomes(), "priced", price_weight=PRICE_WEIGHT, text=features, alpha=1e-4)
    return router.save(folder, overwrite=True)


def with_cascade(router: Router) -> Router:
    """The router with a cascade beside it."""
    codes = []
    for is_right in RIGHT_ANSWERS:
        # A right answer has the code 0, each wrong one a code of its own.
        row_codes = np.arange(1, len(is_right) + 1)
        row_codes[np.array(is_right)] = 0
        codes.append(row_codes)
    table = AgreementTable.of_rows(
        np.array(codes),
        np.array(list(RIGHT_ANSWERS), float),
        np.array(list(RIGHT_ANSWERS.values()), float),
    )
    steps = [[router.experts.index(name) for name in names] for names in STEPS]
    policy = CascadePolicy("free_text", steps, THRESHOLD, table, router.policy)
    return replace(router, policy=policy)


if __name__ == "__main__":
    demo = Path(sys.argv[1])
    fit_demo_router(demo / "router")
    with_cascade(load(demo / "router")).save(demo / "cascade", overwrite=True)
