"""Tables with answers: columns answer__<expert> and logprob__<expert>."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes, write_outcomes
from mild.errors import DataFileError, OptionError

WIDE = {
    "prompt": ["2 + 2?", "3 + 4?", "5 + 5?", "1 + 1?"],
    "correct__little": [1, 0, 1, 1],
    "correct__mid": [1, 1, 0, 1],
    "correct__strong": [1, 1, 1, 0],
    "answer__little": ["4", "8", "10", "2"],
    "answer__strong": ["4.0", "7", None, "no answer"],
    "logprob__strong": [-0.5, None, -1.0, -2.0],
}
CODES = [[0, -1, 0], [0, -1, 1], [0, -1, -1], [0, -1, -1]]


def wide(**columns):
    return pa.table({**WIDE, **columns})


def code_of(source, **arguments):
    with pytest.raises((DataFileError, OptionError)) as refused:
        read_outcomes(source, **arguments)
    return refused.value.code


def test_answers_of_some_experts_are_read():
    table = read_outcomes(wide())
    assert table.answer_kind == "number"
    assert "(number, detected)" in table.layout
    assert table.answers.codes.tolist() == CODES
    assert repr(table).endswith("with answers)")


def test_answers_are_none_for_a_table_without_them():
    table = read_outcomes(pa.table({"prompt": ["a"], "correct__x": [1]}))
    assert table.answers is None
    assert table.answer_kind is None
    assert table.describe().as_dict()["answers"] is None


@pytest.mark.parametrize("known", [False, True])
def test_answers_follow_rows_and_experts(known):
    table = read_outcomes(wide())
    if known:
        assert table.answers is not None
    taken = table[[1, 0]]
    assert taken.answers.codes.tolist() == [CODES[1], CODES[0]]
    fewer = table.select(["strong", "mid"])
    assert fewer.experts == ["mid", "strong"]
    assert fewer.answers.codes[0].tolist() == [-1, 0]
    assert fewer.answers.kind == taken.answers.kind == "number"
    assert [n for n in fewer.columns.column_names if "little" in n] == []


def test_experts_that_are_left_out_take_their_answers_with_them():
    table = read_outcomes(wide(), experts="little,mid")
    assert table.columns.column_names == ["answer__little"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_written_answers_are_the_same(tmp_path, suffix):
    # Text that looks like numbers, dates or truth values is still text.
    source = wide(answer__little=["007", "True", "2024-01-01", "1e5"], answer__mid=[None] * 4)
    table = read_outcomes(source, answer_kind="code")
    again = read_outcomes(
        write_outcomes(table, tmp_path / f"wide{suffix}"), answer_kind=table.answer_kind
    )
    np.testing.assert_array_equal(again.answers.codes, table.answers.codes)
    assert again.answers.kind == "code"
    frame = read_outcomes(table.to_frame(), answer_kind="code")
    np.testing.assert_array_equal(frame.answers.codes, table.answers.codes)


def test_answers_of_other_formats():
    rows = [
        {"query": q, "model": m, "score": s, "response": a, "logprob": p}
        for q, m, s, a, p in [
            ("a", "x", 1, "4", -0.1),
            ("a", "y", 1, "4.0", -0.2),
            ("b", "x", 0, "5", -0.3),
            ("b", "y", 1, "6", -0.4),
        ]
    ]
    records = [
        {
            "query": q,
            "responses": [
                {k: v for k, v in r.items() if k != "query"} for r in rows if r["query"] == q
            ],
        }
        for q in "ab"
    ]
    nested = {
        "query": ["a", "b"],
        "scores": [{"x": 1, "y": 1}, {"x": 0, "y": 1}],
        "answers": [{"x": "4", "y": "4.0"}, {"x": "5", "y": "6"}],
    }
    for source in (pa.Table.from_pylist(rows), pa.Table.from_pylist(records), pa.table(nested)):
        table = read_outcomes(source)
        assert table.answers.kind == "number"
        assert table.answers.codes.tolist() == [[0, 0], [0, 1]]


def test_tool_calls_as_objects_of_a_long_table():
    call = [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]
    other = [{"type": "tool_use", "id": "2", "name": "f", "input": {"a": 2}}]
    rows = [
        {"query": q, "model": m, "score": 1, "response": answer}
        for q, m, answer in [
            ("a", "x", call),
            ("a", "y", other),
            ("b", "x", call),
            ("b", "y", call),
        ]
    ]
    table = read_outcomes(pa.Table.from_pylist(rows))
    assert table.answers.kind == "json"
    assert table.answers.codes.tolist() == [[0, 1], [0, 0]]


def test_the_kind_is_detected_by_the_scores_or_set():
    source = {
        "prompt": [f"q{i}" for i in range(20)],
        "correct__a": [1] * 20,
        "correct__b": [0] * 20,
        "answer__a": ["True"] * 20,
        "answer__b": ["true"] * 20,
    }
    assert read_outcomes(pa.table(source)).answer_kind == "code"
    table = read_outcomes(pa.table(source), answer_kind="short_text")
    assert table.answers.codes[0].tolist() == [0, 0]
    assert "(short_text)" in table.layout


def test_answers_are_no_queries():
    assert code_of(wide(), query="answer__little") == "invalid_query"
    assert code_of(wide(), query="answer__*") == "invalid_query"


@pytest.mark.parametrize(
    ("columns", "arguments", "code"),
    [
        ({"answer__other": ["4"] * 4}, {}, "invalid_scores"),
        ({"logprob__other": [-1.0] * 4}, {}, "invalid_scores"),
        ({}, {"answer_kind": "numbr"}, "invalid_answer_kind"),
    ],
)
def test_bad_answers_are_refused(columns, arguments, code):
    assert code_of(wide(**columns), **arguments) == code


def test_a_kind_without_answers_is_refused():
    source = pa.table({"prompt": ["a"], "correct__x": [1]})
    assert code_of(source, answer_kind="number") == "invalid_answer_kind"


@pytest.mark.parametrize("missing", [None, "no answer", float("nan")])
def test_only_missing_answers_are_a_finding(missing):
    table = read_outcomes(wide(answer__little=[missing] * 4, answer__strong=[missing] * 4))
    assert table.answers is None
    assert "no_answers" in [finding.kind for finding in table.findings]
    assert table.describe().as_dict()["answers"] is None


def test_answers_that_never_agree_are_a_finding():
    source = {
        "prompt": [f"q{i}" for i in range(30)],
        "correct__a": [1] * 30,
        "correct__b": [1, 0] * 15,
        "answer__a": [f"a {i}" for i in range(30)],
        "answer__b": [f"b {i}" for i in range(30)],
    }
    kinds = [finding.kind for finding in read_outcomes(pa.table(source)).findings]
    assert "answers_never_agree" in kinds
    same = read_outcomes(pa.table(source | {"answer__b": source["answer__a"]}))
    assert "answers_never_agree" not in [finding.kind for finding in same.findings]


def test_pairs_are_described():
    table = read_outcomes(wide(answer__mid=["4", "7", "11", "2"]))
    found = table.describe()
    answers = found.as_dict()["answers"]
    json.dumps(answers)
    pairs = {tuple(pair["experts"]): pair for pair in answers["pairs"]}
    assert answers["kind"] == "number"
    assert len(pairs) == 3
    pair = pairs["little", "mid"]
    assert pair == {
        "experts": ["little", "mid"],
        "rows": 4,
        "agree": 0.5,
        "accuracy_agree": 1.0,
        "accuracy_disagree": 0.5,
    }
    assert found.pairs == answers["pairs"]
    assert any("little and mid agree on 50.0 %" in line for line in found.sentences)


def test_pairs_that_are_not_cheaper_than_the_best_expert_are_not_shown():
    prices = {"cost__little": [0.1] * 4, "cost__mid": [0.2] * 4, "cost__strong": [1.0] * 4}
    best = {"correct__strong": [1] * 4, "answer__mid": ["4", "7", "11", "2"]}
    found = read_outcomes(wide(**prices, **best)).describe()
    assert [pair["experts"] for pair in found.pairs] == [["little", "mid"]]
    assert len(found.as_dict()["answers"]["pairs"]) == 3


def test_a_function_may_say_which_answers_are_equal():
    said = {
        "answer__little": ["the big cat"] * 4,
        "answer__strong": ["a strong cat", None, "dog", ""],
    }
    table = read_outcomes(wide(**said), answer_kind="free_text")
    assert (table.answers.codes[0] == [0, -1, 1]).all()
    merged = table.with_equal_answers(lambda one, other: one.split()[-1] == other.split()[-1])
    assert merged.answers.codes[[0, 1, 2], 2].tolist() == [0, -1, 1]
    assert merged.column("answer__strong") == ["the big cat", None, "dog", ""]
