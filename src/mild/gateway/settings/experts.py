"""The tables ``[experts.NAME]``: one endpoint each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from mild.endpoints.toml import Checker
from mild.gateway.settings.kinds import BreakerSettings, ExpertSettings
from mild.gateway.settings.secrets import (
    Secret,
    SecretError,
    secret_from_environment,
    secret_from_file,
)

__all__ = ["check_name", "expert_of", "header_problem", "is_secret_header", "url_problem"]

Place = tuple[str, ...]

_NAME = re.compile(r"[^\W_][\w.:/@+ -]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_KEYS = (
    "base_url",
    "model",
    "api_key_env",
    "api_key_file",
    "api_key_header",
    "headers",
    "price_in",
    "price_out",
    "price_per_query",
    "max_tokens",
    "max_in_flight",
    "requests_per_minute",
    "connect_seconds",
    "first_byte_seconds",
    "idle_seconds",
    "total_seconds",
    "retries",
    "stream_usage",
    "breaker",
)
# Carried by settings of their own, or by the protocol itself.
_SECRET_HEADERS = ("authorization", "api-key", "x-api-key", "proxy-authorization", "cookie")
_OWN_HEADERS = ("host", "content-length", "content-type", "transfer-encoding", "connection")


def expert_of(
    checker: Checker,
    name: str,
    folder: Path,
    environment: Mapping[str, str],
    known: ExpertSettings | None = None,
) -> ExpertSettings:
    """Read one table; ``known`` gives what the table leaves out."""
    place = ("experts", name)
    check_name(checker, place, name)
    table = checker.table(place)
    if "api_key" in table:
        checker.fail(
            (*place, "api_key"),
            "must not stand in this file; name an environment variable, "
            'api_key_env = "NAME", or a file with mode 0600, api_key_file = "PATH"',
        )
    checker.refuse_unknown(place, _KEYS)
    base = known or ExpertSettings(name, "", "")
    model = checker.text((*place, "model"), base.model)
    if not model:
        checker.fail(place, 'must have a model: the name that the endpoint knows, model = "NAME"')
    header = checker.text((*place, "api_key_header"), base.secret_header)
    if not _HEADER.fullmatch(header):
        checker.fail((*place, "api_key_header"), "must be the name of a header")
    return ExpertSettings(
        name=name,
        base_url=_base_url(checker, (*place, "base_url"), base.base_url),
        model=model,
        secret=_secret(checker, place, folder, environment) or base.secret,
        secret_header=header,
        headers=_headers(checker, (*place, "headers"), base.headers),
        place=checker.place(place),
        **_numbers(checker, place, base),
    )


def check_name(checker: Checker, place: Place, name: str) -> None:
    """Refuse names that no client could ask for."""
    if not _NAME.fullmatch(name) or name != name.strip():
        checker.fail(place, "must have a name of letters, digits and . : / @ + - (up to 100)")
    if name == "mild" or name.startswith("router-mild-"):
        checker.fail(place, "must have another name: this one asks the router to choose")


def url_problem(url: str) -> str | None:
    """Why a base address cannot be used; it is not quoted, because a secret may stand in it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    plain = url.isascii() and url.isprintable() and " " not in url
    if not plain or not host or parts.scheme not in ("http", "https") or port == 0:
        return "must be an address such as https://api.example.com/v1"
    if parts.username or parts.password or parts.query or parts.fragment:
        return "must hold no user, password, query or fragment; name a key by api_key_env"
    if parts.path.rstrip("/").endswith("/completions"):
        return "must end before /chat/completions, as in https://api.example.com/v1"
    return None


def header_problem(name: str, value: object) -> str | None:
    """Why a header cannot be sent."""
    if not _HEADER.fullmatch(name):
        return "must be the name of a header"
    if name.lower() in _OWN_HEADERS:
        return "is set by the gateway itself"
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        return "must be plain text"
    return None


def is_secret_header(name: str) -> bool:
    """Whether a header carries a key."""
    return name.lower() in _SECRET_HEADERS


def _base_url(checker: Checker, place: Place, default: str) -> str:
    url = checker.text(place, default)
    if not url:
        checker.fail(place[:-1], 'must have an address: base_url = "https://api.example.com/v1"')
    if problem := url_problem(url):
        checker.fail(place, problem)
    return url.rstrip("/")


def _secret(
    checker: Checker, place: Place, folder: Path, environment: Mapping[str, str]
) -> Secret | None:
    variable = checker.text((*place, "api_key_env"), None)
    file = checker.text((*place, "api_key_file"), None)
    if variable is not None and file is not None:
        checker.fail((*place, "api_key_file"), "must not stand beside api_key_env: which is it?")
    if variable is not None and not _VARIABLE.fullmatch(variable):
        # Not quoted: people paste the key itself here.
        checker.fail(
            (*place, "api_key_env"),
            "must be the name of an environment variable, not the key itself",
        )
    key = "api_key_env" if variable is not None else "api_key_file"
    try:
        if variable is not None:
            return secret_from_environment(variable, environment)
        if file is not None:
            return secret_from_file(folder / Path(file).expanduser())
    except SecretError as problem:
        checker.fail((*place, key), str(problem))
    return None


def _headers(checker: Checker, place: Place, default: Mapping[str, str]) -> Mapping[str, str]:
    headers = dict(default)
    for name, value in checker.table(place).items():
        if problem := header_problem(name, value):
            checker.fail((*place, name), problem)
        if is_secret_header(name):
            checker.fail(
                (*place, name),
                f'must not stand in this file; use api_key_env with api_key_header = "{name}"',
            )
        headers[name] = value
    return MappingProxyType(headers)


def _numbers(checker: Checker, place: Place, base: ExpertSettings) -> dict[str, Any]:
    seconds = {
        key: checker.number((*place, key), getattr(base, key), above_zero=True)
        for key in ("connect_seconds", "first_byte_seconds", "idle_seconds", "total_seconds")
    }
    prices = {
        key: checker.number((*place, key), getattr(base, key))
        for key in ("price_in", "price_out", "price_per_query")
    }
    return {
        **seconds,
        **prices,
        "max_tokens": checker.whole((*place, "max_tokens"), base.max_tokens, least=1),
        "max_in_flight": checker.whole((*place, "max_in_flight"), base.max_in_flight, least=1),
        "requests_per_minute": checker.number(
            (*place, "requests_per_minute"), base.requests_per_minute, above_zero=True
        ),
        "retries": checker.whole((*place, "retries"), base.retries, least=0, most=10),
        "stream_usage": checker.flag((*place, "stream_usage"), base.stream_usage),
        "breaker": _breaker(checker, (*place, "breaker"), base.breaker),
    }


def _breaker(checker: Checker, place: Place, base: BreakerSettings) -> BreakerSettings:
    checker.refuse_unknown(place, ("failures", "window_seconds", "open_seconds"))
    return BreakerSettings(
        failures=checker.whole((*place, "failures"), base.failures, least=1),
        window_seconds=checker.number(
            (*place, "window_seconds"), base.window_seconds, above_zero=True
        ),
        open_seconds=checker.number((*place, "open_seconds"), base.open_seconds, above_zero=True),
    )
