"""The gateway's configuration, ``mild.toml``.

The docstrings of the settings are their documentation: docs/reference/config.md is made of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, IPvAnyNetwork, PlainValidator, ValidationInfo
from pydantic.dataclasses import dataclass

from mild_gateway.database.address import Address, AddressError, is_address, read_address
from mild_gateway.experts.config import read_expert
from mild_gateway.experts.config_file import (
    CONFIG,
    Amount,
    ConfigFile,
    Flag,
    Positive,
    Rule,
    Text,
    line_of,
    problem,
    read_toml,
    whole,
)
from mild_gateway.experts.expert import CONNECT_SECONDS, Expert, is_loopback
from mild_gateway.experts.secrets import (
    SecretError,
    check_safe_file,
    secret_from_environment,
    secret_from_file,
)

if TYPE_CHECKING:
    from mild_gateway.decide import Target

_ADDRESS = re.compile(r"[!-~]+")
_URL = re.compile(r"https?://[!-~]+")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+")
# Files that are not named are in the folder of the configuration.
STORE = "mild.sqlite"
LEDGER = "ledger.sqlite"


def _in_folder(value: object, info: ValidationInfo) -> object:
    """Paths of a file are relative to its folder."""
    if not isinstance(value, str | Path) or not value:
        problem("must be a path in quotes")
    if info.context is None:
        return value
    return info.context / Path(value).expanduser()


def _or(word: str, rule: str, holds: Callable[[Any], bool]) -> PlainValidator:
    """A validator of a word, and of other values."""

    def check(value: object) -> object:
        if value != word and not holds(value):
            problem(f'must be {rule} or "{word}"; got {value}')
        return value

    return PlainValidator(check)


def _flag_or(word: str) -> PlainValidator:
    return _or(word, "true, false", lambda x: isinstance(x, bool))


_share_or_auto = _or(
    "auto", "a share from 0 to 1,", lambda x: type(x) in (int, float) and 0 <= x <= 1
)
_File = Annotated[Path, BeforeValidator(_in_folder)]
_Share = Annotated[float, Rule("must be a share from 0 to 1", lambda x: 0 <= x <= 1)]
_ShareBelowOne = Annotated[float, Rule("must be a share above 0 and below 1", lambda x: 0 < x < 1)]
_Probability = Annotated[float, Rule("must be at least 0.5 and below 1", lambda x: 0.5 <= x < 1)]


@dataclass(frozen=True, config=CONFIG)
class TargetSettings:
    """What the router's choices should reach on the held-out rows of its training; of several, all."""

    keep_quality: Positive | None = None
    """Share of the best single expert's quality that is kept, at the lowest price; 0.95 keeps 95
    %.
    """
    max_quality_loss: _Share | None = None
    """Largest loss of quality against the best single expert, in units of the score."""
    max_dollars: Amount | None = None
    """Most dollars per 1,000 requests, with the best quality."""
    target_probability: _Probability = 0.8
    """Probability with which the target is to hold on new requests, an estimate: with 0.5 it is expected
    to, and with more a safety margin makes it more certain.
    """

    @property
    def target(self) -> Target:
        """The same as a target of the router."""
        from mild_gateway.decide import Target  # commands that route nothing need no NumPy

        return Target(**asdict(self))


@dataclass(frozen=True, config=CONFIG)
class RoutingSettings:
    """How an expert is chosen."""

    price_weight: Amount | None = None
    """Weight of the price against the error. Without it, the router's own trade-off is used."""
    explore: Annotated[float | Literal["auto"], _share_or_auto] = 0.0
    """Share of requests whose expert is drawn at random, for `mild replay` and `mild learn`. With
    `"auto"`, requests about which the router is less sure are drawn more often.
    """
    text: Literal["last", "all"] = "last"
    """What the router reads: the last user message, or all messages."""
    pin_sessions: Annotated[bool | Literal["soft"], _flag_or("soft")] = True
    """Whether a conversation stays with its expert. `"soft"`: unless another expert is cheaper
    even without the prompt cache.
    """
    max_attempts: Annotated[int, whole(1, 20)] = 3
    """Attempts per request, over all experts. With 1, no other expert is asked if the chosen one
    fails.
    """
    session_from_content: Flag = False
    """Whether a chat without a session id is recognised by its system prompt and first user
    message.
    """
    on_novel: str | None = None
    """Name of the expert for requests that are far from the training data. Without it, the router
    chooses.
    """
    target: TargetSettings | None = None
    """What the router's choices should reach, instead of `price_weight`; at least one of the
    settings of `[routing.target]`.
    """
    explore_max: _ShareBelowOne = 0.2
    """With `explore = "auto"`, the largest share of the requests that is explored. More than 2 % is
    explored only while that takes at most this share of the expected dollars, too.
    """


