"""Replay and export with the feedback in the ledger: samples count, by the inverse of their rate."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mild_gateway
from mild_gateway.database.engine import open_database
from mild_gateway.learning.estimating import SELF_SELECTED
from mild_gateway.learning.export import export
from mild_gateway.ledger.feedback import Feedback, write_feedback
from replay_cases import make_log, make_router, write_log

WEIGHT = 10.0


def log_with(path, pick, count=3000):
    """A ledger with what ``pick(record, error)`` gives: scores of the answers as (source, rate)."""
    records, errors = make_log(count)
    write_log(path, records)
    rows = []
    for entry in records:
        found = pick(entry, errors[entry.request_id])
        if found is not None and entry.expert is not None:
            source, rate = found
            score = 1 - errors[entry.request_id]
            rows.append(Feedback(entry.request_id, entry.expert, source, score, rate, entry.time))
    database = open_database(path)
    write_feedback(database, rows)
    database.close()
    return records, errors


def test_a_sample_with_two_rates_says_what_the_whole_log_says(tmp_path):
    """Explored answers are all graded, others by a tenth: unweighted, most would be explored ones."""
    rng = np.random.default_rng(0)

    def pick(entry, error):
        rate = 1.0 if entry.propensity < 0.5 else 0.1
        return ("grader", rate) if rng.random() < rate else None

    _, errors = log_with(tmp_path / "l.db", pick, count=6000)
    table = {"request_id": list(errors), "error": list(errors.values())}

    options = {"price_weight": WEIGHT}
    every = mild_gateway.replay(
        tmp_path / "l.db", make_router(), feedback=pa.table(table), **options
    )
    some = mild_gateway.replay(tmp_path / "l.db", make_router(), feedback="ledger", **options)
    assert some.rows < 0.6 * every.rows
    for method in ("logged", "doubly_robust", "self_normalised", "serving"):
        found, whole = (one.estimates["errors"][method] for one in (some, every))
        reach = 3 * np.hypot(found["standard_error"], whole["standard_error"])
        assert abs(found["mean"] - whole["mean"]) < reach
    assert some.overlap["mean_weight"] == pytest.approx(1, abs=4 * some.overlap["weight_error"])
    assert some.verdict.reason != "propensities"
    assert SELF_SELECTED not in some.left_out


def test_feedback_of_clients_is_used_only_if_trusted(tmp_path):
    """Clients complain about wrong answers and are silent about right ones."""
    log_with(tmp_path / "l.db", lambda entry, error: ("client", None) if error > 0.5 else None)
    options = {"feedback": "ledger", "price_weight": WEIGHT}
    careful = mild_gateway.replay(tmp_path / "l.db", make_router(), **options)
    assert careful.left_out[SELF_SELECTED] > 100
    assert careful.verdict.pays is None
    trusting = mild_gateway.replay(tmp_path / "l.db", make_router(), trust_feedback=True, **options)
    assert SELF_SELECTED not in trusting.left_out
    assert trusting.rows == careful.rows + careful.left_out[SELF_SELECTED]


def test_a_rate_of_one_is_the_same_as_a_table(tmp_path):

    _, errors = log_with(tmp_path / "l.db", lambda entry, error: ("import", 1.0), count=800)
    table = pa.table({"request_id": list(errors), "error": list(errors.values())})
    found = [
        mild_gateway.replay(tmp_path / "l.db", make_router(), feedback=one, price_weight=WEIGHT)
        for one in (table, "ledger")
    ]
    first, second = (one.estimates["cost"]["doubly_robust"]["mean"] for one in found)
    assert first == pytest.approx(second)


def test_export_takes_the_sample_before_the_client(tmp_path):
    records, errors = log_with(tmp_path / "l.db", lambda entry, error: ("client", None), count=50)
    database = open_database(tmp_path / "l.db")
    name, expert = records[0].request_id, records[0].expert
    write_feedback(database, [Feedback(name, expert, "grader", 0.125, 0.05, 1.0)])
    # Not the answer that was given.
    write_feedback(database, [Feedback(records[1].request_id, "other", "grader", 0.125, 0.05)])
    database.close()
    export(tmp_path / "l.db", tmp_path / "l.parquet", feedback="ledger")
    table = pq.read_table(tmp_path / "l.parquet")
    scores = dict(zip(table["request_id"].to_pylist(), table["score"].to_pylist(), strict=True))
    assert scores[name] == 0.125
    assert scores[records[1].request_id] == 1 - errors[records[1].request_id]
