"""An endpoint of either API on loopback with every fault there is, in the loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time

FAULTS = (
    "hang",
    "slow",
    "reset",
    "close",
    "cut",
    "garbage",
    "html",
    "list",
    "error200",
    "gzip",
    "500",
    "503",
    "429",
    "401",
    "half_head",
    "long_head",
    "extra",
)
STREAM_FAULTS = (
    "cut",
    "cut_clean",
    "cut_event",
    "stall",
    "error_first",
    "error_middle",
    "empty",
    "done_first",
    "plain",
)


class FakeUpstream:
    """Serves chat completions, completions, embeddings and Anthropic's messages below ``/v1``; an async
    context manager.

    Parameters
    ----------
    name : of the model, in the answers
    script : what to do with the first requests, one after the other; "ok" for the others
    share, seed : share of the requests, besides those of the script, that meet a fault at random
    text : words of the answer
    usage : whether answers report it, or what they report; a stream only if it was asked to
    delay : seconds before an answer, and between two events
    held : whether answers, and of streams all but the first event, wait until it is set to False
    """

    def __init__(
        self,
        name="up",
        script=(),
        share=0.0,
        seed=0,
        text="one two three",
        usage=True,
        delay=0.0,
        held=False,
        faults=("reset", "close", "cut", "500", "503", "429", "garbage", "html"),
        stream_faults=("cut", "cut_clean", "cut_event", "error_first", "error_middle", "500"),
        retry_after="1",
        keep_bodies=True,
    ):
        self.name = name
        self.reports = None  # the model that answers name, instead of the one asked for
        self.script = list(script)
        self.share = share
        self.random = random.Random(seed)
        self.text = text
        self.usage = usage
        self.delay = delay
        self.held = held
        self.faults = faults
        self.stream_faults = stream_faults
        self.retry_after = retry_after
        self.keep_bodies = keep_bodies
        self.bodies = []
        self.heads = []
        self.times = []
        self.asked = 0
        self.begun = 0  # streams whose first event was sent
        self.answered = 0
        self.done = 0
        self.cancelled = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.connections = 0
        self.dead = False
        self._writers = set()
        self._handlers = set()  # tasks, one for each connection
        self._server = None

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        if self._handlers:
            await asyncio.wait(self._handlers)

    async def _serve(self, reader, writer):
        self.connections += 1
        self._writers.add(writer)
        handler = asyncio.current_task()
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.cancelled += 1
        finally:
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value
            for name, _, value in (line.partition(": ") for line in lines[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if self.dead:
            writer.transport.abort()
            return False
        self.asked += 1
        if self.keep_bodies:
            self.bodies.append(body)
            self.heads.append((lines[0], headers))
            self.times.append(time.monotonic())
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            try:
                document = json.loads(body)
            except ValueError:
                document = {}
            return await self._answer(document, lines[0], reader, writer)
        finally:
            self.in_flight -= 1

    def _step(self, streamed):
        if self.script:
            return self.script.pop(0)
        if self.random.random() < self.share:
            return self.random.choice(self.stream_faults if streamed else self.faults)
        return "ok"

    async def _answer(self, document, line, reader, writer):
        streamed = bool(document.get("stream"))
        step = self._step(streamed)
        if callable(step):
            step = step(document)
        if self.delay:
            await self._sleep(self.delay, reader)
        if not streamed:
            await self._wait_while_held(reader)
        if step in ("hang", "slow"):
            await self._sleep(30 if step == "hang" else 0.3, reader)
            if step == "hang":
                return False
        if step == "reset":
            writer.transport.abort()
            return False
        if step == "close":
            return False
        if step == "garbage":
            writer.write(b"\x00\x01\x02 this is not HTTP\r\n\r\n")
        elif step == "half_head":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: appl")
            await writer.drain()
            return False
        elif step == "long_head":
            writer.write(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000)
        elif isinstance(step, str) and step.isdigit():
            content = json.dumps({"error": {"message": f"sk-secret of {self.name}"}}).encode()
            more = {"retry-after": self.retry_after} if step in ("429", "503") else {}
            if self.retry_after is None:
                more = {}
            self._plain(writer, content, int(step), more)
        elif isinstance(step, bytes):
            writer.write(step)
        elif streamed and step != "plain":
            return await self._stream(document, step, reader, writer, line)
        else:
            return await self._whole(document, step, writer, line)
        await writer.drain()
        return step not in ("garbage", "long_head")

    async def _whole(self, document, step, writer, line):
        content = json.dumps(self.completion(document, line)).encode()
        if step == "html":
            content = b"<html>busy</html>"
        elif step == "list":
            content = b"[1, 2]"
        elif step == "error200":
            content = b'{"error": {"message": "no"}}'
        more = {"content-encoding": "gzip"} if step == "gzip" else {}
        self._plain(writer, content, 200, more, cut=step == "cut")
        if step == "extra":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        if step == "cut":
            return False
        self.answered += 1
        self.done += step in ("ok", "slow", "extra")
        return True

    def _plain(self, writer, content, status, more, cut=False):
        headers = {"content-type": "application/json", "content-length": str(len(content)), **more}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        body = content[: len(content) // 2] if cut else content
        writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body)

    def completion(self, document, line):
        """A plain answer."""
        if "/messages" in line:
            return self.message(document)
        if "/embeddings" in line:
            vectors = [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}]
            usage = {"prompt_tokens": 5, "total_tokens": 5}
            model = document.get("model")
            return {"object": "list", "data": vectors, "model": model, "usage": usage}
        chat = "/chat/" in line
        choice = {"index": 0, "finish_reason": "stop"}
        if chat:
            choice["message"] = {"role": "assistant", "content": self.text}
            if document.get("tools"):
                choice["message"] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
                choice["finish_reason"] = "tool_calls"
        else:
            choice["text"] = self.text
        answer = {
            "id": "cmpl-1",
            "object": "chat.completion" if chat else "text_completion",
            "created": 1,
            "model": self.reports or document.get("model"),
            "choices": [choice],
        }
        if self.usage:
            answer["usage"] = USAGE if self.usage is True else self.usage
        return answer

    def message(self, document):
        """A plain answer of Anthropic's API."""
        content = [{"type": "text", "text": self.text}]
        if document.get("tools"):
            tool = {"city": "Rome", "model": "x"}
            content = [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": tool}]
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": self.reports or document.get("model"),
            "content": content,
            "stop_reason": "tool_use" if document.get("tools") else "end_turn",
            "stop_sequence": None,
            "usage": MESSAGE_USAGE,
        }

    def message_events(self, document):
        """The same as events."""
        message = self.message(document)
        usage = {**MESSAGE_USAGE, "output_tokens": 1}
        begun = {**message, "content": [], "stop_reason": None, "usage": usage}
        events = [{"type": "message_start", "message": begun}]
        if document.get("tools"):
            start = {**message["content"][0], "input": {}}
            arguments = json.dumps(message["content"][0]["input"])
            pieces = [arguments[:9], arguments[9:]]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        else:
            start = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": f"{word} "} for word in self.text.split()]
        events.append({"type": "content_block_start", "index": 0, "content_block": start})
        events.append({"type": "ping"})
        events += [{"type": "content_block_delta", "index": 0, "delta": one} for one in deltas]
        events.append({"type": "content_block_stop", "index": 0})
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        usage = {"output_tokens": MESSAGE_USAGE["output_tokens"]}
        events.append({"type": "message_delta", "delta": delta, "usage": usage})
        events.append({"type": "message_stop"})
        return [
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
        ]

    async def _stream(self, document, step, reader, writer, line):
        chat = "/chat/" in line
        base = {
            "id": "c1",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 1,
            "model": self.reports or document.get("model"),
        }
        events = [
            {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            for delta in (tool_deltas() if chat and document.get("tools") else ())
        ]
        for word in self.text.split() if not events else ():
            content = {"delta": {"content": word + " "}} if chat else {"text": word + " "}
            choice = {"index": 0, **content, "finish_reason": None}
            events.append({**base, "choices": [choice]})
        reason = "tool_calls" if chat and document.get("tools") else "stop"
        last = {"index": 0, "finish_reason": reason, **({"delta": {}} if chat else {"text": ""})}
        events.append({**base, "choices": [last]})
        options = document.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage") and self.usage:
            events.append(
                {**base, "choices": [], "usage": USAGE if self.usage is True else self.usage}
            )
        lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
        lines.append(b"data: [DONE]\n\n")
        error = b'data: {"error": {"message": "down"}}\n\n'
        if "/messages" in line:
            lines = self.message_events(document)
            down = {"type": "error", "error": {"type": "overloaded_error", "message": "down"}}
            error = b"event: error\ndata: " + json.dumps(down).encode() + b"\n\n"
        if step == "error_first":
            lines = [error]
        elif step == "error_middle":
            lines = [*lines[:2], error]
        elif step == "empty":
            lines = []
        elif step == "done_first":
            lines = lines[-1:]
        elif step == "no_done":
            lines = lines[:-1]
        elif step in ("cut", "cut_clean", "stall"):
            lines = lines[:2]
        elif step == "cut_event":
            lines = [*lines[:2], lines[2][:-5]]
        elif step == "comment":
            lines = [b": busy\n\n", *lines]
        elif step == "crlf":
            lines = [line.replace(b"\n", b"\r\n") for line in lines]
        elif step == "split":
            whole = b"".join(lines)
            lines = [whole[start : start + 7] for start in range(0, len(whole), 7)]
        elif step == "together":
            lines = [b"".join(lines)]
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        await writer.drain()
        for place, data in enumerate(lines):
            if place and self.delay:
                await self._sleep(self.delay, reader)
            if place:
                await self._wait_while_held(reader)
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
            self.begun += place == 0
        if step == "stall":
            await self._sleep(30, reader)
        if step in ("cut", "cut_event", "error_middle", "stall"):
            writer.transport.abort() if step == "cut" else None
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        self.answered += 1
        if step in ("ok", "comment", "crlf", "split", "together", "no_done"):
            self.done += 1
        return True

    async def _sleep(self, seconds, reader):
        """Sleep, unless the other side leaves."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._check_presence(reader)
            await asyncio.sleep(min(0.005, seconds))

    async def _wait_while_held(self, reader):
        while self.held:
            self._check_presence(reader)
            await asyncio.sleep(0.005)

    def _check_presence(self, reader):
        if reader.at_eof() or reader.exception() is not None:
            raise ConnectionError("the other side left")


def tool_deltas():
    """A tool call in pieces."""
    yield {
        "role": "assistant",
        "tool_calls": [{"index": 0, **CALL, "function": {"name": "weather"}}],
    }
    arguments = CALL["function"]["arguments"]
    for piece in (arguments[:9], arguments[9:]):
        yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
MESSAGE_USAGE = {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 3}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Rome", "model": "x"}'},
}
