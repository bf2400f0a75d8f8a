"""Money over several workers, by random histories: never more than the budget, nothing forgotten."""

from __future__ import annotations

import itertools

from hypothesis import settings as given_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mild.gateway.access.money import periods_at
from mild.gateway.access.purse import Purse
from mild.gateway.access.sqlite import SqliteStore
from mild.gateway.access.store import AccountKey, Exchange, Owner

NOW = 1_800_000_000.0
DAY = periods_at(NOW)[0]
WORKERS = st.integers(0, 2)
AMOUNTS = st.integers(0, 40)
ACCOUNTS = [AccountKey("key:a", DAY.name), AccountKey("*", DAY.name)]
_numbers = itertools.count()


class Worker:
    """A purse that does its errands at once, as the courier does them in a thread."""

    def __init__(self, store, budgets):
        self.store, self.budgets = store, budgets
        # A host of its own: others judge it by its silence alone.
        number = next(_numbers)
        self.owner = Owner(f"worker {number}", f"host {number}", 1, 0)
        self.purse = Purse()
        self.open = []

    def accounts(self):
        return [
            self.purse.account(key.scope, DAY, budget)
            for key, budget in zip(ACCOUNTS, self.budgets, strict=True)
        ]

    def exchange(self, now, wishes=(), beat=False, leaving=False, fails=False):
        reports = self.purse.report(beat, leaving)
        asked = Exchange(
            self.owner,
            now,
            3,
            reports=reports,
            draws=self.purse.draws(wishes),
            beat=beat,
            leaving=leaving,
        )
        if fails:
            self.purse.restore(reports)
            return
        done = self.store.exchange(asked)
        if done.lost:
            self.purse.lose()
        self.purse.receive(done.grants)

    def reserve(self, now, amount):
        accounts = self.accounts()
        reservation = self.purse.take(accounts, amount)
        # Once more, as the courier does: who was taken for dead learns of it on the way.
        for _ in range(2):
            if reservation is None:
                self.exchange(now, [(accounts, amount)])
                reservation = self.purse.take(accounts, amount)
        if reservation is not None:
            self.open.append(reservation)
        return reservation


class Budgets(RuleBasedStateMachine):
    """Three workers, two budgets; workers are killed, stalled and replaced, exchanges fail."""

    @initialize(budgets=st.tuples(st.integers(0, 300), st.integers(0, 300)))
    def begin(self, budgets):
        self.now = NOW
        self.store = SqliteStore(":memory:")
        self.store.open()
        self.budgets = budgets
        self.workers = [Worker(self.store, budgets) for _ in range(3)]
        self.spent = 0
        self.calm = True

    def teardown(self):
        if not hasattr(self, "store"):
            return
        for worker in self.workers:
            for reservation in worker.open:
                worker.purse.settle(reservation, 0)
            worker.exchange(self.now, beat=True, leaving=True)
        totals = self.store.totals([DAY.name])
        for key in ACCOUNTS:
            if key not in totals:
                assert self.spent == 0
                continue
            spent, held, lost = totals[key]
            assert held == 0
            # To the billionth where nobody died; and who died is charged, not forgiven.
            assert spent == self.spent if self.calm else spent >= self.spent
            assert lost == 0 or not self.calm
        self.store.close()

    @rule(place=WORKERS, amount=AMOUNTS)
    def reserve(self, place, amount):
        worker = self.workers[place]
        if worker.reserve(self.now, amount) is not None:
            return
        # Refused only where some account has too little besides what others hold.
        totals = self.store.totals([DAY.name])
        left = []
        for key, account in zip(ACCOUNTS, worker.accounts(), strict=True):
            taken = totals[key].spent + totals[key].held if key in totals else 0
            left.append(account.budget - taken + account.free)
        assert min(left) < amount

    @rule(place=WORKERS, share=st.floats(0, 1))
    def settle(self, place, share):
        worker = self.workers[place]
        if worker.open:
            reservation = worker.open.pop(0)
            cost = int(reservation.amount * share)
            self.spent += cost
            worker.purse.settle(reservation, cost)
            worker.purse.settle(reservation, cost)

    @rule(place=WORKERS, fails=st.booleans())
    def beat(self, place, fails):
        self.workers[place].exchange(self.now, beat=True, fails=fails)

    @rule(place=WORKERS, amount=AMOUNTS)
    def add(self, place, amount):
        worker = self.workers[place]
        if worker.open and worker.open[0].epoch == worker.purse.epoch:
            worker.purse.add(worker.open[0], amount)

    @rule(place=WORKERS)
    def kill(self, place):
        self.calm = False
        self.workers[place] = Worker(self.store, self.budgets)
        self._silence()

    @rule(place=WORKERS)
    def stall(self, place):
        """A worker sleeps so long that others take it for dead, and then goes on."""
        self.calm = False
        self._silence(asleep=place)

    @precondition(lambda self: self.calm)
    @rule(place=WORKERS)
    def restart(self, place):
        worker = self.workers[place]
        if not worker.open:
            worker.exchange(self.now, beat=True, leaving=True)
            self.workers[place] = Worker(self.store, self.budgets)

    def _silence(self, asleep=None):
        for worker in self.workers:
            worker.exchange(self.now, beat=True)
        self.now += 301.0
        for _ in range(2):
            for place, worker in enumerate(self.workers):
                if place != asleep:
                    worker.exchange(self.now, beat=True)

    @invariant()
    def the_budget_is_never_exceeded(self):
        if not hasattr(self, "store"):
            return
        totals = self.store.totals([DAY.name])
        for key, budget in zip(ACCOUNTS, self.budgets, strict=True):
            assert self.spent <= budget
            if key in totals:
                assert totals[key].spent + totals[key].held <= budget
                assert self.spent <= totals[key].spent + totals[key].held


