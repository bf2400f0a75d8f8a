"""What a ledger holds, in short."""

import sqlite3

import pytest

from ledger_cases import record, write_all
from mild.data import read_outcomes
from mild_gateway.dashboard.ledger_snapshot import read_snapshot
from mild_gateway.ledger import read_ledger
from mild_gateway.ledger.export import export
from mild_gateway.ledger.summary import summarize

START = 1_800_000_000.0


def test_the_summary_adds_up(ledger_place):
    path = write_all(
        ledger_place,
        [
            record(0, time=START, price=0.25, latency_ms=10.0, propensity=1.0),
            record(1, time=START + 60, price=0.5, latency_ms=30.0, expert="large"),
            record(2, time=START + 60, price=None, latency_ms=20.0, expert=None, outcome="failed"),
            record(3, time=START + 6000, price=1.0, latency_ms=40.0, text="x", pinned_by="r1"),
        ],
        keep_text=True,
    )
    found = summarize(path)
    assert (found["requests"], found["dollars"]) == (4, 1.75)
    assert (found["first"], found["last"]) == (START, START + 6060)
    assert found["outcomes"] == {"ok": 3, "failed": 1}
    assert {name: entry["requests"] for name, entry in found["experts"].items()} == {
        "small": 2,
        "large": 1,
    }
    assert found["experts"]["small"]["mean_latency_ms"] == 25.0
    recent = found["recent"]
    assert (recent["latency_ms_p50"], recent["latency_ms_p95"]) == (20.0, 40.0)
    assert (recent["routed"], recent["explored_share"]) == (4, 0.75)
    assert (recent["with_text"], recent["pinned"]) == (1, 1)
    part = summarize(path, since=START + 60, until=START + 120)
    assert (part["requests"], part["dollars"], part["recent"]["rows"]) == (2, 0.5, 2)


def test_draws_of_another_expert_than_the_first_choice_are_counted(ledger_place):
    # None: an expert that could not serve the request, and could not be drawn.
    draws = [(0.8, [0.7, 0.2, 0.1]), (0.1, [0.7, 0.2, 0.1]), (0.65, [0.7, None, 0.3]),
             (0.35, [0.7, None, 0.3]), (1.0, [0.7, None, None])]  # fmt: skip
    records = [
        record(i, time=START, propensity=p, probabilities=q) for i, (p, q) in enumerate(draws)
    ]
    recent = summarize(write_all(ledger_place, records))["recent"]
    assert (recent["explored_share"], recent["not_preferred_share"]) == (0.8, 0.4)


def test_what_was_preferred_is_read_where_the_row_says_it(ledger_place):
    # Another expert may be drawn with a probability above 1 / 2.
    draws = [(0.6, "small"), (0.6, "large"), (0.65, "small"), (0.35, "large"), (1.0, "small")]
    records = [
        record(i, time=START, propensity=p, preferred=first) for i, (p, first) in enumerate(draws)
    ]
    assert summarize(write_all(ledger_place, records))["recent"]["not_preferred_share"] == 0.4


def test_a_span_without_rows_is_no_error(ledger_place):
    path = write_all(ledger_place, [record(0, time=START)])
    found = summarize(path, since=START + 3600)
    assert (found["requests"], found["first"], found["experts"]) == (0, None, {})
    assert found["recent"]["latency_ms_p50"] is None


def cascaded(number, **more):
    """A row of a cascade: small and its second sample were asked, then large, whose answer was given."""
    calls = [
        {"expert": "small", "step": 1, "outcome": "ok", "dollars": 0.001},
        {"expert": "small#2", "step": 1, "outcome": "cut", "dollars": None},
        {"expert": "large", "step": 2, "outcome": "ok", "dollars": 0.1},
    ]
    tokens = {"tokens_in": 10, "tokens_out": 2, "latency_ms": 5.0}
    calls = [{**call, **tokens} for call in calls]
    total = {"price": 0.101, "tokens_in": 30, "tokens_out": 6}
    return record(number, expert="large", chosen="cascade", calls=calls, **total, **more)


def test_dollars_of_a_cascade_are_those_of_the_experts_that_were_asked(ledger_place):
    write_all(ledger_place, [cascaded(1), cascaded(2), record(3, expert="middle", price=0.5)])
    found = summarize(ledger_place)
    assert (found["requests"], found["dollars"]) == (3, pytest.approx(0.702))
    large, small = found["experts"]["large"], found["experts"]["small"]
    assert (large["requests"], large["dollars"]) == (2, pytest.approx(0.2))
    assert (small["requests"], small["dollars"]) == (0, pytest.approx(0.002))
    assert (small["tokens_in"], small["mean_latency_ms"]) == (40, 0.0)


def test_the_calls_of_a_cascade_are_kept_and_exported(ledger_place, tmp_path):
    write_all(ledger_place, [cascaded(1, text="2 + 2?"), record(2, text="3?")], keep_text=True)
    first, second = read_ledger(ledger_place)
    assert first.calls == cascaded(1).calls
    assert second.calls is None
    for name in ("l.parquet", "l.csv", "l.jsonl"):
        export(ledger_place, tmp_path / name)
        table = read_outcomes(tmp_path / name)
        prices = dict(zip(table.expert_names, table.prices[0], strict=True))
        # Of the expert that answered, what its own answer cost.
        assert prices["large"] == pytest.approx(0.1)


def test_a_ledger_of_the_version_before_is_read_without_calls(tmp_path):
    path = write_all(tmp_path / "l.sqlite", [record(1)])
    with sqlite3.connect(path) as connection:
        for name in ("calls", "preferred", "draws", "reported", "features", "novel"):
            connection.execute(f"ALTER TABLE decisions DROP COLUMN {name}")
        connection.execute("DROP TABLE feedback")
        connection.execute("DROP TABLE drift")
        connection.execute("UPDATE alembic_version SET version_num = '0004'")
    connection.close()
    (found,) = read_ledger(path)
    assert found.calls is None
    assert export(path, tmp_path / "l.parquet") == 1
    assert read_snapshot(path, found.time).recent == [found]
    write_all(path, [cascaded(2)])
    assert [entry.calls is None for entry in read_ledger(path)] == [True, False]
