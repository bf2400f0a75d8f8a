"""What a ledger holds, in short."""

from ledger_cases import record, write_all
from mild.gateway.ledger.summary import summarize

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


def test_a_span_without_rows_is_no_error(ledger_place):
    path = write_all(ledger_place, [record(0, time=START)])
    found = summarize(path, since=START + 3600)
    assert (found["requests"], found["first"], found["experts"]) == (0, None, {})
    assert found["recent"]["latency_ms_p50"] is None
