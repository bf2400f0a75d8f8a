"""From scores to an expert: exploration with its propensity, and sessions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from mild.gateway.choosing.batching import Batch
from mild.gateway.choosing.decision import Chooser, Scores
from mild.gateway.choosing.names import Wish
from mild.gateway.choosing.sessions import Pin, Sessions

__all__ = ["Choice", "Drawing"]


@dataclass(slots=True)
class Choice:
    """Who is asked, in which order, and what the ledger is told of it.

    Attributes
    ----------
    order : names of the experts, the one to ask first in front
    chosen : the expert drawn; None where the client named one
    propensity : with which it was drawn
    expected : cost by expert name; empty where the router knows none
    pinned_by : twelve bytes, the request whose decision is followed
    """

    order: list[str]
    chosen: str | None = None
    probabilities: list[float] | None = None
    propensity: float | None = None
    expected: dict[str, float] | None = None
    pinned_by: bytes | None = None
    explored: bool = False


class Drawing:
    """Chooses for one request after the other.

    Parameters
    ----------
    chooser : the router
    explore : share of requests whose expert is drawn at random among all
    sessions : pins; None if sessions are not pinned
    fallback : whether others may be asked where the chosen expert fails
    seed : of the draws; None for the system's
    """

    def __init__(
        self,
        chooser: Chooser,
        explore: float = 0.0,
        sessions: Sessions | None = None,
        fallback: bool = True,
        seed: int | None = None,
    ) -> None:
        self.chooser = chooser
        self._batch = Batch(chooser)
        self._explore = explore
        self._sessions = sessions
        self._fallback = fallback
        self._random = random.Random(seed)

    async def choose(self, wish: Wish, text: str, session: bytes | None, request: bytes) -> Choice:
        """Choose for one request.

        Parameters
        ----------
        wish : what its model name says
        text : that is routed
        session : its hash, if it has one
        request : twelve bytes that name it
        """
        if wish.expert is not None:
            return Choice([wish.expert])
        scores = await self._batch.score(text, wish.price_weight)
        if self._sessions is None or session is None:
            return self._draw(scores)[0]
        pin = self._sessions.find(session)
        # A pin of another router's expert is none: a reload may just be swapping them.
        if pin is not None and pin.expert in self.chooser.names:
            return self._pinned(pin, scores)
        choice, propensity = self._draw(scores)
        self._sessions.pin(session, Pin(choice.order[0], propensity, request))
        return choice

    def _draw(self, scores: Scores) -> tuple[Choice, float]:
        names, best = self.chooser.names, scores.best
        chosen, explored = best, False
        if self._explore > 0 and self._random.random() < self._explore:
            chosen, explored = self._random.randrange(len(names)), True
        propensity = self._explore / len(names) + (1 - self._explore) * (chosen == best)
        choice = Choice(
            self._order(scores, chosen),
            names[chosen],
            scores.probabilities,
            propensity,
            _named(names, scores.costs),
            explored=explored,
        )
        return choice, propensity

    def _pinned(self, pin: Pin, scores: Scores) -> Choice:
        names = self.chooser.names
        return Choice(
            self._order(scores, names.index(pin.expert)),
            pin.expert,
            scores.probabilities,
            pin.propensity,
            _named(names, scores.costs),
            pinned_by=pin.request,
        )

    def _order(self, scores: Scores, chosen: int) -> list[str]:
        names = self.chooser.names
        if not self._fallback:
            return [names[chosen]]
        return [names[chosen], *(names[k] for k in scores.order if k != chosen)]


def _named(names: Sequence[str], costs: Sequence[float] | None) -> dict[str, float] | None:
    return None if costs is None else dict(zip(names, costs, strict=True))
