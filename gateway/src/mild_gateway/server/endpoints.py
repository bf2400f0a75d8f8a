"""The endpoints: completions of every API, models, decisions, health, metrics, the page."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mild_gateway._version import __version__
from mild_gateway.access import Caller
from mild_gateway.decide import explain
from mild_gateway.experts.expert import is_loopback
from mild_gateway.experts.prices import charged_tokens
from mild_gateway.experts.translation.fields import EMBEDDINGS
from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import (
    ROUTER_MODEL,
    ModelRequest,
    configured_name,
    read_model,
    router_models,
)
from mild_gateway.selection.sessions import content_session, named_session
from mild_gateway.selection.text import request_text, text_bytes
from mild_gateway.server.body import Receive, parse_body
from mild_gateway.server.completion import Completion
from mild_gateway.server.completion_request import CompletionRequest, check_required
from mild_gateway.server.feedback import FeedbackEndpoint
from mild_gateway.server.middleware import COMPLETIONS, Scope, Send, authorization_of
from mild_gateway.server.reply import ClientReply

if TYPE_CHECKING:
    from mild_gateway.decide import Explanation, Router
    from mild_gateway.selection.selector import Scores
    from mild_gateway.server.context import AppContext
    from mild_gateway.server.grader import Grader

# Explanations that may be computed or wait at a time.
MAX_EXPLANATIONS = 16
# Of a routed text; a longer one is explained by its beginning and its end.
MAX_EXPLAINED_CHARACTERS = 20_000
# What /v1/route says of an explanation.
_WHY = ("by", "lead", "runner_up", "evidence", "others", "method", "unit")
# The page brings everything with it and talks to this server alone.
_PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class AsciiResponse(JSONResponse):
    """JSON in ASCII: half a surrogate pair, which a request may hold, cannot be written as UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False).encode("ascii")


class Completions:
    """The endpoints that ask an expert, as an ASGI application."""

    def __init__(self, context: AppContext, grader: Grader | None) -> None:
        self._context = context
        self._grader = grader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = self._context
        caller = scope["mild.caller"]
        body = await Request(scope, receive).body()
        # How long the client takes to send its request is neither overhead nor latency.
        start = time.perf_counter()
        endpoint = COMPLETIONS[scope["path"]]
        which_text = context.settings.routing.text
        request = CompletionRequest(scope["headers"], endpoint, body, which_text)
        scope["mild.request_id"] = request.request_id
        selector = context.serving.selector
        model = read_model(
            request.document.get("model"),
            context.names,
            selector.fixed_weight_reason is None,
            context.settings.cascade_by_name,
        )
        selector.check_weight(model.price_weight)
        if endpoint == EMBEDDINGS:
            model = self._embedding_model(model)
        elif request.streamed and context.settings.cascade.stream == "direct":
            model = replace(model, direct=True)
        if request.session_name is not None:
            request.session = named_session(caller.name, request.session_name)
        elif context.settings.routing.session_from_content:
            request.session = content_session(caller.name, request.document)
        reply = ClientReply(send, start)
        completion = Completion(context, caller, request, model, reply, self._grader)
        await completion.run(receive)

    def _embedding_model(self, model: ModelRequest) -> ModelRequest:
        """The expert that computes embeddings; those of different experts cannot be compared."""
        experts = self._context.settings.experts
        able = [expert.name for expert in experts if expert.embeddings]
        if model.expert in able:
            return model
        if model.expert is None and len(able) == 1:
            return ModelRequest(expert=able[0])
        choices = "none does (embeddings = true)"
        if able:
            choices = f"these do: {', '.join(able)}"
        message = f"model must name an expert that computes embeddings; {choices}."
        raise Refusal(400, message, code="embeddings_unsupported", param="model")


def _expected_costs(
    names: Sequence[str], scores: Scores, chosen: int, *, is_cascade: bool
) -> dict[str, Any]:
    """What the router expects each expert to cost; what a cascade costs depends on the answers."""
    if scores.costs is None:
        return {"expected_costs": None, "expected_cost": None}
    costs = dict(zip(names, scores.costs, strict=True))
    cost = None
    if not is_cascade:
        cost = scores.costs[chosen]
    return {"expected_costs": costs, "expected_cost": cost}


