"""The endpoints: completions of every API, models, decisions, health, metrics, the page."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mild.core import shorten
from mild_gateway._version import __version__
from mild_gateway.access import Caller
from mild_gateway.experts.expert import is_loopback
from mild_gateway.experts.prices import charged_tokens
from mild_gateway.experts.translation.fields import EMBEDDINGS
from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import (
    DIRECT_MODEL,
    ROUTER_MODEL,
    ModelRequest,
    configured_name,
    read_model,
)
from mild_gateway.selection.sessions import content_session, named_session
from mild_gateway.selection.text import request_text, text_bytes
from mild_gateway.server.body import parse_body
from mild_gateway.server.completion_request import CompletionRequest, check_required
from mild_gateway.server.completions import CompletionHandler, run_until_disconnect
from mild_gateway.server.feedback import FeedbackEndpoint
from mild_gateway.server.middleware import COMPLETIONS, Receive, Scope, Send, authorization_of

if TYPE_CHECKING:
    from mild.artifact import Explanation, Router
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
        start = time.perf_counter()
        context, serving = self._context, self._context.serving
        caller = scope["mild.caller"]
        reading = time.perf_counter()
        body = await Request(scope, receive).body()
        # How long the client takes to send its request is neither overhead nor latency.
        start += time.perf_counter() - reading
        endpoint, which = COMPLETIONS[scope["path"]], context.settings.routing.text
        request = CompletionRequest(scope["headers"], endpoint, body, which)
        selector = serving.selector
        model = read_model(request.document.get("model"), context.names, selector.fixed is None)
        selector.check_weight(model.price_weight)
        if endpoint == EMBEDDINGS:
            model = self._embedding_model(model)
        elif request.streamed and context.settings.cascade.stream == "direct":
            model = replace(model, direct=True)
        if request.session_name is not None:
            request.session = named_session(caller.name, request.session_name)
        elif context.settings.routing.session_from_content:
            request.session = content_session(caller.name, request.document)
        handler = CompletionHandler(
            context, serving, send, caller, request, model, start, self._grader
        )
        await run_until_disconnect(handler, receive)

    def _embedding_model(self, model: ModelRequest) -> ModelRequest:
        """The expert that computes embeddings; those of different experts cannot be compared."""
        able = [one.name for one in self._context.settings.experts if one.embeddings]
        if model.expert in able:
            return model
        if model.expert is None and len(able) == 1:
            return ModelRequest(expert=able[0])
        said = f"these do: {', '.join(able)}" if able else "none does (embeddings = true)"
        message = f"model must name an expert that computes embeddings; {said}."
        raise Refusal(400, message, code="embeddings_unsupported", param="model")


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
            Route("/health/liveliness", self._liveliness),
            Route("/health/readiness", self._readiness),
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
        for name in (ROUTER_MODEL, DIRECT_MODEL, *self._context.names):
            yield {"id": name, "object": "model", "created": created, "owned_by": "mild"}

    async def _route(self, request: Request) -> Response:
        """The decision alone, and why; nobody is asked, nothing is spent."""
        context, serving = self._context, self._context.serving
        body = await request.body()
        document = parse_body(body)
        selector, names = serving.selector, serving.selector.names
        model = document.get("model", ROUTER_MODEL)
        wanted = read_model(model, context.names, selector.fixed is None)
        selector.check_weight(wanted.price_weight)
        if not document.keys() & {"messages", "prompt", "input"}:
            check_required(document, ("messages",))
        text = request_text(document, context.settings.routing.text)
        if wanted.expert is not None:
            named = "The request names this expert."
            return JSONResponse({"expert": wanted.expert, "why": named})
        missing = selector.cannot_serve(document, text_bytes(document, body))
        scores = selector.restrict(selector.score(text, wanted.price_weight), missing)
        # The figures are those of the whole text; the evidence is looked for in a part of a long one.
        part = shorten(text, MAX_EXPLAINED_CHARACTERS // 2, MAX_EXPLAINED_CHARACTERS // 2)
        climb = selector.climb(wanted, scores, missing, document)
        router = selector.at_weight(wanted.price_weight) if climb is None else selector.whole
        found = await self._explain(router, part)
        why = {name: value for name, value in asdict(found).items() if name in _WHY}
        step = () if climb is None else climb.first_step()
        order = list(dict.fromkeys([*step, *scores.order]))
        first = {"first_step": [names[k] for k in step]} if step else {}
        best = order[0]
        reason = "on_novel" if scores.novel else "cannot_serve"
        if names[best] == found.expert:
            reason = "router"
        costs = scores.costs
        shares = {}
        if request.query_params.get("probabilities", "").lower() in ("1", "true"):
            shares = {"probabilities": dict(zip(names, scores.probabilities, strict=True))}
        return AsciiResponse(
            {
                "expert": names[best],
                "order": [names[k] for k in order],
                **first,
                **shares,
                "expected_costs": None if costs is None else dict(zip(names, costs, strict=True)),
                # What a cascade costs depends on the answers.
                "expected_cost": None if costs is None or step else costs[best],
                "cannot_serve": missing,
                "available": {
                    name: context.clients[configured_name(name)].is_free() for name in names
                },
                "reason": reason,
                "router": serving.fingerprint,
                "right": found.right,
                "novelty": found.novelty,
                "novel": found.novel,
                "why": why,
            }
        )

    async def _count_tokens(self, request: Request) -> Response:
        """Tokens of a message, by the estimate that charges without usage go by; nobody is asked."""
        context, body = self._context, await request.body()
        document = parse_body(body)
        read_model(document.get("model"), context.names, context.serving.selector.fixed is None)
        check_required(document, ("messages",))
        tokens = charged_tokens(text_bytes(document, body))
        return JSONResponse({"input_tokens": tokens}, headers={"x-mild-estimate": "input_tokens"})

    async def _explain(self, router: Router, text: str) -> Explanation:
        """A decision and the evidence behind it, found in a thread: it takes a while."""
        if self._waiting >= MAX_EXPLANATIONS:
            message = "Too many explanations are waiting at the moment."
            raise Refusal(429, message, code="overloaded", retry_after=1.0)
        self._waiting += 1
        try:
            async with self._explaining:
                return await asyncio.to_thread(router.explain, text)
        finally:
            self._waiting -= 1

    async def _health(self, request: Request) -> Response:
        context, states = self._context, self._context.expert_states()
        found = {"store": context.access.trouble, "ledger": context.ledger.trouble}
        return JSONResponse(
            {
                "status": "draining" if context.draining else "ok",
                "version": __version__,
                "router": context.serving.fingerprint,
                "experts": states.pop("breakers"),
                **states,
                "in_flight": context.total_in_flight,
                "troubles": [name for name, trouble in found.items() if trouble is not None],
            }
        )

    async def _liveliness(self, request: Request) -> Response:
        return JSONResponse("I'm alive!")

    async def _readiness(self, request: Request) -> Response:
        reason = self._context.not_ready()
        if reason is not None:
            status = "draining" if reason == "draining" else "unavailable"
            return JSONResponse({"status": status, "reason": reason}, 503)
        return JSONResponse({"status": "ready", "router": self._context.serving.fingerprint})

    async def _metrics(self, request: Request) -> Response:
        """Names, spend and budgets of all keys: for a key that may see them, and on this machine."""
        settings = self._context.settings
        open_here = not settings.requires_key and request.scope["mild.local"]
        if settings.page != "public" and not open_here and not self._identify(request).admin:
            raise Refusal(
                403,
                "The metrics show what every key spends, so they require a key that was created with "
                "`mild keys add NAME --admin`.",
                code="admin_key_required",
            )
        content = self._context.metrics.render()
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _page(self, request: Request) -> Response:
        from mild_gateway.dashboard import page_bytes

        self._check_page(request)
        return Response(page_bytes(), headers=_PAGE_HEADERS, media_type="text/html")

    async def _status(self, request: Request) -> Response:
        assert self._context.board is not None
        self._check_page(request)
        return AsciiResponse(await self._context.board.document())

    def _check_page(self, request: Request) -> None:
        settings = self._context.settings
        local = request.scope["mild.local"] and is_loopback(settings.host)
        if settings.page == "public" or (local and not settings.requires_key):
            return
        # Not for a key either: it shows what the holders of other keys spend and ask.
        raise Refusal(
            403,
            "The page is served only on loopback, and only if no key is required; "
            'page = "public" shows it to everyone who can reach the gateway.',
            code="page_closed",
        )

    def _identify(self, request: Request) -> Caller:
        return self._context.access.identify(authorization_of(request.headers))
