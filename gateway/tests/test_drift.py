"""Drift: new versions, feedback that leaves its interval and novel queries are flagged once, and told."""

import asyncio
import json
import logging
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import sqlalchemy as sa

from gateway_cases import KeptLedger, expert, knowing, priced_router
from ledger_cases import record, write_all
from mild.artifact import load
from mild.errors import DataFileError
from mild_gateway import drift as module
from mild_gateway.access import Access
from mild_gateway.config import (
    DriftSettings,
    GradingSettings,
    LedgerSettings,
    RoutingSettings,
    Settings,
    read_settings,
)
from mild_gateway.dashboard.ledger_snapshot import read_snapshot
from mild_gateway.database.engine import open_database
from mild_gateway.drift import DriftWatch
from mild_gateway.ledger.feedback import Feedback, write_feedback
from mild_gateway.server.context import AppContext
from mild_gateway.versions import write_version
from waiting import PATIENCE

ROUTER = "f" * 12


class Traffic:
    """Rows and scores that are written to a ledger, one after the other."""

    def __init__(self, place):
        self.place, self.number, self.now = place, 0, 1000.0
        write_all(place, [])

    def send(self, count=1, scores=(), each=({},), **fields):
        """So many rows with these fields, and those of ``each`` in turn."""
        rows = []
        for k in range(max(count, len(scores))):
            self.number += 1
            self.now += 1
            more = {**fields, **each[k % len(each)]}
            rows.append(record(self.number, time=self.now, **more))
        write_all(self.place, rows)
        database = open_database(self.place)
        judged = [
            Feedback(row.request_id, row.expert, "grader", score, 0.1, row.time)
            for row, score in zip(rows, scores, strict=False)
        ]
        write_feedback(database, judged)
        database.close()

    def watch(self, grading=None, **settings):
        found = DriftSettings(**settings)
        # All feedback that is on its way has arrived.
        settled = module.SETTLED_SECONDS
        return DriftWatch(
            found, self.place, ["small", "large"], lambda: self.now + settled, grading
        )


@pytest.fixture
def traffic(ledger_place, monkeypatch):
    monkeypatch.setattr(module, "BASELINE", 50)
    monkeypatch.setattr(module, "NOVEL_SHARE", 0.1)
    return Traffic(ledger_place)


def binary(rng, n, mean):
    return (rng.random(n) < mean).astype(float).tolist()


def test_a_new_version_is_flagged_after_a_few_answers_and_once(traffic, caplog):
    watch = traffic.watch()
    assert watch.look(ROUTER) == []
    traffic.send(60, reported="m-1 fp_a")
    traffic.send(2, reported="m-1 fp_b")
    assert watch.look(ROUTER) == []
    with caplog.at_level(logging.WARNING, "mild_gateway"):
        traffic.send(1, reported="m-1 fp_b")
        (flag,) = watch.look(ROUTER)
    assert (flag["kind"], flag["expert"], flag["old"], flag["new"]) == (
        "version",
        "small",
        "m-1 fp_a",
        "m-1 fp_b",
    )
    assert flag["time"] == traffic.now
    (line,) = [line for line in caplog.records if line.message.startswith("drift:")]
    assert (line.kind, line.expert) == ("version", "small")
    # It is known now, and stays flagged for everybody who asks.
    traffic.send(20, reported="m-1 fp_b")
    traffic.send(20, reported="m-1 fp_a")
    assert watch.look(ROUTER) == []
    assert watch.flags == [flag]
    assert traffic.watch().look(ROUTER) == []


def test_versions_that_alternate_from_the_start_and_one_for_every_answer_are_no_drift(traffic):
    watch = traffic.watch()
    watch.look(ROUTER)
    traffic.send(90, each=[{"reported": f"m fp_{k}"} for k in range(3)])
    traffic.send(90, expert="large")
    traffic.send(300, expert="large", each=[{"reported": f"m fp_{k}"} for k in range(300)])
    assert watch.look(ROUTER) == []
    assert len(json.dumps(_state(traffic.place))) < 20_000


def test_calls_of_cascades_report_versions_too(traffic):
    watch = traffic.watch()
    watch.look(ROUTER)

    def call(expert, reported):
        usual = {"step": 1, "outcome": "ok", "dollars": 0.0, "tokens_in": 1, "tokens_out": 1}
        return {"expert": expert, "latency_ms": 1.0, "reported": reported, **usual}

    for version, count in [("v1", 60), ("v2", 3)]:
        calls = [call("small#2", version), call("large", "l")]
        traffic.send(count, expert="large", calls=calls)
    (flag,) = watch.look(ROUTER)
    assert (flag["expert"], flag["new"]) == ("small", "v2")