@dataclass(frozen=True, config=CONFIG)
class CascadeSettings:
    """How a cascade is served, where the router is one."""

    stream: Literal["accepted", "direct"] = "accepted"
    """How streamed requests are served: when an answer is accepted, or directly by one expert."""
    deadline_seconds: Positive | None = None
    """After this time the best answer so far is given."""


@dataclass(frozen=True, config=CONFIG)
class LimitSettings:
    """What a client may send, and how long it may take; how much is served at a time."""

    max_body_bytes: Annotated[int, whole(1024)] = 10_000_000
    """Longest body of a request; a longer one is answered with 413."""
    body_seconds: Positive = 60.0
    """Time for the body of a request; a slower one is answered with 408."""
    max_in_flight: Annotated[int, whole(1)] = 1000
    """Requests that each worker serves at a time; further ones are answered with 429. One key may
    have half of them, unless there is only one key.
    """
    total_seconds: Positive | None = None
    """Longest time of a request with all its attempts. Without it, the sum of the experts' limits.
    """
    drain_seconds: Amount = 30.0
    """Time that running requests have to finish after SIGTERM, with which the port is closed."""


@dataclass(frozen=True, config=CONFIG)
class AccessSettings:
    """Who may ask, how often, and for how much."""

    require_key: Flag | None = None
    """Whether requests need a key. Without it, they do unless the gateway listens on loopback. With true,
    requests from this machine have no privileges.
    """
    budget_day: Amount | None = None
    """Dollars that all keys together may spend per UTC day."""
    budget_month: Amount | None = None
    """Dollars that all keys together may spend per UTC month."""
    requests_per_minute: Annotated[int, whole(1)] | None = None
    """Limit for each key that has no limit of its own."""


@dataclass(frozen=True, config=CONFIG)
class LedgerSettings:
    """Where decisions are written, and what is kept."""

    other_keys: ClassVar = {"enabled": "Whether there is a ledger; by default there is."}
    path: Path | Address | None = None
    """The SQLite file. Without it, `ledger.sqlite` in the folder of the configuration, or the
    PostgreSQL database of the store.
    """
    keep_text: Flag = False
    """Whether the text of requests is stored."""
    keep_days: Positive = 30.0
    """Days after which rows are deleted."""
    max_bytes: Annotated[int, whole(1_000_000)] = 1_000_000_000
    """Largest size of the ledger. Beyond it, the oldest rows of the key that holds most are deleted."""
    keep_features: Flag = False
    """Whether the router's features of the text are stored, from which `mild learn` works without
    the text.
    """


_RUBRIC = """\
Grade an answer.

{query}

{answer}

1 is for an answer that is correct and does all that was asked. 0 is for one that is wrong, or does not \
answer. Numbers between are for answers that are right in part. Judge what the answer says, not its length \
or style."""
_Rubric = Annotated[
    str, Rule("must hold {query} and {answer}", lambda x: "{query}" in x and "{answer}" in x)
]