def _reason(explanation: Explanation, chosen: str, scores: Scores) -> str:
    """Why this expert is asked first."""
    if chosen == explanation.expert:
        return "router"
    if scores.novel:
        return "on_novel"
    return "cannot_serve"


def _certainty(explanation: Explanation) -> dict[str, Any]:
    """How sure the router is, and the evidence behind its choice."""
    evidence = asdict(explanation)
    return {
        "right": explanation.right,
        "novelty": explanation.novelty,
        "novel": explanation.novel,
        "why": {name: evidence[name] for name in _WHY},
    }


class Endpoints:
    """The small endpoints."""

    def __init__(self, context: AppContext, grader: Grader | None = None) -> None:
        self._context = context
        self._grader = grader
        self._feedback = FeedbackEndpoint(context)
        self._explaining = asyncio.Semaphore(1)
        self._waiting = 0

    def routes(self) -> list[Route]:
        """Every endpoint with its method."""
        completions = Completions(self._context, self._grader)
        routes = [Route(path, completions, methods=["POST"]) for path in COMPLETIONS]
        routes += [
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._model),
            Route("/v1/route", self._route, methods=["POST"]),
            Route("/v1/feedback", self._feedback.take, methods=["POST"]),
            Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
            Route("/health", self._health),
            Route("/health/live", self._live),
            Route("/health/ready", self._ready),
            Route("/metrics", self._metrics),
        ]
        if self._context.settings.page and self._context.board is not None:
            routes += [Route("/", self._page), Route("/status.json", self._status)]
        return routes

    async def _models(self, request: Request) -> Response:
        self._identify(request)
        return JSONResponse({"object": "list", "data": list(self._model_documents())})

    async def _model(self, request: Request) -> Response:
        self._identify(request)
        for document in self._model_documents():
            if document["id"] == request.path_params["name"]:
                return JSONResponse(document)
        raise Refusal(404, "There is no such model.", code="model_not_found", param="model")

    def _model_documents(self) -> Iterator[dict[str, Any]]:
        created = int(self._context.started)
        by_name = self._context.settings.cascade_by_name
        for name in (*router_models(by_name), *self._context.names):
            yield {"id": name, "object": "model", "created": created, "owned_by": "mild"}

    async def _route(self, request: Request) -> Response:
        """The decision alone, and why; nobody is asked, nothing is spent."""
        context = self._context
        serving = context.serving
        selector = serving.selector
        names = selector.names
        body = await request.body()
        document = parse_body(body)
        model = read_model(
            document.get("model", ROUTER_MODEL),
            context.names,
            selector.fixed_weight_reason is None,
            context.settings.cascade_by_name,
        )
        selector.check_weight(model.price_weight)
        if not document.keys() & {"messages", "prompt", "input"}:
            check_required(document, ("messages",))
        text = request_text(document, context.settings.routing.text)
        if model.expert is not None:
            return JSONResponse({"expert": model.expert, "why": "The request names this expert."})
        missing = selector.cannot_serve(document, text_bytes(document, body))
        scores = selector.restrict(selector.score(text, model.price_weight), missing)
        cascade_plan = selector.cascade_plan(model, scores, missing, document)
        router = selector.full_router
        first_step: tuple[int, ...] = ()
        if cascade_plan is None:
            router = selector.at_weight(model.price_weight)
        else:
            first_step = cascade_plan.first_step()
        explanation = await self._explain(router, text)
        order = list(dict.fromkeys([*first_step, *scores.order]))
        decision: dict[str, Any] = {
            "expert": names[order[0]],
            "order": [names[k] for k in order],
        }
        if first_step:
            decision["first_step"] = [names[k] for k in first_step]
        if request.query_params.get("probabilities", "").lower() in ("1", "true"):
            decision["probabilities"] = dict(zip(names, scores.probabilities, strict=True))
        decision |= _expected_costs(names, scores, order[0], is_cascade=bool(first_step))
        decision["cannot_serve"] = missing
        decision["available"] = self._available(names)
        decision["reason"] = _reason(explanation, names[order[0]], scores)
        decision["router"] = serving.fingerprint
        decision |= _certainty(explanation)
        return AsciiResponse(decision)

    def _available(self, names: Sequence[str]) -> dict[str, bool]:
        """By expert: whether it would be asked in its place."""
        available = {}
        for name in names:
            available[name] = self._context.clients[configured_name(name)].is_available()
        return available

    async def _count_tokens(self, request: Request) -> Response:
        """Tokens of a message, by the estimate that charges without usage go by; nobody is asked."""
        context = self._context
        body = await request.body()
        document = parse_body(body)
        read_model(
            document.get("model"),
            context.names,
            context.serving.selector.fixed_weight_reason is None,
            context.settings.cascade_by_name,
        )
        check_required(document, ("messages",))
        tokens = charged_tokens(text_bytes(document, body))
        return JSONResponse({"input_tokens": tokens}, headers={"x-mild-estimate": "input_tokens"})

    async def _explain(self, router: Router, text: str) -> Explanation:
        """A decision and the evidence behind it, found in a thread: it takes a while.

        The figures are those of the whole text; the evidence is looked for in a part of a long one.
        """
        if len(text) > MAX_EXPLAINED_CHARACTERS:
            half = MAX_EXPLAINED_CHARACTERS // 2
            text = f"{text[:half]} {text[-half:]}"
        if self._waiting >= MAX_EXPLANATIONS:
            message = "Too many explanations are waiting at the moment."
            raise Refusal(429, message, code="overloaded", retry_after=1.0)
        self._waiting += 1
        try:
            async with self._explaining:
                return await asyncio.to_thread(explain, router, text)
        finally:
            self._waiting -= 1

    async def _health(self, request: Request) -> Response:
        context = self._context
        experts = {}
        for name, is_last in context.asked_last().items():
            experts[name] = "last" if is_last else "ok"
        troubles = []
        if context.access.trouble is not None:
            troubles.append("store")
        if context.ledger.trouble is not None:
            troubles.append("ledger")
        if context.router_trouble is not None:
            troubles.append("router")
        return JSONResponse(
            {
                "status": "draining" if context.draining else "ok",
                "version": __version__,
                "router": context.serving.fingerprint,
                "experts": experts,
                "in_flight": context.in_flight,
                "troubles": troubles,
            }
        )

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _ready(self, request: Request) -> Response:
        reason = self._context.not_ready()
        if reason is not None:
            status = "unavailable"
            if reason == "draining":
                status = "draining"
            return JSONResponse({"status": status, "reason": reason}, 503)
        return JSONResponse({"status": "ready", "router": self._context.serving.fingerprint})

    async def _metrics(self, request: Request) -> Response:
        """Names, spend and budgets of all keys: for a key that may see them, and on this machine."""
        settings = self._context.settings
        open_here = not settings.requires_key and request.scope["mild.local"]
        if settings.page != "public" and not open_here:
            self._require_admin(request, "The metrics show")
        content = self._context.metrics.render()
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _page(self, request: Request) -> Response:
        """The page, which holds no figures: it asks for them, and for a key where they need one."""
        from mild_gateway.dashboard import page_bytes

        return Response(page_bytes(), headers=_PAGE_HEADERS, media_type="text/html")

    async def _status(self, request: Request) -> Response:
        """The figures of the page: without a key only on this machine, and only if no key is required."""
        assert self._context.board is not None
        settings = self._context.settings
        local = request.scope["mild.local"] and is_loopback(settings.host)
        open_here = local and not settings.requires_key
        if settings.page != "public" and not open_here:
            self._require_admin(request, "The dashboard shows")
        return AsciiResponse(await self._context.board.document())

    def _require_admin(self, request: Request, subject: str) -> None:
        """Refusal unless the request has an admin key: others may not see what every key spends."""
        if not self._identify(request).admin:
            message = (
                f"{subject} what every key spends: this needs a key that was created with "
                "`mild keys add NAME --admin`."
            )
            raise Refusal(403, message, code="admin_key_required")

    def _identify(self, request: Request) -> Caller:
        return self._context.access.identify(authorization_of(request.headers))
