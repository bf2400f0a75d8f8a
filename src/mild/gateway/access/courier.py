"""Between a worker and the store: one thread, one exchange at a time, everyone who waits in one go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mild.gateway.access.keys import Key
from mild.gateway.access.money import periods_at
from mild.gateway.access.owners import new_owner
from mild.gateway.access.pace import Slots
from mild.gateway.access.purse import Account, Purse, Reservation
from mild.gateway.access.store import (
    AccountKey,
    Exchange,
    Owner,
    SlotReturn,
    Store,
    StoreDoubtError,
    StoreError,
    Totals,
    Transacted,
)
from mild.gateway.access.totals import follow
from mild.gateway.access.waiting import Waiting, Wish
from mild.gateway.access.wording import unavailable
from mild.gateway.refusals import Refusal

__all__ = ["DENIED_SECONDS", "Courier"]

BEAT_SECONDS = 1.0
# After a refusal the store is not asked for the same account again for so long.
DENIED_SECONDS = 0.2
# An exchange that takes longer is taken for a store that was lost, until it answers.
SLOW_SECONDS = 5.0
# Others may take what was fetched for a request; after so many errands it is told to come again.
_ROUNDS = 4

Result = TypeVar("Result")
Refuse = Callable[[Account, int], Refusal]
logger = logging.getLogger("mild.gateway")


class Courier:
    """Carries reports to the store, and money and slots back.

    Parameters
    ----------
    store : called in a thread of its own
    workers : that share the store
    clock : seconds since 1970
    refuse : how a request is told that an account has too little
    on_keys : called with all keys and their salt, at the start and when they have changed
    """

    def __init__(
        self,
        store: Store,
        workers: int,
        clock: Callable[[], float],
        refuse: Refuse,
        on_keys: Callable[[list[Key], bytes], None],
    ) -> None:
        self.purse = Purse()
        self.slots: dict[str, Slots] = {}
        self.totals: dict[AccountKey, Totals] = {}
        # Why the store cannot be reached, in one sentence; None when all is well.
        self.trouble: str | None = None
        # Until this moment somebody looks at the totals.
        self.watched_until = 0.0
        # That share the store, as it knew last.
        self.workers = self._workers = workers
        self._store = store
        self._clock = clock
        self._refuse = refuse
        self._on_keys = on_keys
        self._keys_version = 0
        self._number = 0
        # Said, and perhaps heard: said again before anything else.
        self._unsure: Exchange | None = None
        self._owner: Owner | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mild-store")
        self._waiting = Waiting()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._leaving = False

    async def start(self) -> None:
        """Open the store and begin to beat.

        Raises
        ------
        MildError : the store cannot be used at all
        """
        await self.call(self._store.open)
        # Here, and not before: a worker may have been forked in between.
        self._owner = new_owner()
        await self._exchange(beat=True)
        if self.trouble is not None:
            raise StoreError(self.trouble)
        self._task = asyncio.create_task(self._run(), name="mild-store")

    async def close(self) -> None:
        """Report everything, give the rest back, and leave the store."""
        self._leaving = True
        if self._task is not None:
            self._wake.set()
            await self._task
            self._task = None
            await self._exchange(beat=True, leaving=True)
        await self.call(self._store.close)
        self._thread.shutdown(wait=False)

    async def call(self, job: Callable[[], Result]) -> Result:
        """Run something in the store's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    async def fetch_money(self, accounts: Sequence[Account], amount: int) -> Reservation:
        """Wait for the store's word on a request that the purse cannot cover."""
        wish = Wish(accounts, amount, asyncio.get_running_loop().create_future())
        self._ask()
        self._waiting.wishes.append(wish)
        try:
            return await wish.answer
        except asyncio.CancelledError:
            # The money came, and nobody was there any more.
            if wish.answer.done() and not wish.answer.cancelled() and not wish.answer.exception():
                self.purse.settle(wish.answer.result(), 0)
            raise

    async def fetch_slot(self, slots: Slots) -> float:
        """Wait for the store's word on one more request; 0, or seconds to wait."""
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._ask()
        self._waiting.queues.setdefault(slots.scope, []).append(answer)
        return await answer

    def _ask(self) -> None:
        # While it is lost it is tried once a second, however many requests come.
        lost = self.trouble is not None
        if lost or self._task is None or self._task.done() or self._leaving:
            raise unavailable()
        self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        beat = loop.time() + BEAT_SECONDS
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), max(0.0, beat - loop.time()))
                self._wake.clear()
                if self._leaving:
                    break
                due = loop.time() >= beat
                if due:
                    beat = loop.time() + BEAT_SECONDS
                await self._exchange(beat=due)
        finally:
            # Whatever ended it, nobody is left waiting.
            self._waiting.take().refuse(unavailable())

    async def _exchange(self, beat: bool, leaving: bool = False) -> None:
        """Say and ask everything at once, and let those go on who waited."""
        if self._unsure is not None and not await self._say_again(self._unsure):
            return
        waiting = self._waiting.take()
        asked = self._asked(waiting, beat, leaving)
        try:
            done = await self._transact(asked, waiting)
        except StoreError as error:
            if isinstance(error, StoreDoubtError):
                self._unsure = asked
            else:
                self.purse.restore(asked.reports)
                for returned in asked.slot_returns:
                    self.slots[returned.scope].restore(returned)
            self._lose(error, waiting)
            return
        self._receive(asked, done)
        self._grant_money(waiting.wishes, asked, done)
        self._grant_slots(waiting, done)
        if beat:
            self.purse.forget(self._clock())

    async def _say_again(self, asked: Exchange) -> bool:
        """An exchange that was in doubt, for which nobody waits any more; whether it has happened now."""
        try:
            done = await self._transact(asked, Waiting())
        except StoreError as error:
            self._lose(error, Waiting())
            return False
        self._unsure = None
        self._receive(asked, done)
        for scope, grant in done.slots.items():
            self.slots[scope].receive(grant)
        return True

    async def _transact(self, asked: Exchange, waiting: Waiting) -> Transacted:
        """Ask the store; those who wait are sent away when it takes too long."""
        answer = asyncio.ensure_future(self.call(lambda: self._store.exchange(asked)))
        if not (await asyncio.wait({answer}, timeout=SLOW_SECONDS))[0]:
            slow = StoreError(f"the store has not answered for {SLOW_SECONDS:g} s.")
            self._lose(slow, waiting)
        return await answer

    def _receive(self, asked: Exchange, done: Transacted) -> None:
        if self.trouble is not None:
            logger.warning("the store answers again.")
        self.trouble = None
        self.workers = done.workers
        if done.lost:
            self.purse.lose()
        self.purse.receive(done.grants)
        self.totals = follow(self.totals, asked, done)
        self._keys_version = done.keys_version
        if done.keys is not None:
            self._on_keys(done.keys, done.salt)

    def _lose(self, error: StoreError, waiting: Waiting) -> None:
        """The store is gone for now; who waits is told so."""
        if self.trouble is None and self._task is not None:
            logger.warning("%s It is tried again once a second.", error)
        self.trouble = str(error)
        for some in (waiting, self._waiting.take()):
            some.refuse(unavailable())

    def _asked(self, waiting: Waiting, beat: bool, leaving: bool) -> Exchange:
        if self._owner is None:
            raise StoreError("the store was not opened; call start() first.")
        now = self._clock()
        periods = [period.name for period in periods_at(now)]
        watched = beat and (now < self.watched_until or not self._keys_version)
        reports = self.purse.report(beat, leaving)
        returns: list[SlotReturn] = []
        for scope, slots in self.slots.items():
            # Those who ask get a new lot; on a beat a quiet worker gives its lot back.
            if (beat and not slots.beat()) or scope in waiting.queues or leaving:
                returns += slots.give_back()
        self._number += 1
        return Exchange(
            self._owner,
            now,
            self._workers,
            self._number,
            reports=reports,
            draws=self.purse.draws((wish.accounts, wish.amount) for wish in waiting.wishes),
            slot_returns=returns,
            slot_draws=[
                self.slots[scope].draw(len(queue)) for scope, queue in waiting.queues.items()
            ],
            beat=beat,
            totals_of=periods if watched else (),
            keys_version=self._keys_version,
            leaving=leaving,
        )

    def _grant_money(self, wishes: list[Wish], asked: Exchange, done: Transacted) -> None:
        """First come, first served; who asks for more than there is, is told so."""
        denied = {
            draw.account for draw in asked.draws if done.grants[draw.account].amount < draw.need
        }
        for wish in wishes:
            if wish.answer.done():
                continue
            reservation = self.purse.take(wish.accounts, wish.amount)
            if reservation is not None:
                wish.answer.set_result(reservation)
                continue
            short = self.purse.short(wish.accounts, wish.amount)
            gone = [account for account in short if account.key in denied]
            wish.rounds += 1
            if not gone and wish.rounds < _ROUNDS and not self._leaving:
                self._waiting.wishes.append(wish)
                self._wake.set()
                continue
            account = gone[0] if gone else short[0]
            account.denied_until = self._clock() + DENIED_SECONDS
            wish.answer.set_exception(self._refuse(account, wish.amount))

    def _grant_slots(self, waiting: Waiting, done: Transacted) -> None:
        now = self._clock()
        for scope, queue in waiting.queues.items():
            slots, grant = self.slots[scope], done.slots[scope]
            slots.receive(grant)
            for answer in queue:
                if answer.done():
                    continue
                answer.set_result(0.0 if slots.take(now) else slots.refuse(grant, now))
