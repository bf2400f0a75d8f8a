"""The status document over real ledgers."""

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from dashboard_cases import (
    NOW,
    PUBLISHED,
    make_document,
    make_records,
    make_router,
    make_settings,
    make_spend,
)
from gateway_cases import cascade_router
from ledger_cases import record, write_all, writing
from mild_gateway.config import LedgerSettings, Settings, TargetSettings
from mild_gateway.dashboard import Dashboard
from mild_gateway.dashboard.savings import savings_document
from mild_gateway.database.engine import open_database
from mild_gateway.experts.expert import Expert
from mild_gateway.ledger.feedback import Feedback, write_feedback
from waiting import wait_until


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return make_document(tmp_path_factory.mktemp("board") / "l.db", make_records())


def test_a_ledger_in_postgresql_gives_the_same_document(document, postgres):
    found = make_document(postgres.address, make_records())
    for one in (found, document):
        for worker in one["workers"]:
            worker["pid"] = None
    assert found == document


def test_the_document_is_json_and_adds_up(document):
    again = json.loads(json.dumps(document, allow_nan=False))
    traffic = again["traffic"]
    assert traffic["requests"] == sum(line["requests"] for line in traffic["minutes"]) == 700
    assert len(traffic["minutes"]) == 60
    assert traffic["failures"] == traffic["outcomes"]["failed"] + traffic["outcomes"]["cut"]
    assert sum(line["requests"] for line in again["experts"]) == 700 - traffic["outcomes"]["failed"]
    assert sum(line["count"] for line in again["shares"]["experts"]) == again["shares"]["window"]
    assert again["latency"]["latency_ms"]["p50"] <= again["latency"]["latency_ms"]["p95"]
    assert [line["asked_last"] for line in again["experts"]] == [0, 0, 1]
    assert again["spend"] == make_spend()
    assert again["troubles"] == []


def test_failures_are_those_of_the_experts_that_failed(tmp_path):
    rows = [record(0, time=NOW - 9, chosen="atlas", expert="atlas")]
    failed = {"expert": None, "outcome": "failed", "status": 502, "error": "expert_server"}
    rows += [record(i, time=NOW - 8, chosen="atlas", **failed) for i in (1, 2)]
    rows += [record(3, time=NOW - 8, chosen=None, propensity=None, asked="scholar", **failed)]
    rows += [record(4, time=NOW - 7, chosen="scholar", expert="scholar", outcome="cut")]
    rows += [record(5, time=NOW - 4000, chosen="atlas", **failed)]
    last = [{"kind": kind, "time": NOW - age} for kind, age in (("server", 8), ("timeout", 3))]
    faults = {
        "atlas": {"attempts": 7, "last": last[0]},
        "scholar": {"attempts": 7, "last": last[1]},
    }
    published = {**PUBLISHED, "failures": {"calculator": {"attempts": 0, "last": None}, **faults}}
    found = make_document(tmp_path / "l.db", rows, document=published)
    lines = found["experts"]
    assert [line["failures"] for line in lines] == [0, 2, 2]
    assert sum(line["failures"] for line in lines) == found["traffic"]["failures"]
    assert [line["failed_attempts"] for line in lines] == [0, 7, 7]
    assert [line["last_failure"] for line in lines] == [None, *last]


def test_shares_in_training_say_nothing_where_a_target_decides(document, tmp_path):
    assert document["shares"]["reference"] == "trained"
    target = TargetSettings(max_dollars=2.0)
    found = make_document(tmp_path / "l.db", make_records(), target=target)
    assert found["shares"]["reference"] != "trained"


def test_decisions_are_the_last_ones_newest_first(document):
    times = [line["time"] for line in document["last"]]
    assert len(times) == 20
    assert times == sorted(times, reverse=True)
    assert document["last"][0]["request_id"] == "r699"


