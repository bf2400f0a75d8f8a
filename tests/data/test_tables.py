"""Files as they come, and one sentence for every one that cannot be read."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from mild.data import read_columns, read_outcomes
from mild.errors import DataFileError

LONG = "word " * 250_000


def refusal(path, **options):
    with pytest.raises(DataFileError) as caught:
        read_outcomes(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def csv(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def jsonl(tmp_path, *lines):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines))
    return path


def test_the_error_names_a_missing_file(tmp_path):
    assert "there is no such file" in refusal(tmp_path / "nothing.csv")
    assert "the folder must hold files that end in" in refusal(tmp_path)
    (tmp_path / "log.xls").write_text("x")
    expected = (
        "must end in .parquet, .csv, .tsv, .json, .jsonl, .ndjson, .feather, .xlsx; got '.xls'"
    )
    assert expected in refusal(tmp_path / "log.xls")


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_an_empty_file_is_refused(tmp_path, name):
    (tmp_path / name).touch()
    assert "the file is empty" in refusal(tmp_path / name)


@pytest.mark.parametrize("part", [0.05, 0.5, 0.95])
def test_a_parquet_file_that_is_cut_off_is_refused(tmp_path, part):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"prompt": ["a"] * 99, "correct__x": [1] * 99}), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    assert "cut off" in refusal(path)


def test_parquet_text_that_is_not_utf8_is_refused_by_column(tmp_path):
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"caf\xe9"], pa.binary()).buffers())
    parquet.write_table(pa.table({"prompt": broken, "correct__x": [1]}), tmp_path / "a.parquet")
    assert "column 'prompt' is broken, or its text is not UTF-8" in refusal(tmp_path / "a.parquet")


# .csv


def test_line_breaks_and_quotes_inside_a_query_are_kept_and_a_byte_order_mark_is_not(tmp_path):
    path = csv(tmp_path, '\ufeffprompt,correct__x\n"one\ntwo, ""three""",1\r\n"",0\n')
    assert read_outcomes(path).queries == ['one\ntwo, "three"', ""]


def test_a_query_that_looks_like_something_else_is_text(tmp_path):
    rows = ["007", "NA", "true", "2024-01-01", "", "1e5"]
    path = csv(tmp_path, "prompt,correct__x\n" + "".join(f"{text},1\n" for text in rows))
    assert read_outcomes(path).queries == rows
    path = csv(tmp_path, "task,correct__x\n007,1\n010,0\n")
    assert read_outcomes(path, query="task").queries == ["007", "010"]


def test_a_column_of_tokens_named_input_is_not_the_query(tmp_path):
    path = csv(tmp_path, "input,text,correct__x\n12,hello,1\n")
    assert read_outcomes(path).queries == ["hello"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('prompt,correct__x\n"a\nb",1\n\nc,1,2\n', "line 5 has 3 columns where the header has 2"),
        ("prompt,correct__x\na,1\nc\n", "line 3 has 1 column where the header has 2"),
        (f"prompt,correct__x\n{LONG},1\nb,1,1\n", "line 3 has 3 columns"),
        ("prompt,prompt,correct__x\na,b,1\n", "'prompt' appears twice"),
        (b'prompt,correct__x\n"a\nb",1\ncaf\xe9,0\n', "line 4 is not UTF-8 (byte 0xe9 at position"),
        (b"id,prompt,correct__x\n1,a\n b,1\n caf\xe9,c,0\n", "line 4 is not UTF-8"),
        (b"note,prompt,correct__x\nx,a,1\ncaf\xe9,b,0\n", "line 3 is not UTF-8"),
        (b"caf\xe9,prompt,correct__x\nx,a,1\n", "line 1 is not UTF-8"),
        ("prompt,correct__x\na,1\n".encode("utf-16"), "its text is UTF-16"),
        ("prompt;correct__x\na;1\n", "is the separator ';'?"),
        ("prompt\tcorrect__x\na\t1\n", "is the separator '\\t'?"),
        ("prompt;correct__x;cost__x\na;1;0,5\n", "is the separator ';'? Save it with commas"),
        ("prompt;correct__x;cost__x\na, b, and c;1;2\n", "is the separator ';'?"),
        ("prompt,correct__x\na,$0.5\n", "it holds text such as '$0.5'. Write only numbers"),
    ],
    ids=range(14),
)
def test_errors_in_a_csv_file_name_the_line(tmp_path, text, words):
    assert words in refusal(csv(tmp_path, text))


def test_a_query_of_a_million_characters_is_read_and_counted(tmp_path):
    table = read_outcomes(csv(tmp_path, f"prompt,correct__x\n{LONG},1\nb,0\n"))
    assert len(table.queries[0]) == 1_250_000
    found = {finding.kind: finding for finding in table.findings}["long_queries"]
    assert found.sentence == "1 query has more than 1,000,000 characters, up to 1,250,000."


