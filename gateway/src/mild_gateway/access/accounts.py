"""Accounts, and what a batch of claims and settlements does to them: no database is needed for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

# The scope of all keys together.
ALL = "*"
# Seconds that are counted, the current one and 60 before it: no 60 seconds have more than the limit.
WINDOW = 61
# Seconds that a request waits at least for the next minute.
_LEAST_WAIT = 0.1


class Account(NamedTuple):
    """Whose money, and of which day or month."""

    scope: str
    period: str


class Totals(NamedTuple):
    """An account over all workers: spent, held for open requests, and the part of spent that expired."""

    spent: int
    held: int
    lost: int


NOTHING = Totals(0, 0, 0)


class Denial(NamedTuple):
    """Why a claim was denied: seconds to wait for the rate limit, or a budget with too little left.

    ``account`` is the place of the budget's account in the claim, and ``spent`` what was spent of it.
    ``over_share`` says that money is left, but that one key would hold more than half of it.
    """

    wait: float = 0.0
    account: int = 0
    spent: int = 0
    over_share: bool = False


@dataclass(slots=True, eq=False)
class Claim:
    """A request that asks for money and for one request of the minute; both are granted, or none.

    ``budgets`` are those of ``accounts``, and ``rate`` the requests that ``scope`` may make in a minute;
    None is no limit. ``holder`` is the scope of a key that is not the only one: what it holds of the budget
    of all keys is limited to half of what is left. ``denial`` is None if the claim was granted.
    """

    id: str
    accounts: Sequence[Account]
    budgets: Sequence[int | None]
    amount: int
    scope: str = ""
    rate: int | None = None
    holder: str | None = None
    denial: Denial | None = None


class Settlement(NamedTuple):
    """Reservations that end, by id and amount, and what was spent.

    ``lost`` says that they have expired, and ``is_repeated`` that a killed process may have settled them.
    """

    parts: Sequence[tuple[str, int]]
    accounts: Sequence[Account]
    cost: int
    lost: bool = False
    is_repeated: bool = False


@dataclass(slots=True)
class Batch:
    """One transaction of a worker.

    Its ``id`` is inserted as a reservation of nothing, and deleted by the worker's next transaction: after
    a commit whose outcome is unknown, it tells whether the transaction has happened.
    """

    id: str
    previous: str | None = None
    claims: Sequence[Claim] = ()
    settlements: Sequence[Settlement] = ()

    def accounts(self) -> set[Account]:
        """Accounts that are locked. The account of a scope without a period stands for its minute."""
        accounts: set[Account] = set()
        for settlement in self.settlements:
            accounts.update(settlement.accounts)
        for claim in self.claims:
            if claim.amount:
                accounts.update(claim.accounts)
            if claim.rate is not None:
                accounts.add(Account(claim.scope, ""))
        return accounts

    def limited_scopes(self) -> set[str]:
        """Scopes whose requests of the last minute are counted."""
        return {claim.scope for claim in self.claims if claim.rate is not None}

    def ending_reservations(self) -> list[str]:
        """Ids of the reservations that are deleted."""
        ids = []
        for settlement in self.settlements:
            for id, _ in settlement.parts:
                ids.append(id)
        if self.previous is not None:
            ids.append(self.previous)
        return ids


class Books:
    """The accounts of a batch, as they were read under lock and as the batch changes them.

    ``counts`` are the requests of each limited scope by second, and ``now`` is the store's time.
    """

    def __init__(
        self, totals: dict[Account, Totals], counts: dict[str, dict[int, int]], now: float
    ) -> None:
        self.totals = dict(totals)
        self.granted: list[Claim] = []
        self._before = totals
        self._counts = counts
        self._now = now

    def settle(self, settlement: Settlement, open_ids: set[str]) -> None:
        """End reservations and count what was spent; ids that are not open have expired before."""
        if settlement.is_repeated and open_ids.isdisjoint(id for id, _ in settlement.parts):
            return
        released = 0
        cost = settlement.cost
        for id, amount in settlement.parts:
            if id in open_ids:
                open_ids.remove(id)
                released += amount
            else:
                # It has expired, and was charged in full.
                cost -= amount
        for account in settlement.accounts:
            spent, held, lost = self.totals[account]
            if settlement.lost:
                lost += released
            self.totals[account] = Totals(spent + max(0, cost), held - released, lost)

    def decide(self, claim: Claim) -> None:
        """Grant a claim, or say in its ``denial`` why not."""
        claim.denial = self._over_rate(claim) or self._over_budget(claim)
        if claim.denial is not None:
            return
        if claim.rate is not None:
            counts = self._counts[claim.scope]
            second = int(self._now)
            counts[second] = counts.get(second, 0) + 1
        if claim.amount:
            self.granted.append(claim)
            for account in claim.accounts:
                totals = self.totals[account]
                self.totals[account] = totals._replace(held=totals.held + claim.amount)

    def changed_totals(self) -> dict[Account, Totals]:
        """The accounts that the batch has changed."""
        changed = {}
        for account, totals in self.totals.items():
            if totals != self._before[account]:
                changed[account] = totals
        return changed

    def requests_now(self) -> dict[str, int]:
        """Requests of the current second, by scope."""
        requests = {}
        second = int(self._now)
        for scope, counts in self._counts.items():
            if second in counts:
                requests[scope] = counts[second]
        return requests

    def _over_rate(self, claim: Claim) -> Denial | None:
        if claim.rate is None:
            return None
        oldest = self._now
        n_requests = 0
        for second, requests in self._counts[claim.scope].items():
            if second > self._now - WINDOW:
                oldest = min(oldest, second)
                n_requests += requests
        if n_requests < claim.rate:
            return None
        return Denial(wait=max(_LEAST_WAIT, oldest + WINDOW - self._now))

    def _over_budget(self, claim: Claim) -> Denial | None:
        if not claim.amount:
            return None
        for place, (account, budget) in enumerate(zip(claim.accounts, claim.budgets, strict=True)):
            if budget is None:
                continue
            spent, held, _ = self.totals[account]
            left = budget - spent
            if held + claim.amount > left:
                return Denial(account=place, spent=spent)
            if account.scope == ALL and claim.holder is not None:
                held_by_key = self.totals[Account(claim.holder, account.period)].held
                if 2 * (held_by_key + claim.amount) > left:
                    return Denial(account=place, spent=spent, over_share=True)
        return None
