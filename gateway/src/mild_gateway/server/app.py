"""The gateway as a Starlette application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from mild_gateway.refusals import Refusal
from mild_gateway.server.context import AppContext
from mild_gateway.server.endpoints import Endpoints
from mild_gateway.server.grader import Grader
from mild_gateway.server.middleware import RequestGuard, error_response, refusal_response

_SERVED = (
    "/v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens, "
    "/v1/embeddings, /v1/models, /v1/route and /v1/feedback"
)

# Headers of answers that pages of other origins may read.
_EXPOSED = (
    "retry-after", "x-mild-estimate", "x-mild-expected-cost", "x-mild-expert", "x-mild-overhead-ms",
    "x-mild-path", "x-mild-request-id", "x-request-id",
)  # fmt: skip


def create_app(context: AppContext, ready: Callable[[], None] = lambda: None) -> ASGIApp:
    """The application, which starts and stops the context; ``ready`` is called in between."""

    grader = None if context.settings.grading is None else Grader(context)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await context.start()
        ready()
        yield
        if grader is not None:
            await grader.stop()
        await context.stop()

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        context.refused(error)
        return refusal_response(error, request.url.path)

    async def refuse_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"There is no such endpoint. The endpoints are {_SERVED}."
        refusal = Refusal(404, message, code="not_found")
        if error.status_code == 405 and request.method == "OPTIONS":
            methods = (error.headers or {}).get("Allow", "")
            return Response(status_code=204, headers={"Allow": f"{methods}, OPTIONS"})
        if error.status_code == 405:
            allowed = "POST" if "POST" in (error.headers or {}).get("Allow", "") else "GET"
            refusal = Refusal(
                405,
                f"This endpoint takes {allowed} requests.",
                code="method_not_allowed",
                headers={"Allow": allowed},
            )
        return await refuse(request, refusal)

    async def ignore(request: Request, error: Exception) -> Response:
        return Response(status_code=499)  # nobody is there to read it

    async def fail(request: Request, error: Exception) -> Response:
        return error_response(context, error, request.scope)

    app = Starlette(
        routes=Endpoints(context, grader).routes(),
        exception_handlers={
            Refusal: refuse,
            HTTPException: refuse_route,
            ClientDisconnect: ignore,
            Exception: fail,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    guard = RequestGuard(app, context)
    origins = context.settings.server.cors_origins
    if not origins:
        return guard
    # Lets pages of the named origins use the gateway; keys travel in a header, cookies do not.
    return CORSMiddleware(
        guard,
        allow_origins=origins,
        allow_methods=["GET", "HEAD", "POST"],
        allow_headers=["*"],
        expose_headers=_EXPOSED,
    )
