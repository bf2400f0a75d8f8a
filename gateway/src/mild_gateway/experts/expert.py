"""The one description of an expert: a model behind an API, or a program."""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import json
import math
import re
import shlex
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from mild_gateway.experts.config_file import (
    CONFIG,
    Amount,
    Flag,
    Positive,
    Rule,
    Text,
    problem,
    whole,
)
from mild_gateway.experts.prices import Price
from mild_gateway.experts.secrets import Secret
from mild_gateway.experts.translation.fields import (
    CHAT,
    EMBEDDINGS,
    MESSAGES,
    Document,
    upstream_endpoint,
)
from mild_gateway.experts.translation.requests import chat_to_messages

_NAME = re.compile(r"[^\W_][\w.:/@+ -]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Carried by settings of their own, or by the protocol itself.
_SECRET_HEADERS = ("authorization", "api-key", "x-api-key", "proxy-authorization", "cookie")
_OWN_HEADERS = ("host", "content-length", "content-type", "transfer-encoding", "connection")
_ANTHROPIC_VERSION = "2023-06-01"
_BODY_FIELDS = ("model", "messages", "temperature", "stream", "n", "max_tokens")
# Larger files of a command are not looked into.
SMALL_FILE = 10_000_000
_SECRET_WORDS = ("key", "token", "secret", "password", "authorization")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine.

    >>> is_loopback("localhost"), is_loopback("[::1]"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_name(name: str) -> bool:
    """Whether clients can ask for an expert by this name."""
    return bool(_NAME.fullmatch(name)) and name == name.strip()


def check_base_url(url: str) -> str:
    """Refuse an address that cannot be used; it is not quoted, because a secret may stand in it."""
    if not url:
        return url
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    plain = url.isascii() and url.isprintable() and " " not in url
    if not plain or not host or parts.scheme not in ("http", "https") or port == 0:
        problem("must be an address such as https://api.example.com/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        problem("must hold no user, password, query or fragment; give a key with api_key_env")
    if parts.path.rstrip("/").endswith("/completions"):
        problem("must end before /chat/completions, as in https://api.example.com/v1")
    if parts.path.rstrip("/").endswith("/messages"):
        problem("must end before /messages, as in https://api.example.com/v1")
    return url.rstrip("/")


def _header_name(name: str) -> str:
    if not _HEADER.fullmatch(name):
        problem("must be the name of a header")
    if name.lower() in _OWN_HEADERS:
        problem("is set by mild itself")
    return name


def is_secret_header(name: str) -> bool:
    return name.lower() in _SECRET_HEADERS


def _command_words(command: object) -> object:
    try:
        return tuple(shlex.split(command) if isinstance(command, str) else command)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ()


def _extra_key(key: str) -> str:
    if key in _BODY_FIELDS:
        problem("must not be set in extra: it is a setting of its own")
    if any(word == key.lower() or key.lower().endswith(f"_{word}") for word in _SECRET_WORDS):
        problem("must not be a secret; use api_key_env")
    return key


def _plain_json(extra: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(extra)
    except TypeError:
        problem("must hold only values of JSON: no dates, no times")
    return extra


_Variable = Annotated[
    str,
    Rule("must be the name of an environment variable, not the key itself", _VARIABLE.fullmatch),
]
_HeaderName = Annotated[str, AfterValidator(_header_name)]
_HeaderValue = Annotated[
    str, Rule("must be plain text", lambda value: value.isascii() and value.isprintable())
]


@dataclass(frozen=True, config=CONFIG)
class BreakerSettings:
    """When an expert is not asked, and for how long: after so many failures within a window that are at
    least half of the calls in it; and while it asks for a pause, but not longer than the cool-down.
    """

    failures: Annotated[int, whole(1)] = 5
    """Failures within the window after which the expert is not asked, if they are at least half of
    its calls.
    """
    window_seconds: Positive = 30.0
    """Length of the window in which failures are counted."""
    open_seconds: Positive = 15.0
    """How long the expert is then not asked."""
    max_cool_down_seconds: Positive = 30.0
    """Longest pause that an expert can ask for with `Retry-After`."""


@dataclass(frozen=True, config=CONFIG)
class Expert:
    """An endpoint that speaks OpenAI's or Anthropic's API, or a program that reads a query on stdin and
    answers on stdout.

    A price that is None is not known, a capability that is None counts as yes, and a limit that is None
    is none. The reader of the file sets ``secret``, the key itself, and ``place``, file and line for
    messages. The docstrings of the settings are their documentation.
    """

    internal: ClassVar = ("name", "secret", "place")
    name: str
    base_url: Annotated[str, Rule("must be text in quotes"), AfterValidator(check_base_url)] = ""
    """Address of the endpoint, before `/chat/completions` or `/messages`."""
    model: Text = ""
    """Name of the model at the endpoint."""
    api: Literal["openai", "anthropic"] = Field(default="openai", kw_only=True)
    """The API that the endpoint speaks."""
    embeddings: Flag = Field(default=False, kw_only=True)
    """Whether the endpoint has `/embeddings`."""
    command: Annotated[
        tuple[str, ...],
        BeforeValidator(_command_words),
        Rule('must be a command such as "python rules.py", or a list of its words', bool),
    ] | None = None  # fmt: skip
    """Only `mild collect`: a program in place of `base_url` and `model`. It reads the query on
    standard input and writes the answer on standard output.
    """
    api_key_env: _Variable | None = None
    """Environment variable that holds the key."""
    api_key_file: Text | None = None
    """File with mode 0600 or 0400 that holds the key."""
    api_key_header: (
        Annotated[Text, Rule("must be the name of a header", _HEADER.fullmatch)] | None
    ) = None
    """Header that carries the key. Without it, `Authorization: Bearer KEY`, or `x-api-key` with
    `api = "anthropic"`.
    """
    # Some headers are secrets too.
    headers: dict[_HeaderName, _HeaderValue] = Field(default_factory=dict, repr=False)
    """Headers that are sent with every request; none may be a secret."""
    price_in: Amount | None = None
    """Dollars per million input tokens."""
    price_out: Amount | None = None
    """Dollars per million output tokens."""
    price_cached_in: Amount | None = None
    """Dollars per million input tokens from the endpoint's prompt cache. Without it, `price_in`."""
    price_per_query: Amount | None = None
    """Dollars per request, besides the tokens."""
    role: Literal["routed", "fallback"] = "routed"
    """`"fallback"`: only asked where the other experts fail."""
    vision: Flag | None = None
    """Whether requests may hold images. A capability that is not declared is assumed."""
    tools: Flag | None = None
    """Whether requests may hold tools."""
    json_schema: Flag | None = None
    """Whether requests may ask for an answer by a JSON schema."""
    reasoning: Flag | None = None
    """Whether requests may set `reasoning_effort`."""
    context: Annotated[int, whole(1)] | None = None
    """Most input tokens. Without it, no limit."""
    max_output: Annotated[int, whole(1)] | None = None
    """Most tokens of an answer. Without it, no limit."""
    max_tokens: Annotated[int, whole(1)] = 4096
    """Longest answer. The gateway reserves this much money where a request names no limit; `mild
    collect` asks for at most this many tokens.
    """
    max_in_flight: Annotated[int, whole(1)] | None = None
    """Requests at a time. Without it, no limit."""
    requests_per_minute: Positive | None = None
    """Requests per minute. Without it, no limit."""
    tokens_per_minute: Positive | None = None
    """Only `mild collect`: tokens per minute. Without it, no limit."""
    connect_seconds: Positive = 5.0
    """Time to get a connection."""
    first_byte_seconds: Positive = 60.0
    """Time to the first byte of the answer."""
    idle_seconds: Positive = 60.0
    """Longest pause between two parts of the answer."""
    total_seconds: Positive = 600.0
    """Longest time of one attempt, from the connection to the last byte."""
    retries: Annotated[int, whole(0, 10)] = 1
    """Further attempts at this expert before the next one is asked."""
    stream_usage: Flag = True
    """Whether streamed answers are asked for their usage; false for endpoints that refuse this."""
    breaker: BreakerSettings = BreakerSettings()
    """When the expert is not asked for a while."""
    backoff_s: Amount = 0.5
    """Only `mild collect`: longest first pause between attempts; it doubles each time."""
    max_wait_s: Positive = 120.0
    """Only `mild collect`: longest pause that an endpoint may ask for."""
    system: Text | None = None
    """Sent before the system prompt of a request."""
    temperature: Amount | None = None
    """Sent where a request gives none."""
    extra: Annotated[
        dict[Annotated[str, AfterValidator(_extra_key)], Any], AfterValidator(_plain_json)
    ] = Field(default_factory=dict)
    """Fields of the expert's own API; they replace those of a request, such as `{ reasoning_effort
    = "high" }`.
    """
    max_tokens_field: Text = "max_tokens"
    """Name of the field that limits the tokens of an answer, such as `max_completion_tokens`."""
    samples: Annotated[int, whole(1, 100)] = Field(default=1, kw_only=True)
    """Only `mild collect`: how often each question is asked."""
    secret: Secret | None = None
    place: str = Field(default="", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        # What is reserved for a request is computed with price_in.
        if self.price_cached_in is not None and self.price_cached_in > (self.price_in or 0.0):
            problem("must have a price_in, and a price_cached_in that is not above it")
        if self.samples > 1 and "seed" in self.extra:
            problem("must have no seed in extra where it has samples: they would be the same")

    @functools.cached_property
    def price(self) -> Price:
        return Price(self.price_in, self.price_out, self.price_per_query, self.price_cached_in)

    @property
    def url(self) -> str:
        """Where chats are completed."""
        return self.base_url + upstream_endpoint(CHAT, self.api)

    def sent_headers(self) -> dict[str, str]:
        """Headers of every request, with the key in plain text: not for logs."""
        headers = dict(self.headers)
        anthropic = self.api == "anthropic"
        if anthropic and "anthropic-version" not in map(str.lower, headers):
            headers["anthropic-version"] = _ANTHROPIC_VERSION
        if self.secret is not None:
            name = self.api_key_header or ("x-api-key" if anthropic else "Authorization")
            bearer = "Bearer " if name.lower() == "authorization" else ""
            headers[name] = bearer + self.secret.value
        return headers

    def request(self, prompt: str) -> dict[str, Any]:
        """All that decides the answer to a prompt of collect: no secret and no limit."""
        if self.command is not None:
            return {"command": list(self.command), "files": self._files, "stdin": prompt}
        body: Document = {"model": self.model, "messages": [{"role": "user", "content": prompt}]}
        if self.api == "anthropic":
            body = chat_to_messages(body, self.max_tokens)
        else:
            body[self.max_tokens_field] = self.max_tokens
        return {"url": self.url, "body": self.with_own_fields(body, CHAT)}

    @functools.cached_property
    def own_bytes(self) -> int:
        """Bytes that ``with_own_fields`` adds to a request; 0 if it changes none."""
        empty: Document = {"messages": []}
        return len(json.dumps(self.with_own_fields(empty, CHAT))) - len(json.dumps(empty))

    def with_own_fields(self, request: Document, endpoint: str) -> Document:
        """A request to an endpoint, in this expert's API, with ``system``, ``temperature`` and ``extra``.

        ``system`` stands before that of the request, ``temperature`` counts where the request has none,
        and ``extra`` replaces fields; what it says of an object is added to that. Embeddings take none of
        them, and completions no ``system``.

        >>> expert = Expert("high", "http://x/v1", "m", extra={"reasoning_effort": "high"})
        >>> expert.with_own_fields({"messages": [], "reasoning_effort": "low"}, "/chat/completions")
        {'messages': [], 'reasoning_effort': 'high'}
        """
        path = upstream_endpoint(endpoint, self.api)
        if path == EMBEDDINGS:
            return request
        request = dict(request)
        own, turns = request.get("system"), request.get("messages")
        if self.system is not None and path == CHAT and isinstance(turns, list):
            request["messages"] = [{"role": "system", "content": self.system}, *turns]
        elif self.system is not None and path == MESSAGES:
            if isinstance(own, list):
                request["system"] = [{"type": "text", "text": self.system}, *own]
            else:
                request["system"] = f"{self.system}\n\n{own}" if own else self.system
        if self.temperature is not None and request.get("temperature") is None:
            most = 1 if self.api == "anthropic" else math.inf
            request["temperature"] = min(self.temperature, most)
        for name, value in self.extra.items():
            given = request.get(name)
            if isinstance(given, dict) and isinstance(value, dict):
                value = {**given, **value}
            request[name] = value
        return request

    @functools.cached_property
    def _files(self) -> list[str]:
        """Digests of the program's own files: a program that was changed is another expert."""
        digests = []
        for word in self.command or ():
            try:
                path = Path(word)
                if path.is_file() and path.stat().st_size <= SMALL_FILE:
                    digests.append(hashlib.sha256(path.read_bytes()).hexdigest())
            except (OSError, ValueError):
                continue
        return digests
