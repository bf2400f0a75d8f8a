"""Money in the file: granted to workers, spent by them, and lost with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from mild.gateway.access.store import AccountKey, Draw, Grant, Report, Totals

__all__ = ["grant", "record", "sum_up", "write_off"]

# A worker's stock for requests to come is at most this part of what is left, over all workers.
_STOCK = 4


def grant(connection: sqlite3.Connection, owner: str, draw: Draw, workers: int) -> Grant:
    """Give a worker what it needs, as far as there is any, and a stock where there is plenty.

    Towards the end of a budget the stock shrinks to nothing, and each request draws for itself.
    """
    scope, period = draw.account
    row = connection.execute(
        "SELECT spent FROM accounts WHERE scope = ? AND period = ?", draw.account
    ).fetchone()
    spent = 0 if row is None else int(row[0])
    held = connection.execute(
        "SELECT coalesce(sum(amount), 0) FROM allotments WHERE scope = ? AND period = ?",
        draw.account,
    ).fetchone()[0]
    left = max(0, draw.budget - spent - held)
    need = min(draw.need, left)
    stock = min(draw.extra, (left - need) // (_STOCK * workers))
    amount = need + stock
    if amount:
        connection.execute(
            "INSERT INTO allotments VALUES (?, ?, ?, ?) ON CONFLICT (scope, period, owner) "
            "DO UPDATE SET amount = amount + excluded.amount",
            (scope, period, owner, amount),
        )
    return Grant(amount, spent)


def record(connection: sqlite3.Connection, owner: str, report: Report, covered: bool) -> None:
    """Count what was spent; ``covered`` when the whole allotment has been counted already."""
    spent = report.beyond if covered else report.spent
    if spent:
        _spend(connection, report.account, spent, lost=0)
    if not report.released:
        return
    connection.execute(
        "UPDATE allotments SET amount = amount - ? WHERE scope = ? AND period = ? AND owner = ?",
        (report.released, *report.account, owner),
    )
    connection.execute(
        "DELETE FROM allotments WHERE scope = ? AND period = ? AND owner = ? AND amount <= 0",
        (*report.account, owner),
    )


def write_off(connection: sqlite3.Connection, owner: str) -> None:
    """End a worker; what it still holds counts as spent."""
    rows = connection.execute(
        "SELECT scope, period, amount FROM allotments WHERE owner = ?", (owner,)
    ).fetchall()
    for scope, period, amount in rows:
        _spend(connection, AccountKey(scope, period), amount, lost=amount)
    connection.execute("DELETE FROM allotments WHERE owner = ?", (owner,))
    connection.execute("DELETE FROM owners WHERE name = ?", (owner,))


def sum_up(connection: sqlite3.Connection, periods: Sequence[str]) -> dict[AccountKey, Totals]:
    """Accounts of these periods over all workers."""
    marks = ", ".join("?" * len(periods))
    found: dict[AccountKey, Totals] = {}
    for scope, period, spent, lost in connection.execute(
        f"SELECT scope, period, spent, lost FROM accounts WHERE period IN ({marks})", periods
    ):
        found[AccountKey(scope, period)] = Totals(spent, 0, lost)
    for scope, period, held in connection.execute(
        f"SELECT scope, period, sum(amount) FROM allotments WHERE period IN ({marks}) "
        "GROUP BY scope, period",
        periods,
    ):
        account = AccountKey(scope, period)
        known = found.get(account, Totals(0, 0, 0))
        found[account] = Totals(known.spent, held, known.lost)
    return found


def _spend(connection: sqlite3.Connection, account: AccountKey, spent: int, lost: int) -> None:
    connection.execute(
        "INSERT INTO accounts VALUES (?, ?, ?, ?) ON CONFLICT (scope, period) "
        "DO UPDATE SET spent = spent + excluded.spent, lost = lost + excluded.lost",
        (*account, spent, lost),
    )
