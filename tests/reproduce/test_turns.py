"""Several processes at one results file: no cell is run twice, and none is waited for in vain."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from mild.exceptions import DataFileError
from mild.reproduce.diverged import DivergedError
from mild.reproduce.files import claimed
from mild.reproduce.turns import Ledger, run_cells
from result_cases import TDEF, make_record

posix = pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")


@dataclass
class Cell:
    title: str


CELLS = [Cell("a"), Cell("b"), Cell("c")]


def test_a_cell_that_is_taken_is_run_after_the_others_and_waited_for(tmp_path):
    calls = []

    def run(cell, tell, wait):
        calls.append((cell.title, wait))
        return None if cell.title == "a" and not wait else {"of": cell.title}

    told = []
    records = run_cells(CELLS, run, tmp_path, lambda *said: told.append(said))
    assert calls == [("a", False), ("b", False), ("c", False), ("a", True)]
    assert records == [{"of": "a"}, {"of": "b"}, {"of": "c"}]
    assert told[-1] == (3, 3, "done")
    assert [done for done, *_ in told] == [0, 0, 1, 2, 3]


def test_diverged_cells_are_named_at_the_end_in_their_order(tmp_path):
    def run(cell, tell, wait):
        if cell.title == "b":
            return {}
        if cell.title == "a" and not wait:
            return None
        raise DivergedError("it did.")

    with pytest.raises(
        DivergedError, match=r"^2 cells of 3 diverged.*: a \(it did\); c \(it did\)\.$"
    ):
        run_cells(CELLS, run, tmp_path)


def test_where_nothing_else_was_run_no_results_are_spoken_of(tmp_path):
    def run(cell, tell, wait):
        raise DivergedError("it did.")

    with pytest.raises(DivergedError, match=r"^1 cell of 1 diverged: a \(it did\)\.$"):
        run_cells(CELLS[:1], run, tmp_path / "r.jsonl")


def test_a_ledger_knows_what_another_process_adds(tmp_path):
    first, second = (Ledger(tmp_path / "r.jsonl") for _ in range(2))
    record = make_record(TDEF) | {"twin": "t"}
    assert second.known(record["key"]) is None
    assert first.add(record) == record
    assert second.known(record["key"]) == record
    assert second.twin("t") == record
    assert second.twin("u") is None


@posix
def test_a_claimed_cell_is_nobody_else_s_until_it_is_over(tmp_path):
    first, second = (Ledger(tmp_path / "r.jsonl") for _ in range(2))
    with first.claim("k", wait=False) as ours, second.claim("k", wait=False) as theirs:
        assert (ours, theirs) == (True, False)
        with second.claim("other", wait=False) as free:
            assert free
    with second.claim("k", wait=False) as ours:
        assert ours
    assert list(tmp_path.iterdir()) == []


@posix
def test_who_waits_for_another_process_says_so(tmp_path):
    first, second = (Ledger(tmp_path / "r.jsonl") for _ in range(2))
    told = queue.Queue()

    def wait():
        with second.claim("k", True, told.put) as ours:
            return ours

    with ThreadPoolExecutor(1) as pool:
        with first.claim("k", True, told.put):
            waiting = pool.submit(wait)
            assert told.get(timeout=60) == "waiting for another process"
            assert not waiting.done()
        assert waiting.result()
    assert told.empty()


@posix
def test_the_lock_of_a_process_that_was_killed_is_taken_over(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from mild.reproduce.files import claimed\n"
        "with claimed(Path(sys.argv[1]), wait=False) as ours:\n"
        "    os.kill(os.getpid(), signal.SIGKILL if ours else signal.SIGTERM)\n"
    )
    place = tmp_path / "left.lock"
    assert subprocess.run([sys.executable, "-c", code, place]).returncode == -9
    assert place.exists()
    with claimed(place, wait=False) as ours:
        assert ours
    assert not place.exists()


@posix
def test_errors_of_the_work_are_not_taken_for_those_of_the_lock(tmp_path):
    ledger = Ledger(tmp_path / "r.jsonl")
    with pytest.raises(OSError, match="mine"), ledger.claim("k", wait=True):
        raise OSError("mine")
    gone = Ledger(tmp_path / "gone" / "r.jsonl")
    with pytest.raises(DataFileError, match="cannot lock a cell"), gone.claim("k", wait=True):
        pass
