"""From a request to an expert: who can serve it, the router's decision, exploration, pinned sessions."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from mild.errors import InvalidInputError, MildError
from mild_gateway import decide
from mild_gateway.arrays import FloatArray
from mild_gateway.config import RoutingSettings
from mild_gateway.decide import Cascade, Router
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import Usage, asked_answers, tokens_in_bytes
from mild_gateway.refusals import Refusal
from mild_gateway.selection.exploration import MIN_EXPLORE, AutoExploration
from mild_gateway.selection.models import CASCADE, ModelRequest, configured_name, without_endpoint
from mild_gateway.selection.needs import answer_formats, missing_of, request_needs
from mild_gateway.selection.sessions import (
    CACHE_SECONDS,
    Pin,
    Session,
    Sessions,
    sent_before,
)

_logger = logging.getLogger(__name__)

# Texts that are scored at a time: the event loop has other things to do, too.
MAX_TOGETHER = 16
# Tokens of an answer, by which the dollars of experts are compared.
USUAL_TOKENS_OUT = 300


class Scores(NamedTuple):
    """What a router makes of one text."""

    best: int  # the expert that it chooses
    order: list[int]  # every expert that can be chosen, the one to ask first in front
    # None for one that cannot serve the request, 0 for a fallback
    probabilities: list[float | None]
    # Expected, as they are shown; None where the router has not learned them
    costs: list[float] | None
    values: list[float]  # what the choice maximises: minus the expected cost where there are costs
    novel: bool = False  # whether it is the expert for novel texts that is chosen
    # (n_features,) of the text, with its draw behind them where the router is a mix
    features: FloatArray | None = None


class RequestCascade(NamedTuple):
    """How a cascade serves one request."""

    cascade: Cascade
    features: FloatArray | None  # of the text
    skipped: frozenset[int]  # experts of the cascade that are not asked

    def first_step(self) -> tuple[int, ...]:
        """Experts that are asked first, at the same time; none where nobody can be asked."""
        return decide.next_step(self.cascade, self.features, dict.fromkeys(self.skipped)).ask


class Selection(NamedTuple):
    """Who is asked, in which order, and what the ledger is told about it."""

    # Names of the experts, the one to ask first in front; of a cascade, who is asked if it has no answer.
    order: list[str]
    chosen: str | None = None  # the expert drawn, or "cascade"; None where the client named one
    probabilities: list[float | None] | None = None
    propensity: float | None = None  # with which it was drawn
    expected: dict[str, float] | None = None  # cost by name; None where the router knows none
    pinned_by: bytes | None = None  # twelve bytes, the request whose decision is followed
    explored: bool = False
    cascade_plan: RequestCascade | None = None
    features: FloatArray | None = None  # of the text
    preferred: str | None = None  # what the router would choose without exploration, or "cascade"
    draws: list[float] | None = None  # probability of each expert to be drawn


class _WaitingText(NamedTuple):
    """A text that is to be scored, and the future that gets its scores."""

    text: str
    price_weight: float | None
    future: asyncio.Future[Scores]


class ExpertSelector:
    """Selects experts with one router; MildError if it has no text step, or takes no other price weight.

    ``names`` are those of its experts, in its order; ``fixed_weight_reason`` says why another price weight
    is refused, None if it is not. ``full_router`` is the router with its cascade, if it has one;
    ``router`` decides without answers.
    """

    def __init__(
        self,
        router: Router,
        routing: RoutingSettings,
        sessions: Sessions | None = None,
        seed: int | None = None,
        experts: Sequence[Expert] = (),
        candidate: Router | None = None,
    ) -> None:
        if routing.target is not None:
            router = decide.at_target(router, routing.target.target)
        self.cascade = decide.cascade_of(router)
        if self.cascade is not None:
            # For structured output, whatever the cascade has learned from.
            self._json_cascade = decide.for_json(self.cascade)
        self.full_router = router
        direct = decide.direct_router(router)
        self.router = decide.at_price_weight(direct, routing.price_weight)
        decide.features_of(direct, [""])  # a router without a text step says so here
        self.names = list(direct.experts)
        self._on_novel: int | None = None
        if routing.on_novel is not None:
            decide.are_novel(direct, [""])  # a router that does not know what is novel says so here
            if routing.on_novel not in self.names:
                rule = f"must be one of {', '.join(self.names)}; got {routing.on_novel!r}."
                raise InvalidInputError(parameter="on_novel", rule=rule)
            self._on_novel = self.names.index(routing.on_novel)
        self.fixed_weight_reason: str | None = None
        try:
            decide.at_price_weight(direct, 1.0)
        except MildError as error:
            self.fixed_weight_reason = str(error)
        # The router, perhaps under another price weight.
        self.at_weight = lru_cache(maxsize=64)(self._with_weight)
        # Of the text step, for features in the ledger.
        self.features_tag = decide.step_tag(router)
        self._waiting: list[_WaitingText] = []
        self._routing = routing
        self._sessions = sessions
        # Units of the router's costs per dollar; None if the router does not say.
        self._price_weight = decide.price_weight_of(direct)
        if routing.price_weight is not None:
            self._price_weight = routing.price_weight
        self._random = random.Random(seed)
        self._take_experts(experts)
        # None for a share that does not depend on the request.
        self._auto: AutoExploration | None = None
        if routing.explore == "auto":
            self._auto = AutoExploration(
                self.router, self._comparable(candidate), routing.explore_max
            )

    def _take_experts(self, experts: Sequence[Expert]) -> None:
        """Note which experts of the router have an endpoint, and which of them may be chosen."""
        self._experts = {expert.name: expert for expert in experts}
        self._fallback_names = []
        for expert in experts:
            if expert.role == "fallback":
                self._fallback_names.append(expert.name)
        # Without settings nobody knows who has an endpoint, and all are asked.
        absent = []
        if experts:
            absent = without_endpoint(self.names, self._experts)
        if absent:
            _logger.warning("The router decides without %s: no endpoint.", ", ".join(absent))
        self._present: set[int] = set()
        self._candidates: list[int] = []
        for k, name in enumerate(self.names):
            if name in absent:
                continue
            self._present.add(k)
            # Another call of the same expert is no other choice.
            if name not in self._fallback_names and name == configured_name(name):
                self._candidates.append(k)
        # Cascades without the experts that have no endpoint, by the id of the whole one.
        self._present_cascades: dict[int, Cascade | None] = {}

    def _with_weight(self, price_weight: float | None) -> Router:
        if price_weight is None:
            return self.router
        return decide.at_price_weight(self.router, price_weight)

    def score(self, text: str, price_weight: float | None = None) -> Scores:
        """Score every expert for one text, perhaps under another price weight."""
        return self.score_all([text], [price_weight])[0]

    def score_all(self, texts: Sequence[str], weights: Sequence[float | None]) -> list[Scores]:
        """Score several texts, each under its own price weight: much cheaper than one by one."""
        X = decide.features_of(self.full_router, texts)
        novel = [False] * len(texts)
        if self._on_novel is not None:
            novel = decide.are_novel(self.router, texts, X)
        scores: dict[int, Scores] = {}
        for weight in set(weights):
            rows = [row for row, row_weight in enumerate(weights) if row_weight == weight]
            router = self.at_weight(weight)
            decisions = decide.decide(router, X[rows])
            for index, row in enumerate(rows):
                costs = None
                if decisions.costs is not None:
                    costs = decisions.costs[index].tolist()
                scores[row] = self._scores(
                    best=int(decisions.chosen[index]),
                    probabilities=decisions.probabilities[index].tolist(),
                    values=decisions.values[index].tolist(),
                    costs=costs,
                    novel=novel[row],
                    features=X[row],
                )
        return [scores[row] for row in range(len(texts))]

    def _scores(
        self,
        best: int,
        probabilities: list[float | None],
        values: list[float],
        costs: list[float] | None,
        novel: bool,
        features: FloatArray,
    ) -> Scores:
        """The scores of one text; the expert for novel texts is chosen if it is one."""
        first = best
        if novel and self._on_novel is not None:
            first = self._on_novel
        # The choice, then the others by the value that the choice maximises.
        order = sorted(range(len(self.names)), key=lambda k: (k != first, -values[k]))
        return Scores(first, order, probabilities, costs, values, novel, features)

    async def score_soon(self, text: str, price_weight: float | None = None) -> Scores:
        """Score one text, together with those that arrive in the same two rounds of the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Scores] = loop.create_future()
        self._waiting.append(_WaitingText(text, price_weight, future))
        if len(self._waiting) == 1:
            loop.call_soon(loop.call_soon, self._score_waiting)
        return await future

    def _score_waiting(self) -> None:
        batch: list[_WaitingText] = []
        texts = []
        weights = []
        for waiting in self._waiting[:MAX_TOGETHER]:
            # It is done if its client has disconnected.
            if not waiting.future.done():
                batch.append(waiting)
                texts.append(waiting.text)
                weights.append(waiting.price_weight)
        del self._waiting[:MAX_TOGETHER]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._score_waiting)
        if not batch:
            return
        try:
            all_scores = self.score_all(texts, weights)
        except Exception as error:
            # Whatever it was, every request that waits has to fail with it.
            for waiting in batch:
                waiting.future.set_exception(error)
            return
        for waiting, scores in zip(batch, all_scores, strict=True):
            waiting.future.set_result(scores)

    def check_weight(self, price_weight: float | None) -> None:
        """Refuse another price weight where the router takes none."""
        if price_weight is not None and self.fixed_weight_reason is not None:
            raise Refusal(
                400,
                f"router-mild-<t> cannot be used with this router: {self.fixed_weight_reason}",
                code="price_weight_not_supported",
                param="model",
            )

    def cannot_serve(self, document: Mapping[str, Any], bytes_in: int) -> dict[str, str]:
        """Why experts cannot serve a request, by their names; Refusal 400 if none of the router's can."""
        needs = request_needs(document, bytes_in)
        missing = {}
        for name, expert in self._experts.items():
            lacking = missing_of(expert, needs)
            if lacking:
                missing[name] = lacking
        reasons = []
        for k in self._candidates:
            name = self.names[k]
            if name not in missing:
                return missing
            reasons.append(f"{name} {missing[name]}")
        message = f"No expert can serve this request: {'. '.join(reasons)}."
        raise Refusal(400, message, code="no_capable_expert")

    def restrict(self, scores: Scores, missing: Mapping[str, str]) -> Scores:
        """The scores with the choice among the experts that can serve the request."""
        able = [k for k in self._candidates if self.names[k] not in missing]
        if len(able) == len(self.names):
            return scores
        order = [k for k in scores.order if k in able]
        total = sum(scores.probabilities[k] or 0.0 for k in able)
        shares: list[float | None] = [0.0] * len(self.names)
        for k, name in enumerate(self.names):
            if name in missing:
                shares[k] = None
            elif k in able and total:
                shares[k] = (scores.probabilities[k] or 0.0) / total
            elif k in able:
                shares[k] = 1 / len(able)
        return scores._replace(best=order[0], order=order, probabilities=shares)

    async def select(
        self,
        model: ModelRequest,
        text: str,
        session: Session | None,
        request: bytes,
        document: Mapping[str, Any],
        bytes_in: int,
    ) -> Selection:
        """Select for one request; Refusal 400 if no expert can serve it.

        ``text`` is what the router reads, ``request`` the number of the request, twelve bytes,
        ``document`` its content in any of the APIs, and ``bytes_in`` its length. A cascade
        is drawn with 1 - explore, and every expert with its part of explore. Its requests do not follow a
        session: each is judged by its own answers.
        """
        if model.expert is not None:
            return Selection([model.expert])
        missing = self.cannot_serve(document, bytes_in)
        scores = await self.score_soon(text, model.price_weight)
        scores = self.restrict(scores, missing)
        cascade_plan = self.cascade_plan(model, scores, missing, document)
        if cascade_plan is not None:
            return self._select_cascade(scores, missing, cascade_plan)
        pin = await self._find_pin(session, scores)
        best = scores.best
        if pin is not None:
            pinned = self.names.index(pin.expert)
            credit = self._credit(pin, model, document)
            if credit is None or scores.costs is None:
                return self._follow(pin, scores, missing)
            if scores.values[pinned] + credit >= scores.values[best]:
                best = pinned
        if self._auto is None or model.price_weight is not None:
            draws = self._draws(scores, self._explore, best)
            explored = self._explore > 0 and self._random.random() < self._explore
            chosen = best
            if explored:
                chosen = self._any_candidate(scores)
        else:
            dollars = self._expected_dollars(bytes_in)
            draws = self._auto.probabilities(
                best, scores.order, scores.costs, scores.features, dollars
            )
            (chosen,) = self._random.choices(range(len(draws)), draws)
            explored = chosen != best
        if self._sessions is not None and session is not None:
            self._sessions.pin(session, Pin(self.names[chosen], draws[chosen], request))
        return self._selection(scores, missing, chosen, draws, self.names[best], explored)

    def _select_cascade(
        self, scores: Scores, missing: Mapping[str, str], cascade_plan: RequestCascade
    ) -> Selection:
        """The cascade, or an expert that exploration draws in its place."""
        explore = self._explore
        if self._auto is not None:
            # What a cascade costs depends on answers: nothing says how much to explore.
            explore = min(MIN_EXPLORE, self._routing.explore_max)
        draws = self._draws(scores, explore)
        if explore > 0 and self._random.random() < explore:
            chosen = self._any_candidate(scores)
            return self._selection(scores, missing, chosen, draws, CASCADE, explored=True)
        selection = self._selection(scores, missing, scores.best, draws, CASCADE)
        return selection._replace(
            chosen=CASCADE, propensity=1 - explore, cascade_plan=cascade_plan, expected=None
        )

    def _follow(self, pin: Pin, scores: Scores, missing: Mapping[str, str]) -> Selection:
        """The expert of a session, with the probability of the draw that pinned it."""
        pinned = self.names.index(pin.expert)
        draws = self._draws(scores, 0.0)
        draws[pinned] = pin.propensity
        selection = self._selection(scores, missing, pinned, draws)
        return selection._replace(pinned_by=pin.request)

    def _comparable(self, candidate: Router | None) -> Router | None:
        """A candidate at the trade-off of the router; None if it has other experts, features or none."""
        router = self.router
        routing = self._routing
        if candidate is None or candidate.experts != router.experts:
            return None
        try:
            if routing.target is not None:
                candidate = decide.at_target(candidate, routing.target.target)
            candidate = decide.at_price_weight(
                decide.direct_router(candidate), routing.price_weight
            )
        except MildError:
            return None
        # A mix reads draws of its own.
        if decide.n_features(candidate) != decide.n_features(router) or decide.mixes(candidate):
            return None
        return candidate

    @property
    def _explore(self) -> float:
        """The share that is explored where it does not depend on the request."""
        if self._routing.explore == "auto":
            return 0.0
        return self._routing.explore

    def _any_candidate(self, scores: Scores) -> int:
        """One of the experts that can serve the request, each as likely as the others."""
        able = sorted(scores.order)
        return able[self._random.randrange(len(able))]

    def _draws(self, scores: Scores, explore: float, best: int | None = None) -> list[float]:
        """Probabilities of a draw: a part of ``explore`` for each expert, and the rest for the best."""
        part = explore / len(scores.order)
        draws = [0.0] * len(self.names)
        for k in scores.order:
            draws[k] = part + (1 - explore) * (k == best)
        return draws

    def _expected_dollars(self, bytes_in: int) -> list[float] | None:
        """What each expert takes for an answer of usual length; None if a price is not known."""
        usage = Usage(tokens_in_bytes(bytes_in), USUAL_TOKENS_OUT)
        dollars = [0.0] * len(self.names)
        for k in self._present:
            expert = self._experts.get(configured_name(self.names[k]))
            if expert is None or not expert.price.known:
                return None
            dollars[k] = expert.price.of(usage)
        return dollars

    def cascade_plan(
        self,
        model: ModelRequest,
        scores: Scores,
        missing: Mapping[str, str],
        document: Mapping[str, Any],
    ) -> RequestCascade | None:
        """How the cascade serves a request; None if one expert is asked."""
        cascade = self.cascade
        if cascade is None or scores.novel:
            return None
        if model.direct or model.price_weight is not None:
            return None
        # Of several answers to one request, none can be compared.
        if asked_answers(document) > 1:
            return None
        if not {"json_schema", "json_object"}.isdisjoint(answer_formats(document)):
            cascade = self._json_cascade
        features = scores.features
        asking = self._with_endpoints(decide.drawn_cascade(cascade, features))
        if asking is None:
            return None
        skipped = set()
        for k in decide.asked_experts(asking):
            name = configured_name(self.names[k])
            if name in missing or name in self._fallback_names:
                skipped.add(k)
        return RequestCascade(asking, features, frozenset(skipped))

    def _with_endpoints(self, cascade: Cascade) -> Cascade | None:
        """The cascade without experts that have no endpoint; None if it asks nobody then."""
        key = id(cascade)
        if key not in self._present_cascades:
            self._present_cascades[key] = decide.restricted_to(cascade, self._present)
        return self._present_cascades[key]

    async def _find_pin(self, session: Session | None, scores: Scores) -> Pin | None:
        """The decision that a request follows; None where its expert cannot serve it."""
        if self._sessions is None or session is None or not session.follows:
            return None
        pin = await self._sessions.find(session)
        # It may be an expert of another router, which served when the session began.
        if pin is None or pin.expert not in self.names:
            return None
        if self.names.index(pin.expert) not in scores.order:
            return None
        return pin

    def _credit(self, pin: Pin, model: ModelRequest, document: Mapping[str, Any]) -> float | None:
        """What the pinned expert's prompt cache saves, in units of cost; None if it must be kept."""
        weight = self._price_weight
        if model.price_weight is not None:
            weight = model.price_weight
        expert = self._experts.get(pin.expert)
        if self._routing.pin_sessions != "soft" or weight is None or expert is None:
            return None
        dollars_per_token = expert.price.saved_per_cached_token
        if not dollars_per_token or pin.idle > CACHE_SECONDS:
            return 0.0
        return float(weight * dollars_per_token * tokens_in_bytes(sent_before(document)))

    def _selection(
        self,
        scores: Scores,
        missing: Mapping[str, str],
        chosen: int,
        draws: list[float],
        preferred: str | None = None,
        explored: bool = False,
    ) -> Selection:
        """The selection of an expert that was drawn with these probabilities."""
        order = [self.names[chosen]]
        order.extend(self.names[k] for k in scores.order if k != chosen)
        order.extend(name for name in self._fallback_names if name not in missing)
        expected = None
        if scores.costs is not None:
            expected = dict(zip(self.names, scores.costs, strict=True))
        return Selection(
            order=order,
            chosen=self.names[chosen],
            probabilities=scores.probabilities,
            propensity=draws[chosen],
            expected=expected,
            explored=explored,
            features=scores.features,
            preferred=preferred,
            draws=draws,
        )
