"""From a text to an expert: the router's decision, exploration with its propensity, pinned sessions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mild.artifact import LoadedRouter
from mild.artifact.deciding import decide_all
from mild.artifact.prices import new_prices
from mild.errors import MildError
from mild.gateway.config import RoutingSettings
from mild.gateway.refusals import Refusal
from mild.gateway.selection.batching import Batch
from mild.gateway.selection.models import ModelRequest
from mild.gateway.selection.sessions import Pin, Sessions

__all__ = ["ExpertSelector", "Scores", "Selection"]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a router makes of one text.

    Attributes
    ----------
    best : index of the expert that it chooses
    order : every expert, the one to ask first in front
    probabilities : of each expert
    costs : expected, of each expert; None where the router has not learned them
    """

    best: int
    order: list[int]
    probabilities: list[float]
    costs: list[float] | None


@dataclass(frozen=True, slots=True)
class Selection:
    """Who is asked, in which order, and what the ledger is told about it.

    Attributes
    ----------
    order : names of the experts, the one to ask first in front
    chosen : the expert drawn; None where the client named one
    propensity : with which it was drawn
    expected : cost by expert name; None where the router knows none
    pinned_by : twelve bytes, the request whose decision is followed
    """

    order: list[str]
    chosen: str | None = None
    probabilities: list[float] | None = None
    propensity: float | None = None
    expected: dict[str, float] | None = None
    pinned_by: bytes | None = None
    explored: bool = False


class ExpertSelector:
    """Selects experts with one router.

    Attributes
    ----------
    names : of the experts, in the router's order
    fixed : why another price weight is refused; None if it is not

    Raises
    ------
    MildError
        the router has no text step, or takes no other price weight
    """

    def __init__(
        self,
        router: LoadedRouter,
        routing: RoutingSettings,
        sessions: Sessions | None = None,
        seed: int | None = None,
    ) -> None:
        self.router = new_prices(router, price_weight=routing.price_weight).on(router)
        router.features([""])  # a router without a text step says so here
        self.names = list(router.expert_names)
        self.fixed: str | None = None
        try:
            new_prices(router, price_weight=1.0)
        except MildError as error:
            self.fixed = str(error)
        self.at_weight = lru_cache(maxsize=64)(self._at_weight)
        self._batch = Batch(self.score_all)
        self._explore = routing.explore
        self._fallback = routing.fallback
        self._sessions = sessions
        self._random = random.Random(seed)

    def score(self, text: str, price_weight: float | None = None) -> Scores:
        """Score every expert for one text, perhaps under another price weight."""
        return self.score_all([text], [price_weight])[0]

    def score_all(self, texts: Sequence[str], weights: Sequence[float | None]) -> list[Scores]:
        """Score several texts, each under its own price weight: much cheaper than one by one."""
        step = self.router.text
        assert step is not None
        X = step.transform_one(texts[0])[None] if len(texts) == 1 else step.transform(texts)
        scores: dict[int, Scores] = {}
        for weight in set(weights):
            rows = [i for i, one in enumerate(weights) if one == weight]
            found = decide_all(self.at_weight(weight).policy, X[rows])
            shares, values = found.probabilities.tolist(), found.values.tolist()
            costs = [None] * len(rows) if found.costs is None else found.costs.tolist()
            for row, (best, i) in enumerate(zip(found.chosen.tolist(), rows, strict=True)):
                order = _order(values[row], best)
                scores[i] = Scores(best, order, shares[row], costs[row])
        return [scores[i] for i in range(len(texts))]

    def check_weight(self, price_weight: float | None) -> None:
        """Refuse another price weight where the router takes none."""
        if price_weight is not None and self.fixed is not None:
            raise Refusal(
                400,
                f"router-mild-<t> cannot be used with this router: {self.fixed}",
                code="price_weight_not_supported",
                param="model",
            )

    async def select(
        self, model: ModelRequest, text: str, session: bytes | None, request: bytes
    ) -> Selection:
        """Select for one request."""
        if model.expert is not None:
            return Selection([model.expert])
        scores = await self._batch.score(text, model.price_weight)
        pin = None
        if self._sessions is not None and session is not None:
            pin = self._sessions.find(session)
        # A pin of another router's expert is none: a reload may just be swapping them.
        if pin is not None and pin.expert in self.names:
            chosen = self.names.index(pin.expert)
            return self._selection(scores, chosen, pin.propensity, pinned_by=pin.request)
        chosen, explored = scores.best, False
        if self._explore > 0 and self._random.random() < self._explore:
            chosen, explored = self._random.randrange(len(self.names)), True
        propensity = self._explore / len(self.names) + (1 - self._explore) * (chosen == scores.best)
        if self._sessions is not None and session is not None:
            self._sessions.pin(session, Pin(self.names[chosen], propensity, request))
        return self._selection(scores, chosen, propensity, explored=explored)

    def _selection(
        self,
        scores: Scores,
        chosen: int,
        propensity: float,
        explored: bool = False,
        pinned_by: bytes | None = None,
    ) -> Selection:
        names = self.names
        others: Sequence[int] = [k for k in scores.order if k != chosen] if self._fallback else ()
        return Selection(
            [names[k] for k in (chosen, *others)],
            names[chosen],
            scores.probabilities,
            propensity,
            None if scores.costs is None else dict(zip(names, scores.costs, strict=True)),
            pinned_by,
            explored,
        )

    def _at_weight(self, price_weight: float | None) -> LoadedRouter:
        """The router, perhaps under another price weight."""
        if price_weight is None:
            return self.router
        return self.router.with_prices(price_weight=price_weight)


def _order(values: Sequence[float], best: int) -> list[int]:
    """The choice, then the others by the value that the choice maximises."""
    return sorted(range(len(values)), key=lambda k: (k != best, -values[k]))
