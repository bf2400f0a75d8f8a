"""Streams: events of an expert as chunks of a chat, and from there as events of the client's API."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

from mild_gateway.experts.replies import token_log_probabilities
from mild_gateway.experts.translation.answers import (
    FINISH_REASONS,
    call_item,
    chat_usage,
    checking_shape,
    empty_message,
    empty_response,
    message_item,
    message_to_chat,
    message_usage,
    response_end,
    stop_reason,
    text_part,
)
from mild_gateway.experts.translation.fields import (
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Document,
    TranslationError,
    tool_call,
)

# Of an answer that is streamed: a longer one is broken off.
MAX_CHARACTERS = 64_000_000
# Of one that is compared with others: a longer one would keep other requests waiting.
MAX_COMPARED = 65_536


class MessageReader:
    """Events of Anthropic's stream as chunks of a chat; ``done`` once it has ended as it should."""

    def __init__(self) -> None:
        self.finished = self.done = False
        self._usage: Document = {}
        self._base: Document = {}
        self._calls = -1

    @property
    def usage(self) -> Document | None:
        return chat_usage(self._usage) if self._usage else None

    def read(self, event: Document) -> Iterator[Document]:
        kind = event.get("type")
        if kind == "message_start":
            message = event["message"]
            self._usage.update(message.get("usage") or {})
            self._base = {
                "id": message.get("id"),
                "object": "chat.completion.chunk",
                "created": int(time.time()),
                "model": message.get("model"),
            }
            yield self._chunk({"role": "assistant", "content": ""})
        elif kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            self._calls += 1
            block = event["content_block"]
            call = {"index": self._calls, **tool_call(block["id"], block["name"], "")}
            yield self._chunk({"tool_calls": [call]})
        elif kind == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "text_delta":
                yield self._chunk({"content": delta["text"]})
            elif delta["type"] == "input_json_delta" and self._calls >= 0:
                call = {"index": self._calls, "function": {"arguments": delta["partial_json"]}}
                yield self._chunk({"tool_calls": [call]})
        elif kind == "message_delta":
            given = event.get("usage") or {}
            self._usage.update((key, value) for key, value in given.items() if value is not None)
            if reason := event["delta"].get("stop_reason"):
                yield self._chunk({}, FINISH_REASONS.get(reason, "stop"))
        elif kind == "message_stop":
            self.finished = self.done = True

    def observe(self, event: Document) -> None:
        """Note what an event says, without its chunks; TranslationError if it has another shape."""
        with checking_shape("an event"):
            for _ in self.read(event):
                pass

    def _chunk(self, delta: Document, finish_reason: str | None = None) -> Document:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {**self._base, "choices": [choice]}


class _ChatReader:
    """Events of a chat, which are its chunks."""

    def __init__(self) -> None:
        self.finished = self.done = False
        self.usage: Document | None = None

    def read(self, event: Document) -> Iterator[Document]:
        if event.get("usage"):
            self.usage = event["usage"]
        self.finished |= any(choice.get("finish_reason") for choice in event.get("choices") or ())
        yield event


class _ChatWriter:
    """Chunks as events of a chat, or of a completion."""

    def __init__(self, endpoint: str, include_usage: bool) -> None:
        self._completes = endpoint == COMPLETIONS
        self._include_usage = include_usage
        self._base: Document = {}

    def write(self, chunk: Document) -> Iterator[Document]:
        self._base = {key: chunk.get(key) for key in ("id", "object", "created", "model")}
        if not self._completes:
            yield chunk
            return
        self._base["object"] = "text_completion"
        choice = chunk["choices"][0]
        text, reason = choice["delta"].get("content") or "", choice["finish_reason"]
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        yield self._base | {"choices": [choice]}

    def finish(self, usage: Document | None) -> Iterator[Document]:
        if self._include_usage:
            yield self._base | {"choices": [], "usage": usage}


