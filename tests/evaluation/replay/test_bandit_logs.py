"""Logs for Vowpal Wabbit and obp: what is written is read back."""

import io

import pytest

from mild.errors import DataFileError, InvalidInputError, OptionError
from mild.evaluation.replay import log_reader
from mild.evaluation.replay.bandit_logs import Draw, from_words, to_words, write_draws

EXPERTS = ["small", "large:70B|x y"]
COLUMNS = (
    "request_id",
    "chosen",
    "propensity",
    "price",
    "text",
    "probabilities",
    "asked",
    "outcome",
)
TEXTS = [
    "", " ", "a", "a b", " a", "a ", "a  b", "a\nb", "a \n b", "\n\na", "a\tb", "1:2|3 %20",
    "ß\u2028\u00a0ü\r\n", "shared |x", "%0A %20",
]  # fmt: skip


def draws(texts=TEXTS):
    return [
        Draw(f"r'{i} |", 1e9 + i, text, EXPERTS, EXPERTS[i % 2], 0.1 + 0.01 * i, 0.1 * i / 3)
        for i, text in enumerate(texts)
    ]


def written(path, form, rows=None):
    file = io.BytesIO()
    write_draws(file, form, draws() if rows is None else rows, EXPERTS)
    path.write_bytes(file.getvalue())
    return path


def read(path, form, names=EXPERTS, since=None, until=None, columns=COLUMNS, **options):
    blocks = log_reader(path, form, names, **options)(columns, since, until)
    return [row for block in blocks for row in block]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_becomes_words_of_vw_and_comes_back(text):
    words = to_words(text)
    assert from_words(words) == text
    assert not set("|:\n\r\t") & set(words)
    assert "  " not in words


@pytest.mark.parametrize("form", ["vw", "obp"])
def test_draws_come_back_as_they_were(tmp_path, form):
    rows = read(written(tmp_path / "log", form) if form == "vw" else
                written(tmp_path / "log.csv", form), form)  # fmt: skip
    assert rows == [
        (d.request_id, d.chosen, d.propensity, d.cost, d.query, 2, "mild", "ok") for d in draws()
    ]


def test_vw_has_a_line_for_the_query_and_one_for_each_expert(tmp_path):
    path = written(tmp_path / "log.vw", "vw", [draws(["2 + 2?"])[0]])
    assert path.read_text() == (
        "shared 'r'0%20%7C|query 2 + 2?\n0:0.0:0.1 |expert small\n|expert large%3A70B%7Cx%20y\n\n"
    )


def test_obp_has_the_columns_of_the_open_bandit_dataset(tmp_path):
    lines = written(tmp_path / "log.csv", "obp", draws(["a", 'b "c", d'])).read_text().splitlines()
    assert lines[0] == ",timestamp,item_id,position,click,propensity_score,request_id,expert,query"
    assert lines[2].startswith("1,2001-09-09 01:46:41.000000+00:00,1,1,-0.0333")
    assert lines[2].endswith('"b ""c"", d"')


def test_a_file_for_cb_is_read_by_the_numbers_of_its_actions(tmp_path):
    path = tmp_path / "log.vw"
    path.write_text("1:-2:0.4 | a b:0.5\n2:0.5:1 tag|x c |y d\n")
    assert read(path, "vw", ["small", "large"]) == [
        ("line 1", "small", 0.4, -2.0, "a b", 2, "mild", "ok"),
        ("tag", "large", 1.0, 0.5, "c d", 2, "mild", "ok"),
    ]


def test_lines_of_experts_without_a_name_are_in_the_order_of_the_router(tmp_path):
    path = tmp_path / "log.vw"
    path.write_text("shared | a\n| f:1\n0:1:0.5 | g\n| h\n\nshared | b\n0:2:0.25 | f\n| g\n| h")
    found = read(path, "vw", ["x", "y", "z"], columns=("chosen", "price", "probabilities"))
    assert found == [("y", 1.0, 3), ("x", 2.0, 3)]