@dataclass(frozen=True, config=CONFIG)
class GradingSettings:
    """How answers are graded, how many, and what that may cost."""

    method: Literal["exact", "rubric"]
    """`"rubric"`: another expert scores the answer; `"exact"`: the right answers are in a file."""
    share: _Share = 0.05
    """Share of the answers that is graded, of those whose expert the router chose. Of those whose
    expert was drawn by exploration, all are.
    """
    expert: Text | None = None
    """For `"rubric"`, the name of the expert that scores. It never grades its own answers."""
    budget_day: Amount = 1.0
    """Dollars for grading per UTC day, over all workers: part of the budget of all keys, not of one key."""
    rubric: _Rubric = _RUBRIC
    """What that expert is asked. Without it, whether the answer is correct and complete."""
    references: _File | None = None
    """For `"exact"`, the file with the right answers: a column `query` (or `prompt`, `question`)
    and a column `answer` (or `target`, `gold`).
    """


_Url = Annotated[str, Rule("must be an address such as http://127.0.0.1:4318/path", _URL.fullmatch)]


@dataclass(frozen=True, config=CONFIG)
class TracingSettings:
    """Where OpenTelemetry spans are sent. It needs `pip install "mild-gateway[otel]"`."""

    endpoint: _Url | None = None
    """Address that takes OTLP over HTTP. Without it, spans are sent if the variables of OpenTelemetry ask
    for them, such as `OTEL_EXPORTER_OTLP_ENDPOINT`. `OTEL_TRACES_SAMPLER` says how many, and
    `OTEL_SDK_DISABLED` stops them.
    """


_Origin = Annotated[
    str, Rule('must be an origin such as "https://app.example.com"; "*" is not', _ORIGIN.fullmatch)
]
_Network = Annotated[IPvAnyNetwork, Rule('must be an address or a network such as "10.0.0.0/8"')]


@dataclass(frozen=True, config=CONFIG)
class ServerSettings:
    """How clients reach the gateway."""

    cors_origins: tuple[_Origin, ...] = ()
    """Origins whose web pages may use the gateway."""
    trusted_proxies: tuple[_Network, ...] = ()
    """Addresses or networks of proxies whose `X-Forwarded-For` names the client."""
    tls_certificate: _File | None = None
    """Certificate for HTTPS; also `--tls-certificate`. It needs `tls_key`."""
    tls_key: _File | None = None
    """Key of the certificate, without a passphrase; also `--tls-key`."""
    log_format: Literal["text", "json"] = "text"
    """Format of log lines; `"json"` for one object per line; also `--log-format`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level of log lines; also `--log-level`."""


