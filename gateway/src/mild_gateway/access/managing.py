"""Add, change, list and revoke keys: what ``mild keys`` does, beside gateways that run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from mild.errors import InvalidInputError
from mild_gateway.access.accounts import NOTHING, Account, Totals
from mild_gateway.access.dollars import dollars_of, dollars_or_none, parts_or_none
from mild_gateway.access.keys import Key, check_key_name, digest_of, hint_of, new_key
from mild_gateway.access.periods import periods_at
from mild_gateway.access.store import AccessStore
from mild_gateway.config import read_store
from mild_gateway.database import AddressError, is_address, read_address

# Seconds to wait for gateways to read the keys; they do so every second.
PATIENCE = 2.0


@contextmanager
def open_store(
    config: str | os.PathLike[str], location: str | None = None
) -> Iterator[AccessStore]:
    """The store in a file or at an address; without a location, the store that a configuration names."""
    try:
        store = AccessStore(_store_location(config, location))
    except AddressError as error:
        # Not quoted: it may hold a password.
        raise InvalidInputError(f"--store {error}.", parameter="store") from None
    store.open()
    with closing(store):
        yield store


def _store_location(config: str | os.PathLike[str], location: str | None) -> Any:
    if location is None:
        return read_store(config)
    if is_address(location):
        return read_address(location)
    return location


def add_key(
    store: AccessStore,
    name: str,
    *,
    budget_day: float | None = None,
    budget_month: float | None = None,
    requests_per_minute: int | None = None,
    admin: bool = False,
) -> str:
    """Create a key with budgets in dollars, and return it; the store has a hash of it only."""
    check_key_name(name)
    secret = new_key()
    key = Key(
        name,
        digest_of(secret, store.salt()),
        hint_of(secret),
        time.time(),
        budget_day=parts_or_none(budget_day, "budget_day"),
        budget_month=parts_or_none(budget_month, "budget_month"),
        requests_per_minute=requests_per_minute,
        admin=admin,
    )
    store.add_key(key)
    _wait_for_gateways(store)
    return secret


def change_key(store: AccessStore, name: str, changes: Mapping[str, Any]) -> None:
    """Change budgets (dollars), the rate or the admin flag of a key; its secret stays.

    ``changes`` holds only what changes; None takes a limit away.
    """
    if not changes:
        raise InvalidInputError(
            "a change must name at least one of --budget-day, --budget-month, --requests-per-minute, "
            "--admin and --no-admin; got none.",
            code="nothing_to_change",
        )
    values = dict(changes)
    for budget in ("budget_day", "budget_month"):
        if budget in values:
            values[budget] = parts_or_none(values[budget], budget)
    store.change_key(name, values)
    _wait_for_gateways(store)


def revoke_key(store: AccessStore, name: str) -> None:
    """Revoke a key; its spending stays on record."""
    store.revoke_key(name, time.time())
    _wait_for_gateways(store)


def spent_by(store: AccessStore, name: str) -> dict[str, float]:
    """Dollars that were spent under a name today and this month, also by keys that were revoked."""
    day, month = periods_at(time.time())
    totals = store.totals([day.name, month.name])
    scope = Key(name, b"any", "", 0.0).scope
    return {
        "day": _spent(totals, Account(scope, day.name)),
        "month": _spent(totals, Account(scope, month.name)),
    }


def key_rows(store: AccessStore) -> list[dict[str, Any]]:
    """The keys with their budgets, and the dollars spent today and this month, JSON-ready."""
    day, month = periods_at(time.time())
    totals = store.totals([day.name, month.name])
    rows = [
        {
            "name": key.name,
            "key": key.hint,
            "created": time.strftime("%Y-%m-%d", time.gmtime(key.created)),
            "revoked": key.revoked is not None,
            "spent_day": _spent(totals, Account(key.scope, day.name)),
            "budget_day": dollars_or_none(key.budget_day),
            "spent_month": _spent(totals, Account(key.scope, month.name)),
            "budget_month": dollars_or_none(key.budget_month),
            "requests_per_minute": key.requests_per_minute,
            "admin": key.admin,
        }
        for key in store.read_keys()
    ]
    return rows


def _spent(totals: Mapping[Account, Totals], account: Account) -> float:
    return dollars_of(totals.get(account, NOTHING).spent)


def _wait_for_gateways(store: AccessStore) -> None:
    """Return when every running gateway has read the keys, so that the next request finds the change."""
    changed_at = store.moment()
    deadline = time.monotonic() + PATIENCE
    while store.stale_processes(changed_at) and time.monotonic() < deadline:
        time.sleep(0.02)
