"""A completion request as it came, and what each expert is sent of it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from mild.core import abridge
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.expert_client import ExpertClient
from mild_gateway.experts.json_edit import replace_model
from mild_gateway.experts.prices import LONGEST_CONTEXT, asked_answers, asked_tokens
from mild_gateway.experts.translation.answers import ECHOED, translate_answer
from mild_gateway.experts.translation.fields import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    MESSAGES,
    REQUIRED,
    RESPONSES,
    TranslationError,
    is_native,
)
from mild_gateway.experts.translation.requests import translate_request
from mild_gateway.refusals import Refusal
from mild_gateway.selection.sessions import Session
from mild_gateway.selection.text import request_text, text_bytes
from mild_gateway.server.body import parse_body
from mild_gateway.server.middleware import name_request

# Headers of the client that are passed on; its key never is.
_PASSED_ON = (
    b"traceparent",
    b"tracestate",
    b"openai-beta",
    b"anthropic-beta",
    b"anthropic-version",
    b"idempotency-key",
)
_MAX_SESSION_CHARACTERS = 512
Headers = list[tuple[bytes, bytes]]


def check_required(document: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse a request without a field that it must have."""
    for name in names:
        if document.get(name) is None:
            message = f"The request must have {name}. It is missing."
            raise Refusal(400, message, code="missing_required_parameter", param=name)


def _read_deadline(headers: Headers) -> float | None:
    """Seconds of the header ``x-mild-deadline``; Refusal 400 if it has another value."""
    given = next((value for name, value in headers if name == b"x-mild-deadline"), None)
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        message = "x-mild-deadline must be a number of seconds above 0."
        raise Refusal(400, message, code="invalid_deadline")
    return seconds