@dataclass(frozen=True, config=CONFIG)
class Settings:
    """Everything that the gateway is told.

    Without a ``store`` there are no keys, and budgets last until the end. ``source`` is the file,
    ``lines`` where its keys stand in it. With ``cascade_by_name``, as in the demo, only the model
    ``mild-cascade`` asks the router's cascade.
    """

    internal: ClassVar = ("source", "lines", "cascade_by_name")
    other_keys: ClassVar = {
        "store_file": "File with mode 0600 that holds the address of the store, in place of `store`.",
    }
    experts: tuple[Expert, ...] = ()
    """The experts, one table each."""
    router: _File | None = None
    """Folder of the router; also the argument of `mild serve`."""
    host: Annotated[
        str, Rule("must be an address such as 127.0.0.1, or 0.0.0.0 for all", _ADDRESS.fullmatch)
    ] = "127.0.0.1"
    """Address on which the gateway listens; `0.0.0.0` for all interfaces. Except on loopback, keys
    are then required by default.
    """
    port: Annotated[int, whole(0, 65535)] = 6060
    """Port on which the gateway listens."""
    workers: Annotated[int, whole(1, 256)] = 1
    """Processes that serve. They share keys, budgets, rates, sessions and the ledger; requests in
    flight and the capacity of experts are counted by each of them.
    """
    routing: RoutingSettings = RoutingSettings()
    """How an expert is chosen."""
    cascade: CascadeSettings = CascadeSettings()
    """How a cascade is served."""
    limits: LimitSettings = LimitSettings()
    """Limits of requests and of load."""
    server: ServerSettings = ServerSettings()
    """How clients reach the gateway."""
    access: AccessSettings = AccessSettings()
    """Keys, budgets and rate limits."""
    ledger: LedgerSettings = LedgerSettings()
    """Where decisions are written."""
    tracing: TracingSettings = TracingSettings()
    """OpenTelemetry."""
    grading: GradingSettings | None = None
    """Scores of a random share of the answers; without this table, none."""
    store: str | Address | None = None
    """Where keys and budgets are kept: the path of an SQLite file, which is created with mode
    0600, `postgresql://...` for several machines, or `env:NAME` for the variable that holds such
    an address. Without it, `mild.sqlite` in the folder of the configuration.
    """
    page: Annotated[bool | Literal["public"], _flag_or("public")] = True
    """Whether the dashboard is served at `/`. On loopback without keys, everyone on this machine sees
    its figures; elsewhere it asks for an admin key. `"public"` opens dashboard and metrics to everyone
    who can reach the gateway.
    """
    source: Path | None = None
    cascade_by_name: bool = False
    lines: dict[tuple[str, ...], int] = field(default_factory=dict, compare=False, repr=False)

    def key_with_line(self, *key: str) -> str:
        """A key with the file and the line where it stands, to begin a message with."""
        name = ".".join(key)
        line = line_of(self.lines, key)
        if line is None:
            return name
        return f"{self.source}, line {line}: {name}"

    @property
    def folder(self) -> Path | None:
        """The folder of the file; None for settings that come from no file."""
        if self.source is None:
            return None
        return self.source.parent

    @property
    def url(self) -> str:
        """Where the gateway listens."""
        host = self.host
        if ":" in host:
            host = f"[{host}]"
        scheme = "https"
        if self.server.tls_certificate is None:
            scheme = "http"
        return f"{scheme}://{host}:{self.port}"

    @property
    def requires_key(self) -> bool:
        """Whether a request without a known key is refused.

        >>> Settings(host="127.0.0.1").requires_key, Settings(host="0.0.0.0").requires_key
        (False, True)
        """
        if self.access.require_key is not None:
            return self.access.require_key
        return not is_loopback(self.host)

    @cached_property
    def longest_request(self) -> float:
        """Seconds that a request may take: attempts that fail before the first byte, then a whole one.

        >>> Settings(experts=(Expert("small", "http://x/v1", "m"),)).longest_request
        730.0
        """
        if self.limits.total_seconds is not None:
            return self.limits.total_seconds
        if not self.experts:
            return 600.0 + (self.routing.max_attempts - 1) * CONNECT_SECONDS
        total_seconds = max(expert.total_seconds for expert in self.experts)
        first_byte = max(expert.first_byte_seconds for expert in self.experts)
        return total_seconds + (self.routing.max_attempts - 1) * (CONNECT_SECONDS + first_byte)

    def expert(self, name: str) -> Expert | None:
        """The expert of that name."""
        for expert in self.experts:
            if expert.name == name:
                return expert
        return None


