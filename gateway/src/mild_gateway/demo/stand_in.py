"""A stand-in expert as an ASGI application that speaks OpenAI's protocol."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import operator
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any
from uuid import uuid4

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from mild_gateway.experts.translation.fields import tool_call
from mild_gateway.experts.translation.streams import data_event
from mild_gateway.refusals import Refusal
from mild_gateway.selection.text import chat_text, request_text
from mild_gateway.server.body import parse_body
from mild_gateway.server.middleware import refusal_response

# Answers to one request.
MAX_CHOICES = 16
CHARACTERS_PER_TOKEN = 4
# Numbers of an embedding, unless the request says.
DIMENSIONS = 64
MAX_DIMENSIONS = 3072
# A schema may contain itself: nothing is written below this depth, and no more parts than these.
MAX_DEPTH = 8
MAX_NODES = 1000
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_PIECES = re.compile(r"\s*\S+|\s+$")
_WORDS = re.compile(r"[a-z]{4,}")


@dataclass(frozen=True, slots=True)
class StandInReply:
    """A text, or the call of a tool with its arguments as JSON."""

    content: str
    finish_reason: str = "stop"
    tool: str | None = None

    def message(self) -> dict[str, Any]:
        """As the message of a plain answer."""
        if self.tool is None:
            return {"role": "assistant", "content": self.content}
        call = tool_call(f"call_{uuid4().hex}", self.tool, self.content)
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def deltas(self) -> Iterator[dict[str, Any]]:
        """As the deltas of a streamed answer; the first has the role."""
        pieces = _PIECES.findall(self.content)
        if self.tool is None:
            yield {"role": "assistant", "content": ""}
            for piece in pieces:
                yield {"content": piece}
            return
        opened = tool_call(f"call_{uuid4().hex}", self.tool, "")
        yield {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **opened}]}
        for piece in pieces:
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


class StandIn:
    """Answers with a function of the text, after so many seconds, which also lie between words of a stream.

    A tool is called where the request forces it, or names in its text what the name of a tool says: one
    at a time. A ``response_format`` is answered with an instance of its schema. A text ends before
    ``stop``. Options such as ``logprobs`` and ``temperature`` are ignored.
    """

    def __init__(self, name: str, answer: Callable[[str], str], seconds: float = 0.0) -> None:
        self._name = name
        self._answer = answer
        self._seconds = seconds

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request.url.path, parse_body(await request.body()))
        except Refusal as refusal:
            response = refusal_response(refusal)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            message = f"A field of the request has another form than in OpenAI's API: {error!r}."
            response = refusal_response(Refusal(400, message, code="invalid_body"))
        await response(scope, receive, send)

    async def _respond(self, path: str, document: dict[str, Any]) -> Response:
        if self._seconds:
            await asyncio.sleep(self._seconds)
        if path.endswith("/embeddings"):
            return JSONResponse(self._embeddings(document))
        chat = path.endswith("/chat/completions")
        text = request_text(document, "last")
        reply = reply_to(document, text, self._answer)
        count = min(max(int(document.get("n") or 1), 1), MAX_CHOICES)
        usage = _usage(len(text), count * len(reply.content))
        options = document.get("stream_options") or {}
        if document.get("stream"):
            kind = "text_completion"
            if chat:
                kind = "chat.completion.chunk"
            sent_usage = None
            if options.get("include_usage"):
                sent_usage = usage
            events = self._events(self._base(kind), reply, count, sent_usage, chat)
            return StreamingResponse(events, media_type="text/event-stream")
        kind = "text_completion"
        content: dict[str, Any] = {"text": reply.content}
        if chat:
            kind = "chat.completion"
            content = {"message": reply.message()}
        choices = [_choice(index, content, reply.finish_reason) for index in range(count)]
        return JSONResponse({**self._base(kind), "choices": choices, "usage": usage})

    async def _events(
        self,
        base: dict[str, Any],
        reply: StandInReply,
        count: int,
        usage: dict[str, int] | None,
        chat: bool,
    ) -> AsyncIterator[bytes]:
        def event(content: dict[str, Any], reason: str | None = None) -> bytes:
            events = b""
            for index in range(count):
                events += data_event({**base, "choices": [_choice(index, content, reason)]})
            return events

        pieces: list[dict[str, Any]] = []
        last: dict[str, Any] = {"text": ""}
        if chat:
            pieces = [{"delta": delta} for delta in reply.deltas()]
            last = {"delta": {}}
        else:
            pieces = [{"text": piece} for piece in _PIECES.findall(reply.content)]
        for piece in pieces:
            yield event(piece)
            if self._seconds:
                await asyncio.sleep(self._seconds)
        yield event(last, reply.finish_reason)
        if usage is not None:
            yield data_event({**base, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def _embeddings(self, document: dict[str, Any]) -> dict[str, Any]:
        """A unit vector for each input, drawn with its text as the seed."""
        texts = document.get("input")
        if not isinstance(texts, list):
            texts = [texts]
        if texts and all(isinstance(token, int) for token in texts):
            texts = [texts]
        size = min(max(document.get("dimensions") or DIMENSIONS, 1), MAX_DIMENSIONS)
        is_encoded = document.get("encoding_format") == "base64"
        data = []
        for index, text in enumerate(texts):
            vector = _embed(str(text), size)
            embedding: Any = vector.tolist()
            if is_encoded:
                embedding = base64.b64encode(vector.tobytes()).decode()
            data.append({"object": "embedding", "index": index, "embedding": embedding})
        usage = _usage(sum(len(str(text)) for text in texts), 0)
        del usage["completion_tokens"]
        return {"object": "list", "data": data, "model": self._name, "usage": usage}

    def _base(self, kind: str) -> dict[str, Any]:
        name = f"stand-in-{uuid4().hex}"
        return {"id": name, "object": kind, "created": int(time.time()), "model": self._name}


def reply_to(document: dict[str, Any], text: str, answer: Callable[[str], str]) -> StandInReply:
    """What is answered to a request with this text: the call of a tool, an instance of a schema, or text.

    >>> tools = [{"type": "function", "function": {"name": "get_weather"}}]
    >>> reply_to({"tools": tools}, "How is the weather?", str.upper)
    StandInReply(content='{}', finish_reason='tool_calls', tool='get_weather')
    >>> reply_to({"tools": tools}, "How are you?", str.upper)
    StandInReply(content='HOW ARE YOU?', finish_reason='stop', tool=None)
    """
    turns = document.get("messages") or [{}]
    tool = _find_tool(document, turns, text)
    if tool is not None:
        arguments = make_instance(tool.get("parameters") or {"type": "object"}, text)
        return StandInReply(json.dumps(arguments), "tool_calls", tool["name"])
    content = ""
    last = turns[-1]
    if last.get("role") == "tool":
        # Behind the result of a tool, the result is the answer.
        content = chat_text({"messages": [last]}, "last")
    if not content:
        content = answer(text)
    form = document.get("response_format") or {}
    if form.get("type") == "json_object":
        return StandInReply(json.dumps({"answer": content}))
    if form.get("type") == "json_schema":
        return StandInReply(json.dumps(make_instance(form["json_schema"]["schema"], content)))
    stop = document.get("stop") or []
    if isinstance(stop, str):
        stop = [stop]
    for end in stop:
        content = content.partition(end)[0]
    max_tokens = document.get("max_completion_tokens") or document.get("max_tokens")
    max_characters = (max_tokens or len(content)) * CHARACTERS_PER_TOKEN
    if 0 < max_characters < len(content):
        return StandInReply(content[:max_characters], "length")
    return StandInReply(content)


def _find_tool(
    document: dict[str, Any], turns: list[dict[str, Any]], text: str
) -> dict[str, Any] | None:
    """The tool to call: the one that is forced, or one whose name has a word of the text."""
    functions = [tool["function"] for tool in document.get("tools") or [] if "function" in tool]
    tools: dict[str, dict[str, Any]] = {tool["name"]: tool for tool in functions}
    choice = document.get("tool_choice")
    if not tools or choice == "none":
        return None
    if isinstance(choice, dict):
        return tools[choice["function"]["name"]]
    if choice == "required":
        called = set()
        for turn in turns:
            for call in turn.get("tool_calls") or []:
                called.add(call["function"]["name"])
        for name, tool in tools.items():
            if name not in called:
                return tool
        return functions[0]
    if turns[-1].get("role") == "tool":
        return None
    words = set(_WORDS.findall(text.lower()))
    for name, tool in tools.items():
        if words & set(_WORDS.findall(name.lower())):
            return tool
    return None


def make_instance(schema: dict[str, Any], text: str) -> Any:
    """A value that fits a schema: its strings are the text, its numbers the first number in it.

    Keywords that restrict a value further, such as ``pattern`` and ``minimum``, are not looked at.

    >>> schema = {"type": "object", "properties": {
    ...     "total": {"type": "integer"}, "unit": {"enum": ["cm", "m"]}}}
    >>> make_instance(schema, "391")
    {'total': 391, 'unit': 'cm'}
    """
    number = 1.0
    match = _NUMBER.search(text)
    if match is not None:
        number = float(match.group())
    simple = {"integer": int(number), "number": number, "boolean": True, "null": None}
    nodes_left = iter(range(MAX_NODES))

    def make(part: dict[str, Any], depth: int) -> Any:
        if next(nodes_left, None) is None or depth > MAX_DEPTH:
            return None
        if "$ref" in part:
            names = part["$ref"].split("/")[1:]
            return make(reduce(operator.getitem, names, schema), depth + 1)
        for key in ("const", "default"):
            if key in part:
                return part[key]
        if "enum" in part:
            return part["enum"][0]
        for key in ("anyOf", "oneOf", "allOf"):
            if key in part:
                return make(part[key][0], depth + 1)
        kind = part.get("type")
        if isinstance(kind, list):
            kind = kind[0]
        if kind == "object" or "properties" in part:
            properties = part.get("properties", {})
            return {name: make(part, depth + 1) for name, part in properties.items()}
        if kind == "array":
            return [make(part.get("items", {}), depth + 1)]
        return simple.get(kind or "", text)

    return make(schema, 0)


def _choice(index: int, content: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": None, "finish_reason": reason}


def _embed(text: str, size: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    row = np.random.default_rng(seed).normal(size=size)
    return (row / np.linalg.norm(row)).astype("<f4")


def _usage(characters_in: int, characters_out: int) -> dict[str, int]:
    tokens_in = max(1, characters_in // CHARACTERS_PER_TOKEN)
    tokens_out = max(1, characters_out // CHARACTERS_PER_TOKEN)
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
