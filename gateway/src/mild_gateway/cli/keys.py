"""``mild keys``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from mild.cli import AsJson, CommandGroup, emit, note, print_table

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
        float | None, Option(help="Dollars per day (UTC). Default: no limit.")
    ] = None,
    budget_month: Annotated[
        float | None, Option(help="Dollars per month (UTC). Default: no limit.")
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
    as_json: AsJson = False,
) -> None:
    """Create a key. It is printed once, as the only output on stdout; only its hash is stored.

    \b
    Example:
      export OPENAI_API_KEY=$(mild keys add alice --budget-month 50 --rpm 60)
    """
    from mild_gateway.access.managing import add_key, open_store

    with open_store(config, store) as opened:
        key = add_key(
            opened,
            name,
            budget_day=budget_day,
            budget_month=budget_month,
            requests_per_minute=requests_per_minute,
            admin=admin,
        )
    emit({"name": name, "key": key}, as_json, lambda: typer.echo(key))
    note("this is the only time the key is shown.")


def list_keys(
    config: Config = Path("mild.toml"), store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """List the keys, their budgets, and what was spent with each.

    \b
    Example:
      mild keys list
    """
    from mild_gateway.access import managing

    with managing.open_store(config, store) as opened:
        rows = managing.key_rows(opened)
    emit({"keys": rows}, as_json, lambda: _show_keys(rows))


def revoke(
    name: Name,
    config: Config = Path("mild.toml"),
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key. Its spending stays on record; its name may be used again.

    \b
    Example:
      mild keys revoke alice
    """
    from mild_gateway.access.managing import open_store, revoke_key

    with open_store(config, store) as opened:
        revoke_key(opened, name)
    emit({"name": name, "revoked": True}, as_json, lambda: typer.echo(f"{name} is revoked."))


def _show_keys(rows: list[dict[str, Any]]) -> None:
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
    from mild_gateway.access.dollars import parts_of, shown_dollars

    dollars = shown_dollars(parts_of(spent))
    return dollars if budget is None else f"{dollars} of ${budget:g}"


#: What the entry point names.
COMMANDS = CommandGroup(keys, {"add": add, "list": list_keys, "revoke": revoke})
