"""What the body of a completion request says, and what each expert is sent of it."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any, Literal

from mild.endpoints.expert import Expert
from mild.gateway.choosing.text import chat_text, completion_text, text_bytes
from mild.gateway.refusals import Refusal
from mild.gateway.server.request import Request
from mild.gateway.server.titles import name_request
from mild.gateway.upstream.splice import parse_object, replace_model, replace_values

__all__ = ["Asked", "parse_body"]

# Headers of the client that travel on; its key never does.
TRAVEL = (b"traceparent", b"tracestate", b"openai-beta", b"idempotency-key")
USAGE = '{"include_usage":true}'
LONGEST_SESSION = 512


def parse_body(body: bytes) -> dict[str, Any]:
    """The body as an object; Refusal 400 says why it is none."""
    try:
        return parse_object(body)[0]
    except ValueError as error:
        raise Refusal(400, f"The body cannot be read: {error}.", code="invalid_body") from error


class Asked:
    """A completion request.

    Parameters
    ----------
    request : its head
    endpoint : ``/chat/completions`` or ``/completions``
    body : as it came
    which : user turns that are routed

    Attributes
    ----------
    document : the body, parsed; only read
    number, request_id : twelve random bytes, and the id made of them
    routed : text for the router
    bytes_in : of the text that an expert may count
    session : hash of the session, set by whoever knows the caller
    """

    __slots__ = (
        "_body",
        "_wants_usage",
        "bytes_in",
        "document",
        "endpoint",
        "headers",
        "number",
        "request_id",
        "routed",
        "session",
        "session_name",
        "streamed",
    )

    def __init__(
        self, request: Request, endpoint: str, body: bytes, which: Literal["last", "all"]
    ) -> None:
        self._body = body
        self.endpoint = endpoint
        document = self.document = parse_body(body)
        self.streamed = _streamed(document)
        read = chat_text if endpoint == "/chat/completions" else completion_text
        self.routed = read(document, which)
        self.bytes_in = text_bytes(document, body)
        self.number = os.urandom(12)
        self.request_id = name_request(self.number)
        self.session: bytes | None = None
        self.session_name = _session(request, document)
        options = document.get("stream_options")
        self._wants_usage = not self.streamed or not (
            options is None or (isinstance(options, dict) and not options.get("include_usage"))
        )
        self.headers = [b"%b: %b\r\n" % header for header in request.headers if header[0] in TRAVEL]

    @property
    def model(self) -> str:
        """The model name that was asked for."""
        return str(self.document.get("model"))

    def adds_usage(self, expert: Expert) -> bool:
        """Whether the expert is asked for the usage of a stream though the client did not."""
        return not self._wants_usage and expert.stream_usage

    def body_for(self, expert: Expert) -> bytes:
        """The body as it came, with the expert's name for the model."""
        body = replace_model(self._body, _as_json(expert.model), every=True)
        if not self.adds_usage(expert):
            return body
        options = self.document.get("stream_options")
        if "stream_options" not in self.document:
            place = body.index(b"{") + 1
            return b'%b"stream_options":%b,%b' % (body[:place], USAGE.encode(), body[place:])
        full = json.dumps({**(options or {}), "include_usage": True})
        return replace_values(body.decode("utf-8"), {"stream_options": full}).encode("utf-8")


@lru_cache(maxsize=256)
def _as_json(name: str) -> bytes:
    return json.dumps(name).encode("ascii")


def _streamed(document: dict[str, Any]) -> bool:
    stream = document.get("stream")
    if stream is not None and not isinstance(stream, bool):
        # An expert might read it otherwise than we do, and would be blamed for its answer.
        raise Refusal(400, "stream must be true or false.", code="invalid_type", param="stream")
    return bool(stream)


def _session(request: Request, document: dict[str, Any]) -> str | None:
    name: Any = request.header(b"x-mild-session-id") or document.get("user")
    return name[:LONGEST_SESSION] if isinstance(name, str) and name else None
