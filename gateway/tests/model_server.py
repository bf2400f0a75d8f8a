"""A model server on loopback in a process of its own: its answers follow rules, which may change meanwhile.

New tests use this one. The fakes from before (``fake_endpoint.py``, ``fake_upstream.py``, and servers in
single tests) go as their tests are touched; only what is not HTTP needs ``gateway_cases.endpoint_of``.

It has the paths on which the gateway asks experts: ``/v1/chat/completions``, ``/v1/completions`` and
``/v1/embeddings`` of OpenAI, and ``/v1/messages`` of Anthropic; answers are plain or streamed.

    with ModelServer() as models:
        models.set_rules("small-model", {"contains": "river", "right": 0.9}, {"text": "Who knows?"})
        models.set_answers({"What is 17 * 23?": "391"})
        ...  # ask models.url, or a gateway in front of it
        models.received("small-model")

The first rule of a model that holds for a request says what is answered; a model without one is always
right. A rule is a dictionary with any of

    contains    text that the last message has; every request without it
    times       requests that it holds for, after which it is gone
    right       share of the texts that get their right answer, by a hash: a text always gets the same one.
                The right answer is the one that was set; for other texts, the text itself
    wrong       what the others get ("I do not know.")
    text        what all get instead
    tool        {"name": ..., "arguments": {...}}: a call of this tool instead
    words       of the answer, unless the request's limit cuts it off before: a word is a token
    tokens      [input, output] that the usage reports, or the usage itself; null for an answer without
                usage. Otherwise words
    reports     model that the answer names, instead of the one that was asked for
    delay       seconds before the answer
    pause       seconds between two events of a stream
    status, headers, body    of an answer that is not what it should be
    fault       "hang": no answer until the client leaves; "cut": half of the answer, and the end of the
                connection; "stop": half of a stream, as if that were all
    events      of a stream, how many are sent before the fault, which may be none

What was received is a list of dictionaries: ``time``, ``path``, ``model``, ``text``, ``headers``, ``body``,
and ``ended``: null while it runs, then "whole", "cut" or "left" (by the client).

The server ends with the process that started it, whatever becomes of that.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import zlib
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

WRONG = "I do not know."
# Seconds after which a test gives up.
PATIENCE = 120


class ModelServer:
    """The server as a process; a context manager."""

    def __enter__(self) -> ModelServer:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        # It listens when it says where; a process that cannot start says nothing, and ends.
        assert select.select([self._process.stdout], [], [], PATIENCE)[0]
        self.address = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self.url = f"{self.address}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE)

    def set_rules(self, model: str, *rules: dict[str, Any]) -> None:
        """Replace the rules of a model."""
        self._ask("/control", {"rules": {model: rules}})

    def set_answers(self, answers: dict[str, str]) -> None:
        """Add right answers, by the text of the last message."""
        self._ask("/control", {"answers": answers})

    def received(self, model: str | None = None) -> list[dict[str, Any]]:
        """The requests so far, oldest first: all, or those to a model."""
        received = self._ask("/received")
        return [request for request in received if model in (None, request["model"])]

    def _ask(self, path: str, document: Any = None) -> Any:
        data = None if document is None else json.dumps(document).encode()
        with urllib.request.urlopen(self.address + path, data, timeout=PATIENCE) as response:
            return json.load(response)


class _CutError(Exception):
    """Ends a connection in the middle of an answer."""


class _ClientLeftError(Exception):
    """The client did not wait for its answer."""


class _Models:
    """Rules, and what was received."""

    def __init__(self) -> None:
        self.rules: dict[str, list[dict[str, Any]]] = {}
        self.answers: dict[str, str] = {}
        self.received: list[dict[str, Any]] = []

    def rule_of(self, model: str, text: str) -> dict[str, Any]:
        """The rule that holds for a request."""
        rules = self.rules.get(model, [])
        for rule in rules:
            if rule.get("contains", "") not in text:
                continue
            if "times" in rule:
                rule["times"] -= 1
                if not rule["times"]:
                    rules.remove(rule)
            return rule
        return {}

    def text_of(self, rule: dict[str, Any], model: str, text: str) -> str:
        """What a model says to a text."""
        if "text" in rule:
            return rule["text"]
        draw = zlib.crc32(f"{model} {text}".encode()) / 2**32
        if draw < rule.get("right", 1):
            return self.answers.get(text, text)
        return rule.get("wrong", WRONG)

    # The endpoints.

    async def control(self, request: Request) -> Response:
        document = await request.json()
        self.rules |= document.get("rules", {})
        self.answers |= document.get("answers", {})
        return JSONResponse({})

    async def show_received(self, request: Request) -> Response:
        return JSONResponse(self.received)

    async def answer(self, request: Request) -> Response:
        """The answer of a model by its rules."""
        body = await request.json()
        model = body["model"]
        text = _last_text(body)
        entry = {
            "time": time.time(),
            "path": request.url.path,
            "model": model,
            "text": text,
            "headers": dict(request.headers),
            "body": body,
            "ended": None,
        }
        self.received.append(entry)
        rule = self.rule_of(model, text)
        try:
            if rule.get("fault") == "hang" and not (body.get("stream") and "events" in rule):
                await _wait(float("inf"), request)
            await _wait(rule.get("delay", 0), request)
        except _ClientLeftError:
            entry["ended"] = "left"
            return Response()
        if "status" in rule or "body" in rule:
            entry["ended"] = "whole"
            return _other_response(rule)
        said = self.text_of(rule, model, text)
        is_cut = False
        if "words" in rule:
            limit = body.get("max_completion_tokens") or body.get("max_tokens") or rule["words"]
            is_cut = limit < rule["words"]
            said = " ".join(["word"] * min(limit, rule["words"]))
        tokens = rule.get("tokens", [len(text.split()), len(said.split())])
        model = rule.get("reports", model)
        form = _FORMS[request.url.path]
        document, events = form(body, model, said, rule.get("tool"), tokens, is_cut)
        if body.get("stream"):
            return StreamingResponse(_sent(events, rule, entry), media_type="text/event-stream")
        content = json.dumps(document).encode()
        headers = {"content-type": "application/json", "content-length": str(len(content))}
        entry["ended"] = "whole"
        if rule.get("fault") == "cut":
            entry["ended"] = "cut"
            content = content[: len(content) // 2]
        return Response(content, headers=headers)


def _last_text(body: dict[str, Any]) -> str:
    """Text of the last message, or of what is to be embedded."""
    if "messages" not in body:
        return str(body.get("input", body.get("prompt", "")))
    return _text(body["messages"][-1].get("content"))


def _text(content: Any) -> str:
    """The text of a message, or of the results of tools that it brings."""
    if isinstance(content, list):
        texts = [part.get("text") or _text(part.get("content")) for part in content]
        return " ".join(filter(None, texts))
    return content or ""


async def _wait(seconds: float, request: Request) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if await request.is_disconnected():
            raise _ClientLeftError
        await asyncio.sleep(min(left, 0.01))


def _other_response(rule: dict[str, Any]) -> Response:
    """A response with the status, the headers and the body of a rule."""
    status = rule.get("status", 200)
    body = rule.get("body", {"error": {"message": f"status {status}", "type": "fake"}})
    content = body if isinstance(body, str) else json.dumps(body)
    headers = {"content-type": "application/json", **rule.get("headers", {})}
    return Response(content, status, headers)


async def _sent(
    events: list[bytes], rule: dict[str, Any], entry: dict[str, Any]
) -> AsyncIterator[bytes]:
    """The events of a stream, one after the other."""
    fault = rule.get("fault")
    if fault is not None:
        events = events[: rule.get("events", len(events) // 2)]
    try:
        for place, event in enumerate(events):
            if place:
                await asyncio.sleep(rule.get("pause", 0))
            yield event
        if fault == "hang":
            # Until the client leaves, which cancels this.
            await asyncio.Event().wait()
        entry["ended"] = "whole" if fault is None else "cut"
    finally:
        if entry["ended"] is None:
            entry["ended"] = "left"
    if fault == "cut":
        raise _CutError


# What an answer looks like on each path: a plain one, and the events of a stream.
_Answer = tuple[dict[str, Any], list[bytes]]
_Tool = dict[str, Any] | None
_Tokens = list[int] | dict[str, Any] | None


def _chat(
    body: dict[str, Any], model: str, said: str, tool: _Tool, tokens: _Tokens, is_cut: bool
) -> _Answer:
    """OpenAI's chat completions."""
    base = {"id": "chatcmpl-1", "created": 1, "model": model}
    message: dict[str, Any] = {"role": "assistant", "content": said}
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(said)]
    reason = "length" if is_cut else "stop"
    if tool is not None:
        arguments = json.dumps(tool["arguments"])
        call = {
            "id": "call_1",
            "type": "function",
            "function": {"name": tool["name"], "arguments": arguments},
        }
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        opened = {**call, "function": {"name": tool["name"], "arguments": ""}}
        deltas = [{"role": "assistant", "tool_calls": [{"index": 0, **opened}]}]
        for piece in _halves(arguments):
            deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        reason = "tool_calls"
    usage = _openai_usage(tokens)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    document = {**base, "object": "chat.completion", "choices": [choice], **usage}
    chunks = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    if usage and (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({"choices": [], **usage})
    events = [_data({**base, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return document, [*events, b"data: [DONE]\n\n"]


def _completion(
    body: dict[str, Any], model: str, said: str, tool: _Tool, tokens: _Tokens, is_cut: bool
) -> _Answer:
    """OpenAI's older completions, which know no tools."""
    base = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": model}
    usage = _openai_usage(tokens)
    choices = [{"index": 0, "text": piece, "finish_reason": None} for piece in _pieces(said)]
    reason = "length" if is_cut else "stop"
    choices.append({"index": 0, "text": "", "finish_reason": reason})
    chunks = [{**base, "choices": [choice]} for choice in choices]
    if usage and (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**base, "choices": [], **usage})
    document = {**base, "choices": [{**choices[-1], "text": said}], **usage}
    return document, [*map(_data, chunks), b"data: [DONE]\n\n"]


def _message(
    body: dict[str, Any], model: str, said: str, tool: _Tool, tokens: _Tokens, is_cut: bool
) -> _Answer:
    """Anthropic's messages."""
    content: dict[str, Any] = {"type": "text", "text": said}
    opened: dict[str, Any] = {"type": "text", "text": ""}
    deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(said)]
    reason = "max_tokens" if is_cut else "end_turn"
    if tool is not None:
        content = {
            "type": "tool_use",
            "id": "toolu_1",
            "name": tool["name"],
            "input": tool["arguments"],
        }
        opened = {**content, "input": {}}
        pieces = _halves(json.dumps(tool["arguments"]))
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        reason = "tool_use"
    usage = {}
    if isinstance(tokens, dict):
        usage = {"usage": tokens}
    elif tokens is not None:
        usage = {"usage": {"input_tokens": tokens[0], "output_tokens": tokens[1]}}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [content],
        "stop_reason": reason,
        "stop_sequence": None,
        **usage,
    }
    end = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}}
    events = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": opened},
        *[{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas],
        {"type": "content_block_stop", "index": 0},
        {**end, **usage},
        {"type": "message_stop"},
    ]
    return message, [b"event: " + event["type"].encode() + b"\n" + _data(event) for event in events]


