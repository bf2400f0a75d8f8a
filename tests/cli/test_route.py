"""``mild route``"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest

from cascade_cases import EASY, HARD, cascade_router
from command_runner import invoke_mild
from mild.artifact import load
from outcome_cases import EXPERTS, make_columns, write_outcomes
from tolerances import rounding

PROMPTS = make_columns(40, 1)["prompt"]


def route(*words, lines=""):
    done = invoke_mild(["route", *words], lines)
    return SimpleNamespace(
        code=done.exit_code,
        answers=[json.loads(line) for line in done.stdout.splitlines()],
        err=done.stderr,
    )


def test_plain_lines_become_decisions_of_the_router(readers):
    done = route(readers(), "-", "--probabilities", lines="\n".join(PROMPTS))
    router = load(readers())
    assert done.code == 0
    assert [answer["expert"] for answer in done.answers] == [
        EXPERTS[k] for k in router.predict_texts(PROMPTS)
    ]
    shares = router.predict_proba(router.features(PROMPTS))
    near = rounding(np.float32)["atol"]
    for answer, row in zip(done.answers, shares, strict=True):
        found = list(answer["probabilities"].values())
        assert found == pytest.approx(row.tolist(), rel=1e-4, abs=near)
    assert done.err.startswith("routed: 40 queries: ")
    assert "warning" not in done.err


def test_many_novel_queries_give_one_warning(readers):
    novel = [f"Zweitausendundeine Nacht, Band {i}: wer erzählt, qxzvkj{i}?" for i in range(30)]
    done = route(readers(), "-", lines="\n".join([*PROMPTS[:10], *novel]))
    assert done.code == 0
    assert done.err.count("novel") == 1
    assert "warning: 30 of the first 40 queries are novel" in done.err


def test_json_lines_keep_their_ids_and_costs_are_expected(readers, tmp_path):
    file = tmp_path / "queries.jsonl"
    file.write_text("\n".join(json.dumps({"id": f"q{i}", "q": p}) for i, p in enumerate(PROMPTS)))
    done = route(readers("ridge"), file, "--query", "q", "--echo")
    assert [answer["id"] for answer in done.answers] == [f"q{i}" for i in range(40)]
    assert done.answers[3]["query"] == PROMPTS[3]
    for answer in done.answers:
        costs = answer["expected_cost"]
        assert list(costs) == EXPERTS
        # Two experts may both be expected to cost nothing.
        assert costs[answer["expert"]] == min(costs.values())


def test_a_bad_line_is_answered_in_order_and_the_exit_code_is_1(readers):
    lines = b'{"query": "boil"}\n{"query": 5}\n{"query": "caf\xe9"}\n{"query": "add"}\n'
    done = route(readers(), lines=lines)
    assert done.code == 1
    assert ["error" in answer for answer in done.answers] == [False, True, True, False]
    assert "bad line: line 2: field 'query' must be a string; got a number." in done.err
    assert "line 3: not UTF-8" in done.err
    assert "2 lines hold no query that can be read" in done.err
    skipped = route(readers(), "--skip-bad", lines=lines)
    assert skipped.code == 0
    assert len(skipped.answers) == 2


def test_a_priced_router_takes_another_weight_of_dollars(readers, weighing):
    dear = route(weighing, "--price-weight", 1e9, lines="\n".join(PROMPTS))
    assert {answer["expert"] for answer in dear.answers} == {"adder"}
    # One was fitted with costs in wrong answers, and one has no head for prices.
    for folder in (readers("priced"), readers()):
        refused = route(folder, "--price-weight", 2, lines="x")
        assert refused.code == 1
        assert "fit" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.jsonl"], "cannot read missing.jsonl"),
        (["--format", "xml"], "format must be one of"),
    ],
)
def test_invalid_options_are_an_error_of_one_sentence(mild, readers, words, said):
    done = mild("route", readers(), *words)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert said in done.err


@pytest.mark.slow
def test_memory_does_not_grow_with_the_stream(readers, tmp_path):
    """Peak memory of ten times the queries is the same."""
    code = (
        "import resource, sys\n"
        "from mild.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    peaks = []
    for times in (100, 1000):
        file = tmp_path / f"{times}.txt"
        file.write_text("\n".join(PROMPTS * times))
        command = [sys.executable, "-c", code, "route", readers(), file]
        with open(os.devnull, "wb") as sink:
            done = subprocess.run(command, stdout=sink, stderr=subprocess.PIPE, check=True)
        peaks.append(int(done.stderr.split()[-1]))
    assert peaks[1] < 1.1 * peaks[0]


def questions(n=90):
    """A table whose prompts are cut in two: a question and its choices, which hold the topic."""
    columns = make_columns(n)
    words = [prompt.split() for prompt in columns.pop("prompt")]
    return {
        "question": [" ".join(row[6:]) for row in words],
        **{letter: [" ".join(row[k : k + 2]) for row in words] for k, letter in enumerate("ABC")},
        **columns,
    }


def test_a_question_with_choices_is_routed_as_it_is_evaluated(mild, tmp_path):
    columns = questions()
    table = write_outcomes(columns, tmp_path / "table.jsonl")
    folder = tmp_path / "router"
    assert mild("fit", table, "--out", folder).code == 0
    judged = mild("evaluate", folder, table, "--json").json()
    shares = dict(zip(judged["experts"], judged["summary"]["shares"], strict=True))
    done = route(folder, table)
    asked = [answer["expert"] for answer in done.answers]
    assert len(set(asked)) > 1
    assert {name: asked.count(name) / len(asked) for name in EXPERTS} == pytest.approx(shares)
    alone = "\n".join(json.dumps({"question": text}) for text in columns["question"][:2])
    refused = route(folder, lines=alone)
    assert refused.code == 1
    assert "line 1: field 'question' without its choices" in refused.err


def test_a_blank_line_is_answered_without_an_expert(readers):
    done = route(readers(), lines="add\n\n  \nboil\n")
    assert done.code == 0
    assert [answer["expert"] is None for answer in done.answers] == [False, True, True, False]
    assert "2 blank lines are without an expert." in done.err
    fewer = route(readers(), "-", "--skip-bad", lines="add\n\n  \nboil\n")
    assert len(fewer.answers) == 2


def test_shares_of_the_reward_are_given_only_if_asked_for(readers):
    assert list(route(readers(), lines="boil").answers[0]) == ["expert", "expected_cost"]


def test_empty_queries_are_routed_with_a_warning(readers):
    done = route(readers(), lines='{"prompt": ""}\n" \\t"\n{"prompt": "boil"}\n')
    assert done.code == 0
    assert len(done.answers) == 3
    assert "warning: 2 queries are empty" in done.err
    assert "empty" not in route(readers(), lines="add\n\nboil\n").err


def test_an_empty_name_of_a_file_is_refused(readers):
    done = route(readers(), "")
    assert done.code == 1
    assert "got an empty name" in done.err


# Tables


def routed(done):
    assert done.code == 0, done.err
    return [json.loads(line)["expert"] for line in done.out.splitlines()]


@pytest.mark.parametrize(
    "name",
    ["q.csv", "q.tsv", "q.json", "q.jsonl", "q.parquet", "q.csv.gz", "q.jsonl.gz", "q.json.gz"],
)
def test_a_table_is_routed_by_its_columns(mild, readers, tmp_path, name):
    queries = ["add seven, plus twelve", 'rhyme a "sonnet"\nof sorrow', "007"]
    columns = {"id": ["a", "b", "c"], "prompt": queries, "other": [1, 2, 3]}
    expected = [EXPERTS[k] for k in load(readers()).predict_texts(queries)]
    done = mild("route", readers(), write_table(columns, tmp_path / name))
    assert routed(done) == expected
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == ["a", "b", "c"]
    assert "3 queries" in done.err


def write_table(columns, path):
    table, plain = pa.table(columns), path.with_name(path.name.removesuffix(".gz"))
    if plain.suffix in (".csv", ".tsv"):
        mark = "," if plain.suffix == ".csv" else "\t"
        arrow_csv.write_csv(table, plain, arrow_csv.WriteOptions(delimiter=mark))
    elif plain.suffix == ".json":
        plain.write_text(json.dumps(table.to_pylist()))
    else:
        write_outcomes(columns, plain)
    if path != plain:
        path.write_bytes(gzip.compress(plain.read_bytes()))
    return path


def test_rows_of_a_table_are_selected_and_named_in_messages(mild, readers, tmp_path):
    columns = {"query": ["add", None, "boil"], "part": ["old", "new", "new"]}
    file = tmp_path / "q.parquet"
    write_outcomes(columns, file)
    done = mild("route", readers(), file, "--where", "part=new")
    assert done.code == 1
    assert len(done.out.splitlines()) == 2
    assert "bad row: row 1: field 'query' must be a string; got null." in done.err
    for words, parameter in (
        ([file, "--query", "nothing"], "no 'nothing'; found query, part"),
        ([file, "--where", "part=none"], "no row has 'part=none'"),
        ([file, "--out", tmp_path / "o", "--where", "part=new"], "--where is not for data sets"),
        (["--where", "part=new"], "where is for tables"),
    ):
        assert parameter in mild("route", readers(), *words).err


def test_raw_lines_of_a_table_are_routed_only_if_asked_for(mild, readers, tmp_path):
    file = tmp_path / "q.csv"
    file.write_text("prompt\nadd\n")
    assert len(routed(mild("route", readers(), file))) == 1
    assert len(routed(mild("route", readers(), file, "--format", "text"))) == 2


def test_vectors_in_a_table_are_routed(mild, tmp_path):
    columns = make_columns(60)
    vectors = [[float(len(p)), float(p.count("o"))] for p in columns["prompt"]]
    log = write_outcomes(columns | {"embedding": vectors}, tmp_path / "log.parquet")
    assert mild("fit", log, "--out", tmp_path / "r", "--text", "vectors").code == 0
    expected = routed(mild("route", tmp_path / "r", log))
    texts = [json.dumps(vector) for vector in vectors]
    file = write_table({"embedding": texts}, tmp_path / "new.csv")
    assert routed(mild("route", tmp_path / "r", file)) == expected
    broken = write_table({"embedding": ["[1, 2]", "no list"]}, tmp_path / "broken.csv")
    assert "row 2" in mild("route", tmp_path / "r", broken).err


def test_the_first_step_of_a_cascade_is_named_as_such(tmp_path):
    folder = cascade_router().save(tmp_path / "router")
    done = route(folder, "-", "--probabilities", lines=f"{EASY}\n\n{HARD}\n")
    assert done.code == 0
    assert done.err.count("first step") == 1
    easy, blank, hard = done.answers
    assert (easy["expert"], easy["first_step"]) == ("small", ["small", "medium"])
    assert (hard["expert"], hard["first_step"]) == ("small", ["small", "medium"])
    assert "first_step" not in blank
    direct = load(folder).direct
    shares = direct.predict_proba(direct.features([EASY]))[0].tolist()
    assert list(easy["probabilities"].values()) == pytest.approx(shares, rel=1e-4)


def test_new_prices_are_not_for_a_cascade(tmp_path):
    folder = cascade_router().save(tmp_path / "router")
    done = route(folder, "-", "--price-weight", 0.5, lines=EASY)
    assert done.code != 0
    assert "router.direct" in done.err
