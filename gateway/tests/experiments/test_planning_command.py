"""``python -m experiments.planning``: from a table and experts to a plan, and its outcomes."""

from __future__ import annotations

import json

import pyarrow.csv as arrow_csv
import pytest
from typer.testing import CliRunner

import mild
import mild_gateway
from experiments.planning.__main__ import app
from fake_endpoint import FakeEndpoint
from mild.errors import OutputExistsError


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def place(tmp_path):
    rows = [{"query": f"Is {i} even?", "answer": "no" if i % 2 else "yes"} for i in range(80)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    with FakeEndpoint(answer=None) as endpoint:
        text = ""
        for model, price in (("yes", 0.001), ("no", 0.002)):
            text += f'[experts.{model}]\nbase_url = "{endpoint.base_url}"\nmodel = "{model}"\n'
            text += f"price_per_query = {price}\n"
        (tmp_path / "experts.toml").write_text(text)
        yield tmp_path


def test_collect_plan_collect(place):
    questions = place / "questions.jsonl"
    experts = place / "experts.toml"
    table = place / "t.parquet"
    first = mild_gateway.collect_outcomes(questions, experts, table, limit=20)
    words = ["plan", table, "--experts", experts, "--queries", questions, "--spend", 0.05]
    planned = run(*words, "--out", place / "plan.csv")
    assert planned.exit_code == 0, planned.output
    assert "of the decision regret" in planned.output
    calls = arrow_csv.read_csv(place / "plan.csv").num_rows
    assert calls > 10
    done = run("collect", questions, experts, "--plan", place / "plan.csv", "--out", table)
    assert done.exit_code == 0, done.output
    known = mild.read_outcomes(table).scores
    assert (known == known).sum() == first.table.scores.size + calls


def test_an_existing_plan_is_not_replaced(place):
    (place / "plan.csv").write_text("mine")
    words = ["plan", place / "t.csv", "--experts", place / "experts.toml", "--spend", 1]
    with pytest.raises(OutputExistsError):
        run(*words, "--out", place / "plan.csv")
    assert (place / "plan.csv").read_text() == "mine"
