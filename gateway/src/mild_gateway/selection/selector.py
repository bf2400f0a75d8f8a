"""From a request to an expert: who can serve it, the router's decision, exploration, pinned sessions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from mild.artifact import Router, features_tag, match_expert
from mild.core import FloatArray
from mild.errors import MildError
from mild.policies import Ask, CascadePolicy
from mild_gateway.config import RoutingSettings
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import Usage, asked_answers, tokens_in_bytes
from mild_gateway.refusals import Refusal
from mild_gateway.selection.exploration import LEAST, AutoExploration
from mild_gateway.selection.models import CASCADE, ModelRequest, configured_name
from mild_gateway.selection.needs import answer_formats, missing_of, request_needs
from mild_gateway.selection.sessions import Pin, Session, Sessions, sent_before

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


class Climb(NamedTuple):
    """How a cascade serves one request."""

    policy: CascadePolicy
    features: FloatArray | None  # of the text
    skipped: frozenset[int]  # experts of the cascade that are not asked

    def first_step(self) -> tuple[int, ...]:
        """Experts that are asked first, at the same time; none where nobody can be asked."""
        found = self.policy.next(self.features, dict.fromkeys(self.skipped))
        return found.experts if isinstance(found, Ask) else ()


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
    climb: Climb | None = None
    features: FloatArray | None = None  # of the text
    preferred: str | None = None  # what the router would choose without exploration, or "cascade"
    draws: list[float] | None = None  # probability of each expert to be drawn


class ExpertSelector:
    """Selects experts with one router; MildError if it has no text step, or takes no other price weight.

    ``names`` are those of its experts, in its order; ``fixed`` says why another price weight is refused,
    None if it is not. Of a ``cascade``, ``whole`` is the router, and ``router`` decides without answers.
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
            router = router.with_target(routing.target.target)
        self.cascade = router.cascade
        if self.cascade is not None:
            # For structured output, whatever the cascade has learned from.
            self._json_cascade = self.cascade.with_answer_kind("json")
        self.whole, router = router, router.direct
        self.router = router.with_prices(price_weight=routing.price_weight, in_dollars=True)
        router.features([""])  # a router without a text step says so here
        self.names = list(router.expert_names)
        self._on_novel: int | None = None
        if routing.on_novel is not None:
            router.is_novel([""])  # a router that does not know what is novel says so here
            self._on_novel = self.names.index(match_expert(routing.on_novel, self.names))
        self.fixed: str | None = None
        try:
            router.with_prices(price_weight=1.0, in_dollars=True)
        except MildError as error:
            self.fixed = str(error)
        # The router, perhaps under another price weight.
        self.at_weight = lru_cache(maxsize=64)(
            lambda weight: (
                self.router if weight is None else self.router.with_prices(price_weight=weight)
            )
        )
        # Of the text step, for features in the ledger.
        self.features_tag = "" if router.text is None else features_tag(router.text, self.whole.mix)
        self._waiting: list[tuple[str, float | None, asyncio.Future[Scores]]] = []
        self._routing = routing
        self._sessions = sessions
        self._experts = {expert.name: expert for expert in experts}
        self._fallbacks = [expert for expert in experts if expert.role == "fallback"]
        kept_back = {expert.name for expert in self._fallbacks}
        # Another call of the same expert is no other choice.
        self._candidates = [
            k
            for k, name in enumerate(self.names)
            if name not in kept_back and name == configured_name(name)
        ]
        # Units of the router's costs per dollar; None if the router does not say.
        self._price_weight = router.info.price_weight
        if routing.price_weight is not None:
            self._price_weight = routing.price_weight
        self._random = random.Random(seed)
        # None for a share that does not depend on the request.
        self._auto: AutoExploration | None = None
        if routing.explore == "auto":
            self._auto = AutoExploration(
                self.router, self._tried_out(candidate), routing.explore_max
            )

    def score(self, text: str, price_weight: float | None = None) -> Scores:
        """Score every expert for one text, perhaps under another price weight."""
        return self.score_all([text], [price_weight])[0]

    def score_all(self, texts: Sequence[str], weights: Sequence[float | None]) -> list[Scores]:
        """Score several texts, each under its own price weight: much cheaper than one by one."""
        X = self._features(texts)
        novel = [False] * len(texts)
        if self._on_novel is not None:
            novel = self.router.is_novel(texts, X).tolist()
        scores: dict[int, Scores] = {}
        for weight in set(weights):
            rows = [i for i, one in enumerate(weights) if one == weight]
            part = X if len(rows) == len(texts) else X[rows]
            router = self.at_weight(weight)
            found = router.decide_features(router.own_columns(part))
            shares, values = found.probabilities.tolist(), found.values.tolist()
            costs = [None] * len(rows) if found.costs is None else found.costs.tolist()
            for row, (best, i) in enumerate(zip(found.chosen.tolist(), rows, strict=True)):
                first = self._on_novel if novel[i] and self._on_novel is not None else best
                # The choice, then the others by the value that the choice maximises.
                order = sorted(range(len(self.names)), key=lambda k: (k != first, -values[row][k]))
                row_scores = shares[row], costs[row], values[row]
                scores[i] = Scores(first, order, *row_scores, novel[i], X[i])
        return [scores[i] for i in range(len(texts))]

    def _features(self, texts: Sequence[str]) -> FloatArray:
        """Features of texts, with their draws where the router is a mix."""
        if len(texts) == 1:
            return self.whole.features_one(texts[0])[None]
        return self.whole.features(texts)

    async def score_soon(self, text: str, price_weight: float | None = None) -> Scores:
        """Score one text, together with those that arrive in the same two rounds of the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Scores] = loop.create_future()
        self._waiting.append((text, price_weight, future))
        if len(self._waiting) == 1:
            loop.call_soon(loop.call_soon, self._score_waiting)
        return await future

    def _score_waiting(self) -> None:
        taken, self._waiting = self._waiting[:MAX_TOGETHER], self._waiting[MAX_TOGETHER:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._score_waiting)
        # Who has left needs no answer.
        taken = [one for one in taken if not one[2].done()]
        if not taken:
            return
        try:
            scores = self.score_all([one[0] for one in taken], [one[1] for one in taken])
        except Exception as error:
            # Whatever it was, those who wait have to hear of it.
            for _, _, future in taken:
                future.set_exception(error)
            return
        for (_, _, future), found in zip(taken, scores, strict=True):
            future.set_result(found)

    def check_weight(self, price_weight: float | None) -> None:
        """Refuse another price weight where the router takes none."""
        if price_weight is not None and self.fixed is not None:
            raise Refusal(
                400,
                f"router-mild-<t> cannot be used with this router: {self.fixed}",
                code="price_weight_not_supported",
                param="model",
            )

    def cannot_serve(self, document: Mapping[str, Any], bytes_in: int) -> dict[str, str]:
        """Why experts cannot serve a request, by their names; Refusal 400 if none of the router's can."""
        needs = request_needs(document, bytes_in)
        missing = {name: missing_of(expert, needs) for name, expert in self._experts.items()}
        missing = {name: why for name, why in missing.items() if why}
        names = [self.names[k] for k in self._candidates]
        if all(name in missing for name in names):
            whys = ". ".join(f"{name} {missing[name]}" for name in names)
            message = f"No expert can serve this request: {whys}."
            raise Refusal(400, message, code="no_capable_expert")
        return missing

    def restrict(self, scores: Scores, missing: Mapping[str, str]) -> Scores:
        """The scores with the choice among the experts that can serve the request."""
        able = self._candidates
        if missing:
            able = [k for k in able if self.names[k] not in missing]
        if len(able) == len(self.names):
            return scores
        order = [k for k in scores.order if k in able]
        total = sum(scores.probabilities[k] or 0.0 for k in able)
        shares: list[float | None] = [None if name in missing else 0.0 for name in self.names]
        for k in able:
            shares[k] = (scores.probabilities[k] or 0.0) / total if total else 1 / len(able)
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
        climb = self.climb(model, scores, missing, document)
        if climb is not None:
            # What a cascade costs depends on answers: nothing says how much to explore.
            explore = self._explore if self._auto is None else min(LEAST, self._routing.explore_max)
            draws = self._draws(scores, explore)
            if explore > 0 and self._random.random() < explore:
                return self._selection(
                    scores, missing, self._drawn(scores), draws, CASCADE, explored=True
                )
            found = self._selection(scores, missing, scores.best, draws, CASCADE)
            return found._replace(
                chosen=CASCADE, propensity=1 - explore, climb=climb, expected=None
            )
        pin = self._find_pin(session, scores)
        best = scores.best
        if pin is not None:
            pinned = self.names.index(pin.expert)
            credit = self._credit(pin, model, document)
            if credit is None or scores.costs is None:
                draws = self._draws(scores, 0.0)
                draws[pinned] = pin.propensity
                found = self._selection(scores, missing, pinned, draws)
                return found._replace(pinned_by=pin.request)
            if scores.values[pinned] + credit >= scores.values[best]:
                best = pinned
        if self._auto is None or model.price_weight is not None:
            draws, chosen = self._draws(scores, self._explore, best), best
            explored = self._explore > 0 and self._random.random() < self._explore
            if explored:
                chosen = self._drawn(scores)
        else:
            dollars = self._expected_dollars(bytes_in)
            draws = self._auto.probabilities(
                best, scores.order, scores.costs, scores.features, dollars
            )
            (chosen,) = self._random.choices(range(len(draws)), draws)
            explored = chosen != best
        if self._sessions is not None and session is not None:
            self._sessions.pin(session.hash, Pin(self.names[chosen], draws[chosen], request))
        return self._selection(scores, missing, chosen, draws, self.names[best], explored)

    def _tried_out(self, candidate: Router | None) -> Router | None:
        """A candidate at the trade-off of the router; None if it has other experts, features or none."""
        router, routing = self.router, self._routing
        if candidate is None or candidate.expert_names != router.expert_names:
            return None
        try:
            if routing.target is not None:
                candidate = candidate.with_target(routing.target.target)
            candidate = candidate.direct.with_prices(price_weight=routing.price_weight)
        except MildError:
            return None
        # A mix reads draws of its own.
        is_alike = candidate.n_features == router.n_features and candidate.mix is None
        return candidate if is_alike else None

    @property
    def _explore(self) -> float:
        explore = self._routing.explore
        return 0.0 if explore == "auto" else explore

    def _drawn(self, scores: Scores) -> int:
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
        experts = [self._experts.get(configured_name(name)) for name in self.names]
        usage = Usage(tokens_in_bytes(bytes_in), USUAL_TOKENS_OUT)
        known = [one.price.of(usage) for one in experts if one is not None and one.price.known]
        return known if len(known) == len(self.names) else None

    def climb(
        self,
        model: ModelRequest,
        scores: Scores,
        missing: Mapping[str, str],
        document: Mapping[str, Any],
    ) -> Climb | None:
        """How the cascade serves a request; None if one expert is asked."""
        policy, direct = self.cascade, model.direct or model.price_weight is not None
        # Of several answers to one request, none can be compared.
        if policy is None or direct or scores.novel or asked_answers(document) > 1:
            return None
        if not {"json_schema", "json_object"}.isdisjoint(answer_formats(document)):
            policy = self._json_cascade
        features = scores.features
        cascade = policy.drawn_cascade(features)
        if features is not None:
            features = features[: cascade.n_features]  # without the draw
        names = {k: configured_name(self.names[k]) for k in cascade.order}
        kept_back = {expert.name for expert in self._fallbacks}
        skipped = {k for k, name in names.items() if name in missing or name in kept_back}
        return Climb(cascade, features, frozenset(skipped))

    def _find_pin(self, session: Session | None, scores: Scores) -> Pin | None:
        """The decision that a request follows; None where its expert cannot serve it."""
        if self._sessions is None or session is None or not session.follows:
            return None
        pin = self._sessions.find(session.hash)
        # A pin of another router's expert is none: a reload may just be swapping them.
        if pin is None or pin.expert not in (self.names[k] for k in scores.order):
            return None
        return pin

    def _credit(self, pin: Pin, model: ModelRequest, document: Mapping[str, Any]) -> float | None:
        """What the pinned expert's prompt cache saves, in units of cost; None if it must be kept."""
        weight = self._price_weight if model.price_weight is None else model.price_weight
        expert = self._experts.get(pin.expert)
        if self._routing.pin_sessions != "soft" or weight is None or expert is None:
            return None
        saved = expert.price.saved_per_cached_token
        if not saved or pin.idle > self._routing.cache_seconds:
            return 0.0
        return float(weight * saved * tokens_in_bytes(sent_before(document)))

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
        names = self.names
        order = [names[chosen]]
        if self._routing.fallback:
            order += [names[k] for k in scores.order if k != chosen]
            order += [one.name for one in self._fallbacks if one.name not in missing]
        return Selection(
            order,
            names[chosen],
            scores.probabilities,
            draws[chosen],
            None if scores.costs is None else dict(zip(names, scores.costs, strict=True)),
            explored=explored,
            features=scores.features,
            preferred=preferred,
            draws=draws,
        )