class _Pieces:
    """Cuts chunks of a chat into texts, beginnings of tool calls, and parts of their arguments."""

    def __init__(self, most: int | None = None, cuts: bool = False) -> None:
        self._index: Any = None
        self._id: Any = None
        self._left = MAX_CHARACTERS if most is None else most
        self._cuts = cuts
        self.finish_reason: str | None = None

    def cut(self, chunk: Document) -> Iterator[tuple[str, str, str]]:
        """Triples: ("text", text, ""), ("call", id, name), ("arguments", text, "")."""
        for choice in (chunk.get("choices") or [])[:1]:
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            delta = choice.get("delta") or {}
            if text := delta.get("content") or delta.get("refusal"):
                self._index = self._id = None
                yield "text", self._counted(text), ""
            for call in delta.get("tool_calls") or ():
                function = call.get("function") or {}
                index, number = call.get("index"), call.get("id") or self._id
                # Some servers count every call as 0 and tell them apart by their ids.
                if (index, number) != (self._index, self._id):
                    self._index, self._id = index, number
                    yield "call", self._counted(number), self._counted(function["name"])
                if arguments := function.get("arguments"):
                    if self._id is None:
                        raise ValueError("arguments of a tool call that has not begun")
                    yield "arguments", self._counted(arguments), ""

    def _counted(self, text: Any) -> str:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not a string")
        if len(text) > self._left:
            if not self._cuts:
                raise ValueError("the answer is too long")
            text = text[: self._left]
        self._left -= len(text)
        return text


class AnswerReader:
    """Puts together what an answer says, whole or as a stream, of an expert with an ``api``.

    One that has another shape than it should says nothing, and is not ``is_readable``; nor is one that is
    too long to be compared, unless ``cuts``: then its beginning is kept.
    """

    def __init__(self, api: str, cuts: bool = False) -> None:
        self._messages = MessageReader() if api == "anthropic" else None
        self._pieces = _Pieces(MAX_COMPARED, cuts)
        self._text: list[str] = []
        self._calls: list[tuple[str, list[str]]] = []
        self._log_probabilities: list[float] = []
        self.is_readable = True

    def add(self, document: Document) -> None:
        """Take a whole answer, or an event of a stream."""
        if not self.is_readable:
            return
        chunks: Iterable[Document] = [document]
        try:
            with checking_shape("the answer"):
                if self._messages is not None:
                    whole = document.get("type") == "message"
                    chunks = [message_to_chat(document)] if whole else self._messages.read(document)
                for chunk in chunks:
                    for choice in (chunk.get("choices") or [])[:1]:
                        self._add(choice)
        except TranslationError:
            self.is_readable = False

    def _add(self, choice: Document) -> None:
        self._log_probabilities += token_log_probabilities(choice)
        message = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
        if isinstance(message.get("content"), list):
            said = "".join(part.get("text") or "" for part in message["content"])
            message = {**message, "content": said}
        for kind, value, name in self._pieces.cut({"choices": [{"delta": message}]}):
            if kind == "text":
                self._text.append(value)
            elif kind == "call":
                self._calls.append((name, []))
            else:
                self._calls[-1][1].append(value)

    @property
    def content(self) -> Any:
        """A text; or tool calls, each with its name and arguments."""
        if not self.is_readable:
            return ""
        calls = [{"name": name, "arguments": "".join(parts)} for name, parts in self._calls]
        return calls or "".join(self._text)

    @property
    def log_probability(self) -> float | None:
        """Mean over its tokens; None where the expert does not tell."""
        values = self._log_probabilities
        return math.fsum(values) / len(values) if values else None


class _MessageWriter:
    """Chunks as events of Anthropic's stream."""

    def __init__(self) -> None:
        self._pieces = _Pieces()
        self._started = False
        self._index = -1
        self._open: str | None = None

    def write(self, chunk: Document) -> Iterator[Document]:
        if not self._started:
            self._started = True
            message = empty_message(chunk.get("id"), chunk.get("model"))
            yield {"type": "message_start", "message": message}
        for kind, value, name in self._pieces.cut(chunk):
            if kind == "text":
                if self._open != "text":
                    yield from self._start("text", {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": value})
            elif kind == "call":
                block = {"type": "tool_use", "id": value, "name": name, "input": {}}
                yield from self._start("tool_use", block)
            else:
                yield self._delta({"type": "input_json_delta", "partial_json": value})

    def finish(self, usage: Document | None) -> Iterator[Document]:
        yield from self._stop()
        delta = {"stop_reason": stop_reason(self._pieces.finish_reason), "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": message_usage(usage)}
        yield {"type": "message_stop"}

    def _start(self, kind: str, block: Document) -> Iterator[Document]:
        yield from self._stop()
        self._index += 1
        self._open = kind
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: Document) -> Document:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _stop(self) -> Iterator[Document]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._index}


