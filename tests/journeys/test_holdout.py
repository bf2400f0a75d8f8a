"""``tune --holdout`` keeps rows back, and judges the router by them as ``evaluate`` does."""

from __future__ import annotations

import pandas as pd
import pytest

import mild
from journeys import adapter
from journeys.commands import mild_here
from journeys.world import log

pytestmark = pytest.mark.slow

SHARE = 0.3
N_AUTHORS = 10
TARGET = ("--keep-quality", "0.9")


def run(folder, words):
    """What a command prints as JSON."""
    done = mild_here(folder, [*words, "--json"])
    assert done.code == 0, done.err
    return done.figures


@pytest.fixture(scope="module")
def table():
    """Questions of several authors, every third of them twice."""
    questions = pd.DataFrame(log(111, 300))
    questions["author"] = [f"author {row % N_AUTHORS}" for row in range(len(questions))]
    rows = pd.concat([questions, questions.iloc[::3]])
    return rows.sample(frac=1, random_state=0, ignore_index=True)


@pytest.fixture
def folder(table, tmp_path):
    table.to_csv(tmp_path / "log.csv", index=False)
    return tmp_path


def kept_back(folder, table):
    """The rows that the router in a folder was not tuned on: whole questions."""
    _, test = mild.read_outcomes(table).split(SHARE)
    is_new = table["query"].isin(adapter.texts(test))
    for name, rows, n_seen in (
        ("new", table[is_new], 0),
        ("rest", table[~is_new], (~is_new).sum()),
    ):
        rows.to_csv(folder / f"{name}.csv", index=False)
        assert adapter.read_seen(run(folder, adapter.evaluate("router", f"{name}.csv"))) == n_seen
    return table[is_new]


def test_the_verdict_is_that_of_evaluate_on_rows_that_were_kept_back(folder, table):
    words = adapter.tune("log.csv", "router", *TARGET, "--holdout", str(SHARE))
    tuned = run(folder, words)
    new = kept_back(folder, table)
    assert len(new) == pytest.approx(SHARE * len(table), abs=3)

    judged = run(folder, adapter.evaluate("router", "new.csv"))
    held_out = adapter.read_holdout(tuned)
    assert adapter.read_seen(held_out) == 0
    assert adapter.read_target(held_out) == adapter.read_target(judged)
    assert adapter.read_judged(held_out) == adapter.read_judged(judged)

    # What tune says of its own rows is what it says of a table of these.
    rest = run(folder, adapter.tune("rest.csv", "again", *TARGET))
    assert adapter.read_target(tuned) == adapter.read_target(rest)

    printed = mild_here(folder, [*words, "--overwrite"])
    assert printed.code == 0
    assert adapter.read_sentence(judged) in printed.out


def test_groups_are_on_one_side(folder, table):
    words = ["--holdout", str(SHARE), adapter.GROUPS, "author"]
    run(folder, adapter.tune("log.csv", "router", *TARGET, *words))
    sides = set()
    for author, rows in table.groupby("author"):
        rows.to_csv(folder / "author.csv", index=False)
        judged = run(folder, adapter.evaluate("router", "author.csv"))
        share = adapter.read_seen(judged) / len(rows)
        assert share in (0, 1), author
        sides.add(share)
    assert sides == {0, 1}


def test_the_latest_rows_are_kept_back_where_rows_have_times(folder, table):
    dated = table.drop_duplicates("query").assign(day=lambda rows: range(len(rows)))
    dated.to_csv(folder / "log.csv", index=False)
    words = ["--holdout", str(SHARE), "--time", "day"]
    tuned = run(folder, adapter.tune("log.csv", "router", *TARGET, *words))
    n_late = round(SHARE * len(dated))
    assert adapter.read_judged(adapter.read_holdout(tuned)).rows == n_late
    for rows, n_seen in ((dated[-n_late:], 0), (dated[:-n_late], len(dated) - n_late)):
        rows.to_csv(folder / "part.csv", index=False)
        assert adapter.read_seen(run(folder, adapter.evaluate("router", "part.csv"))) == n_seen


def test_no_rows_are_kept_back_unless_it_is_asked_for(folder, table):
    tuned = run(folder, adapter.tune("log.csv", "router", *TARGET))
    assert adapter.read_holdout(tuned) is None
    judged = run(folder, adapter.evaluate("router", "log.csv"))
    assert adapter.read_seen(judged) == len(table)


@pytest.mark.parametrize("share", ["0", "1", "-0.3", "30"])
def test_a_holdout_is_a_share_of_the_rows(folder, share):
    words = adapter.tune("log.csv", "router", *TARGET, "--holdout", share, "--json")
    done = mild_here(folder, words)
    assert (done.code, done.figures["code"]) == (1, "invalid_holdout")
    assert not (folder / "router").exists()
