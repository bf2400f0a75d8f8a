"""The money a worker holds: taken for requests without waiting, reported and filled up in exchanges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mild.gateway.access.money import Period
from mild.gateway.access.store import AccountKey, Draw, Grant, Report

__all__ = ["Account", "Purse", "Reservation"]

# A draw covers so many requests of the size that asked, where the budget has plenty.
_STOCK_REQUESTS = 16
# With more than so many seconds to its end, a draw covers a second of the traffic that there is.
_PLENTY_SECONDS = 20


class Account:
    """One budget, or one count without a limit, of one day or month.

    Attributes
    ----------
    scope : "*" for all keys together, or whose it is
    budget : of the whole account over all workers; None without a limit
    granted : held from the store, and not reported as spent
    used : spent since the last report
    reserved : for requests that are under way
    peak : most that was used and reserved at a time since the last beat
    flow : spent since the last beat, and reported
    pace : spent between the last two beats
    spent : by all workers, as the store knew it last
    denied_until : before this moment the store is not asked again
    """

    __slots__ = (
        "budget",
        "denied_until",
        "flow",
        "granted",
        "key",
        "pace",
        "peak",
        "period",
        "reserved",
        "scope",
        "spent",
        "used",
    )

    def __init__(self, scope: str, period: Period, budget: int | None) -> None:
        self.scope = scope
        self.period = period
        self.key = AccountKey(scope, period.name)
        self.budget = budget
        self.granted = self.used = self.reserved = self.peak = self.spent = 0
        self.flow = self.pace = 0
        self.denied_until = 0.0

    @property
    def free(self) -> int:
        """What another request may take; below zero when endpoints charged more than was reserved."""
        return self.granted - self.used - self.reserved

    @property
    def known_left(self) -> int:
        """What is left of the budget at most, as far as this worker knows."""
        return (self.budget or 0) - self.spent - self.used - self.reserved

    def has_plenty(self, second: int) -> bool:
        """Whether the budget goes on for so long that a worker may hold a second's worth of it."""
        return self.known_left > _PLENTY_SECONDS * second


class Reservation:
    """Money put aside for one request, until it is settled or released."""

    __slots__ = ("accounts", "amount", "credit", "epoch", "is_open")

    def __init__(self, accounts: Sequence[Account], amount: int, epoch: int) -> None:
        self.accounts = accounts
        self.amount = amount
        # How much of the purse's credit it takes.
        self.credit = 0
        self.epoch = epoch
        self.is_open = True


