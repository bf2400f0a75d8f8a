"""The one description of an expert: a model behind an API."""

from __future__ import annotations

import functools
import ipaddress
import json
import re
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
    shown_value,
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
_BODY_FIELDS = ("model", "messages", "stream", "n", "max_tokens")
#: What requests may hold that an expert may not take.
CAPABILITIES = ("images", "tools", "json_schema", "reasoning")
# Seconds for name resolution, connection and TLS.
CONNECT_SECONDS = 5.0
# Further attempts at one expert for the same request, after a failure that may pass at once.
RETRIES = 1
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
        address = urlsplit(url)
        is_valid = bool(address.hostname) and address.port != 0
    except ValueError:
        is_valid = False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if not is_plain or not is_valid or address.scheme not in ("http", "https"):
        problem("must be an address such as https://api.example.com/v1")
    if address.username or address.password or address.query or address.fragment:
        problem("must hold no user, password, query or fragment; give a key with api_key_env")
    path = address.path.rstrip("/")
    if path.endswith("/completions"):
        problem("must end before /chat/completions, as in https://api.example.com/v1")
    if path.endswith("/messages"):
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


def _extra_key(key: str) -> str:
    if key in _BODY_FIELDS:
        problem("must not be set in extra: it is a setting of its own")
    if any(word == key.lower() or key.lower().endswith(f"_{word}") for word in _SECRET_WORDS):
        problem("must not be a secret; use api_key_env")
    return key


def _check_capabilities(names: object) -> tuple[str, ...]:
    choices = ", ".join(f'"{name}"' for name in CAPABILITIES)
    if not isinstance(names, list | tuple):
        problem(f"must be a list with any of {choices}; got {shown_value(names)}")
    for position, name in enumerate(names, start=1):
        if name not in CAPABILITIES:
            problem(f"must hold only {choices}; entry {position} is none of them")
    return tuple(names)


