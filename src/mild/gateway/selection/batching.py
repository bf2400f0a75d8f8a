"""Decisions of requests that arrive at the same moment, worked out together.

Scoring one short text costs mostly the calls of NumPy, so that many texts at once cost little more than
one. Nobody waits long for others to come: a batch is what the event loop gets in two rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

# Texts and characters of one round: the loop has other things to do, too.
MAX_TEXTS = 64
MAX_CHARACTERS = 50_000

T = TypeVar("T")


class TextBatch(Generic[T]):
    """Scores texts with ``score_all(texts, weights)``, those of two rounds of the loop together."""

    def __init__(
        self, score_all: Callable[[Sequence[str], Sequence[float | None]], list[T]]
    ) -> None:
        self._score_all = score_all
        self._waiting: list[tuple[str, float | None, asyncio.Future[T]]] = []

    async def score(self, text: str, price_weight: float | None = None) -> T:
        """The score of one text."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append((text, price_weight, future))
        if len(self._waiting) == 1:
            loop.call_soon(loop.call_soon, self._run)
        return await future

    def _run(self) -> None:
        size, count = 0, 0
        for count, (text, _, _) in enumerate(self._waiting, 1):
            size += len(text)
            if size > MAX_CHARACTERS or count == MAX_TEXTS:
                break
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
        # Who has left needs no answer.
        taken = [one for one in taken if not one[2].done()]
        if not taken:
            return
        try:
            scores = self._score_all([one[0] for one in taken], [one[1] for one in taken])
        except Exception as error:
            # Whatever it was, those who wait have to hear of it.
            for _, _, future in taken:
                future.set_exception(error)
            return
        for (_, _, future), found in zip(taken, scores, strict=True):
            future.set_result(found)
