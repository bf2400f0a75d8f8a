"""``mild describe``, ``convert`` and ``split``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mild.cli.options import CostOptions
from mild.data import read_outcomes
from mild.errors import OptionError

ROWS = """prompt,correct__Q-1B,correct__Q-7B,cost__Q-1B,cost__Q-7B,latency_ms__Q-1B,latency_ms__Q-7B
"one, two?",1,1,0.0001,0.002,100,900
three?,0,1,0.0002,0.003,100,950
four?,0,0,0.0001,0.002,120,990
three?,1,0,0.0002,,130,900
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(ROWS)
    return path


# describe


def test_the_figures_are_those_of_the_table(mild, log):
    done = mild("describe", log, "--beta", "7B=0.5", "--json")
    assert done.code == 0
    report = done.json()
    table = read_outcomes(log)
    expected = table.describe(beta={"7B": 0.5}).as_dict()
    assert {key: report[key] for key in expected} == expected
    assert report["cost"]["words"] == "error + what asking costs (Q-1B 0, Q-7B 0.5)"
    assert report["cost"]["beta"] == {"Q-1B": 0, "Q-7B": 0.5}
    assert report["fingerprint"] == table.fingerprint()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_person_can_read_it(mild, log, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = mild("describe", log, "--latency-weight", "0.1").out
    assert "read as wide: 2 experts, 4 queries with prices and latencies" in out
    assert "loss = error + 0.1 × seconds" in out
    for words in ("accuracy", "always Q-", "oracle", "0.500", "difference"):
        assert words in out
    assert "- 1 query repeats an earlier one" in out
    assert "- 1 answer has no price" in out
    table_lines = [line for line in out.splitlines() if line.startswith(("┃", "│"))]
    assert max(map(len, table_lines)) <= width


SAMPLES = Path(__file__).parents[1] / "data/formats/samples"


@pytest.mark.parametrize(
    "name", ["long.csv", "models.jsonl", "responses.parquet", "endings.csv", "wide.feather"]
)
def test_every_format_is_described_and_converted(mild, tmp_path, name):
    found = mild("describe", SAMPLES / name, "--json").json()
    assert (found["rows"], [e["name"] for e in found["experts"]]) == (4, ["gpt-4", "small"])
    done = mild("convert", SAMPLES / name, tmp_path / "wide.csv")
    assert done.code == 0
    assert read_outcomes(tmp_path / "wide.csv").fingerprint() == found["fingerprint"]


def test_the_columns_of_a_long_table_can_be_named(mild, tmp_path):
    (tmp_path / "log.csv").write_text(
        "ask,who,verdict,fee,said,id\na,x,yes,1,p,1\na,x,no,2,q,2\na,y,yes,3,p,1\na,y,yes,3,q,2\n"
    )
    named = ("--query", "ask", "--model-column", "who", "--scores", "verdict", "--prices", "fee")
    named += ("--answer-column", "said")
    done = mild("convert", tmp_path / "log.csv", tmp_path / "wide.csv", *named)
    assert done.code == 0, done.err
    assert "read as a long table" in done.out
    found = mild("describe", tmp_path / "wide.csv", "--json").json()
    assert read_outcomes(tmp_path / "wide.csv").column("answer__x") == ["p", "q"]
    expert = found["experts"][1]
    assert expert | {"name": "x", "asked": 2, "accuracy": 0.5, "mean_price": 1.5} == expert


def test_a_column_that_would_be_dropped_is_refused(mild, tmp_path):
    (tmp_path / "log.csv").write_text("prompt,correct__x,corrrect__y,cost__y\na,1,1,1\n")
    done = mild("describe", tmp_path / "log.csv")
    assert done.code == 1
    assert "did you mean" in done.err


def test_experts_and_columns_can_be_chosen(mild, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("task,acc_a,acc_b,usd_a,usd_b\nx,1,0.5,1,2\ny,0,1,1,2\n")
    words = ["--query", "task", "--scores", "acc_*", "--prices", "usd_*", "--experts", "acc_b"]
    wide = tmp_path / "wide.parquet"
    assert mild("convert", path, wide, *words).code == 0
    report = mild("describe", wide, "--price-weight", "0.125", "--json").json()
    assert [expert["name"] for expert in report["experts"]] == ["acc_b"]
    assert report["experts"][0]["mean_cost"] == 0.5


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--beta", "13B=1"],
            "beta must name experts; '13B' is not one of the experts Q-1B, Q-7B",
        ),
        (["--beta", "7B"], "beta must be EXPERT=COST,... such as 7B=1.0,1.5B=0.6; got '7B'"),
        (["--experts", "Q-9B"], "'Q-9B' is not one of the experts"),
        (["--query", "task"], "query must name columns of the file; 'task' is not one"),
    ],
)
def test_errors_are_one_sentence(mild, log, words, sentence):
    done = mild("describe", log, *words)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert sentence in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [("7B=1.0,1.5B=0.6,", {"7B": 1.0, "1.5B": 0.6}), ("a=b=2", {"a=b": 2.0}), (None, None)],
)
def test_betas_are_read_as_pairs(text, value):
    assert CostOptions(text).betas() == value


@pytest.mark.parametrize("text", ["", "7B", "=1", "7B=x", "7B=1,7B=2", "7B=1,,1B=2"])
def test_betas_that_are_not_pairs_are_refused(text):
    with pytest.raises(OptionError, match="beta must"):
        CostOptions(text).betas()


# convert


def test_findings_are_printed_beside_the_result(mild, log, tmp_path):
    done = mild("convert", log, tmp_path / "wide.csv")
    assert "note: 1 query repeats an earlier one" in done.err


def test_an_existing_file_is_kept_unless_overwritten(mild, log, tmp_path):
    out = tmp_path / "wide.csv"
    out.write_text("precious")
    done = mild("convert", log, out)
    assert done.code == 1
    assert "exists" in done.err
    assert out.read_text() == "precious"
    assert mild("convert", log, out, "--overwrite").code == 0
    assert len(read_outcomes(out)) == 4


def test_help_explains_the_shapes(mild):
    done = mild("convert", "--help")
    for name in ("wide", "routerbench", "routellm", "llmrouter", "plain"):
        assert f"\n    {name} " in done.out


def test_describing_a_table_imports_neither_pandas_nor_scipy(logs):
    program = (
        "import sys; from mild.cli.app import build_app\n"
        f"build_app()(['describe', {str(logs.log)!r}], standalone_mode=False)\n"
        "print(sorted({'pandas', 'scipy', 'sklearn', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
