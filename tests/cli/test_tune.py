"""``mild tune``: a search, its verdict, and what an interrupt leaves."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mild.artifact import load
from mild.data import read_outcomes
from mild.money import amount
from mild.routers import search
from mild.routers.search import RouterCV
from mild.tuning.tune import tune
from outcome_cases import make_columns, write_outcomes
from waiting import PATIENCE

QUICK = ["--families", "ridge", "--n-jobs", "1"]


def test_a_search_is_saved_and_judged(mild, tables):
    out = tables.folder / "r"
    done = mild("tune", tables.log, "--out", out, *QUICK)
    assert done.code == 0, done.err
    assert "candidates, 5 folds" not in done.out
    assert "Routing pays: the mean loss of the router is" in done.out
    assert "lower than that of always" in done.out
    assert f"mild evaluate {out} TABLE" in done.out.splitlines()[-1]
    router = load(out)
    assert router.info.estimator.class_name == "RouterCV"
    assert router.experts == ["large", "medium", "small"]
    assert "%" in done.out
    assert "━━━" not in done.err, "a progress bar without a terminal"


def test_json_holds_candidates_and_verdict(mild, tables):
    result = mild("tune", tables.log, "--out", tables.folder / "r", *QUICK, "--json").json()
    assert result["best_family"] == "ridge"
    assert result["best_params"]["alpha"] in (1, 10, 100, 1000)
    assert len(result["candidates"]) == 6
    assert {"family", "params", "mean_cost", "standard_error"} <= set(result["candidates"][0])
    assert result["verdict"]["pays"] is True
    assert "(95 % interval of the difference" in result["verdict"]["sentence"]
    assert ", 6 candidates)" in result["verdict"]["sentence"]
    assert result["verdict"]["high"] < 0
    assert result["routes_as_constant"] is False


def test_the_search_is_that_of_the_library(mild, tables):
    words = ["--families", "ridge, knn", "--n-jobs", "1", "--random-state", "3"]
    mild("tune", tables.log, "--out", tables.folder / "r", *words)
    search = RouterCV(families=["ridge", "knn"], n_jobs=1)
    expected = tune(read_outcomes(tables.log), search=search, random_state=3).router
    found = load(tables.folder / "r")
    X = read_outcomes(tables.new).vectors
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    assert found.info.estimator == expected.info.estimator


def test_an_unknown_family_is_refused(mild, tables):
    done = mild("tune", tables.log, "--out", tables.folder / "r", "--families", "linaer")
    assert done.code == 1
    assert "Did you mean 'linear'?" in done.err


def test_there_are_few_options(mild):
    _, _, listed = mild("tune", "--help").out.partition("\nOptions:\n")
    options = re.findall(r"^  (?:-\w, )?--[\w-]+", listed, re.MULTILINE)
    assert "  --holdout" in options
    assert "  --help" in options
    assert len(options) <= 25


@pytest.fixture
def interrupted(mild, tables, monkeypatch):
    """A search that is interrupted after so many blocks of fits."""

    def run(after):
        judge, calls = search._judge_block, []

        def interrupting(*task):
            calls.append(task)
            if len(calls) > after:
                raise KeyboardInterrupt
            return judge(*task)

        monkeypatch.setattr(search, "_judge_block", interrupting)
        words = ["--json", "--families", "ridge,knn", "--n-jobs", "1"]
        return mild("tune", tables.log, "--out", tables.folder / "r", *words)

    return run


@pytest.mark.parametrize("after", [0, 12])
def test_an_interrupt_writes_nothing(interrupted, tables, after):
    done = interrupted(after)
    assert done.code == 130, done.err
    assert done.json()["code"] == "interrupted"
    assert "interrupted: nothing was saved." in done.err
    assert not (tables.folder / "r").exists()


@pytest.mark.slow
def test_a_real_ctrl_c_ends_the_search_with_130(tables):
    words = f"mild tune {tables.log} --out {tables.folder / 'r'} --families all".split()
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from mild.cli.app import build_app\n"
        "from mild.routers.search import RouterCV\n"
        "fit = RouterCV.fit\n"
        "def noted(*arguments, **options):\n"
        "    print('searching', flush=True)\n"
        "    return fit(*arguments, **options)\n"
        "RouterCV.fit = noted\n"
        f"sys.argv = {words}\n"
        "build_app()()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "searching\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert "interrupted: " in errors
    assert "Traceback" not in errors


def test_few_groups_are_noted_and_searched(mild, logs, tmp_path):
    some = [word for name in ("s0", "s1", "s2") for word in ("--where", f"subject={name}")]
    words = ("--groups", "subject", *some, *QUICK)
    done = mild("tune", logs.log, "--out", tmp_path / "router", *words)
    assert done.code == 0, done.err
    assert "note: subject has 3 values: 3 folds instead of 5." in done.err


def test_a_negative_seed_is_refused(mild, logs, tmp_path):
    done = mild("tune", logs.log, "--out", tmp_path / "router", "--random-state", -1)
    assert done.code == 2
    assert "--random-state" in done.err


def test_the_candidate_that_is_taken_is_marked(mild, logs, tmp_path):
    words = ["--n-jobs", 1, "--families", "ridge,knn,stack", "--price-weight", 0]
    again = mild("tune", logs.log, "--out", tmp_path / "s", *words, "--json").json()
    taken = [entry for entry in again["candidates"] if entry["taken"]]
    assert [entry["family"] for entry in taken] == [again["best_family"]] == ["stack"]


def test_a_table_with_holes_says_which_rows_the_verdict_leaves_out(mild, tmp_path):
    columns = make_columns(150)
    asked = columns["correct__poet"].astype(float)
    asked[:50] = np.nan
    file = write_outcomes({**columns, "correct__poet": asked}, tmp_path / "log.parquet")
    words = ["--n-jobs", 1, "--families", "ridge"]
    done = mild("tune", file, "--out", tmp_path / "r", *words)
    assert "note: 50 of 150 rows are left out because not every expert was asked.\n" in done.err
    assert ", 100 rows, " in done.out


COOKING = "boil salt butter flour oven stir simmer onion"


@pytest.fixture
def priced(tmp_path):
    """A table of outcomes with prices."""
    return write_outcomes(make_columns(160, noise=0.05, prices=True), tmp_path / "priced.parquet")


def test_errors_about_targets_are_those_of_python(mild, priced, tmp_path):
    words = ["tune", priced, "--out", tmp_path / "r"]
    alone = mild(*words, "--guarantee", "0.9", "--keep-quality", "0.95")
    assert "error: guarantee must come with max_quality_loss between 0 and 1" in alone.err
    assert alone.err.endswith("got keep_quality 0.95.\n")
    both = mild(*words, "--keep-quality", "0.95", "--price-weight", "20")
    assert "got keep_quality 0.95 as well" in both.err
    unused = mild(*words, "--target-probability", "0.9")
    assert "error: target_probability must be given together with a target" in unused.err
    assert "{" not in alone.err + both.err + unused.err
    assert not (tmp_path / "r").exists()


def test_a_target_is_solved_saved_and_shown(mild, priced, tmp_path):
    out = tmp_path / "r"
    done = mild("tune", priced, "--out", out, *QUICK, "--keep-quality", "1.9")
    assert done.code == 0, done.err
    assert "on the same number of new queries with probability 80 %" in " ".join(done.out.split())
    assert done.err.count("not used with a target: families") == 1
    target = load(out).info.notes["target"]
    assert target["met"] is True
    # A mix of two settings has as much quality as was asked for.
    assert target["setting"].startswith("a mix of two trade-offs")
    frontier = load(out).info.frontier
    best_quality = frontier["quality"][load(out).experts.index(target["best_expert"])]
    assert target["quality"] == pytest.approx(
        1.9 * best_quality + target["margins"]["keep_quality"], abs=1e-3
    )
    assert done.out.count("Target met on held-out rows") == 1
    assert target["setting"] in " ".join(done.out.split())
    assert mild("explain", out, "--json").json()["notes"]["target"] == target
    assert "keep_quality 1.9" in mild("explain", out).out
    explained = mild("explain", out, COOKING, "--json").json()
    assert explained["target"] == target
    assert explained["expert"] == "cook"
    other = mild("explain", out, COOKING, "--price-weight", "1e9", "--json").json()
    assert "target" not in other
    assert other["expert"] == "adder"
    assert target["setting"] in mild("explain", out, COOKING).out.replace("\n", " ")


@pytest.mark.parametrize(
    "target", [["--max-dollars", "0.00001"], ["--keep-quality", "1.9", "--max-dollars", "0.1"]]
)
def test_no_certainty_is_claimed_where_no_setting_meets_the_target(mild, priced, tmp_path, target):
    done = mild("tune", priced, "--out", tmp_path / "r", *QUICK, *target)
    assert done.code == 3, done.err
    words = " ".join(done.out.replace("│", " ").split())
    assert "met with 50" not in words.replace("not met with 50", "")
    rows = mild("tune", priced, "--out", tmp_path / "s", *QUICK, *target, "--json").json()
    assert not any(row["met"] for row in rows["certainty"])
    settings = {row["setting"] for row in rows["certainty"]}
    if len(settings) == 1:
        assert "The target is not met with 50 %, 80 % or 95 %: nearest is " in words
    else:
        assert words.count("not met: nearest is") == 3


def test_a_router_that_misses_its_target_is_saved_on_request_only(mild, priced, tmp_path):
    out = tmp_path / "r"
    mild("fit", priced, "--out", out)
    before = (out / "router.json").read_bytes()
    words = ["tune", priced, "--out", out, "--overwrite", "--json", *QUICK]
    missed = mild(*words, "--max-dollars", "0.00001")
    assert (missed.code, missed.json()["router"], missed.json()["met"]) == (3, None, False)
    assert (out / "router.json").read_bytes() == before
    saved = mild(*words, "--max-dollars", "0.00001", "--save-anyway")
    assert (saved.code, saved.json()["router"], saved.json()["met"]) == (3, str(out), False)
    assert load(out).info.target.met is False
    met = mild(*words, "--max-dollars", "100")
    assert (met.code, met.json()["router"], met.json()["met"]) == (0, str(out), True)


def test_rows_of_certainty_that_differ_are_a_table(mild, priced, tmp_path):
    options = ["--keep-quality", "1.9", "--max-dollars", "2.2"]
    done = mild("tune", priced, "--out", tmp_path / "r", *QUICK, *options)
    rows = mild("tune", priced, "--out", tmp_path / "s", *QUICK, *options, "--json").json()
    n_missed = sum(not row["met"] for row in rows["certainty"])
    assert n_missed > 0
    assert len({row["dollars_per_1000"] for row in rows["certainty"]}) > 1
    assert done.out.count("not met:") == n_missed


def test_a_target_has_a_margin_for_its_probability(mild, priced, tmp_path):
    found = {}
    for probability in ("0.6", "0.95"):
        out = tmp_path / probability
        options = ["--max-dollars", "6", "--target-probability", probability]
        done = mild("tune", priced, "--out", out, *QUICK, *options, "--json")
        assert done.code == 0, done.err
        found[probability] = done.json()["target"]
        assert found[probability]["probability"] == float(probability)
        assert found[probability]["likely"] is True
    loose, strict = found["0.6"], found["0.95"]
    assert strict["dollars_per_1000"] <= loose["dollars_per_1000"]
    margin = strict["margins"]["max_dollars"]
    assert 6 - strict["dollars_per_1000"] >= margin - 1e-9
    assert "probability 95 %" in strict["sentence"]
    assert f"with a margin of ${amount(margin)} per 1,000 queries" in strict["sentence"]
    done = mild(
        "tune", priced, "--out", tmp_path / "r", "--max-dollars", "6", "--target-probability", "80"
    )
    assert done.code != 0
    assert "target_probability must be a number of at least 0.5" in done.err


def test_the_best_candidate_is_not_used_unless_it_beats_the_constant(mild, tables):
    columns = tables.make(120, 0)
    rng = np.random.default_rng(5)
    for k, name in enumerate(("small", "medium", "large")):
        columns[f"score__{name}"] = 1 - (rng.uniform(size=120) + 0.3 * k) / 2
    file = tables.write(columns, "noise.csv")
    done = mild("tune", file, "--out", tables.folder / "r", "--families", "knn", "--n-jobs", 1)
    assert done.code == 0, done.err
    assert "The best candidate is not used (its mean cost on held-out rows is not lower" in done.out
    assert "(always small)" in done.out
    router = load(tables.folder / "r")
    small = router.experts.index("small")
    assert set(router.predict(read_outcomes(file).vectors)) == {small}


def test_a_cascade_is_tuned_saved_and_shown(mild, tmp_path):
    rng = np.random.default_rng(0)
    truth, columns = rng.integers(10, 99, 200), {"query": [f"sum {i}" for i in range(200)]}
    for k, (name, price) in enumerate({"small": 0.001, "other": 0.001, "large": 0.03}.items()):
        right = rng.random(200) < (0.97 if name == "large" else 0.8)
        columns[f"correct__{name}"] = right.astype(int).tolist()
        columns[f"cost__{name}"] = [price] * 200
        columns[f"answer__{name}"] = np.where(right, truth, truth + 100 * (k + 1)).tolist()
    table = write_outcomes(columns, tmp_path / "answers.parquet")
    hint = mild("tune", table, "--out", tmp_path / "r", *QUICK, "--keep-quality", "0.95")
    assert "cascade=True considers cascades" in " ".join(hint.out.split())
    # Without a number, the word after the option is not its value.
    cascade = ["--keep-quality", "0.95", "--cascade", table]
    done = mild("tune", "--out", tmp_path / "c", *QUICK, *cascade)
    assert done.code == 0, done.err
    assert "the cascade asks " in done.out.lower()
    setting = load(tmp_path / "c").info.target.setting
    assert "cascade" in setting
    assert setting in " ".join(done.out.split())
    for calls in (["--cascade", "1"], ["--cascade=many"]):
        refused = mild("tune", table, "--out", tmp_path / "x", *calls)
        assert refused.code == 1
        assert "error: cascade must be " in refused.err
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "cascade"),
    [([], False), (["--cascade"], True), (["--cascade", "3"], 3), (["--cascade=12"], 12)],
)
def test_a_cascade_may_have_a_number_of_calls(mild, logs, monkeypatch, words, cascade):
    given = {}

    def search(table, cascade=False, **others):
        given.update(cascade=cascade)
        raise KeyboardInterrupt

    monkeypatch.setattr("mild.tuning.tune.tune", search)
    mild("tune", *words, logs.log, "--out", logs.folder / "never")
    assert given == {"cascade": cascade}
    assert type(given["cascade"]) is type(cascade)