def test_feedback_that_leaves_its_interval_is_flagged(traffic):
    rng = np.random.default_rng(0)
    watch = traffic.watch()
    watch.look(ROUTER)
    traffic.send(scores=binary(rng, 50, 0.9))
    traffic.send(scores=binary(rng, 100, 0.9), expert="large", chosen="large")
    assert watch.look(ROUTER) == []
    traffic.send(scores=binary(rng, 150, 0.9), expert="large", chosen="large")
    traffic.send(scores=binary(rng, 100, 0.9))
    assert watch.look(ROUTER) == []
    traffic.send(scores=binary(rng, 200, 0.3))
    (flag,) = watch.look(ROUTER)
    assert (flag["kind"], flag["expert"]) == ("feedback", "small")
    assert flag["mean"] < flag["interval"][0] < 0.9 < flag["interval"][1]
    assert read_snapshot(traffic.place, traffic.now).drift == [flag]


@pytest.mark.parametrize(
    "other",
    [
        {"preferred": "large"},  # explored
        {"pinned_by": "r1"},
        {"router": "another"},
        {"chosen": None, "propensity": None},  # named by the client
    ],
)
def test_only_answers_that_the_router_chose_are_compared(traffic, other):
    watch = traffic.watch()
    watch.look(ROUTER)
    traffic.send(scores=[1.0, 0.0] * 50)
    traffic.send(scores=[0.0] * 300, **other)
    assert watch.look(ROUTER) == []
    traffic.send(scores=[0.0] * 300, preferred="small")
    assert len(watch.look(ROUTER)) == 1


def test_feedback_that_clients_choose_to_give_is_not_compared(traffic):
    watch = traffic.watch()
    watch.look(ROUTER)
    traffic.send(scores=[1.0] * 100)
    traffic.send(300)
    database = open_database(traffic.place)
    for number in range(101, 401):
        write_feedback(
            database, [Feedback(f"r{number}", "small", "client", 0.0, None, traffic.now)]
        )
    database.close()
    assert watch.look(ROUTER) == []


def test_novel_queries_are_flagged_above_their_share(traffic):
    watch = traffic.watch()
    watch.look(ROUTER)
    traffic.send(300, novel=False)
    traffic.send(300, novel=True, router="another")
    assert watch.look(ROUTER) == []
    traffic.send(60, novel=True)
    (flag,) = watch.look(ROUTER)
    assert (flag["kind"], flag["expert"]) == ("novelty", None)
    assert flag["text"].endswith("; at most 10 % are expected.")


def test_flags_end_with_another_router_or_other_grades_and_the_tests_begin_anew(traffic):
    watch = traffic.watch()
    watch.look(ROUTER)
    traffic.send(60, reported="m-1")
    traffic.send(60, reported="m-2", novel=True)
    assert {flag["kind"] for flag in watch.look(ROUTER)} == {"version", "novelty"}
    # A restart of the gateway changes nothing.
    again = traffic.watch()
    again.look(ROUTER)
    assert len(again.flags) == 2
    again = traffic.watch(grading=GradingSettings("rubric", expert="judge"))
    assert again.look(ROUTER) == again.flags == []
    # Known versions stay known; new ones are flagged.
    traffic.send(60, reported="m-2", novel=True)
    assert [flag["kind"] for flag in again.look(ROUTER)] == ["novelty"]
    assert again.look("another") == again.flags == []
    # Known versions stay known; new ones are flagged.
    traffic.send(5, reported="m-2", router="another")
    assert again.look("another") == []
    traffic.send(5, reported="m-3", router="another")
    assert [flag["new"] for flag in again.look("another")] == ["m-3"]


