"""The outcomes table."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from mild.data import read_outcomes, write_columns
from mild.errors import DataFileError
from mild_gateway.collect.ledger import StoredAnswer
from mild_gateway.collect.questions import Question, Questions
from mild_gateway.collect.runs import plan_runs
from mild_gateway.collect.table import check_columns, outcome_columns
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import Usage

ITEMS = [Question(f"q{i}", (str(i),), "numeric") for i in range(3)]
QUESTIONS = Questions(
    ITEMS,
    {
        "query": ["q0", "q1", "q2"],
        "answer": ["0", "1", "2"],
        "subject": ["a", "b", None],
        "options": [["x", "y"], None, None],
        "mixed": ["text", 1, None],
    },
)
SMALL = Expert(name="small", price_in=1e6, price_out=1e6, base_url="http://h/v1", model="m")
RULES = Expert(name="rules", price_per_query=0.5, base_url="http://h/v1", model="rules")


def make_runs(small=SMALL):
    first, second = plan_runs(ITEMS, [small, RULES], None)
    first.answers[first.keys[0]] = StoredAnswer(
        "zero", Usage(3, 1), 9.0, 9.0, 12.3456, log_probability=-0.5
    )
    first.answers[first.keys[2]] = StoredAnswer("two", Usage(4, 2, estimated=True), 9.0, 9.0, 1.0)
    second.answers[second.keys[1]] = StoredAnswer("1", None, 9.0, 9.0, 0.5)
    return [first, second]


SCORES = [[1.0, None, 0.0], [None, 1.0, None]]


def test_columns_per_expert_with_null_where_nobody_was_asked():
    columns = outcome_columns(QUESTIONS, make_runs(), SCORES)
    table = pa.table(columns)
    assert table.column_names == [
        *("query", "answer", "subject", "options", "mixed"),
        *("correct__small", "cost__small", "latency_ms__small", "tokens_in__small"),
        *("tokens_out__small", "tokens_estimated__small", "answer__small", "logprob__small"),
        *("correct__rules", "cost__rules", "latency_ms__rules", "answer__rules"),
    ]
    assert table["correct__small"].to_pylist() == [1, None, 0]
    assert table["latency_ms__small"].to_pylist() == [12.346, None, 1.0]
    assert table["tokens_in__small"].to_pylist() == [3, None, 4]
    assert table["tokens_estimated__small"].to_pylist() == [False, None, True]
    assert table["answer__rules"].to_pylist() == [None, "1", None]
    assert table["mixed"].to_pylist() == ["text", "1", None]


def test_costs_are_by_the_prices_of_the_file_not_by_those_of_the_day_they_were_asked():
    columns = outcome_columns(QUESTIONS, make_runs(), SCORES)
    assert columns["cost__small"].to_pylist() == [4.0, None, 6.0]
    assert columns["cost__rules"].to_pylist() == [None, 0.5, None]


def test_an_unknown_price_is_null_and_without_any_price_there_is_no_column():
    runs = make_runs(replace(SMALL, price_in=None, price_out=None))
    assert outcome_columns(QUESTIONS, runs, SCORES)["cost__small"].to_pylist() == [None] * 3
    assert "cost__small" not in outcome_columns(QUESTIONS, runs[:1], SCORES[:1])


def test_scores_of_a_command_are_named_scores():
    graded = replace(QUESTIONS, items=[replace(ITEMS[0], kind="command"), *ITEMS[1:]])
    columns = outcome_columns(graded, make_runs(), [[0.5, None, 0.0], [None, 1.0, None]])
    assert columns["score__small"].to_pylist() == [0.5, None, 0.0]
    assert "correct__small" not in columns


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_every_format_is_written(tmp_path, suffix):
    columns = outcome_columns(QUESTIONS, make_runs(), SCORES)
    file = write_columns(columns, tmp_path / f"t{suffix}")
    if suffix == ".csv":
        found = arrow_csv.read_csv(file)
        assert found["options"].to_pylist() == ['["x", "y"]', "", ""]
    elif suffix == ".parquet":
        found = parquet.read_table(file)
        assert found["options"].to_pylist() == [["x", "y"], None, None]
    else:
        found = pa.Table.from_pylist([json.loads(line) for line in file.read_text().splitlines()])
    assert found["correct__small"].to_pylist() == [1, None, 0]
    assert found["cost__rules"].to_pylist() == [None, 0.5, None]


def test_questions_that_bring_outcomes_of_the_same_expert_are_refused():
    taken = replace(QUESTIONS, columns=QUESTIONS.columns | {"cost__rules": [1, 2, 3]})
    with pytest.raises(DataFileError, match="must not have a column cost__rules"):
        check_columns(taken, make_runs())


def test_answers_are_columns_of_the_table():
    table = read_outcomes(pa.table(outcome_columns(QUESTIONS, make_runs(), SCORES)))
    assert table.column("answer__small") == ["zero", None, "two"]
    assert table.column("logprob__small") == [-0.5, None, None]
    assert (table.answers.codes >= 0).tolist() == [[False, True], [True, False], [False, True]]
    assert "logprob__rules" not in table.columns.column_names
