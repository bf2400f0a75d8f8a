"""Fit the router that ``mild serve --demo`` serves, on the table of outcomes that comes with mild.

    python scripts/fit_demo_router.py gateway/src/mild_gateway/demo/router

Run it again after a change of the table or of the features. The router is small, because it is part of the
package.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mild.datasets import load_outcomes
from mild.features import HashingFeatures
from mild.tuning.fit import fit

# How many wrong answers a dollar is worth; a thousand questions cost the dearest model three dollars.
PRICE_WEIGHT = 1.0


def fit_demo_router(folder: Path) -> Path:
    """Fit the router and save it to a folder."""
    features = HashingFeatures(n_components=24, n_features=2048)
    router = fit(load_outcomes(), "priced", price_weight=PRICE_WEIGHT, text=features, alpha=1e-4)
    return router.save(folder, overwrite=True)


if __name__ == "__main__":
    fit_demo_router(Path(sys.argv[1]))
