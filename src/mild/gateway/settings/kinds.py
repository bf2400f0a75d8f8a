"""What a gateway is told: plain values, checked where they are read."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from mild.gateway.database.address import Address
from mild.gateway.settings.secrets import Secret

__all__ = [
    "AccessSettings",
    "BreakerSettings",
    "ExpertSettings",
    "LedgerSettings",
    "LimitSettings",
    "RoutingSettings",
    "Settings",
]

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When an expert is left alone, and for how long.

    It is, after so many failures within a window that are at least half of the calls in it: a few failures
    among many answers do not count.
    """

    failures: int = 5
    window_seconds: float = 30.0
    open_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class ExpertSettings:
    """An OpenAI-compatible endpoint.

    Attributes
    ----------
    name : of the expert, as the router knows it
    base_url : address before ``/chat/completions``, without a slash at the end
    model : name sent to the endpoint
    secret : API key, or None
    secret_header : header that carries the key; ``Authorization`` carries it as a bearer's
    headers : sent with every request, besides the key
    price_in, price_out : dollars per million tokens; None if not known
    price_per_query : dollars per request, besides the tokens; None if not known
    max_tokens : of an answer, for reserving where the request names none
    max_in_flight : requests at a time; None without a limit
    requests_per_minute : None without a limit
    connect_seconds, first_byte_seconds, idle_seconds : how long to wait for a connection, for the
        first byte of an answer, and between two pieces of it
    retries : further attempts at this expert before the next one is asked
    stream_usage : whether a streamed answer is asked for its usage where the client did not
    place : where the file names it, for messages
    """

    name: str
    base_url: str
    model: str
    secret: Secret | None = None
    secret_header: str = "Authorization"
    # Some headers are secrets too.
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    price_in: float | None = None
    price_out: float | None = None
    price_per_query: float | None = None
    max_tokens: int = 4096
    max_in_flight: int | None = None
    requests_per_minute: float | None = None
    connect_seconds: float = 5.0
    first_byte_seconds: float = 60.0
    idle_seconds: float = 60.0
    retries: int = 1
    stream_usage: bool = True
    breaker: BreakerSettings = BreakerSettings()
    place: str = field(default="", compare=False, repr=False)

    @property
    def priced(self) -> bool:
        """Whether any price is known; without one a request counts as free."""
        return not (
            self.price_in is None and self.price_out is None and self.price_per_query is None
        )

    def sent_headers(self) -> dict[str, str]:
        """Headers of every request, with the key in plain text: not for logs."""
        headers = dict(self.headers)
        if self.secret is not None:
            bearer = "Bearer " if self.secret_header.lower() == "authorization" else ""
            headers[self.secret_header] = bearer + self.secret.value
        return headers

    def dollars(self, tokens_in: int, tokens_out: int) -> float:
        """Price of a request; what has no price is free.

        Examples
        --------
        >>> ExpertSettings("small", "http://x/v1", "m", price_in=0.5, price_out=2).dollars(1000, 100)
        0.0007
        """
        tokens = tokens_in * (self.price_in or 0.0) + tokens_out * (self.price_out or 0.0)
        return tokens / MILLION + (self.price_per_query or 0.0)


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """How an expert is chosen.

    Attributes
    ----------
    price_weight : of the price against the error; None for the router's own
    explore : share of requests whose expert is drawn at random, for later replays
    text : routed are the last user turn, or all of them
    pin_sessions : whether a conversation with a session id stays with its expert
    session_seconds, max_sessions : how long, and how many conversations are remembered
    fallback : whether another expert is asked where the chosen one fails
    max_attempts : at one request, over all experts
    """

    price_weight: float | None = None
    explore: float = 0.0
    text: Literal["last", "all"] = "last"
    pin_sessions: bool = True
    session_seconds: float = 3600.0
    max_sessions: int = 10_000
    fallback: bool = True
    max_attempts: int = 3


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What a client may send, and how long it may take; how much is served at a time."""

    max_body_bytes: int = 10_000_000
    max_headers: int = 100
    max_header_bytes: int = 32_768
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    keep_alive_seconds: float = 75.0
    max_in_flight: int = 1000
    drain_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may ask, how often, and for how much.

    Attributes
    ----------
    require_key : None for "yes, unless the gateway listens on this machine alone"
    anonymous : name under which requests without a known key are counted
    budget_day, budget_month : dollars for all keys together; None without a limit
    requests_per_minute : of each key that has no limit of its own; None without a limit
    when_store_lost : "shed" refuses every request until the store is back; "serve" serves what needs no
        budget, and ``lost_allowance``; None for "shed" with PostgreSQL and "serve" with SQLite
    lost_allowance : dollars that a worker may spend in a day while the store is lost, with "serve"
    """

    require_key: bool | None = None
    anonymous: str = "anonymous"
    budget_day: float | None = None
    budget_month: float | None = None
    requests_per_minute: int | None = None
    when_store_lost: Literal["shed", "serve"] | None = None
    lost_allowance: float = 0.0


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Where decisions are written: a file, or the database of the store; ``path`` None for nowhere."""

    path: Path | Address | None = None
    keep_text: bool = False
    keep_days: float = 30.0
    max_bytes: int = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the gateway is told.

    Attributes
    ----------
    router : folder of the router, or None if it is named elsewhere
    store : of keys and budgets, an SQLite file or a PostgreSQL database that gateways on many machines
        share; None keeps nothing: no keys, and budgets until the end
    page : whether there is one; "public" for everyone, else only where it is safe without a key
    notes : what the files say and mild does not use, one sentence each
    source : the file it was read from
    """

    experts: tuple[ExpertSettings, ...] = ()
    router: Path | None = None
    host: str = "127.0.0.1"
    port: int = 6060
    workers: int = 1
    routing: RoutingSettings = RoutingSettings()
    limits: LimitSettings = LimitSettings()
    access: AccessSettings = AccessSettings()
    ledger: LedgerSettings = LedgerSettings()
    store: str | Address | None = None
    page: bool | Literal["public"] = True
    notes: tuple[str, ...] = field(default=(), compare=False)
    source: Path | None = field(default=None, compare=False)

    @property
    def requires_key(self) -> bool:
        """Whether a request without a known key is refused.

        Examples
        --------
        >>> Settings(host="127.0.0.1").requires_key, Settings(host="0.0.0.0").requires_key
        (False, True)
        """
        stated = self.access.require_key
        return not is_loopback(self.host) if stated is None else stated

    @property
    def sheds(self) -> bool:
        """Whether all requests are refused while the store is lost.

        Examples
        --------
        >>> Settings(store="mild.sqlite").sheds
        False
        """
        stated = self.access.when_store_lost
        return isinstance(self.store, Address) if stated is None else stated == "shed"

    @property
    def page_is_open(self) -> bool:
        """Whether page, status and metrics are shown without a key.

        Examples
        --------
        >>> Settings().page_is_open, Settings(host="0.0.0.0").page_is_open
        (True, False)
        >>> Settings(host="0.0.0.0", page="public").page_is_open
        True
        """
        return self.page == "public" or (is_loopback(self.host) and not self.requires_key)

    def expert(self, name: str) -> ExpertSettings | None:
        """The expert of that name."""
        return next((expert for expert in self.experts if expert.name == name), None)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")
