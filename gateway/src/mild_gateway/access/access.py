"""Authentication, rate limits and budgets, as a request sees them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mild_gateway.access.dollars import dollars_of, parts_of, shown_dollars
from mild_gateway.access.keys import ANONYMOUS, Caller, Callers, Key, revoked_key
from mild_gateway.access.periods import DAY, periods_at
from mild_gateway.access.store import WINDOW, AccessStore, Account, Claim, Settlement, StoreError
from mild_gateway.access.writer import StoreWriter
from mild_gateway.config import Settings
from mild_gateway.experts.prices import Usage
from mild_gateway.refusals import Refusal

# The scope of all keys together.
ALL = "*"
# Seconds that a request may take, and after them until its reservation is charged in full.
TOTAL_SECONDS = 600.0
GRACE_SECONDS = 60.0
# Totals of all accounts are read for so long after somebody has looked at them.
_WATCHED_SECONDS = 30.0


class Reservation:
    """Money reserved for one request, in billionths of a dollar, until it is settled or released.

    ``parts`` are the rows of the store that make it up, by id and amount; ``credit`` is what was allowed
    while the store was lost.
    """

    def __init__(self, accounts: Sequence[Account], budgets: Sequence[int | None]) -> None:
        self.accounts = accounts
        self.budgets = budgets
        self.parts: list[tuple[str, int]] = []
        self.amount = self.credit = 0
        self.is_open = True


class Access:
    """Checks keys, counts requests and reserves money, the same over all workers of a store.

    What happens to a request::

        caller = access.identify(headers.get("authorization"))    # 401
        await access.admit(caller)                                # 429, 503
        reservation = await access.reserve(caller, at_most)       # 402, 429, 503
        ...
        access.settle(reservation, real)                          # 0.0 releases it
    """

    def __init__(
        self,
        settings: Settings,
        store: AccessStore | None = None,
        clock: Callable[[], float] = time.time,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        limits = settings.access
        self._clock = clock
        self._sheds = settings.sheds
        self._workers = settings.workers
        # Pays for grades; no key has its name.
        self.grader = None
        if settings.grading is not None:
            budget = parts_of(settings.grading.budget_day)
            self.grader = Key("(grader)", b"(grader)", "", 0.0, budget_day=budget)
        self._writer = StoreWriter(
            AccessStore(settings.store, clock) if store is None else store,
            total_seconds + GRACE_SECONDS,
            self._watched,
            self._use_keys,
        )
        self._callers = Callers(settings)
        self._budgets = tuple(
            None if dollars is None else parts_of(dollars)
            for dollars in (limits.budget_day, limits.budget_month)
        )
        self._always_reserves = any(budget is not None for budget in self._budgets) and all(
            expert.price.of(Usage(1, 1)) > 0 for expert in settings.experts
        )
        # What may be spent in a day while the store is lost.
        self._allowance = self._credit = parts_of(limits.lost_allowance)
        self._renews = 0.0
        # Until when a scope has no request left; times of requests admitted without the store.
        self._full_until: dict[str, float] = {}
        self._admitted: dict[str, deque[float]] = {}
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
        if self.trouble is None:
            return False
        renewed = self._allowance and self._clock() >= self._renews
        return self._sheds or (self._always_reserves and not self._credit and not renewed)

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
        """Count a request of the minute. Refusal 429 if that is full, 503 if the store cannot be asked."""
        if self._sheds and self._writer.trouble is not None:
            raise _unavailable()
        rate = caller.requests_per_minute
        if rate is None:
            return
        wait = self._full_until.get(caller.scope, 0.0) - self._clock()
        # Not longer than that, even if the clock was set back.
        if 0.0 < wait <= WINDOW:
            raise _too_many(caller, wait)
        claim = Claim(self._writer.new_id(), (), (), 0, caller.scope, rate)
        try:
            await self._writer.claim(claim)
        except StoreError:
            if self._sheds:
                raise _unavailable() from None
            self._admit_alone(caller, rate)
        if claim.denial is not None:
            self._full_until[caller.scope] = self._clock() + claim.denial.wait
            raise _too_many(caller, claim.denial.wait)

    def watch(self, caller: Caller, end: Callable[[], None]) -> None:
        """Call ``end``, until ``unwatch(end)``, when the key is revoked; Refusal 401 if it was already."""
        if not self._callers.knows(caller):
            raise revoked_key()
        self._running[end] = caller

    def unwatch(self, end: Callable[[], None]) -> None:
        """The request has ended."""
        self._running.pop(end, None)

    async def reserve(self, caller: Caller, dollars: float) -> Reservation:
        """Reserve the most that a request may cost.

        Refusal 429 if a budget is held by open requests; 402 if too little of it is left; 503 if the store
        cannot be asked.
        """
        now = self._clock()
        periods = periods_at(now)
        # Also of a day before, if the clock was set back.
        if not 0 < self._renews - now <= DAY:
            self._renews = periods[0].renews
            self._credit = self._allowance
        accounts = [Account(scope, one.name) for scope in (caller.scope, ALL) for one in periods]
        budgets = (caller.budget_day, caller.budget_month, *self._budgets)
        reservation = Reservation(accounts, budgets)
        await self._claim(reservation, parts_of(dollars))
        return reservation

    async def enlarge(self, reservation: Reservation, dollars: float) -> None:
        """Raise the reserved amount to ``dollars``, for an expert that may cost more; as ``reserve``."""
        more = parts_of(dollars) - reservation.amount
        if more > 0 and reservation.is_open:
            await self._claim(reservation, more)

    async def _claim(self, reservation: Reservation, amount: int) -> None:
        # Without a budget nothing is held; what is spent is counted when it is settled.
        if amount and any(budget is not None for budget in reservation.budgets):
            claim = Claim(self._writer.new_id(), reservation.accounts, reservation.budgets, amount)
            try:
                await self._writer.claim(claim)
            except StoreError:
                self._go_on_without_store(reservation, amount)
            else:
                if claim.denial is not None:
                    raise self._too_dear(reservation, *claim.denial[1:], amount)
                if reservation.is_open:
                    reservation.parts.append((claim.id, amount))
                else:
                    # It was settled while more was asked for.
                    self._writer.settle(Settlement([(claim.id, amount)], claim.accounts, 0))
        reservation.amount += amount

    def _go_on_without_store(self, reservation: Reservation, amount: int) -> None:
        """What the settings allow to be spent while the store is lost."""
        if self._sheds or not self._credit:
            raise _unavailable() from None
        pairs = zip(reservation.accounts, reservation.budgets, strict=True)
        for i, (account, budget) in enumerate(pairs):
            known = self._writer.total(account)
            # Known to be spent, whatever others have spent since.
            if budget is not None and known.spent + known.held + amount > budget:
                raise self._too_dear(reservation, i, known.spent, amount) from None
        if amount > self._credit:
            raise _unavailable() from None
        self._credit -= amount
        reservation.credit += amount

    def _admit_alone(self, caller: Caller, limit: int) -> None:
        """While the store is lost, each worker has its share of the minute."""
        share = limit // max(self._workers, self._writer.workers)
        if not share:
            raise _unavailable()
        now = self._clock()
        times = self._admitted.setdefault(caller.scope, deque())
        while times and not 0.0 <= now - times[0] < 60.0:
            times.popleft()
        if len(times) >= share:
            raise _too_many(caller, times[0] + 60.0 - now)
        times.append(now)

    def settle(self, reservation: Reservation, dollars: float | None) -> None:
        """End a reservation with the real cost; None, NaN or a negative number charges all of it."""
        if not reservation.is_open:
            return
        reservation.is_open = False
        amount = reservation.amount
        if dollars is not None and math.isfinite(dollars) and dollars >= 0:
            amount = parts_of(dollars)
        unused = max(0, min(reservation.credit, reservation.amount - amount))
        self._credit = min(self._allowance, self._credit + unused)
        if reservation.parts or amount:
            self._writer.settle(Settlement(tuple(reservation.parts), reservation.accounts, amount))

    def spend(self) -> dict[str, Any]:
        """Spent, held and allowed, in dollars: for all together and each key, day and month.

        ``held`` is reserved for open requests; ``lost`` is the part of ``spent`` whose reservations have
        expired: nobody knows what those requests cost. Figures are up to a second old.
        """
        now = self._clock()
        self._watched_until = now + _WATCHED_SECONDS
        day, month = periods_at(now)

        def lines(scope: str, budgets: Sequence[int | None]) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for period, budget in zip((day, month), budgets, strict=True):
                total = self._writer.total(Account(scope, period.name))
                found[period.window] = {
                    **{name: dollars_of(value) for name, value in total._asdict().items()},
                    "budget": None if budget is None else dollars_of(budget),
                }
            return found

        keys = {}
        for caller in (*self._callers, *([self.grader] if self.grader else [])):
            found = lines(caller.scope, (caller.budget_day, caller.budget_month))
            if caller.scope != ANONYMOUS or found["month"]["spent"]:
                keys[caller.name] = found
        return {
            "day": {"name": day.name, "renews": day.renews},
            "month": {"name": month.name, "renews": month.renews},
            "all": lines(ALL, self._budgets),
            "keys": keys,
            "trouble": self.trouble,
        }

    def _watched(self) -> list[str]:
        now = self._clock()
        # At the start, too: what is known to be spent is closed if the store is lost.
        if now >= self._watched_until and self._writer.totals:
            return []
        return [period.name for period in periods_at(now)]

    def _too_dear(self, reservation: Reservation, place: int, spent: int, amount: int) -> Refusal:
        """Too little money: spent, or only held by open requests."""
        account, budget = reservation.accounts[place], reservation.budgets[place] or 0
        window, _, renews = periods_at(self._clock())[place % 2]
        whose = "The gateway's budget"
        if account.scope != ALL:
            whose = f"The budget of {account.scope.removeprefix('key:')}"
        left = max(0, budget - spent)
        if amount <= left:
            return Refusal(
                429,
                f"{whose} for the {window} has enough left for this request, which may cost "
                f"{shown_dollars(amount)}, but requests in progress have reserved too much of it; "
                "try again in 1 second.",
                code="budget_held",
                retry_after=1.0,
            )
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(renews))
        smaller = "; a request with a smaller max_tokens may fit now" if left else ""
        return Refusal(
            402,
            f"{whose} for the {window} is {shown_dollars(budget)}, of which {shown_dollars(left)} is left; "
            f"this request may cost {shown_dollars(amount)}. It renews at {until}{smaller}.",
            code="insufficient_quota",
            retry_after=renews - self._clock(),
        )

    def _use_keys(self, keys: list[Key], salt: bytes) -> None:
        self._callers.use(keys, salt)
        self._full_until.clear()
        for end, caller in list(self._running.items()):
            if not self._callers.knows(caller):
                end()


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
