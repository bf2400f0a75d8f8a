"""The file that names the experts: TOML, checked key by key, with lines in the messages.

::

    [experts.small]
    base_url = "http://127.0.0.1:8080/v1"
    model = "small-model"
    api_key_env = "SMALL_KEY"      # the name of a variable; the key itself is never in the file
    price_in = 0.15                # dollars per million tokens
    price_out = 0.60

    [experts.rules]
    command = "python rules.py"    # reads the query on stdin, answers on stdout
    price_per_query = 0.0001

    [prompts]                      # optional
    numeric = "{query} End with the number."
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mild.endpoints.kinds import CommandExpert, Expert, HttpExpert
from mild.endpoints.prices import Price
from mild.endpoints.prompts import PLACEHOLDERS, PROMPTS
from mild.endpoints.toml import Checker, read_toml
from mild.errors import OptionError

__all__ = ["ExpertFile", "choose_experts", "read_experts"]

# Larger files of a command are not looked into.
SMALL_FILE = 10_000_000

_NAME = re.compile(r"[^\W_][\w.:/@+ -]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SHARED = (
    "price_in",
    "price_out",
    "price_per_query",
    "concurrency",
    "requests_per_minute",
    "timeout_s",
    "retries",
    "backoff_s",
)
_HTTP = (
    "base_url",
    "model",
    "api_key_env",
    "api_key_header",
    "system",
    "max_tokens",
    "max_tokens_field",
    "temperature",
    "extra",
    "tokens_per_minute",
    "connect_timeout_s",
    "max_wait_s",
)
_BODY_FIELDS = ("model", "messages", "temperature", "stream", "n", "max_tokens")
_SECRET_WORDS = ("key", "token", "secret", "password", "authorization")


@dataclass(frozen=True)
class ExpertFile:
    """Experts in the order of the file, the prompts they share, and the secrets not to be shown."""

    experts: list[Expert]
    prompts: Mapping[str, str]
    secrets: Mapping[str, str] = field(repr=False)


def read_experts(
    path: str | os.PathLike[str],
    environment: Mapping[str, str] = os.environ,
    need_secrets: bool = True,
) -> ExpertFile:
    """Read the experts from a TOML file, their secrets from the environment.

    Without ``need_secrets`` no secret is looked up: enough to plan, not to ask.

    Raises
    ------
    DataFileError : one sentence with the line; it never shows a secret.
    """
    checker = read_toml(Path(path))
    checker.refuse_unknown((), ("experts", "prompts"))
    tables = checker.table(("experts",))
    if not tables:
        checker.fail(("experts",), "must name at least one expert: [experts.NAME]; got none")
    experts = [_expert(checker, name) for name in tables]
    _refuse_twins(checker, experts)
    prompts = _prompts(checker)
    secrets = {
        expert.name: _secret(checker, expert, environment)
        for expert in experts
        if need_secrets and isinstance(expert, HttpExpert) and expert.api_key_env is not None
    }
    return ExpertFile(experts, prompts, secrets)


def choose_experts(file: ExpertFile, names: str | None) -> list[Expert]:
    """Experts with these comma-separated names, in their order; all for None."""
    if names is None:
        return file.experts
    known = {expert.name: expert for expert in file.experts}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        got = unknown[0] if unknown else names
        raise OptionError(f"experts must be among {', '.join(known)}; got {got!r}.")
    return [known[name] for name in dict.fromkeys(wanted)]


def _expert(checker: Checker, name: str) -> Expert:
    place = ("experts", name)
    if not _NAME.fullmatch(name):
        checker.fail(place, "must have a name of letters, digits and . : / @ + - (up to 100)")
    table = checker.table(place)
    if "api_key" in table:
        checker.fail(
            (*place, "api_key"),
            "must not stand in a file; put the key into an environment variable and name that: "
            'api_key_env = "NAME"',
        )
    if ("command" in table) == ("base_url" in table):
        checker.fail(place, "must have either base_url and model, or command")
    if "command" in table:
        checker.refuse_unknown(place, (*_SHARED, "command"), elsewhere=_HTTP)
        command = _command(checker, place)
        files = tuple(_digest(word) for word in command if _is_small_file(word))
        return CommandExpert(name=name, command=command, files=files, **_shared(checker, place))
    checker.refuse_unknown(place, (*_SHARED, *_HTTP), elsewhere=("command",))
    return _endpoint(checker, name, place)


def _shared(checker: Checker, place: tuple[str, ...]) -> dict[str, Any]:
    return {
        "price": Price(
            checker.number((*place, "price_in"), None),
            checker.number((*place, "price_out"), None),
            checker.number((*place, "price_per_query"), None),
        ),
        "concurrency": checker.whole((*place, "concurrency"), Expert.concurrency, least=1),
        "requests_per_minute": checker.number(
            (*place, "requests_per_minute"), None, above_zero=True
        ),
        "timeout_s": checker.number((*place, "timeout_s"), Expert.timeout_s, above_zero=True),
        "retries": checker.whole((*place, "retries"), Expert.retries, least=0),
        "backoff_s": checker.number((*place, "backoff_s"), Expert.backoff_s),
    }


def _endpoint(checker: Checker, name: str, place: tuple[str, ...]) -> HttpExpert:
    model = checker.text((*place, "model"), None)
    if not model:
        checker.fail(place, "must have a model")
    header = checker.text((*place, "api_key_header"), HttpExpert.api_key_header)
    if not re.fullmatch(r"[A-Za-z0-9-]+", header):
        checker.fail((*place, "api_key_header"), "must be the name of a header")
    extra = checker.table((*place, "extra"))
    limit_field = checker.text((*place, "max_tokens_field"), HttpExpert.max_tokens_field)
    for key in extra:
        if key in _BODY_FIELDS or key == limit_field:
            checker.fail(
                (*place, "extra", key), "must not be set in extra: it is a setting of its own"
            )
        if any(word == key.lower() or key.lower().endswith(f"_{word}") for word in _SECRET_WORDS):
            checker.fail((*place, "extra", key), "must not be a secret; use api_key_env")
    try:
        json.dumps(extra)
    except TypeError:
        checker.fail((*place, "extra"), "must hold what JSON can say: no dates, no times")
    return HttpExpert(
        name=name,
        base_url=_base_url(checker, (*place, "base_url")),
        model=model,
        api_key_env=_variable(checker, (*place, "api_key_env")),
        api_key_header=header,
        system=checker.text((*place, "system"), None),
        max_tokens=checker.whole((*place, "max_tokens"), HttpExpert.max_tokens, least=1),
        max_tokens_field=limit_field,
        temperature=checker.number((*place, "temperature"), None),
        extra=extra,
        tokens_per_minute=checker.number((*place, "tokens_per_minute"), None, above_zero=True),
        connect_timeout_s=checker.number(
            (*place, "connect_timeout_s"), HttpExpert.connect_timeout_s, above_zero=True
        ),
        max_wait_s=checker.number((*place, "max_wait_s"), Expert.max_wait_s, above_zero=True),
        **_shared(checker, place),
    )


def _base_url(checker: Checker, place: tuple[str, ...]) -> str:
    from urllib.parse import urlsplit

    url = checker.text(place, None) or ""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https") or port == 0:
        # Not quoted: a secret may stand in it.
        checker.fail(place, "must be an address such as https://api.example.com/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        checker.fail(
            place, "must hold no user, password, query or fragment; name a key by api_key_env"
        )
    return url


def _variable(checker: Checker, place: tuple[str, ...]) -> str | None:
    name = checker.text(place, None)
    if name is not None and not _VARIABLE.fullmatch(name):
        # Not quoted: people paste the key itself here.
        checker.fail(place, "must be the name of an environment variable, not the key itself")
    return name


def _secret(checker: Checker, expert: HttpExpert, environment: Mapping[str, str]) -> str:
    place = ("experts", expert.name, "api_key_env")
    value = environment.get(expert.api_key_env or "", "").strip()
    if not value:
        checker.fail(place, "names an environment variable that is not set; export it first")
    if not value.isascii() or not value.isprintable():
        checker.fail(place, "names a variable whose value no header can hold: plain text only")
    return value


def _command(checker: Checker, place: tuple[str, ...]) -> tuple[str, ...]:
    place = (*place, "command")
    value = checker.value(place)
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        checker.fail(place, 'must be a command, "python rules.py", or a list of its words')
    return tuple(words)


def _refuse_twins(checker: Checker, experts: list[Expert]) -> None:
    """Two names for the same requests would share their answers, or pay for them twice."""
    seen: dict[str, str] = {}
    for expert in experts:
        asks = json.dumps(expert.request(""), sort_keys=True)
        if asks in seen:
            checker.fail(
                ("experts", expert.name),
                f"must not ask the same as {seen[asks]!r}; remove one, or set extra.seed",
            )
        seen[asks] = expert.name


def _is_small_file(word: str) -> bool:
    try:
        return os.path.isfile(word) and os.path.getsize(word) <= SMALL_FILE
    except (OSError, ValueError):
        return False


def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _prompts(checker: Checker) -> dict[str, str]:
    checker.refuse_unknown(("prompts",), tuple(PROMPTS))
    prompts = dict(PROMPTS)
    for kind in checker.table(("prompts",)):
        prompts[kind] = template = checker.text(("prompts", kind), "")
        for name in PLACEHOLDERS[kind]:
            if name not in template:
                checker.fail(("prompts", kind), f"must hold {name}")
    return prompts
