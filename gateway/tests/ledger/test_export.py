"""The ledger as a file, and back as a table of outcomes."""

import csv
import datetime
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import mild
from ledger_cases import EXPERTS, record, write_all
from mild.data import read_outcomes
from mild.errors import DataFileError, DegenerateDataWarning, OutputExistsError
from mild_gateway.learning.export import export
from mild_gateway.ledger import read_ledger
from mild_gateway.ledger.records import COLUMNS
from replay_cases import NAMES, make_log, write_log

# A value for every column that may be null.
CALLS = [
    {
        "expert": "small", "step": 1, "outcome": "ok", "dollars": 0.001, "tokens_in": 10,
        "tokens_out": 20, "latency_ms": 12.5, "reported": None,
    }
]  # fmt: skip
FULL = {
    "expected_cost": 0.25, "first_byte_ms": 7.5, "overhead_ms": 1.5, "attempts": 2, "streamed": True,
    "session": "s", "text": "ß", "error": "cut", "pinned_by": "r9",
    "preferred": "large", "draws": [0.1, 0.1, 0.8], "calls": CALLS, "reported": "m-1 f",
    "features": "AAAA", "novel": True,
}  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def path(request, tmp_path_factory):
    records = [
        record(51, time=1_799_999_998.0, **FULL),
        record(52, time=1_799_999_998.5, novel=False),
        record(0, time=1_800_000_000.25, streamed=True, text="ß", pinned_by="r9", session="s"),
        record(50, time=1_799_999_999.0, probabilities=[0.25, None, 0.75]),
        record(
            1, time=1_800_000_001.0, probabilities=None, propensity=None, chosen=None, price=None
        ),
        *(record(i, time=1_800_000_000.0 + i) for i in range(2, 50)),
    ]
    place = tmp_path_factory.mktemp("ledger") / "l.db"
    if request.param == "postgres":
        place = request.getfixturevalue("postgres").address
    return write_all(place, records, keep_text=True)


def test_every_column_of_every_row_comes_out(path, tmp_path):
    out = tmp_path / "l.parquet"
    assert export(path, out) == 53
    rows = pq.read_table(out).to_pylist()
    # So that none is right because it is empty everywhere.
    assert None not in rows[0].values()
    for row, entry in zip(rows, read_ledger(path), strict=True):
        moment = row.pop("time")
        assert moment.tzinfo is not None
        assert moment.timestamp() == entry.time
        names = row.pop("experts")
        assert names == (EXPERTS if entry.probabilities else None)
        if row["calls"] is not None:
            row["calls"] = json.loads(row["calls"])
        assert row == {name: getattr(entry, name) for name in COLUMNS if name != "time"}
    assert [row["novel"] for row in rows[:3]] == [True, False, None]
    assert [path.name for path in tmp_path.iterdir()] == ["l.parquet"]


def test_truth_values_and_nothing_are_themselves_in_lines_of_json_and_in_csv(path, tmp_path):
    export(path, tmp_path / "l.jsonl")
    lines = (tmp_path / "l.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines[:3]]
    assert [(row["novel"], row["streamed"]) for row in rows] == [
        (True, True),
        (False, False),
        (None, False),
    ]
    assert json.loads(rows[0]["calls"]) == CALLS
    export(path, tmp_path / "l.csv")
    with (tmp_path / "l.csv").open(newline="", encoding="utf-8") as file:
        cells = [(row["novel"], row["streamed"]) for row in csv.DictReader(file)][:3]
    assert cells == [("true", "true"), ("false", "false"), ("", "false")]


def test_a_span_can_be_taken_out_even_an_empty_one(path, tmp_path):
    out = tmp_path / "l.parquet"
    assert export(path, out, since=1_800_000_010.0, until=1_800_000_020.0) == 10
    times = pq.read_table(out)["time"].to_pylist()
    assert times[0] == datetime.datetime.fromtimestamp(1_800_000_010, datetime.UTC)
    assert export(path, out, since=1.0, until=2.0, overwrite=True) == 0
    assert pq.read_table(out).num_rows == 0
    assert set(pq.read_schema(out).names) == {*COLUMNS, "experts"}


def test_what_is_there_is_replaced_only_when_asked(path, tmp_path):
    out = tmp_path / "l.parquet"
    out.write_text("precious")
    with pytest.raises(OutputExistsError, match="exists"):
        export(path, out)
    assert out.read_text() == "precious"


def test_a_place_that_cannot_be_written_is_told(path, tmp_path):
    with pytest.raises(DataFileError, match="cannot write"):
        export(path, tmp_path / "no" / "l.parquet")


# Back into a table of outcomes


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A ledger with texts, and a file that judges most of its requests."""
    folder = tmp_path_factory.mktemp("log")
    records, errors = make_log(120)
    records[0].outcome, records[0].expert = "failed", None
    records[1].outcome = "cut"
    judged = folder / "judged.csv"
    lines = [f"{request},{error}" for request, error in errors.items() if request != "r2"]
    judged.write_text("\n".join(["request_id,error", *lines]))
    return write_log(folder / "l.sqlite", records), records, errors, judged


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_an_export_is_read_as_a_table_of_outcomes(log, tmp_path, suffix):
    path, records, errors, judged = log
    out = tmp_path / f"log{suffix}"
    assert export(path, out, feedback=judged) == 120
    table = read_outcomes(out)
    assert (table.form, sorted(table.experts)) == ("ledger", sorted(NAMES))
    kept = [entry for entry in records[1:] if entry.request_id != "r2"]
    assert table.queries == [entry.text for entry in kept]
    places = [table.experts.index(entry.expert) for entry in kept]
    rows = range(len(kept))
    assert [1 - score for score in table.scores[rows, places]] == [
        errors[entry.request_id] for entry in kept
    ]
    assert table.prices[rows, places] == pytest.approx([entry.price for entry in kept])
    assert table.latencies[rows, places] == pytest.approx([0.0125] * len(kept))
    assert (~np.isnan(table.scores)).sum() == len(kept)
    assert {finding.kind for finding in table.findings} >= {"unanswered", "unasked_rows"}
    assert table.describe(price_weight=1).as_dict()["rows"] == 118
    assert table.times("time")[0] < table.times("time")[-1]


def test_without_feedback_a_score_says_who_answered_and_it_is_said(log, tmp_path):
    export(log[0], tmp_path / "log.parquet")
    table = read_outcomes(tmp_path / "log.parquet")
    assert np.nanmin(table.scores[0]) == 0  # cut off
    assert np.nanmin(table.scores[1:]) == 1
    assert "unjudged" in {finding.kind for finding in table.findings}


def test_an_export_is_tuned(log, tmp_path):
    export(log[0], tmp_path / "log.jsonl", feedback=log[3])
    # One expert per row: a loss that compares experts within a row would learn nothing.
    search = mild.RouterCV(families="ridge", cv=2)
    with pytest.warns(DegenerateDataWarning):
        found = mild.tune(tmp_path / "log.jsonl", price_weight=10, search=search)
    assert set(found.router.experts) == set(NAMES)
    assert found.router.route(["what is 1 plus 2 together"])[0] in NAMES


def test_a_ledger_without_texts_is_refused_with_the_setting(tmp_path):
    path = write_all(tmp_path / "l.sqlite", [record(1)])
    export(path, tmp_path / "log.parquet")
    with pytest.raises(DataFileError, match="keep_text"):
        read_outcomes(tmp_path / "log.parquet")
