"""Scores of answers are kept beside their rows, read in the order of time, and go with the rows."""

import math

import pytest
import sqlalchemy as sa

from ledger_cases import record, write_all, writing
from mild.errors import InvalidInputError
from mild.gateway.database.engine import open_database
from mild.gateway.ledger import feedback as module
from mild.gateway.ledger.feedback import (
    MAX_COMMENT,
    Feedback,
    feedback_by_expert,
    read_feedback,
    wilson_interval,
    write_feedback,
)
from mild.gateway.ledger.store import LedgerStore


def score(number=0, value=1.0, **fields):
    usual = {"expert": "small", "source": "client", "time": 1_000_000.0 + number}
    return Feedback(f"r{number}", score=value, **{**usual, **fields})


def write(place, rows):
    database = open_database(place)
    try:
        return write_feedback(database, rows)
    finally:
        database.close()


def test_what_is_written_is_read_in_the_order_of_time(ledger_place, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 3)
    write_all(ledger_place, [record(number) for number in range(10)])
    # Some of the same moment: a block ends among them.
    rows = [score(number, number / 10, time=1000.0 + number // 4) for number in range(10)]
    assert write(ledger_place, rows[::-1]) == 10
    assert list(read_feedback(ledger_place)) == rows
    assert list(read_feedback(ledger_place, since=1001.0, until=1002.0)) == rows[4:8]
    assert list(read_feedback(ledger_place, since=1002.5)) == []
    assert list(read_feedback(ledger_place, source="grader")) == []


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
        ({"rate": math.nan}, "invalid_rate"),
        ({"source": "somebody"}, "invalid_source"),
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


@pytest.mark.parametrize("keep_text", [False, True])
def test_the_writer_keeps_comments_where_texts_are_kept(tmp_path, keep_text):
    with writing(tmp_path / "l.db", keep_text=keep_text) as writer:
        writer.write(record(0))
        writer.judge(score(0, comment="wrong"))
    (found,) = read_feedback(tmp_path / "l.db")
    assert found.comment == ("wrong" if keep_text else None)


def test_without_a_ledger_nothing_is_taken():
    with writing(None) as writer:
        writer.judge(score(0))
        assert (writer.waiting, writer.dropped) == (0, 0)


def test_feedback_goes_with_its_row(ledger_place):
    write_all(ledger_place, [record(number, 1000.0 + number) for number in range(4)])
    write(ledger_place, [score(number, time=5000.0) for number in range(4)])
    store = LedgerStore(ledger_place)
    assert store.drop_before(1002.0, 6000.0, 10) == 2
    assert [one.request_id for one in read_feedback(ledger_place)] == ["r2", "r3"]
    assert store.drop_excess(0, 0, 0, 10) == 2
    assert list(read_feedback(ledger_place)) == []
    store.close()


def test_a_ledger_of_before_has_none(tmp_path):
    path = write_all(tmp_path / "l.db", [record(0)])
    database = open_database(path)
    with database.transaction() as connection:
        connection.execute(sa.text("DROP TABLE feedback"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0005'"))
    database.close()
    assert list(read_feedback(path)) == []
    assert feedback_by_expert(path) == {}


def test_rate_and_mean_by_expert(ledger_place):
    records = [record(number, 1000.0 + number) for number in range(8)]
    records += [record(8, 1008.0, expert="large"), record(9, 1009.0, expert="large", status=502)]
    write_all(ledger_place, records)
    rows = [score(0, 1.0), score(1, 0.0), score(2, 0.5)]
    rows += [score(0, 1.0, source="grader", rate=1.0), score(3, 0.0, source="grader", rate=0.25)]
    # Of a request that failed, and judged beside the answer that was given: a score, but not of an answer of this expert.
    rows += [score(0, 1.0, expert="middle", source="import")]
    rows += [score(9, 0.0, expert="large", source="import")]
    write(ledger_place, rows)
    found = feedback_by_expert(ledger_place)
    small = found["small"]
    assert (small["answers"], small["judged"], small["rate"]) == (8, 4, 0.5)
    assert small["rate_low"] < 0.5 < small["rate_high"]
    assert small["self_selected"]["judged"] == 3
    assert small["self_selected"]["mean"] == pytest.approx(0.5)
    # The answer that was picked with probability 0.25 stands for four.
    assert small["samples"]["mean"] == small["mean"] == pytest.approx(0.2)
    assert small["low"] == pytest.approx(wilson_interval(0.2, 25 / 17)[0])
    assert (found["large"]["answers"], found["large"]["judged"]) == (1, 0)
    assert found["large"]["rate"] == 0
    assert (found["middle"]["answers"], found["middle"]["judged"]) == (0, 0)
    assert found["middle"]["rate"] is None
    assert found["middle"]["mean"] == 1.0
    # The span is that of the requests.
    assert feedback_by_expert(ledger_place, since=1002.0, until=1004.0)["small"]["judged"] == 2
    assert feedback_by_expert(ledger_place, since=2000.0) == {}


def test_the_interval_holds_for_shares_and_for_scores_in_between():
    for mean in (0.0, 0.05, 0.5, 1.0):
        low, high = wilson_interval(mean, 40)
        assert 0 <= low <= mean <= high <= 1
        assert high - low > 0.05
    assert wilson_interval(0.5, 4000)[0] == pytest.approx(0.4845, abs=1e-3)
