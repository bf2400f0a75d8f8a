"""``mild keys``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from mild.errors import InvalidInputError, count_noun
from mild_gateway.cli.console import (
    AsJson,
    CommandGroup,
    columns_of,
    emit,
    note,
    print_sentence,
    print_table,
)

# Takes a limit away in `mild keys change`.
NO_LIMIT = "none"
MAX_RATE = 10**9

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
    mild keys change alice --budget-day 8   change a limit; the key stays valid
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
        Option(
            "--requests-per-minute", "--rpm", min=1, max=MAX_RATE, help="Default: as in CONFIG."
        ),
    ] = None,
    admin: Annotated[
        bool,
        Option(
            "--admin",
            help="The key may also see the dashboard and /metrics, and score every answer.",
        ),
    ] = False,
    config: Config = Path("mild.toml"),
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Create a key. It is printed once, as the only output on stdout; only its hash is stored.

    A key under the name of a revoked one is a new key: it may not judge the old key's requests. What was
    spent under that name today and this month counts against its budgets, and a note says how much.

    \b
    Example:
      export OPENAI_API_KEY=$(mild keys add alice --budget-month 50 --rpm 60)
    """
    from mild_gateway.access.managing import add_key, open_store, spent_by

    with open_store(config, store) as opened:
        spent_before = spent_by(opened, name)
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
    if spent_before["month"]:
        note(
            f"an earlier key named {name} spent {_dollars(spent_before['day'])} today and "
            f"{_dollars(spent_before['month'])} this month, which count against the budgets of this name."
        )


def change(
    name: Name,
    budget_day: Annotated[
        str | None, Option(metavar="DOLLARS|none", help="Dollars per day (UTC); none: no limit.")
    ] = None,
    budget_month: Annotated[
        str | None, Option(metavar="DOLLARS|none", help="Dollars per month (UTC); none: no limit.")
    ] = None,
    requests_per_minute: Annotated[
        str | None,
        Option("--requests-per-minute", "--rpm", metavar="N|none", help="none: as in CONFIG."),
    ] = None,
    admin: Annotated[
        bool | None,
        Option(
            "--admin/--no-admin",
            help="Whether the key may also see the dashboard and /metrics, and score every answer.",
        ),
    ] = None,
    config: Config = Path("mild.toml"),
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Change the limits of a key. The key itself stays valid, and what was spent stays counted.

    \b
    Example:
      mild keys change alice --budget-day 8 --rpm none
    """
    from mild_gateway.access.managing import change_key, open_store

    changes: dict[str, Any] = {}
    if budget_day is not None:
        changes["budget_day"] = _number_or_none("--budget-day", budget_day)
    if budget_month is not None:
        changes["budget_month"] = _number_or_none("--budget-month", budget_month)
    if requests_per_minute is not None:
        changes["requests_per_minute"] = _rate_or_none(requests_per_minute)
    if admin is not None:
        changes["admin"] = admin
    with open_store(config, store) as opened:
        change_key(opened, name, changes)
    emit(
        {"name": name, "changed": sorted(changes)},
        as_json,
        lambda: print_sentence(f"{name} is changed."),
    )


def _number_or_none(option: str, text: str) -> float | None:
    """A number of dollars, or None for the word none."""
    if text.lower() == NO_LIMIT:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(
            f"{option} must be a number of dollars or none; got {text!r}.",
            code=f"invalid_{option[2:].replace('-', '_')}",
        ) from None


def _rate_or_none(text: str) -> int | None:
    """Requests per minute, or None for the word none."""
    if text.lower() == NO_LIMIT:
        return None
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= MAX_RATE:
        return int(text)
    raise InvalidInputError(
        f"--requests-per-minute must be a whole number from 1 to {MAX_RATE:,}, or none; got {text!r}.",
        code="invalid_requests_per_minute",
    )


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
    lines = [
        {
            "name": _marked_name(row),
            "key": row["key"],
            "created": row["created"],
            "today": _of(row["spent_day"], row["budget_day"]),
            "this month": _of(row["spent_month"], row["budget_month"]),
            "per minute": str(row["requests_per_minute"] or "–"),
        }
        for row in rows
    ]
    print_table(count_noun(len(rows), "key"), columns_of(lines), left=("key", "created"))


def _marked_name(row: dict[str, Any]) -> str:
    name = str(row["name"])
    if row["admin"]:
        name += " (admin)"
    if row["revoked"]:
        name += " (revoked)"
    return name


def _of(spent: float, budget: float | None) -> str:
    if budget is None:
        return _dollars(spent)
    return f"{_dollars(spent)} of ${budget:g}"


def _dollars(dollars: float) -> str:
    from mild_gateway.access.dollars import parts_of, shown_dollars

    return shown_dollars(parts_of(dollars))


#: What the entry point names.
COMMANDS = CommandGroup(keys, {"add": add, "change": change, "list": list_keys, "revoke": revoke})
