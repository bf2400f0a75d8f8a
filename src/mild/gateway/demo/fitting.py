"""The demo's router, fitted on the table of outcomes that comes with mild."""

from __future__ import annotations

from pathlib import Path

# How many wrong answers a dollar is worth; a thousand questions cost the dearest model three dollars.
PRICE_WEIGHT = 1.0


def fit_demo_router(
    folder: Path, dimensions: int = 24, max_terms: int = 2048, alpha: float = 1e-4
) -> Path:
    """Fit and save the router that ``mild serve --demo`` serves: a small one, it travels with the package.

    Run it again after a change of the table or of the features::

        python -c "from pathlib import Path; from mild.gateway.demo.fitting import *;
                   fit_demo_router(Path('src/mild/gateway/demo/router'))"
    """
    from mild.data.datasets import load_outcomes
    from mild.features import HashingFeatures
    from mild.tuning.fit import fit

    features = HashingFeatures(dimensions=dimensions, max_terms=max_terms)
    router = fit(load_outcomes(), "priced", price_weight=PRICE_WEIGHT, text=features, alpha=alpha)
    return router.save(folder, overwrite=True)
