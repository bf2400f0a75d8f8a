"""Budgets and limits over real processes, some of which are killed."""

from __future__ import annotations

import json
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


def start(tmp_path, place, name, **plan):
    plan = {
        "store": place.value if isinstance(place, Address) else place,
        "book": str(tmp_path / f"{name}.book"),
        "seed": sum(map(ord, name)),
        "workers": 3,
        "clients": 8,
        "pause": 0.01,
        "most": MOST,
        "last": 402,
    } | plan
    command = [sys.executable, str(WORKER), json.dumps(plan)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes)


def wait_for(processes):
    for process in processes:
        assert process.wait(PATIENCE) == 0


def stop(processes):
    for process in processes:
        process.communicate(timeout=PATIENCE)


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
    workers = [start(tmp_path, store_place, name, budget_day=budget / 1e9) for name in "abc"]
    wait_for(workers)
    stop(workers)
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
    workers = [start(tmp_path, store_place, name, **plan) for name in "ab"]
    victims = [start(tmp_path, store_place, f"victim{turn}", **plan) for turn in range(4)]
    for turn, victim in enumerate(victims):
        assert victim.stdout.readline() == "ready\n"
        # Killed while it spends.
        book = tmp_path / f"victim{turn}.book"
        wait_until(lambda book=book: book.read_text().count("\n") >= 20)
        victim.kill()
        victim.communicate()
    stop(workers)
    assert [worker.returncode for worker in workers] == [0, 0]
    _, spent = books(tmp_path)
    total = totals(store_place)
    assert spent <= budget
    assert total.spent + total.held <= budget
    # What the dead had reserved stays held until its deadline: at most one reservation for each client.
    assert total.spent <= spent <= total.spent + total.held
    assert total.held <= 4 * 6 * MOST


def test_requests_per_minute_hold_over_processes(tmp_path, store_place):
    plan = {"requests_per_minute": 120, "last": 429}
    workers = [start(tmp_path, store_place, name, **plan) for name in "abc"]
    wait_for(workers)
    stop(workers)
    statuses, _ = books(tmp_path)
    assert 100 <= statuses.count(200) <= 120
    assert set(statuses) == {200, 429}
