"""``fit``, ``tune`` and ``evaluate`` on tables of outcomes: to a router, and to a verdict."""

from __future__ import annotations

import numpy as np
import pytest

from mild.artifact import load
from mild.cli.options import TextOptions
from mild.data import read_outcomes
from mild.errors import OptionError
from outcome_cases import EXPERTS, TOPICS, make_columns, write_outcomes

QUICK = ["--n-jobs", 1, "--families", "ridge"]


# fit


def test_a_table_becomes_a_router_that_reads(mild, logs, tmp_path):
    done = mild("fit", logs.log, "--out", tmp_path / "r", "--beta", "cook=0.2")
    assert done.code == 0, done.err
    assert "read as wide: 3 experts, 150 queries with prices" in done.err
    assert "what asking costs" in done.out
    assert "possible gain" in done.out
    router = load(tmp_path / "r")
    assert router.experts == EXPERTS
    assert router.text.kind == "hashing"
    assert router.info.notes["cost"]["beta"]["cook"] == 0.2
    assert router.query_hashes.size == 150
    prompts = make_columns(90, 1)["prompt"]
    topic = [
        next(k for k in range(3) if set(prompt.split()) & set(TOPICS[k].split()))
        for prompt in prompts
    ]
    assert np.mean(router.predict_texts(prompts) == topic) > 0.6


def test_dollars_and_seconds_are_costs_by_their_weights(mild, logs, tmp_path):
    words = ["--router", "priced", "--price-weight", 100]
    report = mild("fit", logs.log, "--out", tmp_path / "r", *words, "--json").json()
    assert report["cost"]["words"] == "error + 100 × dollars"
    assert report["training"]["dollars_per_1000"]["experts"] == pytest.approx([1, 2, 3])


def test_unknown_text_features_are_refused_by_the_name_of_their_option(mild, logs, tmp_path):
    done = mild("fit", logs.log, "--out", tmp_path / "r", "--text", "hasing")
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith("error: text must be one of ")
    assert last.endswith("Did you mean 'hashing'?")


# evaluate


def test_the_verdict_shows_all_that_it_rests_on(mild, logs, readers):
    done = mild("evaluate", readers(), logs.new)
    assert done.code == 0, done.err
    for words in (
        "loss = error + what asking costs",
        "always ",
        "oracle",
        "the same mix at random",
        "best single expert minus perfect choice",
        "share of the possible gain",
        "recall of the rarer experts",
        "router's share",
        "$ per 1,000",
    ):
        assert words in done.out
    assert done.out.splitlines()[-1].startswith("Routing pays: the mean loss of the router is")
    assert "per 1,000 inputs" in done.out
    assert "optimistic" not in done.err


def test_a_report_shows_groups_and_queries(mild, logs, readers, tmp_path):
    page = tmp_path / "page.html"
    words = ["--groups", "subject", "--report", page]
    done = mild("evaluate", readers(), logs.new, *words)
    content = page.read_text(encoding="utf-8")
    assert "error + what asking costs" in content
    for subject in ("s0", "s1"):
        assert subject in content
    assert done.out.splitlines()[-1] == f"Written to {page}."


def test_all_rows_are_judged_and_those_of_the_training_are_warned_of(mild, logs, readers, tmp_path):
    columns = {name: cells[:40] for name, cells in make_columns(150, 0, prices=True).items()}
    done = mild(
        "evaluate", readers(), write_outcomes(columns, tmp_path / "some.csv"), "--json",
        "--report", tmp_path / "page.html",
    )  # fmt: skip
    assert done.json()["rows"] == 40
    assert done.json()["seen_in_fit"] == {"queries": 40, "checked": 40}
    warning = "warning: 40 of 40 queries were in the training data"
    assert [line[: len(warning)] for line in done.err.splitlines()].count(warning) == 1
    assert "optimistic" in (tmp_path / "page.html").read_text(encoding="utf-8")


# Bad input


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            b"prompt,correct__a,correct__b\nx,1,0\ny,1\n",
            "line 3 has 2 columns where the header has 3",
        ),
        (b"prompt,correct__a,correct__b\nx,1,0\nx,0,1\nx,1,1\n", "the same query"),
    ],
)
def test_a_bad_table_is_an_error_of_one_sentence(mild, tmp_path, content, sentence):
    file = tmp_path / "log.csv"
    file.write_bytes(content)
    done = mild("tune", file, "--out", tmp_path / "r")
    assert done.code == 1
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert sentence in errors[0]
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("command", ["fit", "tune"])
def test_without_a_table_the_one_that_comes_with_mild_is_used(
    mild, logs, tmp_path, monkeypatch, command
):
    monkeypatch.setattr("mild.datasets.outcomes_file", lambda: logs.log)
    done = mild(command, "--out", tmp_path / "r", *(QUICK if command == "tune" else []))
    assert done.code == 0, done.err
    assert "read as wide: 3 experts, 150 queries" in done.err
    assert load(tmp_path / "r").experts == EXPERTS


