"""``mild.toml``, or LiteLLM's ``config.yaml``, as settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

from mild.endpoints.toml import Checker, read_toml
from mild.gateway.database.address import Address, is_address
from mild.gateway.settings.experts import expert_of
from mild.gateway.settings.kinds import (
    AccessSettings,
    ExpertSettings,
    LedgerSettings,
    LimitSettings,
    RoutingSettings,
    Settings,
)
from mild.gateway.settings.places import DEFAULT_STORE as _STORE
from mild.gateway.settings.places import read_store_of

__all__ = ["read_ledger_place", "read_settings", "read_store"]

_KEYS = (
    "router",
    "host",
    "port",
    "workers",
    "store",
    "store_env",
    "store_file",
    "page",
    "litellm",
    "experts",
    "routing",
    "limits",
    "access",
    "ledger",
)
# What is not said stands beside the file.
_LEDGER = "ledger.sqlite"


def read_settings(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> Settings:
    """Read what a gateway is told, with its secrets.

    Parameters
    ----------
    path : a TOML file, or a file of LiteLLM's, which ends with .yaml or .yml. Paths in it are
        relative to its folder.
    environment : where variables are looked up

    Raises
    ------
    DataFileError : one sentence with file, line and key; it never shows a secret
    """
    file = Path(path)
    folder = file.resolve().parent
    if file.suffix.lower() in (".yaml", ".yml"):
        found, notes = _litellm(file, environment)
        return Settings(
            experts=found,
            store=str(folder / _STORE),
            ledger=LedgerSettings(folder / _LEDGER),
            notes=notes,
            source=file,
        )
    checker = read_toml(file)
    checker.refuse_unknown((), _KEYS)
    experts, notes = _experts(checker, folder, environment)
    settings = Settings()
    host = checker.text(("host",), settings.host)
    if not host or not host.isascii() or not host.isprintable() or " " in host:
        checker.fail(("host",), "must be an address such as 127.0.0.1, or 0.0.0.0 for all")
    router = checker.text(("router",), None)
    store = read_store_of(checker, file, environment)
    return Settings(
        experts=experts,
        router=None if router is None else folder / Path(router).expanduser(),
        host=host,
        port=checker.whole(("port",), settings.port, least=0, most=65535),
        workers=checker.whole(("workers",), settings.workers, least=1, most=256),
        routing=_routing(checker),
        limits=_limits(checker),
        access=_access(checker),
        ledger=_ledger(checker, folder, store),
        store=store,
        page=_page(checker, settings.page),
        notes=notes,
        source=file,
    )


def read_store(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> str | Address:
    """The store that a file names; no other secret is needed for that."""
    file = Path(path)
    if file.suffix.lower() in (".yaml", ".yml"):
        return str(file.resolve().parent / _STORE)
    return read_store_of(read_toml(file), file, environment)


def read_ledger_place(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> Path | Address | None:
    """The ledger that a file names; None if none is written."""
    file = Path(path)
    folder = file.resolve().parent
    if file.suffix.lower() in (".yaml", ".yml"):
        return folder / _LEDGER
    checker = read_toml(file)
    return _ledger(checker, folder, read_store_of(checker, file, environment)).path


def _page(checker: Checker, default: bool | Literal["public"]) -> bool | Literal["public"]:
    found = checker.value(("page",))
    if found == "public":
        return "public"
    if isinstance(found, str):
        checker.fail(("page",), 'must be true, false or "public"')
    return checker.flag(("page",), default)


def _experts(
    checker: Checker, folder: Path, environment: Mapping[str, str]
) -> tuple[tuple[ExpertSettings, ...], tuple[str, ...]]:
    """Experts of LiteLLM's file first, where one is named; a table changes what it says."""
    known: dict[str, ExpertSettings] = {}
    notes: tuple[str, ...] = ()
    litellm = checker.text(("litellm",), None)
    if litellm is not None:
        found, notes = _litellm(folder / Path(litellm).expanduser(), environment)
        known = {expert.name: expert for expert in found}
    for name in checker.table(("experts",)):
        known[name] = expert_of(checker, name, folder, environment, known.get(name))
    if not known:
        checker.fail(("experts",), "must name at least one expert: [experts.NAME]; got none")
    return tuple(known.values()), notes


def _litellm(
    file: Path, environment: Mapping[str, str]
) -> tuple[tuple[ExpertSettings, ...], tuple[str, ...]]:
    # Only those who have such a file need a parser of YAML.
    from mild.gateway.settings.litellm import read_litellm

    return read_litellm(file, environment)