def test_pinned_named_and_other_routers_requests_are_no_decisions(tmp_path):
    rows = [record(i, time=NOW - 90 + i, chosen="atlas", router="old") for i in range(20)]
    rows += [record(i, time=NOW - 60 + i, chosen="atlas") for i in range(20, 25)]
    rows += [record(30, time=NOW - 5, chosen="scholar", pinned_by="r20")]
    rows += [record(31, time=NOW - 4, chosen=None, propensity=None, expert="scholar")]
    rows += [record(32, time=NOW - 3, chosen="scholar", asked="router-mild-0.5")]
    rows += [record(33, time=NOW - 2, chosen="calculator")]
    shares = make_document(tmp_path / "l.db", rows)["shares"]
    assert [line["count"] for line in shares["experts"]] == [1, 5, 0]


@pytest.mark.parametrize("keep_text", [False, True])
def test_queries_are_shown_only_where_they_are_kept(tmp_path, keep_text):
    rows = make_records(30, text="a very private question")
    found = make_document(tmp_path / "l.db", rows, keep_text=keep_text)
    assert ("a very private question" in json.dumps(found)) == keep_text


def test_texts_of_earlier_settings_are_not_shown(tmp_path):
    path = tmp_path / "l.db"
    write_all(path, make_records(30, text="a very private question"), keep_text=True)
    assert "private" not in json.dumps(make_document(path))


def test_without_a_ledger_or_before_its_first_row_there_is_a_document(tmp_path):
    for path in (None, tmp_path / "not-there.db"):
        found = make_document(path)
        assert found["traffic"]["requests"] == 0
        assert found["shares"]["sentence"] == "No decisions yet."
        assert found["experts"][2]["asked_last"] == 1
        assert found["troubles"] == []
    (tmp_path / "empty.db").touch()
    assert make_document(tmp_path / "empty.db")["troubles"] == []
    assert not (tmp_path / "not-there.db").exists()


def test_a_ledger_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "l.db").write_bytes(b"no database at all\n" * 400)
    (trouble,) = make_document(tmp_path / "l.db")["troubles"]
    assert "The ledger cannot be read" in trouble


def test_troubles_of_the_workers_are_told_once(tmp_path):
    states = {"dropped": 3, "trouble": "database or disk is full"}
    board = Dashboard(
        make_settings(),
        make_router(),
        lambda: {**make_spend(), "trouble": "database is locked"},
        SimpleNamespace(published={**PUBLISHED, "draining": True}, state=lambda: states),
        clock=lambda: NOW,
    )
    told = asyncio.run(board.document())["troubles"]
    assert len(told) == 4
    assert told[0] == (
        "The ledger cannot be written: database or disk is full; rows wait in memory."
    )


