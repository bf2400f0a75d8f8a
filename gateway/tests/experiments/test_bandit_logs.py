"""Logs for Vowpal Wabbit and obp: what is written is read back, and judged as the ledger is."""

import io
import json
from collections import Counter

import pytest
from typer.testing import CliRunner

from experiments.bandit_logs import (
    Draw,
    LoggedDraw,
    app,
    from_words,
    ledger_draws,
    read_log,
    replay_log,
    to_words,
    write_draws,
)
from mild.artifact import save
from mild.errors import DataFileError, OptionError, OutputExistsError
from mild_gateway.ledger import ledger_reader
from replay_cases import make_log, make_router, write_log
from replay_cases import replay_log as replay

EXPERTS = ["small", "large:70B|x y"]
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


def read(path, form, names=EXPERTS, **options):
    return list(read_log(path, form, names, **options))


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_becomes_words_of_vw_and_comes_back(text):
    words = to_words(text)
    assert from_words(words) == text
    assert not set("|:\n\r\t") & set(words)
    assert "  " not in words


@pytest.mark.parametrize("form", ["vw", "obp"])
def test_draws_come_back_as_they_were(tmp_path, form):
    rows = read(written(tmp_path / "log.csv", form), form)
    assert rows == [(d.query, d.chosen, d.propensity, d.cost, 2) for d in draws()]


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
        ("a b", "small", 0.4, -2.0, 2),
        ("c d", "large", 1.0, 0.5, 2),
    ]


def test_lines_of_experts_without_a_name_are_in_the_order_of_the_router(tmp_path):
    path = tmp_path / "log.vw"
    path.write_text("shared | a\n| f:1\n0:1:0.5 | g\n| h\n\nshared | b\n0:2:0.25 | f\n| g\n| h")
    assert read(path, "vw", ["x", "y", "z"]) == [("a", "y", 0.5, 1.0, 3), ("b", "x", 0.25, 2.0, 3)]