def read_settings(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> Settings:
    """Read the configuration with its secrets from a TOML file.

    Paths in it are relative to its folder. DataFileError has a sentence for every problem, with file,
    line and key; it never shows a secret.
    """
    config = read_toml(Path(path))
    data: dict[str, Any] = dict(config.content)
    for key in data.keys() & Settings.internal:
        config.add((key,), "is unknown")
    experts = _experts(config, data.pop("experts", {}), environment)
    _check_tls_pair(config)
    store = _store_location(config, environment)
    ledger = _ledger_table(config, store)
    data.pop("store_file", None)
    data |= {
        "experts": experts,
        "store": store,
        "ledger": ledger,
        "source": config.path,
        "lines": config.lines,
    }
    settings = config.validate(Settings, data)
    if settings is not None:
        _check_target(config, settings.routing)
    config.check()
    assert settings is not None
    return settings


def read_store(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> str | Address:
    """The store that a file names; no other secret is needed for that."""
    config = read_toml(Path(path))
    store = _store_location(config, environment)
    config.check()
    return store


def read_ledger_location(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> Path | Address | None:
    """The ledger that a file names; None if none is written."""
    config = read_toml(Path(path))
    ledger = config.validate(
        LedgerSettings, _ledger_table(config, _store_location(config, environment)), ("ledger",)
    )
    config.check()
    assert ledger is not None
    return ledger.path


def _path_in(config: ConfigFile, path: str) -> Path:
    """A path in the folder of a file."""
    return config.path.resolve().parent / Path(path).expanduser()


def _experts(config: ConfigFile, tables: Any, environment: Mapping[str, str]) -> tuple[Expert, ...]:
    """The experts of the file, in its order."""
    if not isinstance(tables, dict):
        config.fail(("experts",), "must be a table")
    experts = []
    for name in tables:
        location = ("experts", name)
        if name in ("mild", "mild-direct") or name.startswith("router-mild-"):
            config.add(location, "must have another name: this one makes the router choose")
        expert = read_expert(config, location, name, environment)
        if expert is not None:
            experts.append(expert)
    if not experts and not config.problems:
        config.add(("experts",), "must name at least one expert: [experts.NAME]; got none")
    return tuple(experts)


def _check_target(config: ConfigFile, routing: RoutingSettings) -> None:
    """Refuse a target without a key, and one beside a price weight."""
    if routing.target is None:
        return
    if routing.price_weight is not None:
        rule = "must not be given together with price_weight: both set the trade-off"
        config.add(("routing", "target"), rule)
    if not routing.target.target.limits_by_name:
        known = ", ".join(name for name in asdict(routing.target) if name != "target_probability")
        config.add(("routing", "target"), f"must have at least one of {known}")


def _store_location(config: ConfigFile, environment: Mapping[str, str]) -> str | Address:
    """The store that a file names: in ``store``, in a variable, or in a file of its own."""
    key = "store"
    if "store_file" in config.content:
        key = "store_file"
        if "store" in config.content:
            rule = "must not be given together with store: both name the store"
            config.add(("store_file",), rule)
    value = config.content.get(key, STORE)
    if not isinstance(value, str) or not value:
        if key == "store":
            config.add((key,), "must be the path of an SQLite file or postgresql://...")
        else:
            config.add((key,), "must be text in quotes")
        return STORE
    try:
        if key == "store_file":
            return read_address(secret_from_file(_path_in(config, value)).value)
        return _named_store(config, value, environment)
    except (AddressError, SecretError) as error:
        # Not quoted: an address may hold a password.
        config.add((key,), str(error))
        return STORE


def _named_store(config: ConfigFile, value: str, environment: Mapping[str, str]) -> str | Address:
    """The store that ``store`` names: a variable, an address, or the path of a file."""
    if value.startswith("env:"):
        secret = secret_from_environment(value.removeprefix("env:"), environment)
        return read_address(secret.value)
    if not is_address(value):
        return str(_path_in(config, value))
    address = read_address(value)
    if address.has_password:
        check_safe_file(
            config.path.stat(),
            "holds a password, so only its owner may have access to the file",
        )
    return address


def _check_tls_pair(config: ConfigFile) -> None:
    """Refuse a certificate without its key, and a key without its certificate."""
    table = config.content.get("server")
    if not isinstance(table, dict):
        return
    keys = {"tls_certificate", "tls_key"} & set(table)
    if len(keys) == 1:
        rule = "must be given together with the other: tls_certificate and tls_key are both needed"
        config.add(("server", *keys), rule)


def _ledger_table(config: ConfigFile, store: str | Address) -> Any:
    """The table ``[ledger]`` with the path where rows are written, None for nowhere."""
    table = config.content.get("ledger", {})
    if not isinstance(table, dict):
        return table
    table = dict(table)
    enabled = table.pop("enabled", True)
    path = table.pop("path", None)
    if not isinstance(enabled, bool):
        config.add(("ledger", "enabled"), "must be true or false")
    if path is not None and (not isinstance(path, str) or not path or is_address(path)):
        config.add(
            ("ledger", "path"),
            "must be a path. For no ledger, set enabled = false; for a ledger in the store's PostgreSQL "
            "database, leave path out",
        )
        path = LEDGER
    location: Path | Address
    if path is None and isinstance(store, Address):
        location = store
    else:
        location = _path_in(config, path or LEDGER)
        if str(location) == store:
            config.add(("ledger", "path"), "must be another file than that of the store")
    table["path"] = None
    if enabled:
        table["path"] = location
    return table
