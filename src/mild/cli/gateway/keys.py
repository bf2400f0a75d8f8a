"""``mild keys``"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, note, print_table

if TYPE_CHECKING:
    from mild.gateway.access import AccessStore

# Seconds to wait for gateways to read the keys; they do so every second.
PATIENCE = 2.0

Config = Annotated[
    Path, Option("--config", "-c", help="Configuration of the gateway, which names the store.")
]
StoreUrl = Annotated[
    str | None,
    Option("--store", metavar="FILE|URL", help="SQLite file or postgresql:// URL of the store."),
]
Name = Annotated[str, Argument(help="Name of the key.", metavar="NAME")]


def keys() -> None:
    """Manage API keys of the gateway, each with its own budgets and limits.

    \b
    mild keys add alice --budget-day 5      create a key; it is shown once
    mild keys list                          list the keys and what was spent
    mild keys revoke alice                  revoke it, within a second

    A running gateway applies changes within a second; the commands wait for it.
    """


def add(
    name: Name,
    budget_day: Annotated[
        float | None, Option(min=0.0, help="Dollars per day (UTC). Default: no limit.")
    ] = None,
    budget_month: Annotated[
        float | None, Option(min=0.0, help="Dollars per month (UTC). Default: no limit.")
    ] = None,
    requests_per_minute: Annotated[
        int | None,
        Option("--requests-per-minute", "--rpm", min=1, max=10**9, help="Default: as in CONFIG."),
    ] = None,
    admin: Annotated[
        bool,
        Option("--admin", help="The key may also read /metrics, which show every key's spend."),
    ] = False,
    config: Config = Path("mild.toml"),
    store: StoreUrl = None,
    as_json: o.AsJson = False,
) -> None:
    """Create a key. It is printed once, alone on stdout; only a hash of it is stored.

    \b
    Example:
      export OPENAI_API_KEY=$(mild keys add alice --budget-month 50 --rpm 60)
    """
    from mild.gateway.access.dollars import parts_of
    from mild.gateway.access.keys import Key, check_key_name, digest_of, hint_of, new_key

    check_key_name(name)
    with _opened(config, store) as opened:
        key = new_key()
        kept = Key(
            name,
            digest_of(key, opened.salt()),
            hint_of(key),
            time.time(),
            budget_day=None if budget_day is None else parts_of(budget_day),
            budget_month=None if budget_month is None else parts_of(budget_month),
            requests_per_minute=requests_per_minute,
            admin=admin,
        )
        opened.add_key(kept)
        _wait_for_gateways(opened)
    emit({"name": name, "key": key}, as_json, lambda: typer.echo(key))
    note("this is the only time the key is shown.")


def list_keys(
    config: Config = Path("mild.toml"), store: StoreUrl = None, as_json: o.AsJson = False
) -> None:
    """List the keys, their budgets, and what was spent with each.

    \b
    Example:
      mild keys list
    """
    from mild.gateway.access.dollars import dollars_of
    from mild.gateway.access.periods import periods_at
    from mild.gateway.access.store import Account

    periods = [period.name for period in periods_at(time.time())]
    with _opened(config, store) as opened:
        keys, totals = opened.read_keys(), opened.totals(periods)
    rows = []
    for key in keys:
        found = [totals.get(Account(f"key:{key.name}", period)) for period in periods]
        spent = [0.0 if total is None else dollars_of(total.spent) for total in found]
        rows.append(
            {
                "name": key.name,
                "key": key.hint,
                "created": time.strftime("%Y-%m-%d", time.gmtime(key.created)),
                "revoked": key.revoked is not None,
                "spent_day": spent[0],
                "budget_day": None if key.budget_day is None else dollars_of(key.budget_day),
                "spent_month": spent[1],
                "budget_month": None if key.budget_month is None else dollars_of(key.budget_month),
                "requests_per_minute": key.requests_per_minute,
                "admin": key.admin,
            }
        )
    emit({"keys": rows}, as_json, lambda: _show(rows))


def revoke(
    name: Name,
    config: Config = Path("mild.toml"),
    store: StoreUrl = None,
    as_json: o.AsJson = False,
) -> None:
    """Revoke a key. Its spending stays on record; its name may be used again.

    \b
    Example:
      mild keys revoke alice
    """
    with _opened(config, store) as opened:
        opened.revoke_key(name, time.time())
        _wait_for_gateways(opened)
    emit({"name": name, "revoked": True}, as_json, lambda: typer.echo(f"{name} is revoked."))


def _wait_for_gateways(store: AccessStore) -> None:
    """Return when every running gateway has read the keys, so that the next request finds the change."""
    since, end = store.moment(), time.monotonic() + PATIENCE
    while store.stale_processes(since) and time.monotonic() < end:
        time.sleep(0.02)


@contextmanager
def _opened(config: Path, place: str | None) -> Iterator[AccessStore]:
    from mild.errors import InvalidInputError
    from mild.gateway.access import AccessStore
    from mild.gateway.config import read_store
    from mild.gateway.database import AddressError, is_address, read_address

    try:
        if place is not None:
            store = AccessStore(read_address(place) if is_address(place) else place)
        else:
            store = AccessStore(read_store(config))
    except AddressError as error:
        # Not quoted: it may hold a password.
        raise InvalidInputError(f"--store {error}.", parameter="store") from None
    store.open()
    try:
        yield store
    finally:
        store.close()


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        typer.echo("No keys yet: mild keys add NAME")
        return
    columns = {
        "name": [
            row["name"] + " (admin)" * row["admin"] + " (revoked)" * row["revoked"] for row in rows
        ],
        "key": [row["key"] for row in rows],
        "created": [row["created"] for row in rows],
        "today": [_of(row["spent_day"], row["budget_day"]) for row in rows],
        "this month": [_of(row["spent_month"], row["budget_month"]) for row in rows],
        "per minute": [str(row["requests_per_minute"] or "–") for row in rows],
    }
    title = "1 key" if len(rows) == 1 else f"{len(rows)} keys"
    print_table(title, columns, left=("key", "created"))


def _of(spent: float, budget: float | None) -> str:
    from mild.gateway.access.dollars import parts_of, shown

    dollars = shown(parts_of(spent))
    return dollars if budget is None else f"{dollars} of ${budget:g}"
