"""Who asks, how often, and for how much: the gateway's door and till."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from mild.errors import InvalidInputError
from mild.gateway.access.callers import NOBODY, Caller, Callers
from mild.gateway.access.courier import DENIED_SECONDS, Courier
from mild.gateway.access.keys import Key
from mild.gateway.access.money import dollars_of, parts_of, periods_at
from mild.gateway.access.pace import Minute, Slots
from mild.gateway.access.purse import Account, Reservation
from mild.gateway.access.sqlite import SqliteStore
from mild.gateway.access.sqlite.schema import MEMORY
from mild.gateway.access.store import AccountKey, Store, Totals
from mild.gateway.access.wording import ALL, LOST, too_dear, too_many, unavailable
from mild.gateway.config import Settings
from mild.gateway.database import Address
from mild.gateway.refusals import Refusal

__all__ = ["Access", "open_store"]

# Sums over all accounts are read while somebody asks for them.
_WATCHED_SECONDS = 30.0


def open_store(place: str | Address | None) -> Store:
    """The store in a file or at an address; without either, one in memory."""
    if isinstance(place, Address):
        from mild.gateway.access.postgres import PostgresStore

        return PostgresStore(place)
    return SqliteStore(MEMORY if place is None else place)


class Access:
    """Checks keys, counts requests, and puts money aside; the same over all workers of a store.

    Parameters
    ----------
    settings : budgets, limits, whether a key is needed, and what a lost store means
    store : shared by all workers; by default the one that the settings name
    clock : seconds since 1970

    Examples
    --------
    A request on its way::

        caller = access.identify(headers.get("authorization"))    # 401
        await access.admit(caller)                                # 429
        reservation = await access.reserve(caller, at_most)       # 402
        ...
        access.settle(reservation, real)                          # or release(reservation)
    """

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        limits = settings.access
        self._store = open_store(settings.store) if store is None else store
        self._clock = clock
        self._shared = settings.workers > 1 or isinstance(settings.store, Address)
        self._sheds = settings.sheds
        self._courier = Courier(self._store, settings.workers, clock, self._refusal, self._use_keys)
        self._purse = self._courier.purse
        self._purse.allowance = parts_of(limits.lost_allowance)
        self._callers = Callers(settings)
        self._budget_day = None if limits.budget_day is None else parts_of(limits.budget_day)
        self._budget_month = None if limits.budget_month is None else parts_of(limits.budget_month)
        self._minutes: dict[str, Minute] = {}
        # Accounts of a caller, by scope, until the day is over.
        self._books: dict[str, tuple[Account, ...]] = {}
        self._renews = 0.0

    @property
    def trouble(self) -> str | None:
        """Why the store cannot be reached; None when all is well."""
        return self._courier.trouble

    async def start(self) -> None:
        """Open the store and read the keys. Raises MildError if the store cannot be used."""
        await self._courier.start()

    async def close(self) -> None:
        """Report what was spent, give back what is held."""
        await self._courier.close()

    def identify(self, authorization: str | None) -> Caller:
        """Whose key this is, by the value of the Authorization header; Refusal 401."""
        return self._callers.identify(authorization)

    async def admit(self, caller: Caller) -> None:
        """Count a request against the caller's requests per minute; Refusal 429.

        Where the settings say so, nobody is admitted while the store is lost: Refusal 503.
        """
        if self._sheds and self._courier.trouble is not None:
            raise unavailable()
        limit = caller.requests_per_minute
        if limit is None:
            return
        now = self._clock()
        if self._shared:
            wait = await self._wait_for_slot(caller.scope, limit, now)
        else:
            wait = self._minutes[caller.scope].wait(now)
        if wait > 0:
            raise too_many(caller.name, limit, wait)

    async def _wait_for_slot(self, scope: str, limit: int, now: float) -> float:
        """0, or seconds to wait. While the store is lost, each worker keeps to its share of the minute."""
        slots = self._courier.slots[scope]
        if slots.take(now):
            return 0.0
        wait = slots.refused_until - now
        if 0.0 < wait <= 1.0:
            return wait
        try:
            return await self._courier.fetch_slot(slots)
        except Refusal as refusal:
            share = limit // self._courier.workers
            if self._sheds or refusal.code != LOST or not share:
                raise
            known = self._minutes.get(scope)
            if known is None or known.limit != share:
                known = self._minutes[scope] = Minute(share)
            return known.wait(now)

    async def reserve(self, caller: Caller, dollars: float) -> Reservation:
        """Put money aside for a request, at most what it may cost.

        Raises
        ------
        Refusal : 402 if a budget has less than that; 429 if it has, but for requests that are under
            way; 503 if the store cannot be asked
        """
        amount = _checked(dollars)
        accounts = self._accounts_of(caller)
        reservation = self._purse.take(accounts, amount)
        if reservation is not None:
            return reservation
        self._refuse_again(accounts, amount)
        return await self._fetch(accounts, amount)

    async def enlarge(self, reservation: Reservation, dollars: float) -> None:
        """Raise what is put aside to ``dollars``, for an expert that may cost more; as ``reserve``."""
        more = _checked(dollars) - reservation.amount
        if more <= 0 or not reservation.is_open or self._purse.add(reservation, more):
            return
        self._refuse_again(reservation.accounts, more)
        fetched = await self._fetch(reservation.accounts, more)
        self._purse.merge(reservation, fetched)

    async def _fetch(self, accounts: Sequence[Account], amount: int) -> Reservation:
        """Ask the store; if it is lost, what the settings allow may be spent beyond all that is held."""
        try:
            return await self._courier.fetch_money(accounts, amount)
        except Refusal as refusal:
            if self._sheds or refusal.code != LOST or not self._purse.credit:
                raise
            for account in self._purse.short(accounts, amount):
                # Known to be spent, whatever others have spent since.
                if account.known_left < amount:
                    raise self._refusal(account, amount) from None
            reservation = self._purse.take_on_credit(accounts, amount)
            if reservation is None:
                raise
            return reservation

    def settle(self, reservation: Reservation, dollars: float | None) -> None:
        """End a reservation with what the request cost; None or nonsense counts as all of it."""
        amount = reservation.amount
        if dollars is not None and math.isfinite(dollars) and dollars >= 0:
            amount = parts_of(dollars)
        self._purse.settle(reservation, amount)

    def release(self, reservation: Reservation) -> None:
        """End a reservation of a request that cost nothing."""
        self._purse.settle(reservation, 0)

    def spend(self) -> dict[str, Any]:
        """Spent, held and allowed, in dollars: for all together and each key, day and month.

        ``held`` is put aside for requests to come or under way; ``lost`` is the part of ``spent`` that
        killed workers held, and nobody knows whether they spent it. Other workers' figures are up
        to a second old.
        """
        now = self._clock()
        self._courier.watched_until = now + _WATCHED_SECONDS
        day, month = periods_at(now)
        keys = {}
        for caller in self._callers:
            lines = {
                "day": self._line(caller.scope, day.name, caller.budget_day),
                "month": self._line(caller.scope, month.name, caller.budget_month),
            }
            if caller.scope != NOBODY or lines["month"]["spent"]:
                keys[caller.name] = lines
        return {
            "day": {"name": day.name, "renews": day.renews},
            "month": {"name": month.name, "renews": month.renews},
            "all": {
                "day": self._line(ALL, day.name, self._budget_day),
                "month": self._line(ALL, month.name, self._budget_month),
            },
            "keys": keys,
            "trouble": self.trouble,
        }

    def _line(self, scope: str, period: str, budget: int | None) -> dict[str, float | None]:
        account = AccountKey(scope, period)
        totals = self._courier.totals.get(account, Totals(0, 0, 0))
        mine = self._purse.accounts.get(account)
        # Spent here since the last exchange, and still counted as held there.
        used = 0 if mine is None else mine.used
        return {
            "spent": dollars_of(totals.spent + used),
            "held": dollars_of(max(0, totals.held - used)),
            "lost": dollars_of(totals.lost),
            "budget": None if budget is None else dollars_of(budget),
        }

    def _accounts_of(self, caller: Caller) -> tuple[Account, ...]:
        now = self._clock()
        if now >= self._renews:
            self._books.clear()
            self._renews = periods_at(now)[0].renews
            self._purse.credit = self._purse.allowance
        found = self._books.get(caller.scope)
        if found is None:
            day, month = periods_at(now)
            found = (
                self._purse.account(caller.scope, day, caller.budget_day),
                self._purse.account(caller.scope, month, caller.budget_month),
                self._purse.account(ALL, day, self._budget_day),
                self._purse.account(ALL, month, self._budget_month),
            )
            self._books[caller.scope] = found
        return found

    def _refuse_again(self, accounts: Sequence[Account], amount: int) -> None:
        """Answer at once what the store has just said no to."""
        now = self._clock()
        for account in self._purse.short(accounts, amount):
            # Not longer than that, even where the clock was set back.
            if 0.0 < account.denied_until - now <= DENIED_SECONDS:
                raise self._refusal(account, amount)

    def _refusal(self, account: Account, amount: int) -> Refusal:
        return too_dear(account, amount, self._clock())

    def _use_keys(self, keys: list[Key], salt: bytes) -> None:
        """Know the keys that the store has now; what was counted goes on."""
        self._callers.use(keys, salt)
        self._books.clear()
        for caller in self._callers:
            limit = caller.requests_per_minute
            if limit is None:
                continue
            if self._shared:
                slots = self._courier.slots.setdefault(caller.scope, Slots(caller.scope, limit))
                slots.limit = limit
            elif (known := self._minutes.get(caller.scope)) is None or known.limit != limit:
                self._minutes[caller.scope] = Minute(limit)


def _checked(dollars: float) -> int:
    if not math.isfinite(dollars) or dollars < 0:
        raise InvalidInputError(f"dollars must be a finite number of at least 0; got {dollars!r}.")
    return parts_of(dollars)
