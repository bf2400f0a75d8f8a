"""What a ledger holds, in short."""

import pytest

from ledger_cases import record, write_all
from mild.data import read_outcomes
from mild_gateway.learning.export import export
from mild_gateway.ledger import read_ledger
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
    # Another expert may be drawn with a probability above 1 / 2.
    draws = [(0.6, "small"), (0.6, "large"), (0.65, "small"), (0.35, "large"), (1.0, "small")]
    records = [
        record(i, time=START, propensity=p, preferred=first) for i, (p, first) in enumerate(draws)
    ]
    recent = summarize(write_all(ledger_place, records))["recent"]
    assert (recent["explored_share"], recent["not_preferred_share"]) == (0.8, 0.4)


def test_a_pinned_request_has_the_first_choice_of_the_one_that_pinned_it(ledger_place):
    records = [
        record(0, time=START, session="s", preferred="large"),
        record(1, time=START, session="s", pinned_by="r0"),
        record(2, time=START, session="t", preferred="small"),
        record(3, time=START, session="t", pinned_by="r2"),
    ]
    assert summarize(write_all(ledger_place, records))["recent"]["not_preferred_share"] == 0.5


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
        prices = dict(zip(table.experts, table.prices[0], strict=True))
        # Of the expert that answered, what its own answer cost.
        assert prices["large"] == pytest.approx(0.1)


def cascade_call(expert, step):
    return {
        "expert": expert, "step": step, "outcome": "ok", "dollars": 0.01, "tokens_in": 9,
        "tokens_out": 9, "latency_ms": 5.0,
    }  # fmt: skip


def test_the_steps_of_a_cascade_are_named(ledger_place):
    first = [cascade_call("small", 1), cascade_call("medium", 1)]
    records = [record(0, time=START)]
    for number in range(1, 5):
        calls = list(first)
        if number == 1:
            calls.append(cascade_call("large", 2))
        records.append(record(number, time=START, chosen="cascade", calls=calls, price=0.5))
    found = summarize(write_all(ledger_place, records))
    assert found["cascade"] == {
        "requests": 4,
        "escalated_share": 0.25,
        "paths": {
            "small,medium": {"requests": 3, "dollars": 1.5},
            "small,medium>large": {"requests": 1, "dollars": 0.5},
        },
    }
    assert list(found["cascade"]["paths"]) == ["small,medium", "small,medium>large"]


def test_without_a_cascade_no_steps_are_named(ledger_place):
    assert summarize(write_all(ledger_place, [record(0, time=START)]))["cascade"] is None
