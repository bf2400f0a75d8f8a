"""``mild plan``: from a table and experts to a file for ``mild collect``."""

from __future__ import annotations

import json

import pyarrow.csv as arrow_csv
import pytest


@pytest.fixture
def place(tmp_path):
    rows = [{"query": f"Is {i} even?", "answer": "no" if i % 2 else "yes"} for i in range(80)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (tmp_path / "experts.toml").write_text(
        '[experts.yes]\ncommand = "echo yes"\nprice_per_query = 0.001\n'
        '[experts.no]\ncommand = "echo no"\nprice_per_query = 0.002\n'
    )
    return tmp_path


def test_collect_plan_collect(mild, place):
    questions, experts, table = (
        place / "questions.jsonl",
        place / "experts.toml",
        place / "t.parquet",
    )
    assert mild("collect", questions, experts, "--limit", 20, "--out", table).code == 0
    words = ["plan", table, "--experts", experts, "--queries", questions, "--spend", 0.05]
    result = mild(*words, "--out", place / "plan.csv", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    written = arrow_csv.read_csv(place / "plan.csv")
    assert found["calls"] == written.num_rows > 10
    shown = mild(*words, "--price-weight", 10)
    assert "of the decision regret" in " ".join(shown.out.split())
    done = mild(
        "collect", questions, experts, "--plan", place / "plan.csv", "--out", table, "--json"
    )
    assert done.code == 0, done.err
    asked = json.loads(done.out)["experts"]
    assert sum(one["asked"] for one in asked.values()) == found["calls"]


def test_an_existing_plan_is_not_replaced(mild, place):
    (place / "plan.csv").write_text("mine")
    words = ["plan", place / "t.csv", "--experts", place / "experts.toml", "--spend", 1]
    result = mild(*words, "--out", place / "plan.csv")
    assert result.code != 0
    assert (place / "plan.csv").read_text() == "mine"
