"""A completion request as it came, and what each expert is sent of it."""

from __future__ import annotations

import functools
import json
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from mild_gateway.decide import abridge
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.expert_client import ExpertClient
from mild_gateway.experts.json_edit import replace_model
from mild_gateway.experts.known_fields import misspelled_field, unknown_fields
from mild_gateway.experts.prices import (
    LIMITS,
    LONGEST_CONTEXT,
    TokenBounds,
    asked_answers,
    asked_tokens,
    charged_tokens,
    surcharged_fields,
)
from mild_gateway.experts.translation.answers import ECHOED, translate_answer
from mild_gateway.experts.translation.fields import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    MESSAGES,
    REQUIRED,
    RESPONSES,
    TranslationError,
    cut_short,
    is_native,
    upstream_endpoint,
)
from mild_gateway.experts.translation.requests import translate_request
from mild_gateway.refusals import Refusal
from mild_gateway.selection.sessions import Session
from mild_gateway.selection.text import request_text, text_bytes, uncountable_input
from mild_gateway.server.body import parse_body
from mild_gateway.server.middleware import name_request

# Headers of the client that are passed on. Its key never is. Neither are names of trials, which may have
# prices of their own (anthropic-beta), and idempotency keys: all clients share the expert's account.
_PASSED_ON = (b"traceparent", b"tracestate", b"anthropic-version")
_MAX_SESSION_CHARACTERS = 512
Headers = list[tuple[bytes, bytes]]