# .jsonl


def test_keys_that_a_line_lacks_are_empty_there(tmp_path):
    path = jsonl(
        tmp_path,
        '{"prompt": "a", "correct__x": 1}',
        "",
        '{"prompt": "b", "correct__y": 0.0, "correct__x": null}',
    )
    table = read_outcomes(path)
    assert table.queries == ["a", "b"]
    assert table.experts == ["x", "y"]
    assert table.scores[0, 0] == 1
    assert table.scores[1, 1] == 0


def test_truth_and_numbers_may_be_mixed(tmp_path):
    path = jsonl(
        tmp_path,
        '{"prompt": "a", "correct__x": true}',
        '{"prompt": "b", "correct__x": 0.25}',
        '{"prompt": "c", "correct__x": NaN, "extra": [1]}',
        '{"prompt": "d", "correct__x": 0, "extra": "x"}',
    )
    table = read_outcomes(path)
    assert table.scores[:, 0].tolist() == [1, 0.25, 0]
    assert table.queries == ["a", "b", "d"]
    assert table.column("extra") == [None, None, "x"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"prompt": "a"', 'line 2 must be one JSON object; it is \'{"prompt": "a"\' ('),
        ("[1, 2]", "line 2 must be one JSON object; it is '[1, 2]'."),
        (
            b'{"prompt": "caf\xe9", "correct__x": 1}',
            "line 2 is not UTF-8 (byte 0xe9 at position 15;",
        ),
        ('{"prompt": "\\ud800", "correct__x": 1}', "line 2 holds half a character"),
        ("x" * 500, "line 2 must be one JSON object"),
        ('{"prompt": "b", "correct__x": 1, "correct__x": 0}', "line 2: the keys of an object"),
        ('{"prompt": "b", "extra": [{"a": 1, "a": 2}]}', "line 2: the keys of an object"),
    ],
)
def test_a_broken_line_is_refused_with_its_number(tmp_path, line, sentence):
    path = jsonl(tmp_path, '{"prompt": "a", "correct__x": 1}', line, '{"prompt": "b"}')
    message = refusal(path)
    assert sentence in message
    assert len(message) < 400


@pytest.mark.parametrize(
    "text",
    [
        '[{"prompt": "a", "correct__x": 1, "correct__x": 0}]',
        '{"prompt": ["a"], "correct__x": [1], "correct__x": [0]}',
        '{"prompt": "a", "correct__x": 1}\n{"prompt": "a", "correct__x": 1, "correct__x": 0}',
        '{"prompt": "a", "correct__x": 1, "correct__x": 0}\n{"prompt": "a", "correct__x": 1}',
    ],
)
def test_a_repeated_key_of_an_object_is_refused_in_every_shape_of_file(tmp_path, text):
    path = tmp_path / "log.json"
    path.write_text(text)
    message = refusal(path)
    assert "'correct__x' appears twice" in message
    assert "Keep one" in message


def test_a_long_line_fits(tmp_path):
    path = jsonl(tmp_path, json.dumps({"prompt": LONG, "correct__x": 1}), '{"prompt": "b"}')
    assert read_outcomes(path).queries == [LONG]


def test_columns_of_a_file_are_lists_and_cells_of_a_csv_are_texts(tmp_path):
    file = tmp_path / "questions.csv"
    file.write_text("query,answer,day\n2 + 2?,007,2024-01-02\nRome?,8,\n")
    columns = {"query": ["2 + 2?", "Rome?"], "answer": ["007", "8"], "day": ["2024-01-02", ""]}
    assert read_columns(file) == columns
    assert read_columns(str(file)) == columns
    table = pa.table({"query": ["a"], "answer": [4]})
    parquet.write_table(table, tmp_path / "questions.parquet")
    assert read_columns(tmp_path / "questions.parquet") == {"query": ["a"], "answer": [4]}
    assert read_columns(table) == {"query": ["a"], "answer": [4]}


def test_columns_of_lines_may_hold_values_of_several_kinds(tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text('{"query": "a", "answer": [1, 2]}\n\n{"answer": "x", "kind": "exact"}\n')
    assert read_columns(file) == {
        "query": ["a", None],
        "answer": [[1, 2], "x"],
        "kind": [None, "exact"],
    }


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.csv", None, "none.csv: there is no such file."),
        (
            "log.tsv",
            "a\tb\n1\t2\n",
            "log.tsv: the file must end in .parquet, .csv, .jsonl; got '.tsv'.",
        ),
        ("empty.csv", "", "empty.csv: the file is empty."),
        ("list.jsonl", "[1]\n", "list.jsonl: line 1 must be one JSON object"),
    ],
)
def test_errors_in_a_file_of_columns_name_the_file(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataFileError) as caught:
        read_columns(tmp_path / name)
    assert words in str(caught.value)
