"""``mild keys``: shown once, listed with what was spent, ended."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace

import pytest

from mild_gateway.access.accounts import Account, Batch, Settlement
from mild_gateway.access.keys import digest_of
from mild_gateway.access.periods import periods_at
from mild_gateway.access.store import AccessStore


@pytest.fixture
def place(mild, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "mild.toml").write_text('store = "keys.sqlite"\n')

    def run(*words):
        return mild("keys", *words)

    return SimpleNamespace(run=run, folder=tmp_path)


def opened(path):
    store = AccessStore(path)
    store.open()
    return store


def test_a_key_is_alone_on_stdout_and_only_its_hash_is_kept(place):
    done = place.run("add", "alice", "--budget-day", 5, "--budget-month", 50, "--rpm", 60)
    key = done.out.strip()
    assert done.code == 0
    assert done.out == f"{key}\n"
    assert key.startswith("mild-")
    assert done.err == "note: this is the only time the key is shown.\n"
    store = opened(place.folder / "keys.sqlite")
    kept = store.read_keys()[0]
    assert kept.digest == digest_of(key, store.salt())
    assert (kept.budget_day, kept.budget_month) == (5 * 10**9, 50 * 10**9)
    assert kept.requests_per_minute == 60
    store.close()
    listed = place.run("list")
    assert key not in listed.out
    assert key[:9] in listed.out


def test_what_was_spent_is_listed(place):
    place.run("add", "alice", "--budget-day", 5)
    place.run("add", "bob")
    place.run("revoke", "bob")
    day, month = periods_at(time.time())
    spent = [Account("key:alice", period.name) for period in (day, month)]
    store = opened(place.folder / "keys.sqlite")
    store.apply(Batch("b", None, (), [Settlement((), spent, 1_250_000_000)]), 60.0)
    store.close()
    rows = json.loads(place.run("list", "--json").out)["keys"]
    assert [(row["name"], row["revoked"]) for row in rows] == [("alice", False), ("bob", True)]
    assert (rows[0]["spent_day"], rows[0]["budget_day"], rows[0]["spent_month"]) == (
        1.25,
        5.0,
        1.25,
    )
    shown = place.run("list").out
    assert "2 keys" in shown
    assert "$1.25 of $5" in shown
    assert "bob (revoked)" in shown


def test_one_key_is_not_called_keys(place):
    place.run("add", "alice")
    shown = place.run("list").out
    assert "1 key " in shown
    assert "keys" not in shown


def test_a_name_that_is_taken_or_unknown_is_refused(place):
    assert place.run("list").out == "No keys yet: mild keys add NAME\n"
    assert place.run("add", "alice").code == 0
    again = place.run("add", "alice")
    assert again.code == 1
    assert again.err.startswith("error: the name of a new key must not be in use; 'alice' is")
    assert place.run("add", "a b").err.startswith("error: the name of a key must be up to 64")
    gone = place.run("revoke", "nobody")
    assert gone.err == "error: name must be the name of a key (alice); got 'nobody'.\n"
    assert place.run("revoke", "alice").out == "alice is revoked.\n"


def test_a_limit_that_no_store_can_hold_is_refused(place):
    done = place.run("add", "alice", "--rpm", 10**20)
    assert done.code == 2
    assert "--rpm" in done.err


def test_the_store_is_named_by_itself_or_by_the_file(place):
    assert place.run("add", "a", "--store", place.folder / "other.sqlite").code == 0
    assert (place.folder / "other.sqlite").exists()
    assert not (place.folder / "keys.sqlite").exists()
    missing = place.run("add", "a", "--config", "none.toml")
    assert missing.code == 1
    assert "none.toml: it cannot be read" in missing.err
    os.mkdir(place.folder / "folder.sqlite")
    assert "error: " in place.run("list", "--store", place.folder / "folder.sqlite").err


def test_as_json_the_key_is_in_one_document(place):
    done = json.loads(place.run("add", "alice", "--json").out)
    assert set(done) == {"name", "key"}


def test_an_admin_key_is_marked(place):
    place.run("add", "ops", "--admin")
    place.run("add", "alice")
    store = opened(place.folder / "keys.sqlite")
    assert {key.name: key.admin for key in store.read_keys()} == {"alice": False, "ops": True}
    store.close()
    listed = json.loads(place.run("list", "--json").out)["keys"]
    assert [(row["name"], row["admin"]) for row in listed] == [("alice", False), ("ops", True)]
    assert "ops (admin)" in place.run("list").out


def test_a_change_of_keys_waits_for_running_gateways(place, monkeypatch):
    store = opened(place.folder / "keys.sqlite")
    store.refresh("worker", 0)
    asked = []

    def refreshed_at_the_third_look(seconds):
        asked.append(seconds)
        if len(asked) == 3:
            store.refresh("worker", 0)

    monkeypatch.setattr("mild_gateway.access.managing.time.sleep", refreshed_at_the_third_look)
    assert place.run("add", "alice").code == 0
    assert len(asked) == 3
    # One that does not answer is not waited for without end, and one that is long gone not at all.
    monkeypatch.setattr("mild_gateway.access.managing.PATIENCE", 0.0)
    assert place.run("revoke", "alice").code == 0
    assert store.stale_processes(store.moment()) == 1
    assert store.stale_processes(store.moment() + 10) == 0
    store.close()


def test_limits_change_without_a_new_key(place):
    key = place.run("add", "alice", "--budget-day", 5, "--rpm", 60).out.strip()
    done = place.run("change", "alice", "--budget-day", 8, "--budget-month", 50, "--rpm", "none")
    assert (done.code, done.out) == (0, "alice is changed.\n")
    store = opened(place.folder / "keys.sqlite")
    (kept,) = store.read_keys()
    assert kept.digest == digest_of(key, store.salt())
    assert (kept.budget_day, kept.budget_month) == (8 * 10**9, 50 * 10**9)
    assert (kept.requests_per_minute, kept.admin) == (None, False)
    place.run("change", "alice", "--budget-day", "none", "--admin")
    (kept,) = store.read_keys()
    store.close()
    assert (kept.budget_day, kept.budget_month, kept.admin) == (None, 50 * 10**9, True)
    changed = json.loads(place.run("change", "alice", "--no-admin", "--json").out)
    assert changed == {"name": "alice", "changed": ["admin"]}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("alice",), "nothing_to_change"),
        (("alice", "--budget-day", "much"), "invalid_budget_day"),
        (("alice", "--budget-month", "-1"), "invalid_budget_month"),
        (("alice", "--rpm", "0"), "invalid_requests_per_minute"),
        (("alice", "--rpm", "9" * 20), "invalid_requests_per_minute"),
        (("nobody", "--rpm", "5"), "invalid_input"),
    ],
)
def test_a_change_that_is_no_change_is_refused(place, words, code):
    place.run("add", "alice", "--budget-day", 5)
    done = place.run("change", *words, "--json")
    assert done.code == 1
    assert json.loads(done.out)["code"] == code
    (row,) = json.loads(place.run("list", "--json").out)["keys"]
    assert (row["budget_day"], row["requests_per_minute"]) == (5.0, None)


def test_a_key_under_an_old_name_is_told_what_that_name_has_spent(place):
    assert place.run("add", "alice").err == "note: this is the only time the key is shown.\n"
    periods = periods_at(time.time())
    spent = [Account("key:alice", period.name) for period in periods]
    store = opened(place.folder / "keys.sqlite")
    store.apply(Batch("b", None, (), [Settlement((), spent, 1_250_000_000)]), 60.0)
    store.close()
    place.run("revoke", "alice")
    done = place.run("add", "alice", "--budget-day", 5)
    said = "an earlier key named alice spent $1.25 today and $1.25 this month, which count against"
    assert said in done.err
    (row,) = json.loads(place.run("list", "--json").out)["keys"]
    assert (row["spent_day"], row["budget_day"]) == (1.25, 5.0)


@pytest.mark.parametrize("option", ["--budget-day", "--budget-month"])
@pytest.mark.parametrize("dollars", ["inf", "nan", "-1", "-inf"])
def test_a_budget_that_is_no_amount_is_refused_and_nothing_is_stored(place, option, dollars):
    done = place.run("add", "alice", option, dollars, "--json")
    assert done.code == 1
    assert json.loads(done.out)["code"] == f"invalid_{option[2:].replace('-', '_')}"
    assert "No keys yet" in place.run("list").out