def _embeddings(
    body: dict[str, Any], model: str, said: str, tool: _Tool, tokens: _Tokens, is_cut: bool
) -> _Answer:
    """OpenAI's embeddings: the same vector for every input."""
    inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]
    data = [
        {"object": "embedding", "index": index, "embedding": [0.25, -0.5]}
        for index in range(len(inputs))
    ]
    document: dict[str, Any] = {"object": "list", "model": model, "data": data}
    if isinstance(tokens, list):
        document["usage"] = {"prompt_tokens": tokens[0], "total_tokens": tokens[0]}
    return document, []


_FORMS = {
    "/v1/chat/completions": _chat,
    "/v1/completions": _completion,
    "/v1/messages": _message,
    "/v1/embeddings": _embeddings,
}


def _openai_usage(tokens: _Tokens) -> dict[str, Any]:
    if tokens is None:
        return {}
    if isinstance(tokens, dict):
        return {"usage": tokens}
    used = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    return {"usage": used}


def _pieces(text: str) -> list[str]:
    """A text word by word, with the blanks between them."""
    return re.findall(r"\s*\S+|\s+$", text)


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [text[:middle], text[middle:]]


def _data(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def make_app() -> Starlette:
    """The server as an ASGI application."""
    models = _Models()
    routes = [Route(path, models.answer, methods=["POST"]) for path in _FORMS]
    routes.append(Route("/control", models.control, methods=["POST"]))
    routes.append(Route("/received", models.show_received))
    return Starlette(routes=routes)


def _end_with_the_parent() -> None:
    """End when nobody holds the other end of the standard input any more."""
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """Print the port, and serve."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    config = uvicorn.Config(make_app(), lifespan="off", log_level="critical", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
