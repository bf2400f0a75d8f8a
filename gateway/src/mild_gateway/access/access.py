"""Authentication, rate limits and budgets, as a request sees them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from mild_gateway.access.accounts import ALL, Account, Claim, Denial, Settlement
from mild_gateway.access.dollars import (
    dollars_of,
    dollars_or_none,
    parts_of,
    parts_or_none,
    shown_dollars,
)
from mild_gateway.access.keys import ANONYMOUS, Caller, Callers, Key, revoked_key
from mild_gateway.access.periods import Period, periods_at
from mild_gateway.access.store import AccessStore, StoreError
from mild_gateway.access.writer import StoreWriter
from mild_gateway.config import Settings
from mild_gateway.database.spool import Spool
from mild_gateway.refusals import Refusal

# Seconds that a request may take, and after them until its reservation is charged in full.
TOTAL_SECONDS = 600.0
GRACE_SECONDS = 60.0
# Totals of all accounts are read for so long after somebody has looked at them.
_WATCHED_SECONDS = 30.0


class Reservation:
    """Money reserved for one request, in billionths of a dollar, until it is settled or released.

    ``parts`` are the rows of the store that make it up, by id and amount.
    """

    def __init__(
        self, scope: str, accounts: Sequence[Account], budgets: Sequence[int | None]
    ) -> None:
        self.scope = scope
        self.accounts = accounts
        self.budgets = budgets
        self.parts: list[tuple[str, int]] = []
        self.amount = 0
        self.is_open = True

    @property
    def is_limited(self) -> bool:
        """Whether any of its accounts has a budget."""
        return any(budget is not None for budget in self.budgets)


class Access:
    """Checks keys, counts requests and reserves money, the same over all workers of a store.

    What happens to a request::

        caller = access.identify(headers.get("authorization"))    # 401
        await access.admit(caller)                                # 429, 503
        reservation = await access.reserve(caller, at_most)       # 402, 429, 503
        ...
        access.settle(reservation, real)                          # 0.0 releases it

    While the store is lost, every request is refused.
    """

    def __init__(
        self,
        settings: Settings,
        store: AccessStore | None = None,
        clock: Callable[[], float] = time.time,
        total_seconds: float = TOTAL_SECONDS,
        spool: Spool | None = None,
    ) -> None:
        if store is None:
            store = AccessStore(settings.store, clock)
        if spool is None:
            spool = Spool()
        self._clock = clock
        # Pays for grades; no key has its name.
        self.grader = None
        if settings.grading is not None:
            grading_budget = parts_of(settings.grading.budget_day)
            self.grader = Key("(grader)", b"(grader)", "", 0.0, budget_day=grading_budget)
        self._callers = Callers(settings)
        self._writer = StoreWriter(
            store,
            total_seconds + GRACE_SECONDS,
            self._watched_periods,
            self._use_keys,
            spool,
        )
        # Those of all keys together, for the day and the month.
        self._budgets = (
            parts_or_none(settings.access.budget_day),
            parts_or_none(settings.access.budget_month),
        )
        # Until when a scope has no request left.
        self._full_until: dict[str, float] = {}
        self._watched_until = 0.0
        # What ends a running request, by whose it is.
        self._running: dict[Callable[[], None], Caller] = {}

    @property
    def trouble(self) -> str | None:
        """Why the store cannot be reached; None if it can."""
        return self._writer.trouble

    @property
    def refuses_all(self) -> bool:
        """Whether every request is refused because the store is lost."""
        return self.trouble is not None

    async def start(self) -> None:
        """Open the store and read the keys. Raises MildError if the store cannot be used."""
        await self._writer.start()

    async def close(self) -> None:
        """Write what was spent, and close the store; open reservations are charged in full later."""
        await self._writer.close()

    def identify(self, authorization: str | None) -> Caller:
        """Whose key this is, by the value of the Authorization header; Refusal 401."""
        return self._callers.identify(authorization)

    @property
    def has_one_caller(self) -> bool:
        """Whether only one key, or only requests without a key, are served."""
        return self._callers.count <= 1

    async def admit(self, caller: Caller) -> None:
        """Count a request of the minute. Refusal 429 if that is full, 503 if the store is lost."""
        if self._writer.trouble is not None:
            raise _unavailable()
        if caller.requests_per_minute is None:
            return
        wait = self._full_until.get(caller.scope, 0.0) - self._clock()
        if wait > 0:
            raise _too_many(caller, wait)
        claim = Claim(
            self._writer.new_id(), (), (), 0, scope=caller.scope, rate=caller.requests_per_minute
        )
        denial = await self._ask(claim)
        if denial is not None:
            self._full_until[caller.scope] = self._clock() + denial.wait
            raise _too_many(caller, denial.wait)

    def watch(self, caller: Caller, end: Callable[[], None]) -> None:
        """Call ``end``, until ``unwatch(end)``, when the key is revoked; Refusal 401 if it was already."""
        if not self._callers.knows(caller):
            raise revoked_key()
        self._running[end] = caller

    def unwatch(self, end: Callable[[], None]) -> None:
        """The request has ended."""
        self._running.pop(end, None)

    def has_budget(self, caller: Caller) -> bool:
        """Whether a budget limits what this caller spends."""
        budgets = (caller.budget_day, caller.budget_month, *self._budgets)
        return any(budget is not None for budget in budgets)

    async def reserve(self, caller: Caller, dollars: float) -> Reservation:
        """Reserve the most that a request may cost.

        Refusal 429 if a budget is held by open requests; 402 if too little of it is left; 503 if the store
        is lost.
        """
        day, month = periods_at(self._clock())
        accounts = [
            Account(caller.scope, day.name),
            Account(caller.scope, month.name),
            Account(ALL, day.name),
            Account(ALL, month.name),
        ]
        budgets = (caller.budget_day, caller.budget_month, *self._budgets)
        reservation = Reservation(caller.scope, accounts, budgets)
        await self._add_to(reservation, parts_of(dollars))
        return reservation

    async def enlarge(self, reservation: Reservation, dollars: float) -> None:
        """Raise the reserved amount to ``dollars``, for an expert that may cost more; as ``reserve``."""
        missing = parts_of(dollars) - reservation.amount
        if missing > 0 and reservation.is_open:
            await self._add_to(reservation, missing)

    async def _add_to(self, reservation: Reservation, amount: int) -> None:
        # Without a budget nothing is held; what is spent is counted when it is settled.
        if amount and reservation.is_limited:
            await self._hold(reservation, amount)
        reservation.amount += amount

    async def _hold(self, reservation: Reservation, amount: int) -> None:
        claim = Claim(self._writer.new_id(), reservation.accounts, reservation.budgets, amount)
        if not self.has_one_caller:
            claim.holder = reservation.scope
        denial = await self._ask(claim)
        if denial is not None:
            raise self._short_of_money(claim, denial, reservation.amount + amount)
        part = (claim.id, amount)
        if reservation.is_open:
            reservation.parts.append(part)
        else:
            # It was settled while more was asked for.
            self._writer.settle(Settlement([part], claim.accounts, 0))

    async def _ask(self, claim: Claim) -> Denial | None:
        """What the store decides; Refusal 503 if it is lost."""
        try:
            await self._writer.claim(claim)
        except StoreError:
            raise _unavailable() from None
        return claim.denial

    def settle(self, reservation: Reservation, dollars: float | None) -> None:
        """End a reservation with the real cost; None, NaN or a negative number charges all of it."""
        settlement = self.end_reservation(reservation, dollars)
        if settlement is not None:
            self._writer.settle(settlement)

    def end_reservation(self, reservation: Reservation, dollars: float | None) -> Settlement | None:
        """As ``settle``, but what is to be kept and written is left to the caller; None if nothing is."""
        if not reservation.is_open:
            return None
        reservation.is_open = False
        amount = reservation.amount
        if dollars is not None and math.isfinite(dollars) and dollars >= 0:
            amount = parts_of(dollars)
        if not (reservation.parts or amount):
            return None
        return Settlement(tuple(reservation.parts), reservation.accounts, amount)

    def write(self, settlement: Settlement) -> None:
        """Write a settlement soon that was kept in the spool."""
        self._writer.write(settlement)

    def take_over(self, values: Any) -> bool:
        """Settle what a killed process has left in the spool; whether it can be read."""
        return self._writer.take_over(values)

    def spend(self) -> dict[str, Any]:
        """Spent, held and allowed, in dollars: for all together and each key, day and month.

        ``held`` is reserved for open requests; ``lost`` is the part of ``spent`` whose reservations have
        expired: nobody knows what those requests cost. Figures are up to a second old.
        """
        now = self._clock()
        self._watched_until = now + _WATCHED_SECONDS
        day, month = periods_at(now)
        callers = list(self._callers)
        if self.grader is not None:
            callers.append(self.grader)
        spend_of_keys = {}
        for caller in callers:
            budgets = (caller.budget_day, caller.budget_month)
            spend = self._spend_of(caller.scope, (day, month), budgets)
            if caller.scope != ANONYMOUS or spend["month"]["spent"]:
                spend_of_keys[caller.name] = spend
        return {
            "day": {"name": day.name, "renews": day.renews},
            "month": {"name": month.name, "renews": month.renews},
            "all": self._spend_of(ALL, (day, month), self._budgets),
            "keys": spend_of_keys,
            "trouble": self.trouble,
        }

    def _spend_of(
        self, scope: str, periods: Sequence[Period], budgets: Sequence[int | None]
    ) -> dict[str, Any]:
        """By window, what was spent and held of the budget."""
        spend: dict[str, Any] = {}
        for period, budget in zip(periods, budgets, strict=True):
            total = self._writer.total(Account(scope, period.name))
            spend[period.window] = {
                "spent": dollars_of(total.spent),
                "held": dollars_of(total.held),
                "lost": dollars_of(total.lost),
                "budget": dollars_or_none(budget),
            }
        return spend

    def _watched_periods(self) -> list[str]:
        """The day and month whose totals are read, at the start and while somebody looks at them."""
        now = self._clock()
        if now >= self._watched_until and self._writer.totals:
            return []
        return [period.name for period in periods_at(now)]

    def _short_of_money(self, claim: Claim, denial: Denial, request_amount: int) -> Refusal:
        """Too little money: spent, held by open requests, or more than the share of one key.

        ``request_amount`` is what the whole request may cost, with what it has reserved before.
        """
        account = claim.accounts[denial.account]
        budget = claim.budgets[denial.account] or 0
        now = self._clock()
        # The accounts are those of day and month in turn.
        period = periods_at(now)[denial.account % 2]
        left = max(0, budget - denial.spent)
        if account.scope == ALL:
            owner = "the gateway's budget"
        else:
            owner = f"the budget of {account.scope.removeprefix('key:')}"
        budget_name = f"{owner} for the {period.window}"
        if denial.over_share and 2 * request_amount > left:
            return _over_half(budget_name, left, request_amount, period, now)
        if denial.over_share or claim.amount <= left:
            return _held(budget_name, claim.amount, denial.over_share)
        return _used_up(budget_name, budget, left, claim.amount, period, now)

    def _use_keys(self, keys: list[Key], salt: bytes) -> None:
        self._callers.use(keys, salt)
        self._full_until.clear()
        for end, caller in list(self._running.items()):
            if not self._callers.knows(caller):
                end()


def _held(budget_name: str, amount: int, over_share: bool) -> Refusal:
    holders = "requests in progress have reserved too much of it"
    if over_share:
        holders = "the requests in progress of this key have reserved half of what is left of it"
    return Refusal(
        429,
        f"{_capitalized(budget_name)} has enough left for this request, which may cost "
        f"{shown_dollars(amount)}, but {holders}; try again in 1 second.",
        code="budget_held",
        retry_after=1.0,
    )


def _over_half(budget_name: str, left: int, amount: int, period: Period, now: float) -> Refusal:
    return Refusal(
        402,
        f"This request may cost {shown_dollars(amount)}, and {shown_dollars(left)} is left of "
        f"{budget_name}, of which one key may reserve at most half while there are other keys. It renews "
        f"at {_renewal(period)}; a request with a smaller max_tokens may fit now.",
        code="insufficient_quota",
        retry_after=period.renews - now,
    )


def _used_up(
    budget_name: str, budget: int, left: int, amount: int, period: Period, now: float
) -> Refusal:
    advice = ""
    if left:
        advice = "; a request with a smaller max_tokens may fit now"
    return Refusal(
        402,
        f"{_capitalized(budget_name)} is {shown_dollars(budget)}, of which {shown_dollars(left)} is left; "
        f"this request may cost {shown_dollars(amount)}. It renews at {_renewal(period)}{advice}.",
        code="insufficient_quota",
        retry_after=period.renews - now,
    )


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _renewal(period: Period) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(period.renews))


def _too_many(caller: Caller, wait: float) -> Refusal:
    limit = caller.requests_per_minute
    return Refusal(
        429,
        f"{caller.name} may make {limit} requests a minute; try again in {wait:.1f} s.",
        code="rate_limit_exceeded",
        retry_after=wait,
    )


def _unavailable() -> Refusal:
    return Refusal(
        503,
        "The store of keys and budgets cannot be reached; try again in a moment.",
        code="store_unavailable",
        retry_after=1.0,
    )
