"""Sums over all workers, between the moments at which they are read."""

from __future__ import annotations

from mild.gateway.access.store import AccountKey, Exchange, Totals, Transacted

__all__ = ["follow"]

_NOTHING = Totals(0, 0, 0)


def follow(
    totals: dict[AccountKey, Totals], asked: Exchange, done: Transacted
) -> dict[AccountKey, Totals]:
    """The sums as they were read, or else the old ones as this exchange has changed them."""
    if asked.totals_of:
        return done.totals
    for report in asked.reports:
        known = totals.get(report.account, _NOTHING)
        totals[report.account] = known._replace(
            spent=known.spent + report.spent, held=max(0, known.held - report.released)
        )
    for account, grant in done.grants.items():
        known = totals.get(account, _NOTHING)
        totals[account] = known._replace(held=known.held + grant.amount)
    return totals
