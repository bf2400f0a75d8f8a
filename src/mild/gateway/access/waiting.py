"""Requests that wait for the store's word."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from mild.gateway.access.purse import Account, Reservation
from mild.gateway.refusals import Refusal

__all__ = ["Waiting", "Wish"]


@dataclass(slots=True, eq=False)
class Wish:
    """A request that waits for money."""

    accounts: Sequence[Account]
    amount: int
    answer: asyncio.Future[Reservation]
    rounds: int = 0


@dataclass(slots=True)
class Waiting:
    """Who waits for money, and who for one more request in the minute, by scope."""

    wishes: list[Wish] = field(default_factory=list)
    queues: dict[str, list[asyncio.Future[float]]] = field(default_factory=dict)

    def take(self) -> Waiting:
        """Take out all who wait; those who come later wait for the next errand."""
        taken = Waiting(self.wishes, self.queues)
        self.wishes, self.queues = [], {}
        return taken

    def refuse(self, refusal: Refusal) -> None:
        """Send away all who still wait."""
        waiting: list[asyncio.Future[Reservation] | asyncio.Future[float]] = [
            wish.answer for wish in self.wishes
        ]
        waiting += [answer for queue in self.queues.values() for answer in queue]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(refusal)
