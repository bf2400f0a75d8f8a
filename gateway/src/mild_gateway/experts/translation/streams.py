"""Streams: events of an expert as chunks of a chat, and from there as events of the client's API."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

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


# Why a model ended without an answer: it was cut short, or a filter took the answer away.
_NO_ANSWER = ("length", "content_filter")


class MessageReader:
    """Events of Anthropic's stream as chunks of a chat; ``done`` once it has ended as it should."""

    def __init__(self) -> None:
        self.finished = False
        self.done = False
        self._usage: Document = {}
        self._base: Document = {}
        self._call_index = -1

    @property
    def usage(self) -> Document | None:
        """What was reported so far, as the usage of a chat; None if nothing was."""
        if not self._usage:
            return None
        return chat_usage(self._usage)

    def read(self, event: Document) -> Iterator[Document]:
        """The chunks of a chat that an event becomes."""
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
            self._call_index += 1
            block = event["content_block"]
            call = {"index": self._call_index, **tool_call(block["id"], block["name"], "")}
            yield self._chunk({"tool_calls": [call]})
        elif kind == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "text_delta":
                yield self._chunk({"content": delta["text"]})
            elif delta["type"] == "input_json_delta" and self._call_index >= 0:
                function = {"arguments": delta["partial_json"]}
                yield self._chunk(
                    {"tool_calls": [{"index": self._call_index, "function": function}]}
                )
        elif kind == "message_delta":
            for key, value in (event.get("usage") or {}).items():
                if value is not None:
                    self._usage[key] = value
            reason = event["delta"].get("stop_reason")
            if reason:
                yield self._chunk({}, FINISH_REASONS.get(reason, "stop"))
        elif kind == "message_stop":
            self.finished = True
            self.done = True

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
        self.finished = False
        self.done = False
        self.usage: Document | None = None

    def read(self, event: Document) -> Iterator[Document]:
        if event.get("usage"):
            self.usage = event["usage"]
        for choice in event.get("choices") or ():
            if choice.get("finish_reason"):
                self.finished = True
        yield event


class _ChatWriter:
    """Chunks as events of a chat, or of a completion."""

    def __init__(self, endpoint: str, include_usage: bool) -> None:
        self._is_completion = endpoint == COMPLETIONS
        self._include_usage = include_usage
        self._base: Document = {}

    def write(self, chunk: Document) -> Iterator[Document]:
        self._base = {key: chunk.get(key) for key in ("id", "object", "created", "model")}
        if not self._is_completion:
            yield chunk
            return
        self._base["object"] = "text_completion"
        chat_choice = chunk["choices"][0]
        choice = {
            "index": 0,
            "text": chat_choice["delta"].get("content") or "",
            "logprobs": None,
            "finish_reason": chat_choice["finish_reason"],
        }
        yield self._base | {"choices": [choice]}

    def finish(self, usage: Document | None) -> Iterator[Document]:
        if self._include_usage:
            yield self._base | {"choices": [], "usage": usage}


class _ChunkSplitter:
    """Splits chunks of a chat into texts, beginnings of tool calls, and pieces of their arguments.

    An answer of more characters than ``max_characters`` is refused, or ends there if it ``shortens``.
    """

    def __init__(self, max_characters: int, shortens: bool = False) -> None:
        self._call_index: Any = None
        self._call_id: Any = None
        self._characters_left = max_characters
        self._shortens = shortens
        self.finish_reason: str | None = None

    def split(self, chunk: Document) -> Iterator[tuple[str, str, str]]:
        """Triples: ("text", text, ""), ("call", id, name), ("arguments", text, "")."""
        for choice in (chunk.get("choices") or [])[:1]:
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            delta = choice.get("delta") or {}
            text = delta.get("content") or delta.get("refusal")
            if text:
                self._call_index = None
                self._call_id = None
                yield "text", self._limited(text), ""
            for call in delta.get("tool_calls") or ():
                yield from self._split_call(call)

    def _split_call(self, call: Document) -> Iterator[tuple[str, str, str]]:
        function = call.get("function") or {}
        call_index = call.get("index")
        call_id = call.get("id") or self._call_id
        # Some servers count every call as 0 and tell them apart by their ids.
        if (call_index, call_id) != (self._call_index, self._call_id):
            self._call_index = call_index
            self._call_id = call_id
            yield "call", self._limited(call_id), self._limited(function["name"])
        arguments = function.get("arguments")
        if arguments:
            if self._call_id is None:
                raise ValueError("arguments of a tool call that has not begun")
            yield "arguments", self._limited(arguments), ""

    def _limited(self, text: Any) -> str:
        """A text, as much of it as the answer may still have."""
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not a string")
        if len(text) > self._characters_left:
            if not self._shortens:
                raise ValueError("the answer is too long")
            text = text[: self._characters_left]
        self._characters_left -= len(text)
        return text