def count_workers(path):
    """How many workers have said something about themselves."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT count(*) FROM workers").fetchone()[0]


def test_workers_are_put_together_and_the_silent_are_left_out(tmp_path):
    path = tmp_path / "l.db"
    write_all(path, [record(0, time=time.time())])
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from ledger_cases import writing\n"
        "from dashboard_cases import PUBLISHED\n"
        "with writing(sys.argv[2]) as writer:\n"
        "    writer.published = {**PUBLISHED, 'asked_last': {'calculator': True}}\n"
        "    sys.stdin.read()\n"
    )
    tests = os.path.dirname(sys.modules["ledger_cases"].__file__)
    child = subprocess.Popen(
        [sys.executable, "-c", program, tests, str(path)],
        stdin=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with writing(path) as writer:
            writer.published = PUBLISHED
            wait_until(lambda: count_workers(path) == 2)
            board = Dashboard(make_settings(path), make_router(), None, writer)
            found = asyncio.run(board.document())
    finally:
        child.communicate(input="")
    assert len(found["workers"]) == 2
    calculator, atlas, scholar = found["experts"]
    assert (calculator["asked_last"], atlas["asked_last"], scholar["asked_last"]) == (1, 0, 1)
    # Each worker counts its own requests, and has the limit for itself.
    assert (calculator["in_flight"], calculator["max_in_flight"]) == (4, 100)
    assert (scholar["workers"], atlas["workers"]) == (2, 2)


def test_many_who_ask_cost_one_look_a_second(tmp_path):
    path = write_all(tmp_path / "l.db", make_records(50))
    looks, now = [], [NOW]

    class Counting(Dashboard):
        def _read_ledger(self, at):
            looks.append(at)
            return super()._read_ledger(at)

    async def ask():
        board = Counting(make_settings(path), make_router(), None, clock=lambda: now[0])
        await asyncio.gather(*(board.document() for _ in range(20)))
        now[0] += 0.5
        await board.document()
        assert len(looks) == 1
        now[0] += 0.6
        await board.document()
        assert len(looks) == 2
        # A clock that was set back does not freeze the page.
        now[0] -= 1000
        await board.document()
        assert len(looks) == 3

    asyncio.run(ask())


def test_another_router_brings_its_own_names_and_shares(tmp_path):
    board = Dashboard(make_settings(), make_router(), clock=lambda: NOW)
    board.take(make_router(["x", "y"], {"x": 0.5, "y": 0.5}))
    found = asyncio.run(board.document())
    assert [line["name"] for line in found["shares"]["experts"]] == ["x", "y"]


def test_nothing_heavy_is_imported_for_the_page_and_the_ledger():
    program = (
        "import sys, mild_gateway.dashboard, mild_gateway.ledger\n"
        "heavy = {'scipy', 'pyarrow', 'sklearn', 'torch', 'pandas', 'typer', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_savings_are_the_same_tokens_at_each_expert_s_prices():
    cheap = Expert("small", "http://127.0.0.1:1/v1", "s", price_in=1.0, price_out=2.0)
    dear = Expert("large", "http://127.0.0.1:1/v1", "l", price_in=10.0, price_out=20.0)
    rows = [record(0, price=0.3, tokens_in=1000, tokens_out=500)]
    rows += [record(1, price=0.1, tokens_in=None), record(2, outcome="failed")]
    found = savings_document(rows, [cheap, dear])
    assert (found["rows"], found["paid"]) == (1, 0.3)
    assert found["always"] == pytest.approx({"small": 0.002, "large": 0.02})
    assert found["saved"]["large"] == pytest.approx({"estimate": -0.28, "low": None, "high": None})
    free = Expert("free", "http://127.0.0.1:1/v1", "f")
    assert savings_document(rows, [cheap, free]) is None
    assert savings_document(rows[1:], [cheap]) is None
    assert savings_document(rows, []) is None


def test_a_cascade_is_a_choice_beside_the_experts_and_saves_by_the_answer_that_was_given(tmp_path):
    names = ("small", "small#2", "large")
    calls = [
        {"expert": name, "step": step, "outcome": "ok", "dollars": dollars, "tokens_in": 10,
         "tokens_out": 10, "latency_ms": 1.0}
        for name, step, dollars in (("small", 1, 2e-5), ("small#2", 1, 2e-5), ("large", 2, 2e-4))
    ]  # fmt: skip
    rows = [
        record(k, time=NOW - 9, expert="large", chosen="cascade", propensity=1.0, price=2.4e-4,
               tokens_in=30, tokens_out=30, calls=calls)
        for k in range(60)
    ]  # fmt: skip
    path = write_all(tmp_path / "l.db", rows)
    experts = [Expert(name, "http://x/v1", "m", price_in=price, price_out=price)
               for name, price in (("small", 1.0), ("large", 10.0))]  # fmt: skip
    settings = Settings(experts=tuple(experts), ledger=LedgerSettings(path))
    board = Dashboard(settings, cascade_router(names), clock=lambda: NOW)
    found = asyncio.run(board.document())
    assert [(line["name"], line["live"]) for line in found["shares"]["experts"]] == [
        ("small", 0),
        ("large", 0),
        ("cascade", 1),
    ]
    assert not found["shares"]["drift"]
    assert found["last"][0]["path"] == "small,small#2>large"
    dollars = {line["name"]: (line["requests"], line["dollars"]) for line in found["experts"]}
    assert dollars == {
        "small": (0, pytest.approx(60 * 4e-5)),
        "large": (60, pytest.approx(60 * 2e-4)),
    }
    assert found["savings"]["paid"] == pytest.approx(60 * 2.4e-4)
    assert found["savings"]["always"]["large"] == pytest.approx(60 * 2e-4)


def test_feedback_is_shown_by_expert_with_intervals(tmp_path):
    path = tmp_path / "l.db"
    rows = [record(i, time=NOW - 9, expert="atlas") for i in range(4)]
    rows += [record(4, time=NOW - 9, expert="scholar")]
    # Older than a week.
    rows += [record(5, time=NOW - 8 * 86_400, expert="scholar")]
    assert make_document(path, rows)["feedback"] == {}
    database = open_database(path)
    given = [("r0", "atlas", 1.0), ("r1", "atlas", 0.5), ("r5", "scholar", 0.0)]
    write_feedback(database, [Feedback(name, who, "client", s) for name, who, s in given])
    database.close()
    ((name, line),) = make_document(path)["feedback"].items()
    mean, rate = line["self_selected"], line["rate"]
    assert (name, line["answers"], rate["mean"], mean["mean"]) == ("atlas", 4, 0.5, 0.75)
    assert 0 < rate["low"] < 0.5 < rate["high"] < 1
    assert 0 < mean["low"] < 0.75 < mean["high"] < 1


def test_saved_dollars_have_an_interval_that_holds_those_of_other_requests():
    """Of 200 spans of 100 requests, the interval of each holds what such a span saves on average."""
    dear = Expert("large", "http://127.0.0.1:1/v1", "l", price_in=10.0, price_out=20.0)
    rng = np.random.default_rng(0)
    n_hits = 0
    for _ in range(200):
        tokens = rng.gamma(2.0, 1000.0, 100)
        prices = tokens * 1e-6 * rng.integers(1, 11, 100)
        rows = [
            record(k, price=price, tokens_in=int(count), tokens_out=0)
            for k, (price, count) in enumerate(zip(prices, tokens, strict=True))
        ]
        saved = savings_document(rows, [dear])["saved"]["large"]
        # A token costs 10 in place of 5.5 on average, in millionths of a dollar; there are 2,000 a request.
        n_hits += saved["low"] <= 100 * 2000 * 4.5e-6 <= saved["high"]
    assert n_hits / 200 == pytest.approx(0.95, abs=0.05)


def cascade_call(expert, step, outcome="ok"):
    return {
        "expert": expert, "step": step, "outcome": outcome, "dollars": 0.01, "tokens_in": 9,
        "tokens_out": 9, "latency_ms": 5.0,
    }  # fmt: skip


def test_a_cascade_has_the_shares_of_its_steps_and_its_escalations(tmp_path):
    first = [cascade_call("atlas", 1), cascade_call("atlas#2", 1)]
    rows = []
    for number in range(20):
        calls = list(first)
        if number < 5:
            calls.append(cascade_call("scholar", 2))
        fields = {"chosen": "cascade", "expert": "atlas", "preferred": "cascade", "calls": calls}
        fields |= {"asked": "mild-cascade", "price": 0.02, "latency_ms": 10.0 + number}
        rows.append(record(number, time=NOW - 100 + number, **fields))
    # Neither the hour before nor requests to one expert count.
    rows.append(record(90, time=NOW - 4000, chosen="cascade", calls=first))
    rows.append(record(91, time=NOW - 5, chosen="atlas", expert="atlas"))
    cascade = make_document(tmp_path / "l.db", rows)["cascade"]
    assert (cascade["requests"], cascade["failures"], cascade["escalated"]) == (20, 0, 0.25)
    assert cascade["steps"] == [
        {"step": 1, "experts": ["atlas", "atlas#2"], "requests": 15, "share": 0.75},
        {"step": 2, "experts": ["scholar"], "requests": 5, "share": 0.25},
    ]
    assert cascade["calls"] == pytest.approx(2.25)
    assert (cascade["p50"], cascade["dollars"]) == (19.0, pytest.approx(0.4))


def test_without_a_cascade_there_is_no_row_for_one(document):
    assert document["cascade"] is None