def test_the_names_of_a_feedback_dictionary_of_obp_are_known(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("action,reward,pscore,prompt\n1,0.5,0.25,hello\n0,1,0.5,you\n")
    assert read(path, "obp", ["x", "y"]) == [
        ("hello", "y", 0.25, -0.5, 2),
        ("you", "x", 0.5, -1.0, 2),
    ]
    named = read(path, "obp", ["x", "y"], text_column="reward")
    assert [draw.query for draw in named] == ["0.5", "1.0"]


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("vw", "shared | a\n| x\n| y\n", "got 0 in the 3 line"),
        ("vw", "shared | a\n0:1:0.5 | x\n0:1:0.5 | y\n", "got 2"),
        ("vw", "1:2:0.5 2:1:0.25 | a\n", "got 2 in the 1 line from"),
        ("vw", "\n \n", "is empty"),
        ("vw", "1:2:0 | a\n", "in line 1"),
        ("vw", "1:nan:0.5 | a\n", "in line 1"),
        ("vw", "1:2 | a\n", "in line 1"),
        ("vw", "3:2:0.5 | a\n", "in line 1"),
        ("obp", "", "is empty"),
        ("obp", "item_id,click,propensity_score,q\n1,a,0.5,t\n", "'click'"),
        ("obp", "expert,click,propensity_score,q\nsmall,1,0.5,t\n,1,0.5,t\n", "in row 2"),
        ("obp", "item_id,click,q\n1,1,t\n", "propensity_score is missing"),
        ("obp", "item_id,click,propensity_score,q\n1,1,1.5,t\n", "got 1.5 in row 1"),
        ("obp", "item_id,click,propensity_score,q\n1,,0.5,t\n", "in row 1"),
        ("obp", "item_id,click,propensity_score,q\n2,1,0.5,t\n", "in row 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_log_is_said(tmp_path, form, text, words):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(DataFileError, match=words) as caught:
        read(path, form, text_column="q" if form == "obp" else None)
    assert caught.value.code == "invalid_data_file"


def test_missing_files_columns_and_formats_are_refused(tmp_path):
    with pytest.raises(DataFileError):
        read(tmp_path / "no.vw", "vw")
    for column in ("words", None):
        path = tmp_path / "log.csv"
        path.write_text("item_id,click,propensity_score\n1,1,0.5\n")
        with pytest.raises(DataFileError) as caught:
            read(path, "obp", text_column=column)
        assert caught.value.code == "invalid_text_column"
    with pytest.raises(OptionError):
        read(tmp_path / "log.csv", "csv")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    records, errors = make_log(1000)
    return write_log(tmp_path_factory.mktemp("bandit") / "l.db", records), errors


@pytest.mark.parametrize("form", ["vw", "obp"])
@pytest.mark.parametrize("weight", [None, 10.0])
def test_an_exported_log_gives_the_estimates_of_its_ledger(ledger, tmp_path, form, weight):
    path, errors = ledger
    router, options = make_router(), {}
    if weight is not None:
        options = {"errors": errors, "price_weight": weight}
    left_out = Counter()
    rows = ledger_draws(str(path), left_out, **options)
    with (tmp_path / "log.csv").open("wb") as file:
        assert write_draws(file, form, rows, router.experts) == 1000
    assert not left_out
    ours = replay(ledger_reader(path), router, **options)
    log = replay_log(read_log(tmp_path / "log.csv", form, router.experts), router)
    for method, entry in log["estimates"]["cost"].items():
        assert entry == pytest.approx(ours["estimates"]["cost"][method], rel=1e-6)
    assert log["verdict"].pays == ours["verdict"].pays
    assert (log["rows"], log["cost"]) == (1000, "cost")
    assert "$" not in log["verdict"].sentence


def test_only_draws_that_can_be_judged_are_exported(tmp_path):
    records, errors = make_log(200, pinned=0.3)
    pinned = sum(entry.pinned_by is not None for entry in records)
    records[0].asked = "large"
    path = str(write_log(tmp_path / "l.db", records))
    left_out = Counter()
    assert len(list(ledger_draws(path, left_out))) == 199
    reasons = {"later requests of a pinned session": pinned, "asked for a trade-off of its own": 1}
    assert left_out == reasons
    first = [entry.request_id for entry in records if entry.pinned_by is None][1:41]
    judged = {name: errors[name] for name in first}
    left_out = Counter()
    assert len(list(ledger_draws(path, left_out, judged, 0.0))) == 40
    assert left_out["not judged"] == 159


def test_a_log_without_two_propensities_is_its_own_serving_policy(ledger):
    rows = ledger_draws(str(ledger[0]), Counter())
    logged = [LoggedDraw(d.query, d.chosen, d.propensity, d.cost, 3) for d in rows]
    router = make_router()

    def cost(shift):
        changed = [
            draw._replace(propensity=draw.propensity * (1 - shift * (number % 2)))
            for number, draw in enumerate(logged)
        ]
        return replay_log(changed, router)["estimates"]["cost"]

    several, two = cost(0.001), cost(0.0)
    assert several["serving"] == several["logged"]
    assert two["serving"] != two["logged"]


def test_the_commands_export_and_replay(ledger, tmp_path):
    save(make_router(), tmp_path / "router")
    log = str(tmp_path / "log.vw")

    def run(*words):
        return CliRunner().invoke(app, [str(word) for word in words])

    assert run("export", ledger[0], "--out", log, "--format", "vw").exit_code == 0
    again = run("export", ledger[0], "--out", log, "--format", "vw")
    assert isinstance(again.exception, OutputExistsError)
    words = ["replay", log, "--router", tmp_path / "router", "--format", "vw"]
    done = run(*words)
    assert done.exit_code == 0, done.output
    found = json.loads(run(*words, "--json").stdout)
    assert done.stdout.strip().splitlines()[-1] == found["verdict"]["sentence"]