@pytest.mark.parametrize("name", ["log.csv", "log", "log.2026-11-16", "log.txt"])
def test_the_names_of_a_feedback_dictionary_of_obp_are_known_whatever_the_file_is_called(
    tmp_path, name
):
    path = tmp_path / name
    path.write_text("action,reward,pscore,prompt\n1,0.5,0.25,hello\n0,1,0.5,you\n")
    found = read(
        path, "obp", ["x", "y"], columns=("request_id", "chosen", "propensity", "price", "text")
    )
    assert found == [("0", "y", 0.25, -0.5, "hello"), ("1", "x", 0.5, -1.0, "you")]
    named = read(path, "obp", ["x", "y"], columns=("text",), text_column="reward")
    assert named == [("0.5",), ("1.0",)]


def test_a_span_of_time_needs_times(tmp_path):
    path = written(tmp_path / "log.csv", "obp")
    found = read(path, "obp", since=1e9 + 1, until=1e9 + 3, columns=("request_id",))
    assert found == [("r'1 |",), ("r'2 |",)]
    with pytest.raises(InvalidInputError) as caught:
        read(written(tmp_path / "log.vw", "vw"), "vw", until=1e9)
    assert caught.value.code == "invalid_until"


@pytest.mark.parametrize("times", [("1700000000", "1700000010"), ("1700000000.5", "1700000010.5")])
def test_a_number_is_seconds_since_1970(tmp_path, times):
    path = tmp_path / "log.csv"
    rows = "".join(f"{time},1,1,0.5\n" for time in times)
    path.write_text(f"timestamp,item_id,click,propensity_score\n{rows}")
    found = read(path, "obp", since=1_700_000_001, until=1_700_000_011, columns=("request_id",))
    assert found == [("1",)]


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("vw", "shared | a\n| x\n| y\n", "got 0 in the 3 line"),
        ("vw", "shared | a\n0:1:0.5 | x\n0:1:0.5 | y\n", "got 2"),
        ("vw", "1:2:0.5 2:1:0.25 | a\n", "got 2 in the 1 line from"),
        ("vw", "", "is empty"),
        ("vw", "\n \n", "is empty"),
        ("obp", "", r"log\.csv: the file is empty"),
        ("obp", "item_id,click,propensity_score\n1,a,0.5\n", r"log\.csv: column 'click'"),
        ("obp", "expert,click,propensity_score\nsmall,1,0.5\n,1,0.5\n", "in row 2"),
        ("vw", "1:2:0 | a\n", r"got '1:2:0' in line 1"),
        ("vw", "1:nan:0.5 | a\n", "finite cost"),
        ("vw", "1:2 | a\n", "action:cost:probability"),
        ("vw", "3:2:0.5 | a\n", "the router's 2"),
        ("obp", "item_id,click\n1,1\n", "propensity_score is missing"),
        ("obp", "item_id,click,propensity_score\n1,1,1.5\n", "got 1.5 in row 1"),
        ("obp", "item_id,click,propensity_score\n1,,0.5\n", "click must be a number"),
        ("obp", "item_id,click,propensity_score\n2,1,0.5\n", "the router's 2"),
        ("obp", "item_id,click,propensity_score\n1,1,0.5\n,1,0.5\n", "in row 2"),
        ("obp", "timestamp,item_id,click,propensity_score\nnoon,1,1,0.5\n", "got 'noon' in row 1"),
        ("obp", "timestamp,item_id,click,propensity_score\n10:30,1,1,0.5\n", "timestamp must"),
        ("obp", "timestamp,item_id,click,propensity_score\n1700000000000,1,1,1\n", "in row 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_log_is_said(tmp_path, form, text, words):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(DataFileError, match=words) as caught:
        read(path, form)
    assert caught.value.code == "invalid_data_file"


def test_a_file_that_is_not_there_and_a_format_that_is_not_known_are_refused(tmp_path):
    with pytest.raises(DataFileError, match="cannot read"):
        read(tmp_path / "no.vw", "vw")
    with pytest.raises(DataFileError) as caught:
        read(written(tmp_path / "log.csv", "obp"), "obp", text_column="words")
    assert caught.value.code == "invalid_text_column"
    (tmp_path / "plain.csv").write_text("item_id,click,propensity_score,words\n1,1,0.5,a b\n")
    with pytest.raises(DataFileError) as caught:
        read(tmp_path / "plain.csv", "obp", needs_query=True)
    assert caught.value.code == "invalid_text_column"
    assert "item_id, click, propensity_score, words" in str(caught.value)
    with pytest.raises(OptionError) as unknown:
        log_reader(tmp_path / "no.vw", "cb", EXPERTS)
    assert unknown.value.code == "invalid_format"