class AnswerReader:
    """Puts together what an answer says, whole or as a stream, of an expert with an ``api``.

    One that has another shape than it should says nothing, and is not ``is_readable``; nor is one that is
    too long to be compared, unless it ``shortens``: then its beginning is kept. One that refuses, or that
    was cut short by its expert, is not ``is_answer``.
    """

    def __init__(self, api: str, shortens: bool = False) -> None:
        self._message_reader: MessageReader | None = None
        if api == "anthropic":
            self._message_reader = MessageReader()
        self._splitter = _ChunkSplitter(MAX_COMPARED, shortens)
        self._texts: list[str] = []
        # Tools that are called, each with the pieces of its arguments.
        self._calls: list[tuple[str, list[str]]] = []
        self.is_readable = True
        self.is_answer = True

    def add(self, document: Document) -> None:
        """Take a whole answer, or an event of a stream."""
        if not self.is_readable:
            return
        try:
            with checking_shape("the answer"):
                for chunk in self._chunks_of(document):
                    for choice in (chunk.get("choices") or [])[:1]:
                        self._add_choice(choice)
        except TranslationError:
            self.is_readable = False

    def _chunks_of(self, document: Document) -> Iterable[Document]:
        """A whole answer, or an event, as chunks of a chat."""
        if self._message_reader is None:
            return [document]
        if document.get("type") == "message":
            return [message_to_chat(document)]
        return self._message_reader.read(document)

    def _add_choice(self, choice: Document) -> None:
        message = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
        if message.get("refusal") or choice.get("finish_reason") in _NO_ANSWER:
            self.is_answer = False
        if isinstance(message.get("content"), list):
            text = "".join(part.get("text") or "" for part in message["content"])
            message = {**message, "content": text}
        for kind, value, name in self._splitter.split({"choices": [{"delta": message}]}):
            if kind == "text":
                self._texts.append(value)
            elif kind == "call":
                self._calls.append((name, []))
            else:
                self._calls[-1][1].append(value)

    @property
    def content(self) -> Any:
        """A text; or tool calls, each with its name and arguments."""
        if not self.is_readable:
            return ""
        if not self._calls:
            return "".join(self._texts)
        return [{"name": name, "arguments": "".join(pieces)} for name, pieces in self._calls]