def _routing(checker: Checker) -> RoutingSettings:
    place, base = ("routing",), RoutingSettings()
    checker.refuse_unknown(place, RoutingSettings.__slots__)
    explore = checker.number((*place, "explore"), base.explore)
    if explore > 1:
        checker.fail((*place, "explore"), f"must be a share from 0 to 1; got {explore:g}")
    return RoutingSettings(
        price_weight=checker.number((*place, "price_weight"), base.price_weight),
        explore=explore,
        text=cast(
            'Literal["last", "all"]',
            checker.choice((*place, "text"), base.text, ("last", "all")),
        ),
        pin_sessions=checker.flag((*place, "pin_sessions"), base.pin_sessions),
        session_seconds=checker.number(
            (*place, "session_seconds"), base.session_seconds, above_zero=True
        ),
        max_sessions=checker.whole((*place, "max_sessions"), base.max_sessions, least=1),
        fallback=checker.flag((*place, "fallback"), base.fallback),
        max_attempts=checker.whole((*place, "max_attempts"), base.max_attempts, least=1, most=20),
    )


def _limits(checker: Checker) -> LimitSettings:
    place, base = ("limits",), LimitSettings()
    checker.refuse_unknown(place, LimitSettings.__slots__)
    return LimitSettings(
        max_body_bytes=checker.whole((*place, "max_body_bytes"), base.max_body_bytes, least=1024),
        max_headers=checker.whole((*place, "max_headers"), base.max_headers, least=10),
        max_header_bytes=checker.whole(
            (*place, "max_header_bytes"), base.max_header_bytes, least=1024
        ),
        max_in_flight=checker.whole((*place, "max_in_flight"), base.max_in_flight, least=1),
        max_connections=checker.whole((*place, "max_connections"), base.max_connections, least=1),
        header_seconds=_seconds(checker, (*place, "header_seconds"), base.header_seconds),
        body_seconds=_seconds(checker, (*place, "body_seconds"), base.body_seconds),
        keep_alive_seconds=_seconds(
            checker, (*place, "keep_alive_seconds"), base.keep_alive_seconds
        ),
        drain_seconds=checker.number((*place, "drain_seconds"), base.drain_seconds),
    )


def _seconds(checker: Checker, place: tuple[str, ...], default: float) -> float:
    return checker.number(place, default, above_zero=True)


def _access(checker: Checker) -> AccessSettings:
    place, base = ("access",), AccessSettings()
    checker.refuse_unknown(place, AccessSettings.__slots__)
    anonymous = checker.text((*place, "anonymous"), base.anonymous)
    if not anonymous or not anonymous.isprintable() or len(anonymous) > 100:
        checker.fail((*place, "anonymous"), "must be a name")
    return AccessSettings(
        require_key=checker.flag((*place, "require_key"), base.require_key),
        anonymous=anonymous,
        budget_day=checker.number((*place, "budget_day"), base.budget_day),
        budget_month=checker.number((*place, "budget_month"), base.budget_month),
        requests_per_minute=checker.whole((*place, "requests_per_minute"), None, least=1),
        when_store_lost=_when_lost(checker, (*place, "when_store_lost")),
        lost_allowance=checker.number((*place, "lost_allowance"), base.lost_allowance),
    )


def _when_lost(checker: Checker, place: tuple[str, ...]) -> Literal["shed", "serve"] | None:
    if checker.value(place) is None:
        return None
    found = checker.choice(place, "shed", ("shed", "serve"))
    return cast('Literal["shed", "serve"]', found)


def _ledger(checker: Checker, folder: Path, store: str | Address) -> LedgerSettings:
    place, base = ("ledger",), LedgerSettings()
    checker.refuse_unknown(place, ("enabled", *LedgerSettings.__slots__))
    path = checker.text((*place, "path"), None)
    if path is not None and (not path or is_address(path)):
        checker.fail(
            (*place, "path"),
            "must be a path; to write none: enabled = false; to write to PostgreSQL: leave it out, "
            "and the store's database has the ledger, too",
        )
    found: Path | Address = folder / Path(path or _LEDGER).expanduser()
    if path is None and isinstance(store, Address):
        found = store
    return LedgerSettings(
        path=found if checker.flag((*place, "enabled"), True) else None,
        keep_text=checker.flag((*place, "keep_text"), base.keep_text),
        keep_days=checker.number((*place, "keep_days"), base.keep_days, above_zero=True),
        max_bytes=checker.whole((*place, "max_bytes"), base.max_bytes, least=1_000_000),
    )
