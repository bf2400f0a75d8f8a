"""The one door from serving to the library: routers, and what they decide."""

from __future__ import annotations

from mild import Router
from mild import load as load_router
from mild.artifact import mix_words

__all__ = ["Router", "load_router"]


def mix_in_words(router: Router) -> str | None:
    """The two settings of a router that mixes them; None for any other router."""
    if router.mix is None:
        return None
    return mix_words(router.mix, router.experts)
