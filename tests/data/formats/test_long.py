"""A row per query and model under any names: which columns are taken, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import mild
from mild.data import read_outcomes
from mild.errors import DataFileError
from outcome_cases import EXPERTS, make_columns
from table_cases import kinds

ROWS = {
    "prompt": ["a", "a", "b", "b"],
    "model": ["x", "y", "x", "y"],
    "score": [1.0, 0.0, 0.5, 1.0],
}


def long(**columns):
    return pa.table({**ROWS, **columns})


def refusal(table, **options):
    with pytest.raises(DataFileError) as caught:
        read_outcomes(table, **options)
    return caught.value


def as_long(columns):
    """Rows of query, model and score of a wide table."""
    return [
        {"prompt": text, "model": name, "correct": bool(columns[f"correct__{name}"][row])}
        for row, text in enumerate(columns["prompt"])
        for name in EXPERTS
    ]


@pytest.mark.parametrize("query", ["prompt", "question", "query", "input", "Question", "Text"])
@pytest.mark.parametrize("model", ["model", "expert", "model_name", "engine", "Model Name"])
@pytest.mark.parametrize("score", ["score", "correct", "accuracy", "is_correct", "grade", "rating"])
def test_usual_names_are_found_without_options(query, model, score):
    table = read_outcomes(long().rename_columns([query, model, score]))
    assert table.queries == ["a", "b"]
    np.testing.assert_array_equal(table.scores, [[1, 0], [0.5, 1]])
    assert f"models are column {model!r}, scores {score!r}" in table.layout


@pytest.mark.parametrize("name", ["cost", "price", "dollars", "cost_usd"])
def test_usual_names_of_prices(name):
    np.testing.assert_array_equal(
        read_outcomes(long(**{name: [1, 2, 3, 4]})).prices, [[1, 2], [3, 4]]
    )


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("latency", 2),
        ("latency_ms", 0.002),
        ("latency_s", 2),
        ("seconds", 2),
        ("Duration MS", 0.002),
    ],
)
def test_usual_names_of_latencies(name, seconds):
    assert read_outcomes(long(**{name: [2.0] * 4})).latencies[0, 0] == pytest.approx(seconds)


@pytest.mark.parametrize("name", ["answer", "response", "output", "completion"])
def test_answers_become_columns_of_the_experts(name):
    table = read_outcomes(long(**{name: ["p", "q", "r", "s"]}))
    assert table.column("answer__x") == ["p", "r"]
    assert table.column("answer__y") == ["q", "s"]


def test_the_right_answer_stays_with_the_query():
    table = read_outcomes(long(answer=["p", "p", "q", "q"], response=["p", "x", "y", "q"]))
    assert table.column("answer") == ["p", "q"]
    assert table.column("answer__y") == ["x", "q"]


def test_unusual_columns_are_named():
    source = long(verdict=["yes", "no", "no", "yes"], who=["x", "y", "x", "y"], said=list("pqrs"))
    source = source.drop_columns(["model", "score", "prompt"]).append_column(
        "ask", [ROWS["prompt"]]
    )
    error = refusal(source)
    assert error.parameter == "form"
    named = {"query": "ask", "model_column": "who", "scores": "verdict", "answer_column": "said"}
    table = read_outcomes(source, **named)
    np.testing.assert_array_equal(table.scores, [[1, 0], [0, 1]])
    assert table.column("answer__y") == ["q", "s"]
    assert "right and wrong as words in verdict" in table.layout
    # The column of the model is a usual one: naming the score is enough.
    usual = source.rename_columns({"who": "model", "ask": "prompt"})
    assert read_outcomes(usual, scores="verdict").form == "long"
    assert read_outcomes(usual, scores="verdict", form="plain").experts == ["verdict"]


@pytest.mark.parametrize(
    ("columns", "parameter", "option"),
    [
        ({"engine": ["x", "y", "x", "y"]}, "model_column", "model_column=COLUMN"),
        ({"correct": [1, 0, 0, 1]}, "scores", "scores=COLUMN"),
    ],
)
def test_two_columns_that_fit_are_a_question(columns, parameter, option):
    error = refusal(long(**columns))
    assert error.parameter == parameter
    assert option in str(error)
    assert next(iter(columns)) in str(error)


def test_other_scores_of_an_answer_are_kept():
    table = read_outcomes(long(style_score=[1, 0, 0, 1], length_score=[0, 1, 1, 0]))
    assert (table.form, table.experts) == ("long", ["x", "y"])
    assert table.column("style_score__y") == [0, 1]


def test_records_in_a_long_table_are_a_question():
    error = refusal(long(responses=[[{"model": "x", "score": 1}]] * 4))
    assert error.parameter == "form"
    assert "form='long' or form='records'" in str(error)


@pytest.mark.parametrize("name", ["model_column", "answer_column", "scores"])
def test_a_column_that_is_not_there_is_refused(name):
    assert refusal(long(), **{name: "nothing"}).parameter == name


def test_scores_of_an_unusual_name_are_asked_for():
    assert "scores=" in str(refusal(long().rename_columns(["prompt", "model", "verdict"])))


def test_repeated_pairs_count_by_their_mean_with_a_finding():
    source = pa.concat_tables([long(), long().slice(0, 1).set_column(2, "score", [[0.0]])])
    np.testing.assert_array_equal(read_outcomes(source).scores, [[0.5, 0], [0.5, 1]])
    assert kinds(source)["conflicts"].count == 1


def test_an_id_tells_equal_queries_apart_unless_it_numbers_the_rows():
    same = {"prompt": ["a"] * 4}
    apart = read_outcomes(long(**same, id=[1, 1, 2, 2]))
    assert apart.queries == ["a", "a"]
    np.testing.assert_array_equal(apart.scores, [[1, 0], [0.5, 1]])
    assert "told apart by id" in apart.layout
    numbered = read_outcomes(long(**same, id=[1, 2, 3, 4]))
    assert numbered.queries == ["a"]
    np.testing.assert_array_equal(numbered.scores, [[0.75, 0.5]])
    # The same id with other queries does not join them.
    assert read_outcomes(long(id=[1, 1, 1, 1])).queries == ["a", "b"]


def test_equal_questions_with_other_choices_are_two():
    columns = {"question": ["Which?"] * 4, "A": ["1", "1", "2", "2"], "B": ["3"] * 4}
    source = pa.table({**columns, "model": ROWS["model"], "score": ROWS["score"]})
    assert read_outcomes(source).queries == ["Which?\nA. 1\nB. 3", "Which?\nA. 2\nB. 3"]


def test_a_long_table_is_tuned_as_its_wide_one(tmp_path):
    columns = make_columns(90)
    file = tmp_path / "long.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in as_long(columns)))
    wide = {name: columns[name] for name in columns if name == "prompt" or "correct__" in name}
    options = {"search": mild.RouterCV(families="ridge", cv=2), "random_state": 0}
    found, other = mild.tune(file, **options), mild.tune(pa.table(wide), **options)
    assert found.as_dict()["verdict"] == other.as_dict()["verdict"]
    assert found.router.experts == EXPERTS


# Words for right and wrong


@pytest.mark.parametrize(
    "words",
    [("yes", "no"), ("Y", "N"), ("TRUE", "false"), ("Right", "wrong"), ("PASS", "fail"),
     ("correct", "incorrect"), ("passed", "failed"), (True, False), (1, 0)],
)  # fmt: skip
@pytest.mark.parametrize("layout", ["long", "wide", "endings", "routellm", "nested", "records"])
def test_words_for_right_and_wrong_are_read_in_every_layout(words, layout):
    right, wrong = words
    tables = {
        "long": {**ROWS, "score": [right, wrong, wrong, right]},
        "wide": {"prompt": ["a", "b"], "correct__x": [right, wrong], "correct__y": [wrong, right]},
        "endings": {"prompt": ["a", "b"], "x_score": [right, wrong], "y_score": [wrong, right]},
        "routellm": {"prompt": ["a", "b"], "x": [right, wrong], "y": [wrong, right]},
        "nested": {
            "prompt": ["a", "b"],
            "scores": [{"x": right, "y": wrong}, {"x": wrong, "y": right}],
        },
        "records": {
            "prompt": ["a", "b"],
            "models": [
                {"x": {"correct": right}, "y": {"correct": wrong}},
                {"x": {"correct": wrong}, "y": {"correct": right}},
            ],
        },
    }
    if layout == "routellm" and words == (1, 0) and type(right) is int:
        # Such columns may be features.
        assert refusal(pa.table(tables[layout])).parameter == "form"
        return
    table = read_outcomes(pa.table(tables[layout]))
    assert table.form == layout
    np.testing.assert_array_equal(table.scores, [[1, 0], [0, 1]])


def test_other_words_are_refused_as_scores():
    error = refusal(long(score=["yes", "no", "perhaps", "no"]))
    assert "'perhaps'" in str(error)
    assert "yes and no" in str(error)


def test_words_are_refused_as_prices():
    assert "numbers" in str(refusal(long(), prices="model"))


def test_a_column_of_right_answers_yes_or_no_is_not_an_expert():
    source = pa.table({"question": ["a", "b"], "label": ["yes", "no"], "x": ["yes", "no"]})
    assert refusal(source).parameter == "form"


def test_the_id_of_an_answer_does_not_tell_queries_apart():
    columns = {"query": list("aabbccc"), "model": [*("xy" * 3), "y"], "score": [1, 0] * 3 + [0]}
    table = read_outcomes(pa.table({**columns, "id": [0, 1, 2, 3, 4, 5, 5]}))
    assert table.scores.tolist() == [[1, 0]] * 3
    table = read_outcomes(
        pa.table(
            {"query": ["a"] * 4, "model": [*"xyxy"], "score": [1, 0, 0, 1], "id": [0, 0, 1, 1]}
        )
    )
    assert len(table) == 2
