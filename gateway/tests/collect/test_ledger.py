"""The ledger: nothing is lost, nothing is mixed up, one at a time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest

from mild.errors import DataFileError
from mild_gateway.collect.ledger import Ledger, StoredAnswer, request_key
from mild_gateway.experts.prices import Usage

ANSWER = StoredAnswer("Bern", Usage(5, 1), 0.25, 0.25, 12.5, "stop")


def test_an_answer_comes_back_as_it_was_written(tmp_path):
    guessed = StoredAnswer("x\ud800y", Usage(5, 1, estimated=True), 0.1, 0.4, 1.0)
    with Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.record_answer("a", "small", "Capital?", ANSWER)
        ledger.record_answer("b", "rules", "2 + 2", StoredAnswer("4", None, 0.0, 0.0, 1.0))
        ledger.record_answer("c", "small", "?", guessed)
    with Ledger(tmp_path / "l.sqlite") as ledger:
        found = ledger.answers(["a", "b", "c", "d", "a"])
        assert found["a"] == ANSWER
        assert found["b"].usage is None
        assert found["c"] == StoredAnswer("x?y", guessed.usage, 0.1, 0.4, 1.0)
        assert set(found) == {"a", "b", "c"}
        assert ledger.spent() == pytest.approx(0.65)


def test_many_keys_are_looked_up(tmp_path):
    with Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.record_answer("k1999", "small", "?", ANSWER)
        assert set(ledger.answers(f"k{i}" for i in range(2000))) == {"k1999"}


def test_the_first_answer_stays(tmp_path):
    with Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.record_answer("a", "small", "?", ANSWER)
        ledger.record_answer("a", "small", "?", StoredAnswer("other", None, 9.0, 9.0, 1.0))
        assert ledger.answers(["a"])["a"] == ANSWER
        assert ledger.spent() == 0.25


def test_failures_are_kept_with_what_they_may_have_cost(tmp_path):
    with Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.begin("a", "small", 0.5)
        assert ledger.spent() == 0.5
        ledger.record_failure("a", "small", "HTTP 500", 0.0)
        assert ledger.spent() == 0
        ledger.begin("a", "small", 0.5)
        ledger.record_failure("a", "small", "no reply", 0.5)
        assert ledger.spent() == 0.5
        assert ledger.answers(["a"]) == {}


def test_what_was_in_flight_counts_as_spent_and_is_asked_again(tmp_path):
    with Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.begin("a", "small", 0.5)
        ledger.begin("b", "small", 0.25)
        ledger.record_answer("b", "small", "?", ANSWER)
        assert ledger.lost == 0
    for lost in (1, 0):
        with Ledger(tmp_path / "l.sqlite") as ledger:
            assert ledger.lost == lost
            assert ledger.spent() == 0.75
            assert set(ledger.answers(["a", "b"])) == {"b"}


def test_a_killed_process_leaves_what_it_wrote_and_no_lock(tmp_path):
    code = (
        "import os, sys\n"
        "from mild_gateway.collect.ledger import Ledger, StoredAnswer\n"
        "ledger = Ledger(sys.argv[1])\n"
        "for i in range(50):\n"
        "    ledger.record_answer(f'k{i}', 'small', '?', StoredAnswer('x', None, 0.0, 0.0, 1.0))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    file = tmp_path / "l.sqlite"
    done = subprocess.run([sys.executable, "-c", code, str(file)])
    assert done.returncode == -9
    with Ledger(file) as ledger:
        assert len(ledger.answers(f"k{i}" for i in range(50))) == 50


def test_one_run_at_a_time(tmp_path):
    with Ledger(tmp_path / "l.sqlite"), pytest.raises(DataFileError, match="in use by another run"):
        Ledger(tmp_path / "l.sqlite")
    Ledger(tmp_path / "l.sqlite").close()


def test_other_files_are_refused_and_left_alone(tmp_path):
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    with pytest.raises(DataFileError, match="a database of another program"):
        Ledger(other)
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to look like one" * 20)
    with pytest.raises(DataFileError, match="cannot be used as a ledger"):
        Ledger(text)
    assert text.read_text().startswith("not a database")
    with pytest.raises(DataFileError, match="cannot be used as a ledger"):
        Ledger(tmp_path / "none" / "l.sqlite")


def test_a_ledger_of_another_version_is_refused(tmp_path):
    Ledger(tmp_path / "l.sqlite").close()
    with sqlite3.connect(tmp_path / "l.sqlite") as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(DataFileError, match="must be a ledger of version 2; got 9"):
        Ledger(tmp_path / "l.sqlite")


def test_scores_are_remembered(tmp_path):
    with Ledger(tmp_path / "l.sqlite") as ledger:
        assert ledger.score("s") is None
        ledger.record_score("s", 0.5)
        assert ledger.score("s") == 0.5


def test_a_table_is_known_until_somebody_changes_it(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("x\n1\n")
    with Ledger(tmp_path / "l.sqlite") as ledger:
        assert not ledger.wrote(table)
        ledger.record_output(table)
        assert ledger.wrote(table)
        table.write_text("x\n2\n")
        assert not ledger.wrote(table)
        table.unlink()
        assert not ledger.wrote(table)


def test_keys_differ_with_everything_that_decides_an_answer():
    base = {"url": "u", "body": {"model": "m", "messages": ["a"]}}
    keys = {
        request_key(base),
        request_key(base | {"url": "v"}),
        request_key({"url": "u", "body": {"model": "n", "messages": ["a"]}}),
        request_key({"url": "u", "body": {"model": "m", "messages": ["b"]}}),
        request_key({"url": "u", "body": {"model": "m", "messages": ["a"], "seed": 1}}),
    }
    assert len(keys) == 5


def test_log_probabilities_are_kept(tmp_path):
    known = replace(ANSWER, log_probability=-0.25)
    with Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.record_answer("a", "small", "?", ANSWER)
        ledger.record_answer("b", "small", "?", known)
        assert ledger.answers(["a", "b"]) == {"a": ANSWER, "b": known}
