"""Group commit: everyone who waits shares a transaction.

A file is written by the event loop itself where nobody else has its lock: that takes less time than another
thread needs to wake up. One thread per process does all that may have to wait: PostgreSQL, a locked file,
what is looked at once a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from mild.gateway.access.keys import Key
from mild.gateway.access.store import (
    AccessStore,
    Account,
    Batch,
    Claim,
    Settlement,
    StoreError,
    StoreState,
    Totals,
)
from mild.gateway.database import CommitUnknownError

# Seconds between looks at keys and expired reservations, and between attempts while the store is lost.
REFRESH_SECONDS = 1.0
# Without an answer for so long, those who wait are told that the store is lost.
SLOW_SECONDS = 5.0
# A settlement waits so long for a claim with which it can share a transaction.
SETTLE_SECONDS = 0.01
# If a transaction holds up the event loop for so long, the thread writes for a while.
_LONG_SECONDS = 0.05
_REST_SECONDS = 5.0
_MOST_CLAIMS = 1000
_MOST_TOTALS = 50_000

Waiting = tuple[Claim, asyncio.Future[None]]
Answer = tuple[Sequence[Waiting], dict[Account, Totals], Sequence[Settlement]]
logger = logging.getLogger("mild.gateway")


class StoreWriter:
    """Sends claims and settlements to the store, and reports its state to the event loop.

    The thread and the event loop use the store one at a time. ``periods`` gives the day and month whose
    totals somebody looks at; ``on_keys`` is called in the loop with all keys and their salt, at the start
    and when they have changed. ``seconds`` after its claim a reservation is charged in full.
    """

    def __init__(
        self,
        store: AccessStore,
        seconds: float,
        periods: Callable[[], Sequence[str]],
        on_keys: Callable[[list[Key], bytes], None],
    ) -> None:
        self.trouble: str | None = None
        self.totals: dict[Account, Totals] = {}
        self.workers = 1
        self._store = store
        self._seconds = seconds
        self._periods = periods
        self._on_keys = on_keys
        self._keys_version = 0
        self._name = ""
        self._numbers = iter(range(2**62))
        self._changed = threading.Condition()
        # Held by the thread, or the loop, while it uses the store.
        self._using = threading.Lock()
        self._lost = False
        # Whether the loop is about to write, at once or in a moment, and until when the thread does.
        self._writes_soon = self._writes_later = False
        self._rests_until = 0.0
        self._claims: list[Waiting] = []
        self._settlements: list[Settlement] = []
        # When the first of them came, by the clock of the event loop.
        self._settles_since = 0.0
        # Spent and released by settlements that are not written yet.
        self._pending: dict[Account, tuple[int, int]] = {}
        # Claims of the transaction under way.
        self._asked: Sequence[Waiting] = ()
        # The last transaction's marker, and a transaction of which nobody knows whether it has happened.
        self._last: str | None = None
        self._unknown: Batch | None = None
        self._closing = False
        self._thread: threading.Thread | None = None
        # Claims that wait, and the timer of all of them: it starts again with every answer.
        self._unanswered = 0
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Open the store, read the keys, start the thread. Raises MildError if the store cannot be used."""
        self._loop = asyncio.get_running_loop()
        # Named here: a worker may have been forked after it was built.
        self._name = f"{os.getpid()}-{secrets.token_hex(6)}"
        await asyncio.to_thread(self._store.open)
        await asyncio.to_thread(self._refresh)
        self._thread = threading.Thread(target=self._run, name="mild-store", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Write what waits, and close the store; one that does not answer is not waited for."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is None:
            self._store.close()
        else:
            await asyncio.to_thread(self._thread.join, SLOW_SECONDS)
            self._thread = None

    def new_id(self) -> str:
        """An id for a reservation."""
        return f"{self._name}-{next(self._numbers)}"

    async def claim(self, claim: Claim, alone: bool = False) -> None:
        """Wait until the store has decided a claim. Raises StoreError if it cannot be asked.

        One that is ``alone`` is not held back for others to join it.
        """
        if self.trouble is not None or self._thread is None or self._closing:
            raise StoreError(self.trouble or "the store is closed.")
        answer: asyncio.Future[None] = self._loop.create_future()
        with self._changed:
            self._claims.append((claim, answer))
        self._unanswered += 1
        if not self._store.is_quick:
            self._wake_thread()
        elif alone:
            self._write_now()
        elif not self._writes_soon:
            # With the claims of all requests that the loop serves in this round and the next.
            self._writes_soon = True
            self._loop.call_soon(self._loop.call_soon, self._write_now)
        try:
            await answer
        except BaseException:
            # It may be granted all the same.
            if claim.amount:
                self.settle(Settlement([(claim.id, claim.amount)], claim.accounts, 0))
            raise
        finally:
            self._unanswered -= 1
            if not self._unanswered:
                self._stop_timer()

    def settle(self, settlement: Settlement) -> None:
        """Write a settlement soon; nobody waits for it."""
        self._count_pending([settlement], 1)
        with self._changed:
            if not self._settlements:
                self._settles_since = self._loop.time()
            self._settlements.append(settlement)
            if not self._store.is_quick:
                self._changed.notify()
        if self._store.is_quick and not self._writes_later:
            self._writes_later = True
            self._loop.call_later(SETTLE_SECONDS, self._write_later)

    def _write_later(self) -> None:
        left = self._settles_since + SETTLE_SECONDS - self._loop.time()
        if self._settlements and left > 0:
            # Those of before shared a transaction with claims; these have time to find one, too.
            self._loop.call_later(left, self._write_later)
            return
        self._writes_later = False
        self._write_now()

    def _write_now(self) -> None:
        """Write in the event loop, or leave it to the thread where that may take a while."""
        self._writes_soon = False
        start = time.monotonic()
        if self._closing or not (self._claims or self._settlements):
            return
        if self._lost or start < self._rests_until or not self._using.acquire(blocking=False):
            self._wake_thread()
            return
        try:
            done = self._write(wait=False)
        except CommitUnknownError as error:
            self._lost = True
            self._lose(error)
        except Exception:
            # It is locked, or broken: the thread waits for it, or says so.
            with self._changed:
                self._claims[:0] = self._asked
                self._asked = ()
            self._wake_thread()
        else:
            self._answer(*done)
        finally:
            self._using.release()
        if time.monotonic() - start > _LONG_SECONDS:
            self._rests_until = start + _REST_SECONDS

    def _wake_thread(self) -> None:
        with self._changed:
            self._changed.notify()
        if self._timer is None and self._unanswered:
            self._timer = self._loop.call_later(SLOW_SECONDS, self._give_up)

    # The rest up to ``_post`` runs in the thread, what follows it in the event loop.

    def _run(self) -> None:
        due, closing = time.monotonic() + REFRESH_SECONDS, False
        while not closing:
            self._wait(due)
            closing = self._closing
            with self._using:
                try:
                    if time.monotonic() >= due or (closing and self._lost):
                        due = time.monotonic() + REFRESH_SECONDS
                        self._refresh()
                        self._lost = False
                    if not self._lost:
                        self._post(self._answer, *self._write())
                except Exception as error:
                    self._lost = True
                    with self._changed:
                        self._settlements = _merged(self._settlements)
                    self._post(self._lose, error)
        self._leave()

    def _wait(self, due: float) -> None:
        """Until something can be done; a settlement alone waits a moment for company."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closing or (not self._lost and (self._claims or self._settlements)),
                due - time.monotonic(),
            )
            if not self._lost:
                self._changed.wait_for(lambda: self._closing or self._claims, SETTLE_SECONDS)

    def _refresh(self) -> None:
        self._store.waits = True
        self._resolve()
        state = self._store.refresh(self._name, self._keys_version, self._periods())
        self._keys_version = state.keys_version
        with self._changed:
            self._settlements += state.expired
        self._post(self._receive, state)

    def _write(self, wait: bool = True) -> Answer:
        """Everything that waits, in one transaction; what ``_answer`` is to be told of it."""
        with self._changed:
            self._asked, self._claims = self._claims[:_MOST_CLAIMS], self._claims[_MOST_CLAIMS:]
            settlements, self._settlements = self._settlements, []
        if not (self._asked or settlements):
            return (), {}, ()
        claims = [claim for claim, answer in self._asked if not answer.done()]
        batch = Batch(self.new_id(), self._last, claims, _merged(settlements))
        try:
            self._store.waits = wait
            totals = self._store.apply(batch, self._seconds)
        except BaseException as error:
            if isinstance(error, CommitUnknownError):
                self._unknown = batch
            else:
                self._wait_again(batch)
            raise
        self._last = batch.id
        asked, self._asked = self._asked, ()
        return asked, totals, batch.settlements

    def _wait_again(self, batch: Batch) -> None:
        with self._changed:
            # Expired ones are found again.
            self._settlements[:0] = [one for one in batch.settlements if not one.lost]

    def _resolve(self) -> None:
        """Find out whether the transaction in doubt has happened; if not, its settlements wait again.

        Its claims were refused meanwhile; a settlement that ends what was granted is on its way.
        """
        batch, self._unknown = self._unknown, None
        if batch is None:
            return
        try:
            happened = self._store.has_happened(batch)
        except BaseException:
            self._unknown = batch
            raise
        if happened:
            self._last = batch.id
            self._post(self._answer, (), {}, batch.settlements)
        else:
            self._wait_again(batch)

    def _leave(self) -> None:
        # Other workers leave at the same moment.
        self._store.waits = True
        try:
            self._store.leave(self._name, self._last)
        except (StoreError, CommitUnknownError) as error:
            logger.warning("%s Requests that are not yet stored are charged as reserved.", error)
        self._store.close()
        self._post(self._refuse_all)

    def _post(self, job: Callable[..., None], *values: Any) -> None:
        """Call something in the event loop, unless that has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(job, *values)

    def _receive(self, state: StoreState) -> None:
        if self.trouble is not None:
            logger.warning("the store answers again.")
        self.trouble = None
        self.workers = state.workers
        if state.totals is not None:
            self.totals = state.totals
        if state.keys is not None:
            self._on_keys(state.keys, state.salt)

    def total(self, account: Account) -> Totals:
        """An account as it was last seen, with the settlements that are not written yet."""
        spent, held, lost = self.totals.get(account, (0, 0, 0))
        more, released = self._pending.get(account, (0, 0))
        return Totals(spent + more, max(0, held - released), lost)

    def _count_pending(self, settlements: Sequence[Settlement], sign: int) -> None:
        for one in settlements:
            released = sum(amount for _, amount in one.parts)
            for account in () if one.lost else one.accounts:
                more, less = self._pending.get(account, (0, 0))
                self._pending[account] = more + sign * one.cost, less + sign * released
                if self._pending[account] == (0, 0):
                    del self._pending[account]

    def _answer(
        self,
        asked: Sequence[Waiting],
        totals: dict[Account, Totals],
        settlements: Sequence[Settlement],
    ) -> None:
        self._count_pending(settlements, -1)
        if len(self.totals) > _MOST_TOTALS:
            self.totals.clear()
        self.totals.update(totals)
        waiting = [answer for _, answer in asked if not answer.done()]
        for answer in waiting:
            answer.set_result(None)
        self._stop_timer()
        if self._unanswered > len(waiting):
            self._timer = self._loop.call_later(SLOW_SECONDS, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        self._lose(StoreError(f"the store has not answered for {SLOW_SECONDS:g} s."))

    def _lose(self, error: Exception) -> None:
        if self.trouble is None:
            logger.warning("%s Trying again once a second.", error)
        self.trouble = str(error)
        self._refuse_all()

    def _refuse_all(self) -> None:
        with self._changed:
            waiting, self._claims = [*self._asked, *self._claims], []
        for _, answer in waiting:
            if not answer.done():
                answer.set_exception(StoreError(self.trouble or "the store is closed."))


def _merged(settlements: Sequence[Settlement]) -> list[Settlement]:
    """Spend without a reservation is added up: while the store is lost it may be much."""
    spent: dict[tuple[Account, ...], int] = {}
    kept = []
    for one in settlements:
        if one.parts:
            kept.append(one)
        else:
            spent[tuple(one.accounts)] = spent.get(tuple(one.accounts), 0) + one.cost
    return kept + [Settlement((), accounts, cost) for accounts, cost in spent.items()]