def test_a_model_needs_features_that_have_one():
    with pytest.raises(OptionError, match="--model is for"):
        TextOptions(model="folder").features()
    assert TextOptions("encoder", "folder").features().source == "folder"


# Rows, and what a column means


def split_log(path, column="split"):
    """A log of 120 rows: 82 for training, 28 for tests, 10 for validation."""
    values = ["train", "train", "test", "train"] * 30
    values[:10] = ["validation"] * 10
    return write_outcomes(make_columns(120, 0, prices=True) | {column: values}, path)


def test_all_rows_are_used_unless_a_condition_selects_some(mild, tmp_path):
    file, router = split_log(tmp_path / "log.csv"), tmp_path / "r"
    everything = mild("fit", file, "--out", tmp_path / "all", "--json").json()
    assert everything["training"]["rows"] == 120
    trained = mild("fit", file, "--out", router, "--where", "split=train", "--json")
    assert trained.json()["training"]["rows"] == 82
    train = read_outcomes(file, where="split=train")
    assert load(router).info.notes["table"]["fingerprint"] == train.fingerprint()
    assert mild("evaluate", router, file, "--json").json()["rows"] == 120
    judged = mild("evaluate", router, file, "--where", "split=test", "--json")
    assert judged.json()["rows"] == 28
    assert judged.json()["seen_in_fit"]["queries"] == 0
    some = mild(
        "evaluate", router, file, "--where", "split=validation", "--where", "subject=s0",
        "--json",
    ).json()  # fmt: skip
    assert some["rows"] == 2


def test_rows_of_several_files_are_selected_too(mild, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    split_log(folder / "a.parquet", "part")
    split_log(folder / "b.parquet", "part")
    words = ["--where", "part=test", "--json"]
    report = mild("fit", folder, "--out", tmp_path / "r", *words).json()
    assert report["training"]["rows"] == 2 * len(
        read_outcomes(folder / "a.parquet", where="part=test")
    )
    refused = mild("fit", folder, "--out", tmp_path / "s", "--where", "no=1")
    assert "there must be a column 'no'" in refused.err


def test_a_folder_of_other_files_is_one_table_in_memory(mild, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, seed in (("a", 0), ("b", 1)):
        write_outcomes(make_columns(40, seed), folder / f"{name}.csv")
    report = mild("fit", folder, "--out", tmp_path / "r", "--json").json()
    assert report["training"]["rows"] == 80


def test_costs_without_scores_are_no_table(mild, tmp_path):
    columns = make_columns(60, 0, prices=True)
    file = write_outcomes(
        {name.replace("correct__", "acc_"): values for name, values in columns.items()},
        tmp_path / "log.csv",
    )
    refused = mild("tune", file, "--out", tmp_path / "r", *QUICK)
    assert refused.code == 1
    assert "mild.read_outcomes(FILE, scores=NAMES)" in refused.err
    assert "use mild.data.Outcomes.from_arrays(X, costs)" in refused.err
    priced = tmp_path / "priced.parquet"
    words = ["--scores", "acc_*", "--prices", "cost__*"]
    assert mild("convert", file, priced, *words).code == 0
    read = mild("describe", priced, "--json").json()
    assert sorted(expert["mean_price"] for expert in read["experts"]) == pytest.approx(
        [0.001, 0.002, 0.003]
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--query", "correct__cook"], "column 'correct__cook' holds outcomes of an expert"),
        (["--time", "prompt"], "'prompt' holds the queries"),
        (["--time", "cost__cook"], "'cost__cook' holds outcomes of an expert"),
        (["--price-weight", "1e40"], "price_weight times the prices must be at most 1e+09"),
    ],
)
def test_a_column_that_has_another_meaning_is_named_by_it(mild, logs, tmp_path, words, said):
    refused = mild("tune", logs.log, "--out", tmp_path / "r", *QUICK, *words)
    assert refused.code == 1
    assert said in refused.err