class _MessageWriter:
    """Chunks as events of Anthropic's stream."""

    def __init__(self) -> None:
        self._splitter = _ChunkSplitter(MAX_CHARACTERS)
        self._started = False
        self._block_index = -1
        self._open_block: str | None = None  # its type

    def write(self, chunk: Document) -> Iterator[Document]:
        if not self._started:
            self._started = True
            message = empty_message(chunk.get("id"), chunk.get("model"))
            yield {"type": "message_start", "message": message}
        for kind, value, name in self._splitter.split(chunk):
            if kind == "text":
                if self._open_block != "text":
                    yield from self._start("text", {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": value})
            elif kind == "call":
                block = {"type": "tool_use", "id": value, "name": name, "input": {}}
                yield from self._start("tool_use", block)
            else:
                yield self._delta({"type": "input_json_delta", "partial_json": value})

    def finish(self, usage: Document | None) -> Iterator[Document]:
        yield from self._stop()
        delta = {"stop_reason": stop_reason(self._splitter.finish_reason), "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": message_usage(usage)}
        yield {"type": "message_stop"}

    def _start(self, kind: str, block: Document) -> Iterator[Document]:
        yield from self._stop()
        self._block_index += 1
        self._open_block = kind
        yield {"type": "content_block_start", "index": self._block_index, "content_block": block}

    def _delta(self, delta: Document) -> Document:
        return {"type": "content_block_delta", "index": self._block_index, "delta": delta}

    def _stop(self) -> Iterator[Document]:
        if self._open_block is not None:
            self._open_block = None
            yield {"type": "content_block_stop", "index": self._block_index}


class _ResponseWriter:
    """Chunks as events of a Responses stream."""

    def __init__(self, request: Document) -> None:
        self._request = request
        self._splitter = _ChunkSplitter(MAX_CHARACTERS)
        self._response: Document = {}
        self._output: list[Document] = []
        # Pieces of the text, or of the arguments, of the last item.
        self._item_pieces: list[str] = []
        self._is_item_open = False
        self.n_events = 0

    def write(self, chunk: Document) -> Iterator[Document]:
        if not self._response:
            self._response = empty_response(chunk, self._request)
            yield self._event("response.created", response=self._response)
            yield self._event("response.in_progress", response=self._response)
        for kind, value, name in self._splitter.split(chunk):
            if kind == "text":
                if not self._is_item_open or self._item["type"] != "message":
                    item = message_item(self._new_item_id("msg"), [], status="in_progress")
                    yield from self._start(item)
                    yield self._part_event("response.content_part.added", part=text_part(""))
                yield self._part_event("response.output_text.delta", delta=value, logprobs=[])
                self._item_pieces.append(value)
            elif kind == "call":
                item = call_item(self._new_item_id("fc"), value, name, "", "in_progress")
                yield from self._start(item)
            else:
                yield self._item_event("response.function_call_arguments.delta", delta=value)
                self._item_pieces.append(value)

    def finish(self, usage: Document | None) -> Iterator[Document]:
        yield from self._stop()
        end = response_end(self._splitter.finish_reason, self._output, usage)
        yield self._event(f"response.{end['status']}", response=self._response | end)

    @property
    def _item(self) -> Document:
        return self._output[-1]

    @property
    def _item_index(self) -> int:
        return len(self._output) - 1

    def _new_item_id(self, prefix: str) -> str:
        chat_id = self._response["id"].removeprefix("resp_")
        return f"{prefix}_{chat_id}_{len(self._output)}"

    def _start(self, item: Document) -> Iterator[Document]:
        yield from self._stop()
        self._output.append(item)
        self._is_item_open = True
        yield self._event("response.output_item.added", output_index=self._item_index, item=item)

    def _stop(self) -> Iterator[Document]:
        if not self._is_item_open:
            return
        item = self._item
        text = "".join(self._item_pieces)
        self._item_pieces.clear()
        self._is_item_open = False
        item["status"] = "completed"
        if item["type"] == "message":
            item["content"] = [text_part(text)]
            yield self._part_event("response.output_text.done", text=text, logprobs=[])
            yield self._part_event("response.content_part.done", part=text_part(text))
        else:
            item["arguments"] = text
            kind = "response.function_call_arguments.done"
            yield self._item_event(kind, arguments=text, name=item["name"])
        yield self._event("response.output_item.done", output_index=self._item_index, item=item)

    def _part_event(self, kind: str, **fields: Any) -> Document:
        return self._item_event(kind, content_index=0, **fields)

    def _item_event(self, kind: str, **fields: Any) -> Document:
        return self._event(kind, item_id=self._item["id"], output_index=self._item_index, **fields)

    def _event(self, kind: str, **fields: Any) -> Document:
        event = {"type": kind, "sequence_number": self.n_events, **fields}
        self.n_events += 1
        return event


class StreamTranslator:
    """Events of an expert's stream in the shape of the client's endpoint; ``model`` is its name there.

    ``reader`` knows the ``usage`` so far, whether the answer is ``finished``, and whether the expert has
    ``done`` everything.
    """

    def __init__(self, endpoint: str, api: str, model: str, request: Document) -> None:
        self.reader: MessageReader | _ChatReader = _ChatReader()
        if api == "anthropic":
            self.reader = MessageReader()
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
    def next_sequence_number(self) -> int:
        """The number of the next event; 0 where the client's API does not number them."""
        if isinstance(self._writer, _ResponseWriter):
            return self._writer.n_events
        return 0

    def feed(self, event: Document, raw: bytes = b"") -> bytes:
        """The client's events for one of the expert's; TranslationError if it has another shape."""
        with checking_shape("an event"):
            client_events = b""
            for chunk in self.reader.read(event):
                for client_event in self._writer.write({**chunk, "model": self._model}):
                    client_events += self._encoded(client_event)
            return client_events

    def finish(self) -> bytes:
        """The last events, of a stream that ended as it should; TranslationError as ``feed``."""
        with checking_shape("the stream"):
            last_events = b""
            for client_event in self._writer.finish(self.reader.usage):
                last_events += self._encoded(client_event)
        if isinstance(self._writer, _ChatWriter):
            last_events += b"data: [DONE]\n\n"
        return last_events

    def _encoded(self, event: Document) -> bytes:
        if isinstance(self._writer, _ChatWriter):
            return data_event(event)
        return f"event: {event['type']}\n".encode() + data_event(event)


def data_event(document: Document) -> bytes:
    """An event of a stream, without a name."""
    return b"data: " + json.dumps(document, allow_nan=False).encode("ascii") + b"\n\n"