class CompletionRequest:
    """What a completion request says, and what each expert is sent of it.

    Attributes
    ----------
    number, request_id : twelve random bytes, and the id made of them
    text : for the router
    bytes_in : of the text that an expert may count
    session : of the request, set by whoever knows the caller
    """

    def __init__(
        self, headers: Headers, endpoint: str, body: bytes, which: Literal["last", "all"]
    ) -> None:
        self._body = body
        self.size = len(body)
        self.endpoint = endpoint
        document = parse_body(body)
        self._document: dict[str, Any] | None = document
        check_required(document, REQUIRED[endpoint])
        stream = document.get("stream")
        if stream is not None and not isinstance(stream, bool):
            # An expert might read it otherwise than we do, and would be blamed for its answer.
            raise Refusal(400, "stream must be true or false.", code="invalid_type", param="stream")
        self.streamed = bool(stream)
        self.text = request_text(document, which)
        self.bytes_in = text_bytes(document, body)
        self._asked_tokens = asked_tokens(document, endpoint)
        self._answers = asked_answers(document)
        self.deadline = _read_deadline(headers)
        self.number = random.randbytes(12)
        self.request_id = name_request(self.number)
        self.session: Session | None = None
        self.headers = {
            name.decode("ascii"): value.decode("latin-1")
            for name, value in headers
            if name in _PASSED_ON
        }
        given = next((value for name, value in headers if name == b"x-mild-session-id"), b"")
        user = document.get("user")
        if endpoint == MESSAGES and isinstance(document.get("metadata"), dict):
            user = document["metadata"].get("user_id")
        session: Any = given.decode("latin-1") or user
        self.session_name = None
        if session and isinstance(session, str):
            self.session_name = session[:_MAX_SESSION_CHARACTERS]
        options = document.get("stream_options")
        self._wants_usage = not (self.streamed and endpoint in (CHAT, COMPLETIONS)) or not (
            options is None or (isinstance(options, dict) and not options.get("include_usage"))
        )
        # Bodies that are written anew, by all that they depend on but the model.
        self._written: dict[tuple[Any, ...], bytes] = {}

    @property
    def document(self) -> dict[str, Any]:
        """The body, parsed; only read. Once the expert is chosen, it is parsed again for who asks."""
        return parse_body(self._body) if self._document is None else self._document

    def forget(self, *, keep_text: bool) -> None:
        """Drop what is needed for the choice alone: parsed, a body takes many times its bytes."""
        self._document = None
        self.text = abridge(self.text) if keep_text else ""

    def adds_usage(self, expert: Expert) -> bool:
        """Whether the expert is asked for the usage of a stream though the client did not."""
        return not self._wants_usage and expert.stream_usage and self.is_native(expert)

    def is_native(self, expert: Expert) -> bool:
        """Whether the expert speaks the client's API."""
        return is_native(self.endpoint, expert.api)

    def max_tokens(self, expert: Expert) -> int:
        """Tokens that the answer may have at most."""
        if self.endpoint == EMBEDDINGS:
            return 0
        own = asked_tokens(expert.extra) if expert.extra else 0
        asked = max(self._asked_tokens, own) or expert.max_tokens
        limit = expert.max_output or expert.context or LONGEST_CONTEXT
        return min(asked, limit) * self._answers

    def bytes_for(self, expert: Expert) -> int:
        """Bytes of the text that this expert may count."""
        return self.bytes_in + expert.own_bytes

    def why_not(self, expert: Expert) -> tuple[str, str | None, str | None] | None:
        """Message, code and field, if this expert's API cannot say this request."""
        try:
            if not self.is_native(expert):
                self._written_body(expert)
        except Refusal as error:
            # Not the error itself: its frames would keep this request.
            return error.message, error.code, error.param
        return None

    def able(self, clients: Sequence[ExpertClient]) -> list[ExpertClient]:
        """Those of the experts whose API can say this request; Refusal 400 if there is none."""
        whys = [self.why_not(client.expert) for client in clients]
        found = [client for client, why in zip(clients, whys, strict=True) if why is None]
        why = next(iter(whys), None)
        if why is not None and not found:
            raise Refusal(400, why[0], code=why[1], param=why[2])
        return found

    def body_for(self, expert: Expert) -> bytes:
        """The body as it came, with the expert's name for the model; written anew where it must change."""
        stays = self.is_native(expert) and not (expert.own_bytes or self.adds_usage(expert))
        body = self._body if stays else self._written_body(expert)
        return replace_model(body, expert.model)

    def echo(self) -> dict[str, Any]:
        """Fields that an answer in another API depends on, or repeats; parsed again, and not kept."""
        if self.endpoint != RESPONSES:
            return {"stream_options": {"include_usage": self._wants_usage}}
        document = self.document
        return {name: document[name] for name in ECHOED if name in document}

    def read_answer(self, expert: Expert, answer: dict[str, Any], content: bytes) -> bytes:
        """A plain answer in the client's API, with the expert's name for the model."""
        if self.is_native(expert):
            return replace_model(content, expert.name) if "model" in answer else content
        try:
            found = translate_answer(self.endpoint, answer, expert.api, self.echo())
            changed = {**found, "model": expert.name}
            return json.dumps(changed, allow_nan=False).encode("ascii")
        except (ValueError, RecursionError) as error:
            raise ExpertError("garbled", str(error)) from None

    def _written_body(self, expert: Expert) -> bytes:
        """The request in the expert's API and with its own fields, but with the client's model.

        Refusal 400 says why there is none.
        """
        own = expert.system, expert.temperature, json.dumps(expert.extra)
        key = (expert.api, expert.max_tokens, expert.max_tokens_field, expert.stream_usage, *own)
        if key not in self._written:
            try:
                found, native = dict(self.document), self.is_native(expert)
                if not native:
                    found = translate_request(self.endpoint, found, expert.api, expert.max_tokens)
                # The first key, where it is replaced at once.
                document = {"model": found.pop("model", None), **found}
                if expert.api == "openai":
                    if not native and "max_tokens" in document:
                        document[expert.max_tokens_field] = document.pop("max_tokens")
                    wanted = native and self._wants_usage
                    if self.streamed and expert.stream_usage and not wanted:
                        options = document.get("stream_options") or {}
                        document["stream_options"] = {**options, "include_usage": True}
                document = expert.with_own_fields(document, self.endpoint)
                self._written[key] = json.dumps(document, allow_nan=False).encode("ascii")
                if self.endpoint == RESPONSES:
                    # Its answer repeats these, and the expert would be blamed for them.
                    json.dumps(self.echo(), allow_nan=False)
            except TranslationError as error:
                param = error.parameter
                raise Refusal(400, str(error), code=error.code, param=param) from None
            except (RecursionError, ValueError):
                message = "The body is nested too deeply, or has a number that is not finite."
                raise Refusal(400, message, code="invalid_body") from None
        return self._written[key]
