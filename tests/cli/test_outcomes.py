"""``fit``, ``tune`` and ``evaluate`` on tables of outcomes: to a router, and to a verdict."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mild.artifact import load
from mild.cli.options import TextOptions
from mild.data import read_outcomes
from mild.errors import OptionError
from outcome_cases import EXPERTS, TOPICS, make_columns, write_outcomes

QUICK = ["--cv", 3, "--jobs", 1, "--alphas", "0.01", "--families", "linear,regression"]


# fit


def test_a_table_becomes_a_router_that_reads(mild, logs, tmp_path):
    done = mild("fit", logs.log, "--out", tmp_path / "r", "--beta", "cook=0.2")
    assert done.code == 0, done.err
    assert "read as wide: 3 experts, 150 queries with prices" in done.err
    assert "what asking costs" in done.out
    assert "possible gain" in done.out
    router = load(tmp_path / "r")
    assert router.expert_names == EXPERTS
    assert router.text.kind == "hashing"
    assert router.info.notes["cost"]["beta"]["cook"] == 0.2
    assert router.query_hashes.size == 150
    prompts = make_columns(90, 1)["prompt"]
    topic = [
        next(k for k in range(3) if set(prompt.split()) & set(TOPICS[k].split()))
        for prompt in prompts
    ]
    assert np.mean(router.predict_texts(prompts) == topic) > 0.6


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_other_files_give_the_same_router(mild, logs, tmp_path, suffix):
    file = write_outcomes(make_columns(150, 0, prices=True), tmp_path / f"log{suffix}")
    for data, out in ((logs.log, "a"), (file, "b")):
        assert mild("fit", data, "--out", tmp_path / out).code == 0
    a, b = load(tmp_path / "a"), load(tmp_path / "b")
    np.testing.assert_array_equal(a.policy.coef, b.policy.coef)


def test_dollars_and_seconds_count_as_they_are_told(mild, logs, tmp_path):
    words = ["--router", "priced", "--price-weight", 100]
    report = mild("fit", logs.log, "--out", tmp_path / "r", *words, "--json").json()
    assert report["cost"]["words"] == "error + 100 × dollars"
    assert report["training"]["dollars_per_1000"]["experts"] == pytest.approx([1, 2, 3])


def test_vectors_in_the_table_can_be_the_features(mild, tmp_path):
    columns = make_columns(60)
    columns["embedding"] = [[float(len(p)), float(p.count("o"))] for p in columns["prompt"]]
    file = write_outcomes(columns, tmp_path / "log.parquet")
    report = mild("fit", file, "--out", tmp_path / "r", "--text", "vectors", "--json").json()
    assert (report["text"], report["n_features"]) == ("vectors", 2)


def test_unknown_text_features_are_refused_by_the_name_of_their_option(mild, logs, tmp_path):
    done = mild("fit", logs.log, "--out", tmp_path / "r", "--text", "hasing")
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith("error: --text must be one of ")
    assert last.endswith("Did you mean 'hashing'?")


# tune


def test_a_search_ends_in_a_router_and_a_verdict(mild, logs, tmp_path):
    done = mild("tune", logs.log, "--out", tmp_path / "r", *QUICK)
    assert done.code == 0, done.err
    assert "Routing pays: the mean loss of the router is" in done.out
    assert "Saved to" in done.out
    assert load(tmp_path / "r").text.kind == "hashing"


def test_by_default_every_kind_of_router_is_tried(mild, logs, tmp_path):
    words = ["--cv", 3, "--jobs", 1, "--alphas", "0.01", "--margin-factors", "1", "--json"]
    report = mild("tune", logs.log, "--out", tmp_path / "r", *words).json()
    tried = {candidate["family"] for candidate in report["candidates"]}
    assert {"linear", "regression", "knn", "stack"} <= tried


@pytest.mark.parametrize("words", [["--group", "subject"], ["--time", "day"]])
def test_folds_keep_groups_whole_and_the_past_first(mild, logs, tmp_path, monkeypatch, words):
    import mild.tuning.tasks as tasks

    seen = []
    make = tasks.search_folds

    def spy(*given):
        seen.extend(make(*given))
        return seen

    monkeypatch.setattr(tasks, "search_folds", spy)
    assert mild("tune", logs.log, "--out", tmp_path / "r", *QUICK, *words).code == 0
    columns = make_columns(150)
    for train, held in seen:
        if words[0] == "--group":
            subject = np.array(columns["subject"])
            assert not set(subject[train]) & set(subject[held])
        else:
            assert columns["day"][train].max() < columns["day"][held].min()


def test_equal_queries_are_never_on_both_sides(mild, tmp_path, monkeypatch):
    import mild.tuning.tasks as tasks

    columns = make_columns(90)
    columns["prompt"][60:] = columns["prompt"][:30]
    file = write_outcomes(columns, tmp_path / "log.parquet")
    seen = []
    make = tasks.search_folds
    monkeypatch.setattr(tasks, "search_folds", lambda *given: seen.append(make(*given)) or seen[0])
    assert mild("tune", file, "--out", tmp_path / "r", *QUICK).code == 0
    prompts = np.array(columns["prompt"])
    for train, held in seen[0]:
        assert not set(prompts[train]) & set(prompts[held])


# evaluate


def test_the_verdict_shows_all_that_it_rests_on(mild, logs, readers):
    done = mild("evaluate", logs.new, "--router", readers())
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


def test_costs_are_those_of_the_fit_unless_said_anew(mild, logs, readers):
    report = mild("evaluate", logs.new, "--router", readers(), "--json").json()
    assert report["cost"]["beta"]["cook"] == 0.2
    other = mild("evaluate", logs.new, "--router", readers(), "--beta", "poet=0.5", "--json")
    assert other.json()["cost"]["beta"] == {"adder": 0, "poet": 0.5, "cook": 0}
    assert "the router was fitted with another cost" in other.err


def test_what_was_trained_on_is_recognised(mild, logs, readers, tmp_path):
    same = mild("evaluate", logs.log, "--router", readers())
    assert "fitted on these rows: the figures are optimistic" in same.err
    columns = make_columns(90, 1, prices=True)
    columns["prompt"][:20] = make_columns(150, 0)["prompt"][:20]
    file = write_outcomes(columns, tmp_path / "mixed.parquet")
    mixed = mild("evaluate", file, "--router", readers())
    assert "20 of 90 queries were in the training data" in mixed.err


def test_a_group_makes_the_interval_count_groups(mild, logs, readers):
    rows = mild("evaluate", logs.new, "--router", readers(), "--json").json()["verdict"]
    words = ["evaluate", logs.new, "--router", readers(), "--group", "subject", "--json"]
    groups = mild(*words).json()["verdict"]
    assert rows["estimate"] == groups["estimate"]
    assert (rows["low"], rows["high"]) != (groups["low"], groups["high"])
    assert (groups["rows"], groups["units"], groups["pays"]) == (90, 6, None)
    assert "90 rows in 6 groups" in groups["sentence"]


def test_a_report_by_groups_says_what_evaluate_says(mild, logs, readers, tmp_path):
    words = ["--group", "subject", "--json"]
    told = mild("evaluate", logs.new, "--router", readers(), *words).json()["verdict"]
    out = ["--table", logs.new, "--out", tmp_path / "page.html"]
    assert mild("report", readers(), *out, *words).json()["verdict"]["sentence"] == told["sentence"]


def test_a_search_in_time_counts_the_rows_that_it_judged(mild, logs, tmp_path):
    found = mild("tune", logs.log, "--out", tmp_path / "r", *QUICK, "--time", "day", "--json")
    verdict = found.json()["verdict"]
    assert verdict["rows"] == verdict["n_rows"] < 150
    assert f", {verdict['n_rows']} rows" in verdict["sentence"]


def test_a_search_counts_equal_queries_once(mild, tmp_path):
    columns = {name: list(values) * 3 for name, values in make_columns(50).items()}
    file = write_outcomes(columns, tmp_path / "log.parquet")
    found = mild("tune", file, "--out", tmp_path / "r", *QUICK, "--json").json()["verdict"]
    assert (found["n_rows"], found["n_units"]) == (150, 50)
    assert "150 rows of 50 distinct queries" in found["sentence"]


def test_experts_that_the_router_does_not_know_are_left_out(mild, readers, tmp_path):
    columns = make_columns(90, 1)
    columns["correct__oracle"] = [1] * 90
    file = write_outcomes(columns, tmp_path / "four.parquet")
    done = mild("evaluate", file, "--router", readers())
    assert done.code == 0, done.err
    assert "left out because the router does not know them: oracle." in done.err
    # What is odd about that expert is no finding any more.
    assert "right" not in done.err


def test_an_evaluation_can_be_saved_for_a_report(mild, logs, tmp_path):
    assert mild("fit", logs.log, "--out", tmp_path / "r").code == 0
    done = mild("evaluate", logs.new, "--router", tmp_path / "r", "--save")
    assert done.out.splitlines()[-1] == f"Written to {tmp_path / 'r' / 'evaluation.json'}."
    saved = json.loads((tmp_path / "r" / "evaluation.json").read_text(encoding="utf-8"))
    assert saved["verdict"]["sentence"] == done.out.splitlines()[-2]
    assert mild("fit", logs.log, "--out", tmp_path / "r", "--overwrite").code == 0
    assert not (tmp_path / "r" / "evaluation.json").exists()


# Bad input


BAD = {
    "no prompts": (
        b"task,correct__a,correct__b\nx,1,0\ny,0,1\n",
        "name its column with --query, or one of vectors with --vectors",
    ),
    "ragged rows": (
        b"prompt,correct__a,correct__b\nx,1,0\ny,1\n",
        "line 3 has 2 columns where the header has 3",
    ),
    "mixed encodings": (
        "prompt,correct__a,correct__b\nnaïve,1,0\n".encode() + b"caf\xe9,1,0\n",
        "line 3 is not UTF-8",
    ),
    "one query": (b"prompt,correct__a,correct__b\nx,1,0\nx,0,1\nx,1,1\n", "the same query"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("verb", ["tune", "compare"])
def test_a_bad_table_is_one_sentence(mild, tmp_path, verb, case):
    content, sentence = BAD[case]
    file = tmp_path / "log.csv"
    file.write_bytes(content)
    out = [] if verb == "compare" else ["--out", tmp_path / "r"]
    done = mild(verb, file, *out)
    assert done.code == 1
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert sentence in errors[0]
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("value", [0, 1])
def test_experts_that_are_all_right_or_all_wrong_leave_nothing_to_route(mild, tmp_path, value):
    columns = make_columns(60) | {f"correct__{name}": [value] * 60 for name in EXPERTS}
    file = write_outcomes(columns, tmp_path / "log.parquet")
    done = mild("compare", file, "--method", "regression", "--splits", 2, "--cv", 3)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1].startswith("Routing does not pay: ")
    fitted = mild("fit", file, "--out", tmp_path / "r")
    assert fitted.code == 0, fitted.err
    judged = mild("evaluate", file, "--router", tmp_path / "r")
    assert judged.out.splitlines()[-1].startswith("Routing does not pay: ")


def test_unknown_prices_are_refused_where_they_are_weighed(mild, tmp_path):
    columns = make_columns(60, prices=True)
    columns["cost__poet"][3] = np.nan
    file = write_outcomes(columns, tmp_path / "log.parquet")
    done = mild("fit", file, "--out", tmp_path / "r", "--price-weight", 5)
    assert done.code == 1
    assert "--price-weight needs the price of every answer; 1 is unknown" in done.err
    assert mild("fit", file, "--out", tmp_path / "r").code == 0


@pytest.mark.parametrize("words", [["tune"], ["tune", "--max-dollars", "1"], ["compare"]])
def test_two_rows_are_too_few_for_a_search_in_one_sentence(mild, tmp_path, words):
    columns = {"prompt": ["a b", "c d"], "correct__x": [0, 1], "correct__y": [1, 0]}
    columns |= {"cost__x": [0.1, 0.1], "cost__y": [0.2, 0.2]}
    file = write_outcomes(columns, tmp_path / "log.parquet")
    out = [] if words == ["compare"] else ["--out", tmp_path / "r"]
    done = mild(words[0], file, *out, *words[1:])
    assert done.code == 1
    assert "rows to fit on in every" in done.err
    assert "of 2 rows leaves 1. Add rows." in done.err
    assert not (tmp_path / "r").exists()


def test_a_million_characters_in_one_prompt_do_no_harm(mild, tmp_path):
    columns = make_columns(60)
    columns["prompt"][5] = "boil salt " * 100_001
    file = write_outcomes(columns, tmp_path / "log.parquet")
    done = mild("fit", file, "--out", tmp_path / "r")
    assert done.code == 0, done.err
    assert "1 query has more than 1,000,000 characters" in done.err
    assert mild("compare", file, "--method", "knn", "--splits", 2, "--cv", 3).code == 0


@pytest.mark.parametrize("verb", ["evaluate", "report"])
def test_a_table_of_other_experts_is_refused_by_name(mild, readers, tmp_path, verb):
    columns = make_columns(60)
    columns["correct__baker"] = columns.pop("correct__cook")
    file = write_outcomes(columns, tmp_path / "log.parquet")
    words = {
        "evaluate": ["evaluate", file, "--router", readers()],
        "report": ["report", readers(), "--table", file, "--out", tmp_path / "report.html"],
    }[verb]
    done = mild(*words)
    assert done.code == 1
    assert "the router was trained on adder, poet, cook; the table has no cook" in done.err
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("verb", ["fit", "tune"])
def test_without_a_table_the_one_that_comes_with_mild_is_used(
    mild, logs, tmp_path, monkeypatch, verb
):
    monkeypatch.setattr(
        "mild.cli.outcomes.embedded_table", lambda where=None: read_outcomes(logs.log)
    )
    done = mild(verb, "--out", tmp_path / "r", *(QUICK if verb == "tune" else []))
    assert done.code == 0, done.err
    assert "read as wide: 3 experts, 150 queries" in done.err
    assert load(tmp_path / "r").expert_names == EXPERTS


def test_options_of_outcomes_are_refused_for_other_tables(mild, tables):
    done = mild("fit", tables.log, "--out", tables.folder / "r", "--beta", "small=1")
    assert done.code == 1
    assert "--beta is for tables of outcomes" in done.err


def test_a_model_needs_features_that_have_one():
    with pytest.raises(OptionError, match="--model is for"):
        TextOptions(model="folder").arguments()
    assert TextOptions("static", "folder").arguments() == {"source": "folder"}


# Rows, and what a column means


def split_log(path, column="split"):
    """A log of 120 rows: 82 to train on, 28 to test on, 10 to validate on."""
    values = ["train", "train", "test", "train"] * 30
    values[:10] = ["validation"] * 10
    return write_outcomes(make_columns(120, 0, prices=True) | {column: values}, path)


def test_training_uses_training_rows_and_judging_test_rows(mild, tmp_path):
    file, router = split_log(tmp_path / "log.csv"), tmp_path / "r"
    trained = mild("fit", file, "--out", router)
    assert trained.code == 0, trained.err
    train = read_outcomes(file, part="train")
    assert f"the {train.rows} train rows by column 'split'" in trained.err
    assert load(router).info.notes["table"]["fingerprint"] == train.fingerprint()
    judged = mild("evaluate", file, "--router", router, "--json")
    assert judged.json()["rows"] == read_outcomes(file, part="test").rows
    assert judged.json()["seen_in_fit"]["queries"] == 0
    assert "test rows by column 'split'" in judged.err
    everything = mild("evaluate", file, "--router", router, "--where", "split=*", "--json").json()
    assert everything["rows"] == 120
    some = mild(
        "evaluate", file, "--router", router, "--where", "split=validation", "--where", "subject=s0",
        "--json",
    ).json()  # fmt: skip
    assert some["rows"] == 2


def test_conditions_select_rows_to_learn_from_and_to_describe(mild, tmp_path):
    file = split_log(tmp_path / "log.parquet", "part")
    words = ["--where", "part=train", "--where", "part=validation"]
    described = mild("data", "describe", file, *words, "--json").json()
    assert described["rows"] == 120 - 28
    report = mild("fit", file, "--out", tmp_path / "r", *words, "--json").json()
    assert report["training"]["rows"] == described["rows"]
    refused = mild("fit", file, "--out", tmp_path / "s", "--where", "part=none")
    assert refused.code == 1
    assert "no row has 'part=none'" in refused.err


def test_shards_are_selected_by_rows_too(mild, tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    split_log(folder / "a.parquet", "part")
    split_log(folder / "b.parquet", "part")
    words = ["--jobs", 1, "--where", "part=test", "--json"]
    report = mild("fit", folder, "--out", tmp_path / "r", *words).json()
    assert report["rows"] == 2 * read_outcomes(folder / "a.parquet", where="part=test").rows
    refused = mild("fit", folder, "--out", tmp_path / "s", "--where", "no=1")
    assert "where must name columns of the file; 'no' is not one" in refused.err


def test_shards_with_a_split_are_trained_on_its_training_rows(mild, tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for name in ("a.parquet", "b.parquet"):
        split_log(folder / name)
    trained = mild("fit", folder, "--out", tmp_path / "r", "--jobs", 1, "--json")
    assert trained.json()["rows"] == 2 * read_outcomes(folder / "a.parquet", part="train").rows
    assert "the train rows by column 'split'" in trained.err
    words = ["--jobs", 1, "--where", "split=*", "--json"]
    assert mild("fit", folder, "--out", tmp_path / "s", *words).json()["rows"] == 240


def test_a_folder_of_other_files_is_one_table_in_memory(mild, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, seed in (("a", 0), ("b", 1)):
        write_outcomes(make_columns(40, seed), folder / f"{name}.csv")
    report = mild("fit", folder, "--out", tmp_path / "r", "--json").json()
    assert report["training"]["rows"] == 80
    assert "shards" not in report


def test_dollars_beside_queries_are_never_all_that_counts_unless_it_is_said(mild, tmp_path):
    columns = make_columns(60, 0, prices=True)
    file = write_outcomes(
        {name.replace("correct__", "acc_"): values for name, values in columns.items()},
        tmp_path / "log.csv",
    )
    for words in ([], ["--features", "day"]):
        refused = mild("tune", file, "--out", tmp_path / "r", *QUICK, *words)
        assert refused.code == 1
        assert "--scores" in refused.err or "--costs" in refused.err
    read = mild(
        "data", "describe", file, "--scores", "acc_*", "--prices", "cost__*", "--json"
    ).json()
    assert [expert["mean_price"] for expert in read["experts"]] == pytest.approx(
        [0.001, 0.002, 0.003]
    )
    said = mild(
        "fit", file, "--out", tmp_path / "r", "--costs", "cost__*", "--features", "day", "--json"
    )
    assert said.json()["features"] == ["day"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--query", "correct__cook"], "column 'correct__cook' holds outcomes of an expert"),
        (["--time", "prompt"], "column 'prompt' holds the queries"),
        (["--time", "cost__cook"], "column 'cost__cook' holds outcomes of an expert"),
        (["--price-weight", "1e40"], "price-weight times the prices must be at most 1e+09"),
    ],
)
def test_a_column_that_has_another_meaning_is_named_by_it(mild, logs, tmp_path, words, said):
    refused = mild("tune", logs.log, "--out", tmp_path / "r", *QUICK, *words)
    assert refused.code == 1
    assert said in refused.err
