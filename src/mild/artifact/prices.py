"""New prices for a router with separate heads for errors and prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mild.artifact.expert_names import match_expert
from mild.artifact.router import Router
from mild.core.arrays import invalid


@dataclass(frozen=True)
class Prices:
    """New prices: one per expert, in their order, or a weight; None keeps the router's."""

    betas: tuple[float, ...] | None = None
    weight: float | None = None

    def on(self, router: Router) -> Router:
        """The router under these prices."""
        if self.betas is None and self.weight is None:
            return router
        return router.with_prices(self.betas, self.weight)


def is_priced(router: Router) -> bool:
    """Whether a router has separate heads for errors and prices, so that prices can be changed."""
    return router.policy.has_prices


def new_prices(
    router: Router, beta: Mapping[str, float] | None = None, price_weight: float | None = None
) -> Prices:
    """Check new prices and bring them into the order of the router's experts.

    ``beta`` gives prices by name or short name, in units of one wrong answer. It replaces all prices;
    experts that are not named cost nothing. ``price_weight`` is in wrong answers per dollar, for a router
    that was fitted with a price weight alone. A router without a price head is refused.
    """
    prices = Prices(None, price_weight)
    if beta is not None:
        if price_weight is not None:
            raise invalid(
                "price_weight",
                "cannot be changed after fitting together with beta: new betas replace all prices. "
                "Give one of them.",
            )
        named = {match_expert(name, router.expert_names): value for name, value in beta.items()}
        prices = Prices(tuple(named.get(name, 0.0) for name in router.expert_names), 1.0)
    elif price_weight is not None and is_priced(router):
        cost = router.info.cost
        weighed = cost is not None and bool(cost.price_weight)
        # A price head in dollars can be weighed even if the router was fitted for accuracy alone.
        dollars = weighed or router.info.price_head == "dollars"
        if (cost is not None and cost.has_other_prices) or not dollars:
            raise invalid(
                "price_weight",
                "can be changed after fitting only if the router was fitted with it alone; give betas, "
                "or fit again.",
            )
    prices.on(router)  # raises if the router has no price head
    return prices
