"""Group commit: one thread per process writes to the store, and everyone who waits shares a transaction."""

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

from mild_gateway.access.keys import Key
from mild_gateway.access.store import (
    AccessStore,
    Account,
    Batch,
    Claim,
    Settlement,
    StoreError,
    StoreState,
    Totals,
)

# Seconds between looks at keys and expired reservations, and between attempts while the store is lost.
REFRESH_SECONDS = 1.0
# A claim that is not answered within so long is told that the store is lost.
SLOW_SECONDS = 5.0
# A settlement waits so long for a claim with which it can share a transaction.
SETTLE_SECONDS = 0.01
# Where requests come at the same moment: a rest between transactions, so that more share the next one.
_REST_SECONDS = 0.005
# Claims, and settlements, of one transaction.
_MOST = 1000
_MOST_TOTALS = 50_000

Waiting = tuple[Claim, asyncio.Future[None]]
logger = logging.getLogger("mild_gateway")


class StoreWriter:
    """Sends claims and settlements to the store, and reports its state to the event loop.

    ``periods`` gives the day and month whose totals somebody looks at; ``on_keys`` is called in the loop
    with all keys and their salt, at the start and when they have changed. ``seconds`` after its claim a
    reservation is charged in full. ``trouble`` says why the store is lost: until it is back, claims are
    refused and settlements wait.
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
        # What waits for the thread.
        self._changed = threading.Condition()
        self._claims: list[Waiting] = []
        self._settlements: list[Settlement] = []
        # Spent and released by settlements that are not written yet.
        self._pending: dict[Account, tuple[int, int]] = {}
        # The last transaction's marker, and one that failed: it may have happened all the same.
        self._last: str | None = None
        self._unknown: Batch | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

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
            await asyncio.to_thread(self._thread.join, 2 * SLOW_SECONDS)
            self._thread = None

    def new_id(self) -> str:
        return f"{self._name}-{next(self._numbers)}"

    async def claim(self, claim: Claim) -> None:
        """Wait until the store has decided a claim. Raises StoreError if it cannot be asked."""
        if self.trouble is not None or self._thread is None or self._closing:
            raise StoreError(self.trouble or "the store is closed.")
        answer: asyncio.Future[None] = self._loop.create_future()
        with self._changed:
            self._claims.append((claim, answer))
            self._changed.notify()
        try:
            # asyncio.timeout would drop an answer that came in time to a loop that was late itself.
            await asyncio.wait([answer], timeout=SLOW_SECONDS)
            if not answer.done():
                slow = StoreError(f"the store has not answered for {SLOW_SECONDS:g} s.")
                self._lose(slow)
                raise slow
            answer.result()
        except BaseException:
            # Nobody waits for it now; it may be granted all the same.
            answer.cancel()
            if claim.amount:
                self.settle(Settlement([(claim.id, claim.amount)], claim.accounts, 0))
            raise

    def settle(self, settlement: Settlement) -> None:
        """Write a settlement soon; nobody waits for it."""
        self._count_pending([settlement], 1)
        with self._changed:
            self._settlements.append(settlement)
            self._changed.notify()

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

    def _receive(self, state: StoreState) -> None:
        self.workers = state.workers
        if state.totals is not None:
            self.totals = state.totals
        if state.keys is not None:
            self._on_keys(state.keys, state.salt)

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
        for _, answer in asked:
            if not answer.done():
                answer.set_result(None)

    def _refuse(self, asked: Sequence[Waiting], reason: str) -> None:
        for _, answer in asked:
            if not answer.done():
                answer.set_exception(StoreError(reason))

    # The rest runs in the thread.

    def _run(self) -> None:
        due, closing = time.monotonic() + REFRESH_SECONDS, False
        while not closing:
            self._wait(due)
            closing = self._closing
            try:
                if time.monotonic() >= due or (closing and self.trouble is not None):
                    due = time.monotonic() + REFRESH_SECONDS
                    self._refresh()
                while self.trouble is None and (claims := self._write()) is not None:
                    if not closing:
                        time.sleep(_REST_SECONDS if claims > 1 else 0.0)
                        break
            except Exception as error:
                self._lose(error)
                with self._changed:
                    refused, self._claims = self._claims, []
                    self._settlements = _merged(self._settlements)
                self._post(self._refuse, refused, str(error))
        self._leave()

    def _wait(self, due: float) -> None:
        """Until something can be done; a settlement alone waits a moment for company."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closing or (self.trouble is None and (self._claims or self._settlements))
                ),
                due - time.monotonic(),
            )
            if self.trouble is None:
                self._changed.wait_for(lambda: self._closing or self._claims, SETTLE_SECONDS)

    def _refresh(self) -> None:
        self._resolve()
        state = self._store.refresh(self._name, self._keys_version, self._periods())
        self._keys_version = state.keys_version
        with self._changed:
            self._settlements += state.expired
        if self.trouble is not None:
            logger.warning("the store answers again.")
        self.trouble = None
        self._post(self._receive, state)

    def _write(self) -> int | None:
        """What waits, in one transaction; how many claims there were, None without anything."""
        with self._changed:
            asked, self._claims = self._claims[:_MOST], self._claims[_MOST:]
            some, self._settlements = self._settlements[:_MOST], self._settlements[_MOST:]
        if not (asked or some):
            return None
        claims = [claim for claim, answer in asked if not answer.done()]
        batch = Batch(self.new_id(), self._last, claims, _merged(some))
        try:
            totals = self._store.apply(batch, self._seconds)
        except BaseException:
            self._unknown = batch
            with self._changed:
                self._claims[:0] = asked
            raise
        self._last = batch.id
        self._post(self._answer, asked, totals, batch.settlements)
        return len(asked)

    def _resolve(self) -> None:
        """Find out whether the transaction that failed has happened; if not, its settlements wait again.

        Its claims were refused meanwhile; a settlement that ends what was granted is on its way.
        """
        if (batch := self._unknown) is None:
            return
        if self._store.has_happened(batch):
            self._last = batch.id
            self._post(self._answer, (), {}, batch.settlements)
        else:
            with self._changed:
                # Expired ones are found again.
                self._settlements[:0] = [one for one in batch.settlements if not one.lost]
        self._unknown = None

    def _leave(self) -> None:
        try:
            if self._unknown is not None:
                self._refresh()
                while self._write() is not None:
                    pass
            self._store.leave(self._name, self._last)
        except StoreError as error:
            logger.warning("%s Requests that are not yet stored are charged as reserved.", error)
        self._store.close()
        self._post(self._refuse, self._claims, "the store is closed.")

    def _lose(self, error: Exception) -> None:
        if self.trouble is None:
            logger.warning("%s Trying again once a second.", error)
        self.trouble = str(error)
        # Another store may come back: its keys are read, whatever their version.
        self._keys_version = 0

    def _post(self, job: Callable[..., None], *values: Any) -> None:
        """Call something in the event loop, unless that has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(job, *values)


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
