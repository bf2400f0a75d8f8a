"""Questions from files."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from mild.errors import DataFileError
from mild_gateway.collect.questions import Question, read_questions


def lines(tmp_path, *rows):
    file = tmp_path / "q.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return file


def csv(tmp_path, text):
    file = tmp_path / "q.csv"
    file.write_text(text)
    return file


def test_every_format_gives_the_same_questions(tmp_path):
    rows = [{"query": "2 + 2", "answer": "4"}, {"query": "3, or\nmore?", "answer": "03"}]
    found = [read_questions(lines(tmp_path, *rows))]
    found.append(read_questions(csv(tmp_path, 'query,answer\n2 + 2,4\n"3, or\nmore?",03\n')))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "q.parquet")
    found.append(read_questions(tmp_path / "q.parquet"))
    for questions in found:
        assert questions.items == [
            Question("2 + 2", ("4",), "numeric"),
            Question("3, or\nmore?", ("03",), "numeric"),
        ]
        assert questions.explanation == "2 questions, scored as numeric (every answer is a number)"


def test_the_kind_is_found_and_said(tmp_path):
    exact = read_questions(
        lines(tmp_path, {"prompt": "a", "target": "x"}, {"prompt": "b", "target": 3})
    )
    assert [item.kind for item in exact.items] == ["exact", "exact"]
    assert exact.explanation.endswith("scored as exact (not every answer is a number)")
    assert exact.columns == {"query": ["a", "b"], "answer": ["x", 3]}
    by_row = read_questions(
        lines(
            tmp_path,
            {"question": "a", "answer": "x", "kind": "contains", "subject": "s"},
            {"question": "b", "answer": "3", "kind": "numeric", "subject": "t"},
        )
    )
    assert [item.kind for item in by_row.items] == ["contains", "numeric"]
    assert by_row.columns["subject"] == ["s", "t"]
    forced = read_questions(lines(tmp_path, {"query": "a", "answer": "3"}), score="exact")
    assert forced.items[0].kind == "exact"
    scored = read_questions(lines(tmp_path, {"query": "a", "answer": None}), scorer=True)
    assert scored.items == [Question("a", (), "command")]


@pytest.mark.parametrize(
    ("answer", "letter"), [("B", "B"), ("b", "B"), ("Rome", "B"), (1, "B"), ("1", "B"), (0, "A")]
)
def test_choices_take_letters_texts_and_numbers_from_zero(tmp_path, answer, letter):
    row = {"query": "?", "answer": answer, "options": ["Paris", "Rome", "Oslo"]}
    (item,) = read_questions(lines(tmp_path, row)).items
    assert item == Question("?", (letter,), "choice", ("Paris", "Rome", "Oslo"))


def test_options_may_be_columns_or_json_in_a_csv(tmp_path):
    (item,) = read_questions(csv(tmp_path, "question,answer,A,B,C,D\n?,C,1,2,3,\n")).items
    assert item == Question("?", ("C",), "choice", ("1", "2", "3"))
    text = 'question,answer,choices\n?,A,"[""x"", ""y""]"\n'
    assert read_questions(csv(tmp_path, text)).items[0].options == ("x", "y")


def test_several_right_answers_are_a_list(tmp_path):
    (item,) = read_questions(lines(tmp_path, {"query": "?", "answer": ["color", "colour"]})).items
    assert item.answers == ("color", "colour")


def test_columns_are_named(tmp_path):
    file = lines(tmp_path, {"text": "?", "truth": "x"})
    questions = read_questions(file, query="text", answer="truth")
    assert questions.columns == {"query": ["?"], "answer": ["x"]}
    with pytest.raises(DataFileError, match=r"a column 'txt' \(query\); found text, truth"):
        read_questions(file, query="txt", answer="truth")


def test_the_first_are_taken_with_their_columns(tmp_path):
    questions = read_questions(lines(tmp_path, *[{"query": str(i), "answer": i} for i in range(5)]))
    first = questions.first(2)
    assert len(first.items) == 2
    assert first.columns["answer"] == [0, 1]
    assert len(questions.first(None).items) == 5


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": "1"}, "there must be a column prompt or question or query"),
        ({"query": "1"}, "there must be a column answer or target or gold"),
        ({"query": "", "answer": "1"}, "every query must be text; row 1 has none"),
        ({"query": "?", "answer": None}, "row 1: the answer must not be empty"),
        ({"query": "?", "answer": "x", "kind": "numeric"}, "must be a number; got 'x'"),
        ({"query": "?", "answer": "x", "kind": "maybe"}, "kind must be one of choice"),
        ({"query": "?", "answer": "x", "kind": "choice"}, "row 1: a choice must have options"),
        ({"query": "?", "answer": "x", "kind": "command"}, "need a scorer"),
        ({"query": "?", "answer": "E", "options": ["a", "b"]}, "must be a letter up to B"),
        ({"query": "?", "answer": 2, "options": ["a", "b"]}, "must be a letter up to B"),
        ({"query": "?", "answer": "A", "options": ["a"]}, "options must be a list of 2 to 26"),
        ({"query": "?", "answer": "A", "options": "a b"}, "options must be a list"),
    ],
)
def test_wrong_questions_are_refused(tmp_path, row, message):
    with pytest.raises(DataFileError, match=message):
        read_questions(lines(tmp_path, row))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", b'{"query": "a"}\n{oops\n', "line 2 must be one JSON object"),
        ("q.jsonl", b"[1]\n", "line 1 must be one JSON object"),
        ("q.jsonl", b'{"query": "a \\ud83d", "answer": "1"}\n', "half a character"),
        ("q.jsonl", b'{"query": "\xff"}\n', "line 1 is not UTF-8"),
        ("q.jsonl", b"", "the file is empty"),
        ("q.txt", b"x", "must end in"),
        ("q.parquet", b"no", "not a readable"),
        ("q.csv", b"query,answer\n1,2,3\n", "line 2 has 3 column"),
        ("q.csv", b"query,answer,answer\n1,2,3\n", "'answer' appears twice"),
        ("none.csv", None, "there is no such file"),
    ],
)
def test_unreadable_files_are_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataFileError, match=message):
        read_questions(tmp_path / name)


def test_options_of_some_questions_only_are_refused(tmp_path):
    mixed = [{"query": "a", "answer": "A", "options": ["x", "y"]}, {"query": "b", "answer": "1"}]
    with pytest.raises(DataFileError, match="some questions have options and some have none"):
        read_questions(lines(tmp_path, *mixed))
