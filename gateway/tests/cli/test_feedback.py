"""``mild feedback`` as it is typed, and the feedback of a ledger in other commands."""

import json

import pyarrow.parquet as parquet
import pytest
import typer
from typer.testing import CliRunner

from ledger_cases import record, write_all
from mild.cli.app import build_group
from mild_gateway.cli import feedback, ledger


@pytest.fixture
def run():
    app = typer.Typer(pretty_exceptions_enable=False)
    app.add_typer(build_group(feedback.feedback))
    app.add_typer(build_group(ledger.ledger))

    def run(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def folder(tmp_path):
    write_all(tmp_path / "l.db", [record(number) for number in range(4)])
    lines = ["request_id,correct", "r0,1", "r1,0", "r9,1"]
    (tmp_path / "graded.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_file_goes_in_and_is_exported(run, folder):
    place = folder / "l.db"
    words = ("feedback", "import", folder / "graded.csv", "--ledger", place, "--rate", "0.5")
    said = json.loads(run(*words, "--json").stdout)
    assert said == {"written": 2, "unknown": 1, "unanswered": 0}
    assert "2 scores written, 1 request unknown." in run(*words).stdout
    out = folder / "l.parquet"
    assert run("ledger", "export", place, "--out", out, "--feedback", "ledger").exit_code == 0
    assert parquet.read_table(out)["score"].to_pylist() == [1.0, 0.0, None, None]


def test_a_rate_that_is_none_is_refused(run, folder):
    found = run(
        "feedback", "import", folder / "graded.csv", "--ledger", folder / "l.db", "--rate", 2
    )
    assert found.exit_code == 1
    assert "--rate must lie in (0, 1]" in found.stderr