class Purse:
    """Accounts of one worker. Nothing here waits; exchanges with the store happen elsewhere.

    Attributes
    ----------
    allowance : what may be spent in a day beyond all that is held, while the store is lost
    credit : what is left of it
    epoch : raised when the store has counted all that was held as spent
    """

    def __init__(self) -> None:
        self.allowance = self.credit = 0
        self.accounts: dict[AccountKey, Account] = {}
        self.epoch = 0

    def account(self, scope: str, period: Period, budget: int | None) -> Account:
        """The account, made where it is new; the budget is the latest."""
        found = self.accounts.get(AccountKey(scope, period.name))
        if found is None:
            found = Account(scope, period, budget)
            self.accounts[found.key] = found
        found.budget = budget
        return found

    def take(self, accounts: Sequence[Account], amount: int) -> Reservation | None:
        """Reserve in all accounts, or in none."""
        if amount:
            for account in accounts:
                # What ``free`` says, written out: this is on every request's way.
                free = account.granted - account.used - account.reserved
                if free < amount and account.budget is not None:
                    return None
        return self._put_aside(accounts, amount)

    def take_on_credit(self, accounts: Sequence[Account], amount: int) -> Reservation | None:
        """Reserve more than is held, as far as the credit goes; what is spent so is reported as beyond."""
        held = min(
            (max(0, account.free) for account in self.short(accounts, amount)), default=amount
        )
        lacking = max(0, amount - held)
        if lacking > self.credit:
            return None
        self.credit -= lacking
        reservation = self._put_aside(accounts, amount)
        reservation.credit = lacking
        return reservation

    def _put_aside(self, accounts: Sequence[Account], amount: int) -> Reservation:
        for account in accounts:
            account.reserved += amount
            demand = account.used + account.reserved
            if demand > account.peak:
                account.peak = demand
        return Reservation(accounts, amount, self.epoch)

    def add(self, reservation: Reservation, amount: int) -> bool:
        """Reserve more for the same request."""
        more = self.take(reservation.accounts, amount)
        if more is None:
            return False
        self.merge(reservation, more)
        return True

    def merge(self, reservation: Reservation, more: Reservation) -> None:
        """Make one of two reservations of the same request."""
        if not reservation.is_open:
            self.settle(more, 0)
            return
        more.is_open = False
        reservation.credit += more.credit
        if reservation.epoch == self.epoch:
            reservation.amount += more.amount
        else:
            # The first part is counted as spent already; only the new one is to be settled.
            reservation.amount, reservation.epoch = more.amount, more.epoch

    def short(self, accounts: Sequence[Account], amount: int) -> list[Account]:
        """Accounts that have less than this free."""
        return [
            account for account in accounts if account.budget is not None and account.free < amount
        ]

    def settle(self, reservation: Reservation, amount: int) -> None:
        """End a reservation with what the request cost; what has ended stays so."""
        if not reservation.is_open:
            return
        reservation.is_open = False
        unused = max(0, min(reservation.credit, reservation.amount - amount))
        self.credit = min(self.allowance, self.credit + unused)
        counted = reservation.epoch != self.epoch
        for account in reservation.accounts:
            if amount:
                self.accounts.setdefault(account.key, account)
            if not counted:
                account.reserved -= reservation.amount
                account.used += amount
            elif account.budget is None:
                account.used += amount
            else:
                account.used += max(0, amount - reservation.amount)
            account.denied_until = 0.0

    def draws(self, wanted: Iterable[tuple[Sequence[Account], int]]) -> list[Draw]:
        """What to ask the store for, so that these requests can be served."""
        needs: dict[AccountKey, int] = {}
        largest: dict[AccountKey, int] = {}
        for accounts, amount in wanted:
            for account in accounts:
                if account.budget is not None:
                    # A request that was free so far may be all that remembers a day that is over.
                    self.accounts.setdefault(account.key, account)
                    needs[account.key] = needs.get(account.key, 0) + amount
                    largest[account.key] = max(largest.get(account.key, 0), amount)
        found = []
        for key, need in needs.items():
            account = self.accounts[key]
            lacking = need - account.free
            if lacking > 0 and account.budget is not None:
                # Enough for a second like the last one, or like this one so far.
                second = max(account.pace, account.flow + account.used)
                stock = max(_STOCK_REQUESTS * largest[key], account.peak)
                extra = max(stock, second) if account.has_plenty(second) else stock
                found.append(Draw(key, account.budget, lacking, extra))
        return found

    def report(self, beat: bool, leaving: bool = False) -> list[Report]:
        """Take out what was spent, and on a beat what lies idle, to be told to the store.

        What is told leaves the purse at once; ``restore`` puts it back where telling failed.
        """
        reports = []
        for account in self.accounts.values():
            free, spent = account.free, account.used
            account.flow += spent
            # As much stays as the last second took; a quiet worker gives all back.
            took = account.flow if account.has_plenty(account.flow) else 0
            keep = 0 if leaving else max(account.peak, took) - account.reserved
            idle = max(0, free - max(0, keep)) if beat else 0
            if beat:
                account.peak, account.pace, account.flow = account.reserved, account.flow, 0
            if not spent and not idle:
                continue
            released = min(account.granted, spent + idle)
            reports.append(Report(account.key, spent, released, max(0, spent - account.granted)))
            account.granted -= released
            account.used = 0
        return reports

    def restore(self, reports: Iterable[Report]) -> None:
        """Put back what could not be told."""
        for report in reports:
            account = self.accounts[report.account]
            account.granted += report.released
            account.used += report.spent

    def receive(self, grants: Mapping[AccountKey, Grant]) -> None:
        """Put in what was granted."""
        for key, grant in grants.items():
            account = self.accounts[key]
            account.granted += grant.amount
            account.spent = grant.spent

    def lose(self) -> None:
        """Forget what is held: the store has counted it as spent."""
        self.epoch += 1
        for account in self.accounts.values():
            account.granted = account.reserved = account.peak = 0

    def forget(self, now: float) -> None:
        """Drop accounts of days and months that are over, once nothing is open in them."""
        over = [
            key
            for key, account in self.accounts.items()
            if account.period.renews <= now
            and not (account.granted or account.used or account.reserved)
        ]
        for key in over:
            del self.accounts[key]
