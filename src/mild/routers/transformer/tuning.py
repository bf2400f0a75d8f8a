"""Margins by a search over linear heads on the vectors of a network that has not seen those rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.costs import cheapest
from mild.routers.linear import LinearRouter
from mild.routers.tuning import RouterCV

if TYPE_CHECKING:
    from mild.routers.transformer.router import TransformerRouter

__all__ = ["TUNED_ON", "held_out_rows", "tuned_margins"]

#: Share of the rows that margins are searched on: one row in so many.
TUNED_ON = 5
FOLDS = 5
# With fewer rows a search finds chance.
FEWEST = 4 * FOLDS


def tuned_margins(
    router: TransformerRouter,
    texts: Any,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    seed: int,
) -> FloatArray | None:
    """Margins (n_experts,) whose linear head routes best; None where there are too few rows to tell.

    A network is trained with TDEF's loss on four fifths of the rows. Its vectors of the other rows are
    the features on which ratios of margins around the theory are searched, by cross-validated deferral
    loss; of those within one standard error of the best the nearest to the theory is taken.
    """
    rest, held = held_out_rows(costs, seed)
    if len(held) < FEWEST or costs.shape[1] == 1:
        return None
    options = {**router.get_params(deep=False), "loss": "tdef", "validation_fraction": 0.0}
    if router.checkpoint is not None:
        options["checkpoint"] = f"{router.checkpoint}.tuning"
    weight = None if sample_weight is None else sample_weight[rest]
    probe = type(router)(**options).fit(texts[rest], costs[rest], weight)
    vectors = probe.features(texts[held])
    spread = vectors.std(axis=0)
    scaled = (vectors - vectors.mean(axis=0)) / np.where(spread > 0, spread, 1)
    head = LinearRouter(
        "mild",
        rewards=router.rewards,
        strength=router.strength,
        surrogate=router.surrogate,
        counts=router.counts,
        total=router.total,
        cost_scale=router.cost_scale,
        decision=router.decision,
    )
    search = RouterCV(head, cv=FOLDS, bias=False, random_state=seed)
    search.fit(scaled, costs[held], None if sample_weight is None else sample_weight[held])
    margins = np.array(search.best_params_["margins"], np.float64)
    total = float(costs.shape[1] if router.total is None else router.total)
    return margins * (total / margins.sum())


def held_out_rows(costs: FloatArray, seed: int) -> tuple[IntArray, IntArray]:
    """Rows to train on, and the fifth to search on, each cheapest expert in its share, in order.

    Examples
    --------
    >>> costs = np.eye(2)[[0] * 10 + [1] * 5]
    >>> rest, held = held_out_rows(costs, 0)
    >>> len(rest), np.bincount(cheapest(costs[held])).tolist()
    (12, [1, 2])
    """
    rng = np.random.default_rng([seed, 1])
    order = np.lexsort((rng.random(len(costs)), cheapest(costs)))
    chosen = np.zeros(len(costs), bool)
    chosen[order[TUNED_ON // 2 :: TUNED_ON]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
