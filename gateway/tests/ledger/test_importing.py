"""Graded batches from files and frames: all or nothing, and what is unknown is counted."""

import pandas as pd
import pytest

import mild_gateway
from ledger_cases import read_feedback, record, write_all
from mild.errors import DataFileError, InvalidInputError


@pytest.fixture
def place(ledger_place):
    failed = {"expert": None, "status": 502, "outcome": "failed"}
    write_all(ledger_place, [*(record(number) for number in range(3)), record(3, **failed)])
    return ledger_place


@pytest.fixture
def ledger(place):
    """As a user names it."""
    return getattr(place, "value", place)


def scores(place):
    return [(one.request_id, one.expert, one.score, one.rate) for one in read_feedback(place)]


def test_scores_are_those_of_the_expert_that_answered(place, ledger):
    frame = pd.DataFrame({"request_id": ["r2", "r0", "r7", "r3"], "score": [0.1, 1.0, 0.5, 0.5]})
    found = mild_gateway.import_feedback(ledger, frame, rate=0.25)
    # In the order of the table, with the scores as they were given.
    assert scores(place) == [("r2", "small", 0.1, 0.25), ("r0", "small", 1.0, 0.25)]
    assert found.as_dict() == {"written": 2, "unknown": 1, "unanswered": 1}


def test_a_column_of_experts_says_whose_answers_they_are(place, ledger):
    table = pd.DataFrame(
        {
            "id": ["r0", "r0", "r3", "r1"],
            "correct": [True, False, True, True],
            "expert": ["large", "small", "large", None],
        }
    )
    mild_gateway.import_feedback(ledger, table, id_column="id")
    assert scores(place) == [
        ("r0", "large", 1.0, None),
        ("r0", "small", 0.0, None),
        ("r3", "large", 1.0, None),
        ("r1", "small", 1.0, None),
    ]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_files_of_every_kind_are_read(tmp_path, kind):
    path = write_all(tmp_path / "l.db", [record(0), record(1)])
    frame = pd.DataFrame({"request_id": ["r0", "r1", "r1"], "error": [0.25, None, 1.0]})
    file = tmp_path / f"graded.{kind}"
    if kind == "csv":
        frame.to_csv(file, index=False)
    elif kind == "jsonl":
        frame.to_json(file, orient="records", lines=True)
    else:
        frame.to_parquet(file)
    assert mild_gateway.import_feedback(path, file).written == 2
    assert scores(path) == [("r0", "small", 0.75, None), ("r1", "small", 0.0, None)]


def test_the_last_row_counts_also_in_a_second_import(place, ledger):
    for score in (0.25, 0.5):
        frame = pd.DataFrame({"request_id": ["r0", "r0"], "score": [0.0, score]})
        assert mild_gateway.import_feedback(ledger, frame).written == 1
    assert scores(place) == [("r0", "small", 0.5, None)]


def test_a_bad_row_writes_nothing(place, ledger):
    frame = pd.DataFrame({"request_id": ["r0", "r1"], "score": [1.0, 1.5]})
    with pytest.raises(DataFileError):
        mild_gateway.import_feedback(ledger, frame)
    for rate in (0.0, 1.5, float("nan")):
        with pytest.raises(InvalidInputError) as told:
            mild_gateway.import_feedback(ledger, frame[:1], rate=rate)
        assert told.value.code == "invalid_rate"
    assert scores(place) == []


def test_a_ledger_that_is_not_there_is_not_created(tmp_path):
    frame = pd.DataFrame({"request_id": ["r0"], "score": [1.0]})
    with pytest.raises(DataFileError):
        mild_gateway.import_feedback(tmp_path / "none.sqlite", frame)
    assert list(tmp_path.iterdir()) == []


def test_many_rows_go_in_together(tmp_path):
    path = write_all(tmp_path / "l.db", [record(number) for number in range(2500)])
    names = [f"r{number}" for number in range(5000)]
    # Every request twice, far apart: the last row counts.
    frame = pd.DataFrame({"request_id": names * 2, "score": [0.5] * 5000 + [0.75] * 5000})
    found = mild_gateway.import_feedback(path, frame)
    assert (found.written, found.unknown) == (2500, 2500)
    assert [one.request_id for one in read_feedback(path)] == names[:2500]
    assert {one.score for one in read_feedback(path)} == {0.75}