async def test_a_candidate_that_is_saved_leaves_the_tests_and_their_baselines(traffic, tmp_path):
    """Otherwise bad answers would become the baseline with every run of ``mild learn``."""
    folder = priced_router(("small", "large")).save(tmp_path / "router")
    settings = Settings(
        (expert("small", "http://127.0.0.1:9/v1"), expert("large", "http://127.0.0.1:9/v1")),
        router=str(folder),
        routing=RoutingSettings(explore=0.1),
        ledger=LedgerSettings(path=traffic.place),
    )
    context = AppContext(
        settings,
        load(folder),
        Access(settings),
        KeptLedger(),
        wall_clock=lambda: traffic.now + module.SETTLED_SECONDS,
    )
    fingerprint = context.serving.fingerprint
    watch = context.drift
    watch.look(fingerprint)
    traffic.send(scores=[1.0] * 60, router=fingerprint)
    watch.look(fingerprint)
    write_version(folder, priced_router(("small", "large")), why="noise", serve=False)
    await context.reload(lambda: load(folder))
    traffic.send(scores=[0.0] * 60, router=fingerprint)
    (flag,) = watch.look(fingerprint)
    assert (flag["kind"], flag["expert"]) == ("feedback", "small")
    # Neither does the flag end with the next candidate.
    write_version(folder, priced_router(("small", "large")), why="noise", serve=False)
    await context.reload(lambda: load(folder))
    assert (watch.look(fingerprint), watch.flags) == ([], [flag])


def test_gateways_that_share_a_ledger_count_every_row_once(traffic, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 7)
    first, second = traffic.watch(), traffic.watch()
    first.look(ROUTER)
    for _ in range(5):
        traffic.send(scores=[1.0] * 20, novel=False)
        threads = [threading.Thread(target=one.look, args=(ROUTER,)) for one in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    state = _state(traffic.place)
    assert state["tests"]["queries"]["n"] == 100
    assert state["tests"]["grader small"]["n"] == 50
    assert state["versions"] == {}


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((dict(self.headers), json.loads(body)))
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        self.send_response(status)
        if status == 302:
            self.send_header("location", "/elsewhere")
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def receiver():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Receiver) as server:
        server.got, server.statuses = [], []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_flag_is_sent_to_the_webhook_again_if_it_fails(traffic, receiver, monkeypatch):
    monkeypatch.setattr(module, "WAITS", (0.0, 0.0, 0.0))
    receiver.statuses = [503, 302]
    watch = traffic.watch(webhook=f"http://127.0.0.1:{receiver.server_port}/alerts")
    watch.look(ROUTER)
    traffic.send(60, reported="m-1", text="what was asked")
    traffic.send(3, reported="m-2")
    asyncio.run(watch.send(watch.look(ROUTER)))
    assert len(receiver.got) == 3
    headers, body = receiver.got[-1]
    assert headers["Content-Type"] == "application/json"
    assert (body["event"], body["kind"], body["expert"]) == ("drift", "version", "small")
    assert body["router"] == ROUTER
    assert body["new"] == "m-2"
    assert "what was asked" not in json.dumps(body)


def test_a_webhook_that_cannot_be_reached_is_logged(caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "WAITS", (0.0, 0.0))
    settings = DriftSettings(webhook="http://127.0.0.1:9/with-a-secret")
    watch = DriftWatch(settings, tmp_path / "l.sqlite", ["small"])
    asyncio.run(watch.send([{"kind": "version", "text": "..."}]))
    assert "the webhook did not take a flag" in caplog.text
    assert "with-a-secret" not in caplog.text
    asyncio.run(watch.send([]))


def test_one_text_a_second_is_looked_at(traffic):
    router = knowing(priced_router())
    watch = traffic.watch()
    records = [record(k) for k in range(3)]

    async def serve():
        watch.examine(records[0], router, "2 + 2 = ?")
        watch.examine(records[1], router, "2 + 2 = ?")
        watch._next_text = 0.0
        watch.examine(records[2], router, "Something that nobody has ever asked before, at length")
        while records[2].novel is None or records[0].novel is None:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(serve(), PATIENCE))
    assert [one.novel for one in records] == [False, None, True]
    # A router that does not know what is novel, and a gateway without a ledger, look at nothing.
    watch._next_text = 0.0
    watch.examine(records[1], priced_router(), "text")
    off = DriftWatch(DriftSettings(), None, ["small"])
    off.examine(records[1], router, "text")
    assert records[1].novel is None
    assert not off.enabled
    assert not DriftWatch(DriftSettings(enabled=False), traffic.place, ["small"]).enabled


def test_settings(tmp_path):
    expert = '[experts.small]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
    path = tmp_path / "mild.toml"

    def read(drift):
        path.write_text(f"[drift]\n{drift}\n{expert}")
        return read_settings(path, {}).drift

    assert read("") == DriftSettings()
    found = read('webhook = "https://example.com/a"\nenabled = false')
    assert (found.webhook, found.enabled) == ("https://example.com/a", False)
    with pytest.raises(DataFileError, match="webhook"):
        read('webhook = "ftp://x"')


def _state(place):
    with closing(open_database(place)) as database, database.transaction() as connection:
        return json.loads(connection.scalar(sa.select(module.drift.c.document)))
