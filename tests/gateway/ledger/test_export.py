"""The ledger as parquet."""

import datetime

import pyarrow.parquet as pq
import pytest

from ledger_cases import EXPERTS, record, write_all
from mild.errors import DataFileError, OutputExistsError
from mild.gateway.ledger import read_ledger
from mild.gateway.ledger.export import export
from mild.gateway.ledger.records import COLUMNS


@pytest.fixture(params=["sqlite", "postgres"])
def path(request, tmp_path_factory):
    records = [
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
    assert export(path, out) == 51
    rows = pq.read_table(out).to_pylist()
    for row, entry in zip(rows, read_ledger(path), strict=True):
        moment = row.pop("time")
        assert moment.tzinfo is not None
        assert moment.timestamp() == entry.time
        names = row.pop("experts")
        assert names == (EXPERTS if entry.probabilities else None)
        assert row == {name: getattr(entry, name) for name in COLUMNS if name != "time"}
    assert [path.name for path in tmp_path.iterdir()] == ["l.parquet"]


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
    with pytest.raises(OutputExistsError, match="already exists"):
        export(path, out)
    assert out.read_text() == "precious"


def test_a_place_that_cannot_be_written_is_told(path, tmp_path):
    with pytest.raises(DataFileError, match="cannot write"):
        export(path, tmp_path / "no" / "l.parquet")