def _check_names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        problem(f"must be a list of names; got {shown_value(names)}")
    return tuple(names)


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
class Expert:
    """An endpoint that speaks OpenAI's or Anthropic's API.

    A price that is None is not known, and a limit that is None is none. The reader of the file sets
    ``secret``, the key itself, and ``defined_at``, file and line for messages. The docstrings of the
    settings are their documentation.
    """

    internal: ClassVar = ("name", "secret", "defined_at")
    name: str
    base_url: Annotated[str, Rule("must be text in quotes"), AfterValidator(check_base_url)] = ""
    """Address of the endpoint, before `/chat/completions` or `/messages`."""
    model: Text = ""
    """Name of the model at the endpoint."""
    api: Literal["openai", "anthropic"] = Field(default="openai", kw_only=True)
    """The API that the endpoint speaks."""
    embeddings: Flag = Field(default=False, kw_only=True)
    """Whether the endpoint has `/embeddings`."""
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
    price_cache_write: Amount | None = None
    """Dollars per million input tokens that the endpoint writes to its prompt cache. Without it,
    `price_in`. Anthropic takes 1.25 times `price_in`, and twice `price_in` for an hour.
    """
    price_per_query: Amount | None = None
    """Dollars per request, besides the tokens."""
    role: Literal["routed", "fallback"] = "routed"
    """`"fallback"`: only asked where the other experts fail."""
    unsupported: Annotated[tuple[str, ...], BeforeValidator(_check_capabilities)] = ()
    """What requests to this expert may not hold: any of `"images"`, `"tools"`, `"json_schema"` (a
    schema for the answer) and `"reasoning"` (an effort of reasoning).
    """
    context: Annotated[int, whole(1)] | None = None
    """Most input tokens. Without it, no limit, and under a budget no requests with documents, hosted
    tools or other input that cannot be counted.
    """
    allow_fields: Annotated[tuple[str, ...], BeforeValidator(_check_names)] = ()
    """Fields, and types of tools, that this expert is sent also under a budget, though nobody knows what
    they may cost, such as `["top_k", "chat_template_kwargs"]`.
    """
    max_output: Annotated[int, whole(1)] | None = None
    """Most tokens of an answer. Without it, no limit."""
    max_tokens: Annotated[int, whole(1)] = 4096
    """Longest answer where a request names no limit. Under a budget, the gateway reserves money for so
    many tokens and sends the expert this limit; `mild collect` always sends it.
    """
    max_in_flight: Annotated[int, whole(1)] | None = None
    """Requests at a time, in each worker. Without it, no limit."""
    requests_per_minute: Positive | None = None
    """Requests per minute, in each worker. Without it, no limit."""
    first_byte_seconds: Positive = 60.0
    """Time to the first byte of a streamed answer. A plain answer begins when it is whole, and may take
    `total_seconds`.
    """
    total_seconds: Positive = 600.0
    """Longest time of one attempt, from the connection to the last byte."""
    stream_usage: Flag = True
    """Whether streamed answers are asked for their usage; false for endpoints that refuse this."""
    system: Text | None = None
    """Sent before the system prompt of a request."""
    extra: Annotated[
        dict[Annotated[str, AfterValidator(_extra_key)], Any], AfterValidator(_plain_json)
    ] = Field(default_factory=dict)
    """Fields of the expert's own API; they replace those of a request, such as `{ reasoning_effort
    = "high" }` or `{ temperature = 0.2 }`.
    """
    max_tokens_field: Text = "max_tokens"
    """Name of the field that limits the tokens of an answer, such as `max_completion_tokens`, which
    reasoning models need. Without it, the gateway sends `max_completion_tokens` to OpenAI itself.
    """
    secret: Secret | None = None
    defined_at: str = Field(default="", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        # What is reserved for a request is computed with price_in.
        if self.price_cached_in is not None and self.price_cached_in > (self.price_in or 0.0):
            problem("must have a price_in, and a price_cached_in that is not above it")
        if self.price_cache_write is not None and self.price_in is None:
            problem("must have a price_in where it has a price_cache_write")

    @functools.cached_property
    def price(self) -> Price:
        return Price(
            per_million_in=self.price_in,
            per_million_out=self.price_out,
            per_query=self.price_per_query,
            per_million_cached_in=self.price_cached_in,
            per_million_cache_write=self.price_cache_write,
        )

    def limit_field(self, endpoint: str) -> str:
        """The field of a request to an endpoint that limits the tokens of its answer.

        >>> Expert("mini", "https://api.openai.com/v1", "o4-mini").limit_field("/chat/completions")
        'max_completion_tokens'
        """
        if upstream_endpoint(endpoint, self.api) != CHAT:
            return "max_tokens"
        host = urlsplit(self.base_url).hostname or ""
        # There reasoning models take no max_tokens, and all models take max_completion_tokens.
        is_openai = host == "api.openai.com" or host.endswith(".openai.azure.com")
        if self.max_tokens_field == "max_tokens" and is_openai:
            return "max_completion_tokens"
        return self.max_tokens_field

    @property
    def url(self) -> str:
        """Where chats are completed."""
        return self.base_url + upstream_endpoint(CHAT, self.api)

    def sent_headers(self) -> dict[str, str]:
        """Headers of every request, with the key in plain text: not for logs."""
        headers = dict(self.headers)
        key_header = "Authorization"
        if self.api == "anthropic":
            key_header = "x-api-key"
            if "anthropic-version" not in map(str.lower, headers):
                headers["anthropic-version"] = _ANTHROPIC_VERSION
        if self.api_key_header:
            key_header = self.api_key_header
        if self.secret is None:
            return headers
        headers[key_header] = self.secret.value
        if key_header.lower() == "authorization":
            headers[key_header] = f"Bearer {self.secret.value}"
        return headers

    def request(self, prompt: str) -> dict[str, Any]:
        """All that decides the answer to a prompt of collect: no secret and no limit."""
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
        """A request to an endpoint, in this expert's API, with ``system`` and ``extra``.

        ``system`` stands before that of the request, and ``extra`` replaces fields; what it says of an
        object is added to that. Embeddings take neither, and completions no ``system``.

        >>> expert = Expert("high", "http://x/v1", "m", extra={"reasoning_effort": "high"})
        >>> expert.with_own_fields({"messages": [], "reasoning_effort": "low"}, "/chat/completions")
        {'messages': [], 'reasoning_effort': 'high'}
        """
        path = upstream_endpoint(endpoint, self.api)
        if path == EMBEDDINGS:
            return request
        request = dict(request)
        turns = request.get("messages")
        if self.system is not None and path == CHAT and isinstance(turns, list):
            request["messages"] = [{"role": "system", "content": self.system}, *turns]
        elif self.system is not None and path == MESSAGES:
            request["system"] = _joined_system(self.system, request.get("system"))
        for name, value in self.extra.items():
            requested = request.get(name)
            if isinstance(requested, dict) and isinstance(value, dict):
                value = {**requested, **value}
            request[name] = value
        return request


def _joined_system(expert_system: str, requested: Any) -> Any:
    """The system prompt of an expert before that of a request, in Anthropic's API."""
    if isinstance(requested, list):
        return [{"type": "text", "text": expert_system}, *requested]
    if requested:
        return f"{expert_system}\n\n{requested}"
    return expert_system