TestBudgets = Budgets.TestCase
TestBudgets.settings = given_settings(max_examples=60, stateful_step_count=40, deadline=None)


def make_worker(budget, other=10**6):
    store = SqliteStore(":memory:")
    store.open()
    return Worker(store, (budget, other)), store


def test_an_endpoint_that_charges_more_is_counted_in_full_and_closes_the_budget():
    worker, store = make_worker(100)
    worker.purse.settle(worker.reserve(NOW, 90), 150)
    assert worker.reserve(NOW, 1) is None
    worker.exchange(NOW, beat=True)
    assert store.totals([DAY.name])[ACCOUNTS[0]] == (150, 0, 0)
    assert worker.reserve(NOW, 0) is not None
    store.close()


def test_all_accounts_are_taken_from_or_none():
    worker, store = make_worker(100, other=10)
    assert worker.reserve(NOW, 20) is None
    assert [account.reserved for account in worker.accounts()] == [0, 0]
    assert worker.reserve(NOW, 10) is not None
    store.close()


def test_a_worker_keeps_a_stock_while_it_is_busy_and_returns_it_when_it_is_not():
    worker, store = make_worker(1_000_000, other=None)
    worker.purse.settle(worker.reserve(NOW, 100), 10)
    held = store.totals([DAY.name])[ACCOUNTS[0]].held
    assert 100 < held <= 100 * 17
    worker.exchange(NOW, beat=True)
    assert 0 < store.totals([DAY.name])[ACCOUNTS[0]].held < held
    worker.exchange(NOW, beat=True)
    assert store.totals([DAY.name])[ACCOUNTS[0]] == (10, 0, 0)
    assert store.totals([DAY.name])[ACCOUNTS[1]] == (10, 0, 0)
    store.close()


def test_who_was_taken_for_dead_is_charged_once():
    worker, store = make_worker(100)
    reservation = worker.reserve(NOW, 60)
    held = store.totals([DAY.name])[ACCOUNTS[0]].held
    other = Worker(store, worker.budgets)
    other.exchange(NOW + 301.0, beat=True)
    assert store.totals([DAY.name])[ACCOUNTS[0]] == (held, 0, held)
    # All that it held is counted, so what it spends of that is not counted again; what is beyond, is.
    worker.purse.settle(reservation, 50)
    worker.exchange(NOW + 302.0, beat=True)
    assert store.totals([DAY.name])[ACCOUNTS[0]] == (held, 0, held)
    # And it holds nothing of it any more: the next request draws anew.
    late = worker.reserve(NOW + 302.0, 20)
    assert store.totals([DAY.name])[ACCOUNTS[0]].held >= 20
    other.exchange(NOW + 604.0, beat=True)
    worker.exchange(NOW + 605.0, beat=True)
    known = store.totals([DAY.name])[ACCOUNTS[0]].spent
    worker.purse.settle(late, 25)
    worker.exchange(NOW + 606.0, beat=True)
    assert store.totals([DAY.name])[ACCOUNTS[0]].spent == known + 5
    store.close()


def test_towards_the_end_a_request_draws_for_itself_alone():
    worker, store = make_worker(130)
    assert worker.reserve(NOW, 100) is not None
    assert store.totals([DAY.name])[ACCOUNTS[0]].held <= 100 + 30 // 12
    store.close()


def test_days_that_are_over_are_forgotten_once_nothing_is_open():
    worker, store = make_worker(1000)
    reservation = worker.reserve(NOW, 10)
    worker.purse.forget(DAY.renews + 1)
    assert worker.purse.accounts
    worker.purse.settle(reservation, 10)
    worker.exchange(NOW, beat=True, leaving=True)
    worker.purse.forget(DAY.renews + 1)
    assert not worker.purse.accounts
    store.close()


def test_a_draw_covers_a_second_of_traffic_where_the_budget_goes_on_and_a_few_requests_else():
    def drawn(budget):
        purse = Purse()
        account = purse.account("*", DAY, budget)
        account.granted = 100
        for _ in range(100):
            purse.settle(purse.take([account], 1), 1)
        purse.report(beat=True)
        (draw,) = purse.draws([([account], 1)])
        return draw.extra

    assert drawn(10**6) == 100
    # Twenty such seconds are not left.
    assert drawn(1500) == 16


def test_a_busy_worker_keeps_a_second_of_traffic_on_a_beat_and_a_quiet_one_nothing():
    purse = Purse()
    account = purse.account("*", DAY, 10**6)
    account.granted = 500
    for _ in range(100):
        purse.settle(purse.take([account], 1), 1)
    # In between, what was spent is reported; the second goes on.
    purse.report(beat=False)
    (report,) = purse.report(beat=True)
    assert (report.released, account.granted) == (300, 100)
    (report,) = purse.report(beat=True)
    assert (report.released, account.granted) == (100, 0)