class _ResponseWriter:
    """Chunks as events of a Responses stream."""

    def __init__(self, request: Document) -> None:
        self._request = request
        self._pieces = _Pieces()
        self._response: Document = {}
        self._output: list[Document] = []
        self._said: list[str] = []
        self._is_open = False
        self.events = 0

    def write(self, chunk: Document) -> Iterator[Document]:
        if not self._response:
            number, made = chunk.get("id"), chunk.get("created")
            self._response = empty_response(number, made, chunk.get("model"), self._request)
            for kind in ("created", "in_progress"):
                yield self._event(f"response.{kind}", response=self._response)
        for kind, value, name in self._pieces.cut(chunk):
            number = self._response["id"].removeprefix("resp_")
            if kind == "text":
                if not self._is_open or self._item["type"] != "message":
                    number = f"msg_{number}_{len(self._output)}"
                    yield from self._start(message_item(number, status="in_progress"))
                    yield self._part_event("response.content_part.added", part=text_part(""))
                yield self._part_event("response.output_text.delta", delta=value, logprobs=[])
                self._said.append(value)
            elif kind == "call":
                item = f"fc_{number}_{len(self._output)}"
                yield from self._start(call_item(item, value, name, "", "in_progress"))
            else:
                yield self._item_event("response.function_call_arguments.delta", delta=value)
                self._said.append(value)

    def finish(self, usage: Document | None) -> Iterator[Document]:
        yield from self._stop()
        end = response_end(self._pieces.finish_reason, self._output, usage)
        yield self._event(f"response.{end['status']}", response=self._response | end)

    @property
    def _item(self) -> Document:
        return self._output[-1]

    @property
    def _place(self) -> int:
        return len(self._output) - 1

    def _start(self, item: Document) -> Iterator[Document]:
        yield from self._stop()
        self._output.append(item)
        self._is_open = True
        yield self._event("response.output_item.added", output_index=self._place, item=item)

    def _stop(self) -> Iterator[Document]:
        if not self._is_open:
            return
        item, text = self._item, "".join(self._said)
        self._said.clear()
        self._is_open = False
        item["status"] = "completed"
        if item["type"] == "message":
            item["content"] = [text_part(text)]
            yield self._part_event("response.output_text.done", text=text, logprobs=[])
            yield self._part_event("response.content_part.done", part=text_part(text))
        else:
            item["arguments"] = text
            kind = "response.function_call_arguments.done"
            yield self._item_event(kind, arguments=text, name=item["name"])
        yield self._event("response.output_item.done", output_index=self._place, item=item)

    def _part_event(self, kind: str, **more: Any) -> Document:
        return self._item_event(kind, content_index=0, **more)

    def _item_event(self, kind: str, **more: Any) -> Document:
        return self._event(kind, item_id=self._item["id"], output_index=self._place, **more)

    def _event(self, kind: str, **more: Any) -> Document:
        event = {"type": kind, "sequence_number": self.events, **more}
        self.events += 1
        return event


class StreamTranslator:
    """Events of an expert's stream in the shape of the client's endpoint; ``model`` is its name there.

    ``reader`` knows the ``usage`` so far, whether the answer is ``finished``, and whether the expert has
    ``done`` everything.
    """

    def __init__(self, endpoint: str, api: str, model: str, request: Document) -> None:
        self.reader = MessageReader() if api == "anthropic" else _ChatReader()
        self._model = model
        options = request.get("stream_options")
        include_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self._writer: _ResponseWriter | _MessageWriter | _ChatWriter
        if endpoint == RESPONSES:
            self._writer = _ResponseWriter(request)
        elif endpoint == MESSAGES:
            self._writer = _MessageWriter()
        else:
            self._writer = _ChatWriter(endpoint, include_usage)

    @property
    def numbered(self) -> int:
        """How many events with a number were written: the number of the next one."""
        return self._writer.events if isinstance(self._writer, _ResponseWriter) else 0

    def feed(self, event: Document, raw: bytes = b"") -> bytes:
        """The client's events for one of the expert's; TranslationError if it has another shape."""
        with checking_shape("an event"):
            named = [{**one, "model": self._model} for one in self.reader.read(event)]
            return b"".join(
                self._encoded(event) for one in named for event in self._writer.write(one)
            )

    def finish(self) -> bytes:
        """The last events, of a stream that ended as it should; TranslationError as ``feed``."""
        with checking_shape("the stream"):
            last = b"".join(map(self._encoded, self._writer.finish(self.reader.usage)))
        return last + b"data: [DONE]\n\n" if isinstance(self._writer, _ChatWriter) else last

    def _encoded(self, event: Document) -> bytes:
        name = (
            b"" if isinstance(self._writer, _ChatWriter) else f"event: {event['type']}\n".encode()
        )
        return name + data_event(event)


def data_event(document: Document) -> bytes:
    """An event of a stream, without a name."""
    return b"data: " + json.dumps(document, allow_nan=False).encode("ascii") + b"\n\n"
