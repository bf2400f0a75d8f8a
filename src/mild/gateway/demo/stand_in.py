"""A stand-in expert as an ASGI application that speaks OpenAI's protocol."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

from mild.gateway.refusals import Refusal
from mild.gateway.selection.text import chat_text, completion_text
from mild.gateway.server.body import parse_body
from mild.gateway.server.middleware import refusal_response

__all__ = ["StandIn"]


class StandIn:
    """Answers with a function of the text.

    Parameters
    ----------
    name : of the model
    answer : text -> text
    seconds : before an answer, and between two words of a stream
    """

    def __init__(self, name: str, answer: Callable[[str], str], seconds: float = 0.0) -> None:
        self._name = name
        self._answer = answer
        self._seconds = seconds

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        try:
            document = parse_body(await request.body())
        except Refusal as refusal:
            await refusal_response(refusal)(scope, receive, send)
            return
        chat = request.url.path.endswith("/chat/completions")
        text = (chat_text if chat else completion_text)(document, "last")
        words = self._answer(text)
        usage = {
            "prompt_tokens": max(1, len(text) // 4),
            "completion_tokens": max(1, len(words) // 4),
        }
        usage["total_tokens"] = sum(usage.values())
        if self._seconds:
            await asyncio.sleep(self._seconds)
        if document.get("stream"):
            events = self._events(document, words, usage, chat)
            stream = StreamingResponse(events, media_type="text/event-stream")
            await stream(scope, receive, send)
            return
        said = {"message": {"role": "assistant", "content": words}} if chat else {"text": words}
        choice = {"index": 0, **said, "finish_reason": "stop"}
        kind = "chat.completion" if chat else "text_completion"
        answer = {**self._base(kind), "choices": [choice], "usage": usage}
        await JSONResponse(answer)(scope, receive, send)

    async def _events(
        self, document: dict[str, Any], words: str, usage: dict[str, int], chat: bool
    ) -> AsyncIterator[bytes]:
        base = self._base("chat.completion.chunk" if chat else "text_completion")
        pieces = [piece + " " for piece in words.split(" ")]
        for piece in [*pieces, None]:
            delta = {} if piece is None else {"content": piece}
            said: dict[str, Any] = {"delta": delta} if chat else {"text": piece or ""}
            choice = {"index": 0, **said, "finish_reason": "stop" if piece is None else None}
            yield _event({**base, "choices": [choice]})
            if self._seconds:
                await asyncio.sleep(self._seconds)
        options = document.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            yield _event({**base, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def _base(self, kind: str) -> dict[str, Any]:
        now = int(time.time())
        return {"id": f"stand-in-{now}", "object": kind, "created": now, "model": self._name}


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode("ascii") + b"\n\n"
