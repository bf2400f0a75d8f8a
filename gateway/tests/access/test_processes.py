"""Budgets and limits over real processes, some of which are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mild_gateway.access import AccessStore
from mild_gateway.access.periods import periods_at
from mild_gateway.database import Address
from waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow

WORKER = Path(__file__).with_name("worker.py")
MOST = 1_000_000


class Workers:
    """Processes that spend at once; ``plans`` says by name what is different for one of them."""

    def __init__(self, tmp_path, place, plans):
        for name, plan in plans.items():
            plans[name] = {
                "store": place.value if isinstance(place, Address) else place,
                "book": str(tmp_path / f"{name}.book"),
                "seed": sum(map(ord, name)),
                "workers": 3,
                "clients": 8,
                "pause": 0.01,
                "most": MOST,
                "last": 402,
            } | plan
        command = [sys.executable, str(WORKER), json.dumps(plans)]
        # Without a buffer: communicate() leaves out what was read together with an earlier line.
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        self._process = subprocess.Popen(command, **pipes)
        self._pids = json.loads(self._process.stdout.readline())
        self._names_of_ready = set()

    def wait_until_ready(self, name):
        while name not in self._names_of_ready:
            line = self._process.stdout.readline()
            assert line, "the workers have ended"
            self._names_of_ready.add(line.decode().strip())

    def kill(self, name):
        os.kill(self._pids[name], signal.SIGKILL)

    def wait(self):
        """Wait until each has ended by itself; the exit statuses by name."""
        assert self._process.wait(PATIENCE) == 0
        return self._statuses()

    def stop(self):
        """Tell all to stop; the exit statuses by name."""
        return self._statuses()

    def _statuses(self):
        said, _ = self._process.communicate(timeout=PATIENCE)
        return json.loads(said.splitlines()[-1])


def books(tmp_path):
    """Statuses and sums that the workers wrote down."""
    rows = [
        tuple(map(int, line.split()))
        for file in tmp_path.glob("*.book")
        for line in file.read_text().splitlines()
    ]
    return [status for status, _ in rows], sum(cost for _, cost in rows)


def totals(place):
    store = AccessStore(place)
    store.open()
    day = periods_at(time.time())[0].name
    found = store.totals([day])
    store.close()
    return found["*", day]


def test_a_budget_holds_over_processes_and_is_used_up(tmp_path, store_place):
    budget = 150 * MOST
    plan = {"budget_day": budget / 1e9}
    workers = Workers(tmp_path, store_place, dict.fromkeys("abc", plan))
    assert workers.wait() == {"a": 0, "b": 0, "c": 0}
    statuses, spent = books(tmp_path)
    total = totals(store_place)
    assert total == (spent, 0, 0)
    assert spent <= budget
    # Used up: less is left than two requests may cost.
    assert spent > budget - 2 * MOST
    assert 402 in statuses
    assert set(statuses) <= {200, 402, 429}


def test_a_budget_holds_when_workers_are_killed_and_replaced(tmp_path, store_place):
    budget = 400 * MOST
    plan = {"budget_day": budget / 1e9, "last": None, "clients": 6}
    victims = [f"victim{turn}" for turn in range(4)]
    workers = Workers(tmp_path, store_place, dict.fromkeys(["a", "b", *victims], plan))
    for victim in victims:
        workers.wait_until_ready(victim)
        # Killed while it spends.
        book = tmp_path / f"{victim}.book"
        wait_until(lambda book=book: book.read_text().count("\n") >= 20)
        workers.kill(victim)
    killed = dict.fromkeys(victims, -signal.SIGKILL)
    assert workers.stop() == {"a": 0, "b": 0, **killed}
    _, spent = books(tmp_path)
    total = totals(store_place)
    assert spent <= budget
    assert total.spent + total.held <= budget
    # What the dead had reserved stays held until its deadline: at most one reservation for each client.
    assert total.spent <= spent <= total.spent + total.held
    assert total.held <= 4 * 6 * MOST


def test_requests_per_minute_hold_over_processes(tmp_path, store_place):
    plan = {"requests_per_minute": 120, "last": 429}
    workers = Workers(tmp_path, store_place, dict.fromkeys("abc", plan))
    assert workers.wait() == {"a": 0, "b": 0, "c": 0}
    statuses, _ = books(tmp_path)
    assert 100 <= statuses.count(200) <= 120
    assert set(statuses) == {200, 429}