def check_required(document: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse a request without a field that it must have."""
    for name in names:
        if document.get(name) is None:
            message = f"The request must have {name}. It is missing."
            raise Refusal(400, message, code="missing_required_parameter", param=name)


def _check_case(endpoint: str, document: Mapping[str, Any]) -> None:
    """Refuse a known field in another case: some endpoints would take it, and we have not looked at it."""
    path = misspelled_field(endpoint, document)
    if path is not None:
        message = f"{cut_short(path)} must be written as in the API, in lower case; correct it."
        raise Refusal(400, message, code="invalid_field", param=cut_short(path))


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


def _asks_for_usage(stream_options: Any) -> bool:
    """Whether the client asks for the usage of a stream; odd options are left to the expert."""
    if stream_options is None:
        return False
    if isinstance(stream_options, dict):
        return bool(stream_options.get("include_usage"))
    return True


class CompletionRequest:
    """What a completion request says, and what each expert is sent of it.

    Attributes
    ----------
    number, request_id : twelve random bytes, and the id made of them
    text : for the router
    bytes_in : of the text that an expert may count
    session : of the request, set by whoever knows the caller
    has_budget : whether a budget limits the caller, set by whoever knows it
    """

    def __init__(
        self, headers: Headers, endpoint: str, body: bytes, which: Literal["last", "all"]
    ) -> None:
        self._body = body
        self.size = len(body)
        self.endpoint = endpoint
        document = parse_body(body)
        self._document: dict[str, Any] | None = document
        _check_case(endpoint, document)
        check_required(document, REQUIRED[endpoint])
        stream = document.get("stream")
        if stream is not None and not isinstance(stream, bool):
            # An expert might read it otherwise than we do, and would be blamed for its answer.
            raise Refusal(400, "stream must be true or false.", code="invalid_type", param="stream")
        self.streamed = bool(stream)
        self.text = request_text(document, which)
        self.bytes_in = text_bytes(document, body)
        self._asked_tokens = asked_tokens(document, endpoint)
        self._limit_fields = [name for name in LIMITS.get(endpoint, ()) if name in document]
        self._answers = asked_answers(document)
        self._uncountable = uncountable_input(document)
        self._surcharged = surcharged_fields(document)
        self.has_budget = False
        self.deadline = _read_deadline(headers)
        self.number = secrets.token_bytes(12)
        self.request_id = name_request(self.number)
        self.session: Session | None = None
        self.headers: dict[str, str] = {}
        session_id = ""
        for name, value in headers:
            if name in _PASSED_ON:
                self.headers[name.decode("ascii")] = value.decode("latin-1")
            elif name == b"x-mild-session-id" and not session_id:
                session_id = value.decode("latin-1")
        user = document.get("user")
        if endpoint == MESSAGES and isinstance(document.get("metadata"), dict):
            user = document["metadata"].get("user_id")
        session: Any = session_id or user
        self.session_name = None
        if session and isinstance(session, str):
            self.session_name = session[:_MAX_SESSION_CHARACTERS]
        self._wants_usage = True
        if self.streamed and endpoint in (CHAT, COMPLETIONS):
            self._wants_usage = _asks_for_usage(document.get("stream_options"))
        # Bodies that are written anew, by all that they depend on but the model.
        self._written: dict[tuple[Any, ...], bytes] = {}

    @property
    def document(self) -> dict[str, Any]:
        """The body, parsed; only read. Once the expert is chosen, it is parsed again for who asks."""
        if self._document is None:
            return parse_body(self._body)
        return self._document

    def forget(self, *, keep_text: bool) -> None:
        """Drop what is needed for the choice alone: parsed, a body takes many times its bytes."""
        self._document = None
        if keep_text:
            self.text = abridge(self.text)
        else:
            self.text = ""

    def adds_usage(self, expert: Expert) -> bool:
        """Whether the expert is asked for the usage of a stream though the client did not."""
        return not self._wants_usage and expert.stream_usage and self.is_native(expert)

    def is_native(self, expert: Expert) -> bool:
        """Whether the expert speaks the client's API."""
        return is_native(self.endpoint, expert.api)

    def max_tokens(self, expert: Expert) -> int:
        """Tokens that the answers may have at most, all together."""
        if self.endpoint == EMBEDDINGS:
            return 0
        own = asked_tokens(expert.extra) if expert.extra else 0
        asked = max(self._asked_tokens, own) or expert.max_tokens
        limit = expert.max_output or expert.context or LONGEST_CONTEXT
        return min(asked, limit) * self._answers

    def _sent_limit(self, expert: Expert) -> int | None:
        """Tokens of an answer for the field in which the expert takes this limit; None leaves all as it is.

        Under a budget, what is reserved is the most that the expert may spend.
        """
        has_own = bool(expert.extra) and asked_tokens(expert.extra) > 0
        if not self.has_budget or has_own or self.endpoint == EMBEDDINGS:
            return None
        limit = self.max_tokens(expert) // self._answers
        if self._asked_tokens == limit and self._limit_fields == [
            expert.limit_field(self.endpoint)
        ]:
            return None
        if expert.context is not None and self._asked_tokens != limit:
            # Endpoints refuse what does not fit into their context together with the input.
            tokens_in = charged_tokens(self.bytes_in + expert.own_bytes)
            limit = min(limit, max(expert.context - tokens_in, 1))
        return limit

    def bounds(self, expert: Expert) -> TokenBounds:
        """Tokens that one answer of this expert may cost at most."""
        # No token is shorter than a byte.
        bytes_in = self.bytes_in + expert.own_bytes
        tokens_out = self.max_tokens(expert)
        if expert.context is None or not self._uncountable_for(expert):
            return TokenBounds(bytes_in, tokens_out, bytes_in, expert.context)
        tokens_in = max(expert.context, bytes_in)
        return TokenBounds(tokens_in, tokens_out, bytes_in, expert.context, is_counted=False)

    def _uncountable_for(self, expert: Expert) -> str:
        """What cannot be counted of the input for this expert, which may have hosted tools of its own."""
        return self._uncountable or uncountable_input(expert.extra)

    def check_price(self, expert: Expert) -> None:
        """Refuse a request with 400 if a budget applies and nobody can say what this expert may cost."""
        if not self.has_budget or not expert.price.known:
            return
        if self.is_native(expert):
            self._check_fields(expert)
        uncountable = self._uncountable_for(expert)
        if uncountable and expert.price_in and expert.context is None:
            raise Refusal(
                400,
                f"The tokens of {uncountable} cannot be counted, and a budget applies, so the context of "
                f"the expert {expert.name} must be reserved, but its settings do not state it; set "
                f"experts.{expert.name}.context, or send the content as text.",
                code="uncountable_input",
            )
        for field, value in self._surcharged.items():
            if field not in expert.extra and self.is_native(expert):
                raise Refusal(
                    400,
                    f"{field} = {value!r} has a price of its own, which the gateway does not know, and "
                    f"a budget applies; leave {field} out, or name an expert that has it in extra.",
                    code="unpriced_service",
                    param=field,
                )

    @functools.cached_property
    def _unknown(self) -> dict[str, str]:
        """Names and paths of the fields and tools that may cost what nobody knows."""
        return unknown_fields(self.endpoint, self.document)

    def _check_fields(self, expert: Expert) -> None:
        for name, path in self._unknown.items():
            if name not in (*expert.allow_fields, expert.max_tokens_field):
                raise Refusal(
                    400,
                    f"{cut_short(path)} is no field of known price, and a budget applies; leave it out, "
                    f"or have it listed in experts.{expert.name}.allow_fields.",
                    code="field_not_allowed",
                    param=cut_short(path),
                )

    def why_not(self, expert: Expert) -> tuple[str, str | None, str | None] | None:
        """Message, code and field, if this request cannot be said in this expert's API, or not paid for."""
        try:
            self.check_price(expert)
            if not self.is_native(expert):
                self._written_body(expert)
        except Refusal as error:
            # Not the error itself: its frames would keep this request.
            return error.message, error.code, error.param
        return None

    def able(self, clients: Sequence[ExpertClient]) -> list[ExpertClient]:
        """Those of the experts that can be sent this request; Refusal 400 if there is none."""
        able = []
        refusals = []
        for client in clients:
            why = self.why_not(client.expert)
            if why is None:
                able.append(client)
            else:
                refusals.append(why)
        if refusals and not able:
            why = refusals[0]
            raise Refusal(400, why[0], code=why[1], param=why[2])
        return able

    def body_for(self, expert: Expert) -> bytes:
        """The body as it came, with the expert's name for the model; written anew where it must change."""
        body = self._body
        is_changed = expert.own_bytes or self.adds_usage(expert) or self._sent_limit(expert)
        if is_changed or not self.is_native(expert):
            body = self._written_body(expert)
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
            if "model" not in answer:
                return content
            return replace_model(content, expert.name)
        try:
            translated = translate_answer(self.endpoint, answer, expert.api, self.echo())
            renamed = {**translated, "model": expert.name}
            return json.dumps(renamed, allow_nan=False).encode("ascii")
        except (ValueError, RecursionError) as error:
            raise ExpertError("garbled", str(error)) from None

    def _written_body(self, expert: Expert) -> bytes:
        """The request in the expert's API and with its own fields, but with the client's model.

        Refusal 400 says why there is none.
        """
        key = (
            expert.api,
            expert.max_tokens,
            expert.limit_field(self.endpoint),
            self._sent_limit(expert),
            expert.stream_usage,
            expert.system,
            json.dumps(expert.extra),
        )
        if key not in self._written:
            try:
                document = self._document_for(expert)
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

    def _document_for(self, expert: Expert) -> dict[str, Any]:
        """The request translated for the expert, with its own fields and the client's model."""
        fields = dict(self.document)
        is_native = self.is_native(expert)
        if not is_native:
            fields = translate_request(self.endpoint, fields, expert.api, expert.max_tokens)
        # The first key, where it is replaced at once.
        document = {"model": fields.pop("model", None), **fields}
        limit = self._sent_limit(expert)
        if limit is None and not is_native:
            limit = document.get("max_tokens")
        if limit is not None:
            for field in LIMITS[upstream_endpoint(self.endpoint, expert.api)]:
                document.pop(field, None)
            document[expert.limit_field(self.endpoint)] = limit
        if expert.api == "openai":
            has_usage = is_native and self._wants_usage
            if self.streamed and expert.stream_usage and not has_usage:
                options = document.get("stream_options") or {}
                document["stream_options"] = {**options, "include_usage": True}
        return expert.with_own_fields(document, self.endpoint)
