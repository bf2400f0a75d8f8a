"""Add, list and revoke keys: what ``mild keys`` does, beside gateways that run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from mild.errors import InvalidInputError
from mild_gateway.access.dollars import dollars_of, parts_of
from mild_gateway.access.keys import Key, check_key_name, digest_of, hint_of, new_key
from mild_gateway.access.periods import periods_at
from mild_gateway.access.store import AccessStore, Account
from mild_gateway.config import read_store
from mild_gateway.database import AddressError, is_address, read_address

# Seconds to wait for gateways to read the keys; they do so every second.
PATIENCE = 2.0


@contextmanager
def open_store(config: str | os.PathLike[str], place: str | None = None) -> Iterator[AccessStore]:
    """The store at a place, a file or an address; without one, the store that a configuration names."""
    try:
        if place is not None:
            store = AccessStore(read_address(place) if is_address(place) else place)
        else:
            store = AccessStore(read_store(config))
    except AddressError as error:
        # Not quoted: it may hold a password.
        raise InvalidInputError(f"--store {error}.", parameter="store") from None
    store.open()
    with closing(store):
        yield store


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
    key = new_key()
    store.add_key(
        Key(
            name,
            digest_of(key, store.salt()),
            hint_of(key),
            time.time(),
            budget_day=None if budget_day is None else parts_of(budget_day, "budget_day"),
            budget_month=None if budget_month is None else parts_of(budget_month, "budget_month"),
            requests_per_minute=requests_per_minute,
            admin=admin,
        )
    )
    _wait_for_gateways(store)
    return key


def revoke_key(store: AccessStore, name: str) -> None:
    """Revoke a key; its spending stays on record."""
    store.revoke_key(name, time.time())
    _wait_for_gateways(store)


def key_rows(store: AccessStore) -> list[dict[str, Any]]:
    """The keys with their budgets, and the dollars spent today and this month, JSON-ready."""
    periods = [period.name for period in periods_at(time.time())]
    keys, totals = store.read_keys(), store.totals(periods)
    rows = []
    for key in keys:
        found = [totals.get(Account(key.scope, period)) for period in periods]
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
    return rows


def _wait_for_gateways(store: AccessStore) -> None:
    """Return when every running gateway has read the keys, so that the next request finds the change."""
    since, end = store.moment(), time.monotonic() + PATIENCE
    while store.stale_processes(since) and time.monotonic() < end:
        time.sleep(0.02)
