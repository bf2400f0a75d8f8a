"""How a request is told that it may not: in OpenAI's shape, with what to do."""

from __future__ import annotations

import time

from mild.gateway.access.money import shown
from mild.gateway.access.purse import Account
from mild.gateway.refusals import Refusal

__all__ = ["ALL", "LOST", "too_dear", "too_many", "unavailable", "unknown_key"]

# The account of all keys together.
ALL = "*"
# The code by which a request learns that the store was lost.
LOST = "store_unavailable"


def unknown_key(authorization: str | None) -> Refusal:
    """No key, or none that is known; the key itself is never repeated."""
    if authorization:
        message = "The API key is not known, or was revoked."
    else:
        message = "An API key is needed: send the header Authorization: Bearer KEY."
    return Refusal(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def too_many(name: str, limit: int, wait: float) -> Refusal:
    """More requests than the minute allows."""
    return Refusal(
        429,
        f"{name} may make {limit} requests a minute; try again in {wait:.1f} s.",
        code="rate_limit_exceeded",
        retry_after=wait,
    )


def too_dear(account: Account, amount: int, now: float) -> Refusal:
    """Less money than the request may cost: spent, or held by others for a moment."""
    budget, period = account.budget or 0, account.period
    whose = "The gateway's budget"
    if account.scope != ALL:
        whose = f"The budget of {account.scope.removeprefix('key:')}"
    left = max(0, budget - account.spent - account.used)
    if amount <= left:
        return Refusal(
            429,
            f"{whose} for the {period.window} has enough left for this request, which may cost "
            f"{shown(amount)}, but requests under way hold too much of it until they end; try again "
            "in 1 second.",
            code="budget_held",
            retry_after=1.0,
        )
    until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(period.renews))
    smaller = "; a request with a smaller max_tokens may fit now" if left else ""
    return Refusal(
        402,
        f"{whose} for the {period.window} is {shown(budget)}, of which {shown(left)} is left; this "
        f"request may cost {shown(amount)}. It renews at {until}{smaller}.",
        code="insufficient_quota",
        retry_after=period.renews - now,
    )


def unavailable() -> Refusal:
    """The store does not answer: nothing is spent that cannot be counted."""
    return Refusal(
        503,
        "The store of keys and budgets cannot be reached; try again in a moment.",
        code=LOST,
        retry_after=1.0,
    )
