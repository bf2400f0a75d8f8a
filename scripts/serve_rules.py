"""Serve the rule-based solver as a model: `uvicorn serve_rules:app --app-dir scripts --port 8133`."""

from __future__ import annotations

from rule_solver import solve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def complete(request: Request) -> JSONResponse:
    """Answer the last message by the rules."""
    body = await request.json()
    message = {"role": "assistant", "content": solve(body["messages"][-1]["content"])}
    return JSONResponse({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


app = Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
