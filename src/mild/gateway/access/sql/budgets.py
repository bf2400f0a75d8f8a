"""Money in tables: granted to workers, spent by them, and lost with them.

Whoever calls holds the accounts that are touched: no other worker changes them until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mild.gateway.access.store import AccountKey, Draw, Grant, Report, Totals
from mild.gateway.database.face import Database, marks

__all__ = ["allotted", "grant", "record", "sum_up", "write_off"]

# A worker's stock for requests to come is at most this part of what is left, over all workers.
_STOCK = 4

_SPEND = (
    "INSERT INTO accounts VALUES (?, ?, ?, ?) ON CONFLICT (scope, period) DO UPDATE SET "
    "spent = accounts.spent + excluded.spent, lost = accounts.lost + excluded.lost"
)
_MINE = "scope = ? AND period = ? AND owner = ?"


def grant(
    database: Database, owner: str, draws: Sequence[Draw], workers: int
) -> dict[AccountKey, Grant]:
    """Give a worker what it needs, as far as there is any, and a stock where there is plenty.

    Towards the end of a budget the stock shrinks to nothing, and each request draws for itself.
    """
    if not draws:
        return {}
    spent = _by_account(database, "spent", "accounts", draws)
    held = _by_account(database, "CAST(sum(amount) AS BIGINT)", "allotments", draws)
    grants = {}
    for draw in draws:
        used = spent.get(draw.account, 0)
        left = max(0, draw.budget - used - held.get(draw.account, 0))
        need = min(draw.need, left)
        stock = min(draw.extra, (left - need) // (_STOCK * workers))
        grants[draw.account] = Grant(need + stock, used)
    database.executemany(
        "INSERT INTO allotments VALUES (?, ?, ?, ?) ON CONFLICT (scope, period, owner) "
        "DO UPDATE SET amount = allotments.amount + excluded.amount",
        [(*account, owner, given.amount) for account, given in grants.items() if given.amount],
    )
    return grants


def record(database: Database, owner: str, reports: Sequence[Report], covered: bool) -> None:
    """Count what was spent; ``covered`` when the whole allotment has been counted already."""
    spent = [(one.account, one.beyond if covered else one.spent) for one in reports]
    _spend(database, ((*account, amount, 0) for account, amount in spent if amount))
    released = [report for report in reports if report.released]
    if not released:
        return
    database.executemany(
        f"UPDATE allotments SET amount = amount - ? WHERE {_MINE}",
        [(report.released, *report.account, owner) for report in released],
    )
    database.executemany(
        f"DELETE FROM allotments WHERE {_MINE} AND amount <= 0",
        [(*report.account, owner) for report in released],
    )


def allotted(database: Database, owner: str) -> list[tuple[AccountKey, int]]:
    """What a worker holds."""
    rows = database.execute(
        "SELECT scope, period, amount FROM allotments WHERE owner = ?", (owner,)
    ).rows
    return [(AccountKey(scope, period), amount) for scope, period, amount in rows]


def write_off(database: Database, owner: str) -> None:
    """Count what a worker still holds as spent."""
    held = allotted(database, owner)
    _spend(database, ((*account, amount, amount) for account, amount in held))
    database.execute("DELETE FROM allotments WHERE owner = ?", (owner,))


def sum_up(database: Database, periods: Sequence[str]) -> dict[AccountKey, Totals]:
    """Accounts of these periods over all workers."""
    which = ", ".join("?" * len(periods))
    found: dict[AccountKey, Totals] = {}
    for scope, period, spent, lost in database.execute(
        f"SELECT scope, period, spent, lost FROM accounts WHERE period IN ({which})", periods
    ).rows:
        found[AccountKey(scope, period)] = Totals(spent, 0, lost)
    for scope, period, held in database.execute(
        "SELECT scope, period, CAST(sum(amount) AS BIGINT) FROM allotments "
        f"WHERE period IN ({which}) GROUP BY scope, period",
        periods,
    ).rows:
        account = AccountKey(scope, period)
        known = found.get(account, Totals(0, 0, 0))
        found[account] = Totals(known.spent, held, known.lost)
    return found


def _by_account(
    database: Database, what: str, table: str, draws: Sequence[Draw]
) -> dict[AccountKey, int]:
    values = [part for draw in draws for part in draw.account]
    rows = database.execute(
        f"SELECT scope, period, {what} FROM {table} "
        f"WHERE (scope, period) IN (VALUES {marks(len(draws), 2)}) GROUP BY scope, period",
        values,
    ).rows
    return {AccountKey(scope, period): int(amount) for scope, period, amount in rows}


def _spend(database: Database, rows: Iterable[tuple[str, str, int, int]]) -> None:
    """Add to accounts: scope, period, spent, and how much of that is lost."""
    found = sorted(rows)
    if found:
        database.executemany(_SPEND, found)
