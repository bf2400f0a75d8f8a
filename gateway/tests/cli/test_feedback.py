"""``mild feedback`` as it is typed, and the feedback of a ledger in other commands."""

import json

import pyarrow.parquet as parquet
import pytest

from ledger_cases import record, write_all


@pytest.fixture
def folder(tmp_path):
    write_all(tmp_path / "l.db", [record(number) for number in range(4)])
    lines = ["request_id,correct", "r0,1", "r1,0", "r9,1"]
    (tmp_path / "graded.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_file_goes_in_and_is_exported(mild, folder):
    place = folder / "l.db"
    words = ("feedback", "import", folder / "graded.csv", "--ledger", place, "--rate", "0.5")
    said = json.loads(mild(*words, "--json").out)
    assert said == {"written": 2, "unknown": 1, "unanswered": 0}
    assert "2 scores written, 1 request unknown." in mild(*words).out
    out = folder / "l.parquet"
    assert mild("ledger", "export", place, "--out", out, "--feedback", "ledger").code == 0
    assert parquet.read_table(out)["score"].to_pylist() == [1.0, 0.0, None, None]


def test_a_rate_that_is_none_is_refused(mild, folder):
    found = mild(
        "feedback", "import", folder / "graded.csv", "--ledger", folder / "l.db", "--rate", 2
    )
    assert found.code == 1
    assert "rate must lie in (0, 1]" in found.err
