"""Group commit: one thread per process writes to the store, and everyone who waits shares a transaction."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from mild_gateway.access.accounts import (
    NOTHING,
    Account,
    Batch,
    Claim,
    Settlement,
    Totals,
)
from mild_gateway.access.keys import Key
from mild_gateway.access.store import AccessStore, StoreError, StoreState
from mild_gateway.database.spool import SETTLEMENT, Spool

# Seconds between looks at keys and expired reservations, and between attempts while the store is lost.
REFRESH_SECONDS = 1.0
# A claim that is not answered within so long is told that the store is lost.
SLOW_SECONDS = 5.0
# A settlement waits so long for a claim with which it can share a transaction.
SETTLE_SECONDS = 0.01
# Where requests come at the same moment: a rest between transactions, so that more share the next one.
_REST_SECONDS = 0.005
# Claims, and settlements, of one transaction.
_BATCH_SIZE = 1000
_MAX_TOTALS = 50_000

logger = logging.getLogger("mild_gateway")


class WaitingClaim(NamedTuple):
    """A claim and the future of the request that waits for its decision."""

    claim: Claim
    decided: asyncio.Future[None]


class StoreWriter:
    """Sends claims and settlements to the store, and reports its state to the event loop.

    ``periods`` gives the day and month whose totals somebody looks at; ``on_keys`` is called in the loop
    with all keys and their salt, at the start and when they have changed. ``seconds`` after its claim a
    reservation is charged in full. ``trouble`` says why the store is lost: until it is back, claims are
    refused and settlements wait. Settlements of reservations are in the spool until they are written: if
    this process is killed, the next one writes them (``take_over``).
    """

    def __init__(
        self,
        store: AccessStore,
        seconds: float,
        periods: Callable[[], Sequence[str]],
        on_keys: Callable[[list[Key], bytes], None],
        spool: Spool,
    ) -> None:
        self.trouble: str | None = None
        self.totals: dict[Account, Totals] = {}
        self._store = store
        self._seconds = seconds
        self._periods = periods
        self._on_keys = on_keys
        self._spool = spool
        self._keys_version = 0
        self._name = ""
        self._numbers = itertools.count()
        # What waits for the thread.
        self._changed = threading.Condition()
        self._claims: list[WaitingClaim] = []
        self._settlements: list[Settlement] = []
        # What the settlements that are not written yet add to ``spent`` and take from ``held``.
        self._unwritten_cost: Counter[Account] = Counter()
        self._unwritten_release: Counter[Account] = Counter()
        # The last transaction's marker, and one that failed: it may have happened all the same.
        self._last_batch_id: str | None = None
        self._batch_in_doubt: Batch | None = None
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
        """An id of a claim or batch that no other process uses."""
        return f"{self._name}-{next(self._numbers)}"

    async def claim(self, claim: Claim) -> None:
        """Wait until the store has decided a claim. Raises StoreError if it cannot be asked."""
        if self.trouble is not None:
            raise StoreError(self.trouble)
        if self._thread is None or self._closing:
            raise StoreError("the store is closed.")
        decided: asyncio.Future[None] = self._loop.create_future()
        with self._changed:
            self._claims.append(WaitingClaim(claim, decided))
            self._changed.notify()
        try:
            await self._wait_for(decided)
        except BaseException:
            # Nobody waits for it now; it may be granted all the same.
            decided.cancel()
            if claim.amount:
                self.settle(Settlement([(claim.id, claim.amount)], claim.accounts, 0))
            raise

    async def _wait_for(self, decided: asyncio.Future[None]) -> None:
        # asyncio.timeout would drop an answer that came in time to a loop that was late itself.
        await asyncio.wait([decided], timeout=SLOW_SECONDS)
        if not decided.done():
            error = StoreError(f"the store has not answered for {SLOW_SECONDS:g} s.")
            self._lose(error)
            raise error
        decided.result()

    def settle(self, settlement: Settlement) -> None:
        """Keep a settlement, and write it soon; nobody waits for it."""
        self._spool.append(settlement_parts(settlement))
        self.write(settlement)

    def write(self, settlement: Settlement) -> None:
        """Write a settlement soon that is in the spool, if it has to be."""
        self._count_unwritten(settlement, 1)
        with self._changed:
            self._settlements.append(settlement)
            self._changed.notify()

    def take_over(self, values: Any) -> bool:
        """Settle what a killed process has left in the spool; it may have been settled before.

        Whether the values are a settlement at all.
        """
        try:
            parts, account_names, cost = values
            charged = [Account(*name) for name in account_names]
        except (ValueError, TypeError):
            return False
        self.write(Settlement(parts, charged, cost, is_repeated=True))
        return True

    def total(self, account: Account) -> Totals:
        """An account as it was last seen, with the settlements that are not written yet."""
        spent, held, lost = self.totals.get(account, NOTHING)
        spent += self._unwritten_cost[account]
        held -= self._unwritten_release[account]
        return Totals(spent, max(0, held), lost)

    def _count_unwritten(self, settlement: Settlement, sign: int) -> None:
        """Count a settlement that waits (1), or that was written (-1)."""
        if settlement.lost:
            return
        released = sum(amount for _, amount in settlement.parts)
        for account in settlement.accounts:
            self._unwritten_cost[account] += sign * settlement.cost
            self._unwritten_release[account] += sign * released
            # Accounts of days that are over must not stay in memory.
            if not (self._unwritten_cost[account] or self._unwritten_release[account]):
                del self._unwritten_cost[account]
                del self._unwritten_release[account]

    def _receive(self, state: StoreState) -> None:
        if state.totals is not None:
            self.totals = state.totals
        if state.keys is not None:
            self._on_keys(state.keys, state.salt)

    def _answer(
        self,
        decided: Sequence[WaitingClaim],
        totals: dict[Account, Totals],
        settlements: Sequence[Settlement],
    ) -> None:
        for settlement in settlements:
            self._count_unwritten(settlement, -1)
        if len(self.totals) > _MAX_TOTALS:
            self.totals.clear()
        self.totals.update(totals)
        for waiting in decided:
            if not waiting.decided.done():
                waiting.decided.set_result(None)

    def _refuse(self, refused: Sequence[WaitingClaim], reason: str) -> None:
        for waiting in refused:
            if not waiting.decided.done():
                waiting.decided.set_exception(StoreError(reason))

    # The rest runs in the thread.

    def _run(self) -> None:
        refresh_at = time.monotonic() + REFRESH_SECONDS
        closing = False
        while not closing:
            self._wait(refresh_at)
            closing = self._closing
            try:
                if time.monotonic() >= refresh_at or (closing and self.trouble is not None):
                    refresh_at = time.monotonic() + REFRESH_SECONDS
                    self._refresh()
                if closing:
                    self._write_all()
                else:
                    self._write_and_rest()
            except Exception as error:
                self._lose(error)
                self._refuse_waiting(str(error))
        self._leave()

    def _wait(self, until: float) -> None:
        """Until something can be done; a settlement alone waits a moment for company."""
        with self._changed:
            self._changed.wait_for(self._has_work, until - time.monotonic())
            if self.trouble is None:
                self._changed.wait_for(lambda: self._closing or self._claims, SETTLE_SECONDS)

    def _has_work(self) -> bool:
        if self._closing:
            return True
        return self.trouble is None and bool(self._claims or self._settlements)

    def _refresh(self) -> None:
        self._resolve_doubt()
        state = self._store.refresh(self._name, self._keys_version, self._periods())
        self._keys_version = state.keys_version
        with self._changed:
            self._settlements += state.expired
        if self.trouble is not None:
            logger.warning("the store answers again.")
        self.trouble = None
        self._post(self._receive, state)

    def _write_and_rest(self) -> None:
        if self.trouble is not None:
            return
        n_claims = self._write()
        if n_claims is not None and n_claims > 1:
            time.sleep(_REST_SECONDS)

    def _write_all(self) -> None:
        while self.trouble is None and self._write() is not None:
            pass

    def _write(self) -> int | None:
        """What waits, in one transaction; how many claims there were, None without anything."""
        with self._changed:
            waiting_claims = self._claims[:_BATCH_SIZE]
            settlements = self._settlements[:_BATCH_SIZE]
            del self._claims[:_BATCH_SIZE]
            del self._settlements[:_BATCH_SIZE]
        if not (waiting_claims or settlements):
            return None
        claims = [waiting.claim for waiting in waiting_claims if not waiting.decided.done()]
        batch = Batch(self.new_id(), self._last_batch_id, claims, _merged(settlements))
        try:
            totals = self._store.apply(batch, self._seconds)
        except BaseException:
            self._batch_in_doubt = batch
            with self._changed:
                self._claims[:0] = waiting_claims
            raise
        self._last_batch_id = batch.id
        self._spool.written(SETTLEMENT, _n_spooled(batch.settlements))
        self._post(self._answer, waiting_claims, totals, batch.settlements)
        return len(waiting_claims)

    def _resolve_doubt(self) -> None:
        """Find out whether the transaction that failed has happened; if not, its settlements wait again.

        Its claims were refused meanwhile; a settlement that ends what was granted is on its way.
        """
        batch = self._batch_in_doubt
        if batch is None:
            return
        if self._store.has_happened(batch):
            self._last_batch_id = batch.id
            self._spool.written(SETTLEMENT, _n_spooled(batch.settlements))
            self._post(self._answer, (), {}, batch.settlements)
        else:
            # Expired ones are found again.
            settlements = [each for each in batch.settlements if not each.lost]
            with self._changed:
                self._settlements[:0] = settlements
        self._batch_in_doubt = None

    def _leave(self) -> None:
        try:
            if self._batch_in_doubt is not None:
                self._refresh()
                self._write_all()
            self._store.leave(self._name, self._last_batch_id)
        except StoreError as error:
            logger.warning("%s Requests that are not yet stored are charged as reserved.", error)
        self._store.close()
        self._refuse_waiting("the store is closed.")

    def _lose(self, error: Exception) -> None:
        if self.trouble is None:
            logger.warning("%s Trying again once a second.", error)
        self.trouble = str(error)

    def _refuse_waiting(self, reason: str) -> None:
        with self._changed:
            refused = self._claims
            self._claims = []
            self._settlements = _merged(self._settlements)
        self._post(self._refuse, refused, reason)

    def _post(self, job: Callable[..., None], *values: Any) -> None:
        """Call something in the event loop, unless that has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(job, *values)


def settlement_parts(settlement: Settlement | None) -> dict[str, Any]:
    """What the spool keeps of a settlement: nothing of one without a reservation."""
    if settlement is None or not settlement.parts:
        return {}
    return {SETTLEMENT: [settlement.parts, settlement.accounts, settlement.cost]}


def _n_spooled(settlements: Sequence[Settlement]) -> int:
    """How many of these are in the spool: those of reservations, unless they have expired."""
    return sum(bool(settlement.parts) and not settlement.lost for settlement in settlements)


def _merged(settlements: Sequence[Settlement]) -> list[Settlement]:
    """Spend without a reservation is added up: while the store is lost it may be much."""
    merged = []
    spent: dict[tuple[Account, ...], int] = {}
    for settlement in settlements:
        if settlement.parts:
            merged.append(settlement)
        else:
            accounts = tuple(settlement.accounts)
            spent[accounts] = spent.get(accounts, 0) + settlement.cost
    for accounts, cost in spent.items():
        merged.append(Settlement((), accounts, cost))
    return merged
