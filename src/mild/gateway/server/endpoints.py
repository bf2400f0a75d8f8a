"""Everything but completions: models, decisions, health, metrics, the page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mild import __version__
from mild.gateway.choosing.names import ROUTED, read_model
from mild.gateway.choosing.text import chat_text, completion_text
from mild.gateway.metrics import label_text
from mild.gateway.refusals import Refusal
from mild.gateway.server.asked import parse_body
from mild.gateway.server.request import Reply, Request, json_reply

if TYPE_CHECKING:
    from mild.gateway.server.app import Gateway

__all__ = ["Endpoints"]

# Decisions that are explained at a time, and that may wait for it.
EXPLAINED = 16
# Of a routed text; a longer one is explained by its beginning.
LONGEST = 20_000
SERVED = "/v1/chat/completions, /v1/completions, /v1/models and /v1/route"
PLAIN = b"text/plain; version=0.0.4; charset=utf-8"
# The page brings everything with it and talks to this server alone.
PAGE_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        b"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]

Handler = Callable[[Request], Awaitable[Reply]]


class Endpoints:
    """Small endpoints by path and method."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._explaining = asyncio.Semaphore(1)
        self._waiting = 0
        self._known: dict[str, tuple[str, Handler]] = {
            "/v1/models": ("GET", self._models),
            "/v1/route": ("POST", self._route),
            "/health": ("GET", self._health),
            "/health/liveliness": ("GET", self._liveliness),
            "/health/readiness": ("GET", self._readiness),
            "/metrics": ("GET", self._metrics),
        }
        if gateway.settings.page and gateway.board is not None:
            shown = gateway.settings.page_is_open
            self._known["/"] = ("GET", self._page if shown else self._closed)
            self._known["/status.json"] = ("GET", self._status if shown else self._closed)

    async def answer(self, request: Request) -> Reply:
        """Answer, or refuse with 404 or 405."""
        found = self._known.get(request.path)
        if found is None and request.path.startswith("/v1/models/"):
            found = ("GET", self._model)
        method = "POST" if found is None else found[0]
        if found is None and request.path not in ("/v1/chat/completions", "/v1/completions"):
            raise Refusal(404, f"There is no such endpoint; there are {SERVED}.", code="not_found")
        asked = "GET" if request.method == "HEAD" else request.method
        if found is None or asked != method:
            raise Refusal(
                405,
                f"This endpoint takes {method} requests.",
                code="method_not_allowed",
                headers={"Allow": method},
            )
        return await found[1](request)

    async def _models(self, request: Request) -> Reply:
        self._identify(request)
        return json_reply({"object": "list", "data": list(self._model_documents())})

    async def _model(self, request: Request) -> Reply:
        self._identify(request)
        name = unquote(request.path.removeprefix("/v1/models/"))
        for document in self._model_documents():
            if document["id"] == name:
                return json_reply(document)
        raise Refusal(404, "There is no such model.", code="model_not_found", param="model")

    def _model_documents(self) -> Iterator[dict[str, Any]]:
        created = int(self._gateway.started)
        for name in (ROUTED, *self._gateway.names):
            yield {"id": name, "object": "model", "created": created, "owned_by": "mild"}

    async def _route(self, request: Request) -> Reply:
        """The decision alone, and why; nobody is asked, nothing is spent."""
        gateway, serving = self._gateway, self._gateway.serving
        self._identify(request)
        body = await request.body(gateway.settings.limits.max_body_bytes)
        document = parse_body(body)
        chooser = serving.drawing.chooser
        weighs = chooser.fixed is None
        wish = read_model(document.get("model", ROUTED), gateway.names, weighs)
        chooser.check_weight(wish.price_weight)
        read = chat_text if "messages" in document else completion_text
        text = read(document, gateway.settings.routing.text)[:LONGEST]
        if wish.expert is not None:
            return json_reply({"expert": wish.expert, "why": "The request names this expert."})
        scores = chooser.score(text, wish.price_weight)
        names = chooser.names
        costs = scores.costs
        free = {name: gateway.desks[name].is_free() for name in names}
        return json_reply(
            {
                "expert": names[scores.best],
                "order": [names[k] for k in scores.order],
                "probabilities": dict(zip(names, scores.probabilities, strict=True)),
                "expected_costs": None if costs is None else dict(zip(names, costs, strict=True)),
                "expected_cost": None if costs is None else costs[scores.best],
                "available": free,
                "router": serving.fingerprint,
                "why": await self._why(chooser.weighed(wish.price_weight), text),
            }
        )

    async def _why(self, router: Any, text: str) -> dict[str, Any]:
        """The evidence behind a decision, found in a thread: it may take a while."""
        from mild.artifact.explanation import explain

        if self._waiting >= EXPLAINED:
            raise Refusal(
                429, "Too many decisions wait to be explained.", code="overloaded", retry_after=1.0
            )
        self._waiting += 1
        try:
            async with self._explaining:
                found = await asyncio.to_thread(explain, router, text)
        finally:
            self._waiting -= 1
        return {
            "by": found.by,
            "lead": found.lead,
            "runner_up": found.runner_up,
            "evidence": [{"part": entry.part, "effect": entry.effect} for entry in found.evidence],
            "others": found.others,
            "method": found.method,
            "unit": found.unit,
        }

    async def _health(self, request: Request) -> Reply:
        gateway = self._gateway
        return json_reply(
            {
                "status": "draining" if gateway.draining else "ok",
                "version": __version__,
                "router": gateway.serving.fingerprint,
                "experts": {name: desk.state() for name, desk in gateway.desks.items()},
                "in_flight": int(gateway.metrics.value("mild_in_flight")),
            }
        )

    async def _liveliness(self, request: Request) -> Reply:
        return json_reply("I'm alive!")

    async def _readiness(self, request: Request) -> Reply:
        gateway = self._gateway
        if gateway.draining:
            return json_reply({"status": "draining"}, 503)
        return json_reply({"status": "ready", "router": gateway.serving.fingerprint})

    async def _metrics(self, request: Request) -> Reply:
        gateway = self._gateway
        if not gateway.settings.page_is_open:
            self._identify(request)
        return Reply(gateway.metrics.render(_spend_lines(gateway.access.spend())), PLAIN)

    async def _page(self, request: Request) -> Reply:
        from mild.gateway.page import page_bytes

        return Reply(page_bytes(), b"text/html; charset=utf-8", headers=PAGE_HEADERS)

    async def _closed(self, request: Request) -> Reply:
        # Not for a key either: it shows what the holders of other keys spend and ask.
        raise Refusal(
            403,
            "The page is served on loopback alone, and where no key is needed; "
            'page = "public" shows it to everyone who can reach the gateway.',
            code="page_closed",
        )

    async def _status(self, request: Request) -> Reply:
        board = self._gateway.board
        assert board is not None
        return json_reply(await board.document())

    def _identify(self, request: Request) -> None:
        self._gateway.access.identify(request.header(b"authorization"))


def _spend_lines(spend: dict[str, Any]) -> Iterator[str]:
    """Spend and budgets as Prometheus reads them."""
    rows = [("", spend["all"]), *spend["keys"].items()]
    for what, says in (("spent", "Dollars spent."), ("budget", "Dollars allowed.")):
        yield f"# HELP mild_{what}_dollars {says}"
        yield f"# TYPE mild_{what}_dollars gauge"
        for key, lines in rows:
            for period in ("day", "month"):
                value = lines[period][what]
                if value is not None:
                    labels = label_text((("key", key or "all"), ("period", period)))
                    yield f"mild_{what}_dollars{labels} {value:.12g}"
