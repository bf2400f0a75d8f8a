"""Scores of answers are kept beside their rows, read in the order of time, and go with the rows."""

import math

import pytest

from ledger_cases import Keep, read_feedback, record, write_all, writing
from mild.errors import InvalidInputError
from mild_gateway.database.engine import open_database
from mild_gateway.ledger import LedgerWriter
from mild_gateway.ledger.feedback import (
    MAX_COMMENT,
    Feedback,
    feedback_by_expert,
    write_feedback,
)
from mild_gateway.ledger.store import LedgerStore


def score(number=0, value=1.0, **fields):
    usual = {"expert": "small", "source": "client", "time": 1_000_000.0 + number}
    return Feedback(f"r{number}", score=value, **{**usual, **fields})


def write(place, rows):
    database = open_database(place)
    try:
        return write_feedback(database, rows)["written"]
    finally:
        database.close()


def test_what_is_written_is_read(ledger_place):
    write_all(ledger_place, [record(number) for number in range(10)])
    rows = [score(number, number / 10, time=1000.0 + number) for number in range(10)]
    assert write(ledger_place, rows[::-1]) == 10
    assert read_feedback(ledger_place) == rows


def test_a_row_replaces_the_one_of_its_request_expert_and_source(ledger_place):
    write_all(ledger_place, [record(0)])
    # Also within one call, which is one statement.
    write(ledger_place, [score(0, 0.2), score(0, 0.4), score(0, 0.5, expert="large")])
    write(ledger_place, [score(0, 0.6), score(0, 0.7, source="grader", rate=0.05)])
    found = {(one.expert, one.source): (one.score, one.rate) for one in read_feedback(ledger_place)}
    assert found == {
        ("small", "client"): (0.6, None),
        ("small", "grader"): (0.7, 0.05),
        ("large", "client"): (0.5, None),
    }


def test_unknown_requests_are_left_out(ledger_place):
    write_all(ledger_place, [record(0)])
    assert write(ledger_place, [score(0), score(1), score(0, expert="large")]) == 2
    assert {one.request_id for one in read_feedback(ledger_place)} == {"r0"}
    assert write(ledger_place, [Feedback("r0\0\ud800", "small", "client", 1.0)]) == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"value": 1.1}, "invalid_score"),
        ({"value": -0.1}, "invalid_score"),
        ({"value": math.nan}, "invalid_score"),
        ({"value": math.inf}, "invalid_score"),
        ({"rate": 0.0}, "invalid_rate"),
        ({"rate": 1e-320}, "invalid_rate"),
        ({"rate": math.nan}, "invalid_rate"),
    ],
)
def test_a_number_outside_of_its_range_writes_nothing(ledger_place, fields, code):
    write_all(ledger_place, [record(0), record(1)])
    with pytest.raises(InvalidInputError) as found:
        write(ledger_place, [score(0), score(1, **fields)])
    assert found.value.code == code
    assert list(read_feedback(ledger_place)) == []


def test_comments_are_cut_and_any_text_can_be_written(ledger_place):
    write_all(ledger_place, [record(0), record(1)])
    write(ledger_place, [score(0, comment="a\0b\ud800" + "x" * 10_000), score(1, comment="")])
    first, second = read_feedback(ledger_place)
    assert first.comment.startswith("a\ufffdb")
    assert len(first.comment) == MAX_COMMENT
    assert not second.comment


def test_the_writer_writes_scores_after_the_rows_that_they_judge(ledger_place):
    with writing(ledger_place) as writer:
        for number in range(50):
            writer.write(record(number))
            writer.judge(score(number, source="grader", rate=0.5))
        # One that does not fit is dropped without the others.
        writer.write(record(50))
        writer.judge(score(50, math.nan))
        assert writer.flush()
        assert (writer.written, writer.dropped, writer.waiting_bytes) == (51, 1, 0)
        assert len(list(read_feedback(ledger_place))) == 50


def test_features_count_towards_the_bytes_that_wait():
    writer = LedgerWriter(Keep("unused"), [], max_waiting_bytes=50_000)
    writer.write(record(0, features="x" * 20_000))
    writer.judge(score(0))
    assert 20_000 < writer.waiting_bytes < 30_000
    writer.write(record(1, features="x" * 30_000))
    assert (writer.waiting, writer.dropped) == (2, 1)


def test_without_a_ledger_nothing_is_taken():
    with writing(None) as writer:
        writer.judge(score(0))
        assert (writer.waiting, writer.dropped) == (0, 0)


def test_feedback_goes_with_its_row(ledger_place):
    write_all(ledger_place, [record(number, 1000.0 + number) for number in range(4)])
    write(ledger_place, [score(number, time=5000.0) for number in range(4)])
    store = LedgerStore(ledger_place)
    assert store.drop_before(1002.0, 10) == 2
    assert [one.request_id for one in read_feedback(ledger_place)] == ["r2", "r3"]
    assert store.drop_excess(0, 0, 10) == 2
    assert list(read_feedback(ledger_place)) == []
    store.close()


def test_rate_and_mean_by_expert(ledger_place):
    records = [record(number, 1000.0 + number) for number in range(8)]
    records += [record(8, 1008.0, expert="large"), record(9, 1009.0, expert="large", status=502)]
    write_all(ledger_place, records)
    rows = [score(0, 1.0), score(1, 0.0), score(2, 0.5)]
    rows += [score(0, 1.0, source="grader", rate=1.0), score(3, 0.0, source="grader", rate=0.25)]
    # Judged beside the answer that was given, and of a request that failed: no answers of these experts.
    rows += [score(0, 1.0, expert="middle", source="import")]
    rows += [score(9, 0.0, expert="large", source="import")]
    write(ledger_place, rows)
    found = feedback_by_expert(ledger_place)
    small = found["small"]
    assert (small["answers"], small["rate"]["mean"]) == (8, 0.5)
    assert small["rate"]["low"] < 0.5 < small["rate"]["high"]
    assert small["self_selected"]["count"] == 3
    assert small["self_selected"]["mean"] == pytest.approx(0.5)
    # The answer that was picked with probability 0.25 stands for four; they are as many as 25 / 17.
    assert small["samples"]["mean"] == pytest.approx(0.2)
    assert small["samples"]["low"] == pytest.approx(0.0135, abs=1e-4)
    assert small["samples"]["high"] == pytest.approx(0.8204, abs=1e-4)
    assert (found["large"]["answers"], found["large"]["rate"]["mean"]) == (1, 0)
    assert (found["middle"]["answers"], found["middle"]["rate"]) == (0, None)
    assert found["middle"]["samples"] is None
    assert found["middle"]["self_selected"]["mean"] == 1.0
    # The span is that of the requests.
    assert feedback_by_expert(ledger_place, since=1002.0)["small"]["rate"]["mean"] == 2 / 6
    assert feedback_by_expert(ledger_place, since=2000.0) == {}


@pytest.mark.parametrize("value", [0.0, 0.05, 1.0])
def test_the_interval_stays_in_range_and_holds_the_mean(tmp_path, value):
    path = write_all(tmp_path / "l.db", [record(number) for number in range(40)])
    write(path, [score(number, value, rate=0.5) for number in range(40)])
    found = feedback_by_expert(path)["small"]["samples"]
    assert 0 <= found["low"] <= value <= found["high"] <= 1
    assert found["high"] - found["low"] > 0.05
