"""Decisions of requests that come at the same moment, worked out together.

Features of one short text cost mostly the calls of NumPy, so eight texts at once cost a quarter of eight
in turn. Nobody waits for others to come: a batch is what the loop has at hand in one round.
"""

from __future__ import annotations

import asyncio

from mild.gateway.choosing.decision import Chooser, Scores

__all__ = ["Batch"]

# Texts and characters of one round: the loop has other things to do, too.
MOST_TEXTS = 64
MOST_CHARACTERS = 50_000

Waiting = tuple[str, float | None, "asyncio.Future[Scores]"]


class Batch:
    """Scores texts, those of one round of the loop together.

    Parameters
    ----------
    chooser : the router
    """

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser
        self._waiting: list[Waiting] = []

    async def score(self, text: str, price_weight: float | None = None) -> Scores:
        """Score every expert for one text."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Scores] = loop.create_future()
        self._waiting.append((text, price_weight, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._work)
        return await future

    def _work(self) -> None:
        taken = self._take()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._work)
        if not taken:
            return
        try:
            scores = self._chooser.score_all(
                [text for text, _, _ in taken], [weight for _, weight, _ in taken]
            )
        except Exception as error:
            # Whatever it was, those who wait have to hear of it.
            for _, _, future in taken:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, _, future), found in zip(taken, scores, strict=True):
            if not future.done():
                future.set_result(found)

    def _take(self) -> list[Waiting]:
        """The next few that still want to know."""
        size, place = 0, 0
        for place, (text, _, _) in enumerate(self._waiting, 1):
            size += len(text)
            if size > MOST_CHARACTERS or place == MOST_TEXTS:
                break
        taken, self._waiting = self._waiting[:place], self._waiting[place:]
        return [one for one in taken if not one[2].done()]
