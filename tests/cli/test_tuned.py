"""What a search tells: the candidate that is taken, dollars, rows left out, families left out."""

from __future__ import annotations

import numpy as np
import pytest

from mild.cli.tuned import note_skipped
from outcome_cases import make_columns, write_outcomes


def test_the_candidate_that_is_taken_is_marked_and_listed(mild, logs, tmp_path):
    words = ["--cv", 2, "--jobs", 1, "--families", "regression,knn,stack"]
    done = mild("tune", logs.log, "--out", tmp_path / "r", *words, "--candidates", 1)
    lines = [line for line in done.out.splitlines() if "* 0." in line]
    assert len(lines) == 1
    assert lines[0].startswith("│ stack")
    assert "* is taken" in done.out
    again = mild("tune", logs.log, "--out", tmp_path / "s", *words, "--json").json()
    taken = [entry for entry in again["candidates"] if entry["taken"]]
    assert [entry["family"] for entry in taken] == [again["best_family"]] == ["stack"]


def test_the_verdict_is_in_dollars_too_where_prices_are_known(mild, tmp_path):
    columns = make_columns(150, prices=True)
    file = write_outcomes(columns, tmp_path / "log.parquet")
    words = ["--cv", 2, "--jobs", 1, "--families", "regression", "--json"]
    verdict = mild("tune", file, "--out", tmp_path / "r", *words).json()["verdict"]
    money = verdict["dollars_per_1000"]
    # Experts cost 1, 2 and 3 dollars per 1,000.
    assert 0 < abs(money) < 2
    assert f"${abs(money):,.2f} {'less' if money < 0 else 'more'} per 1,000" in verdict["sentence"]
    for name in [name for name in columns if name.startswith("cost__")]:
        del columns[name]
    bare = write_outcomes(columns, tmp_path / "bare.parquet")
    verdict = mild("tune", bare, "--out", tmp_path / "s", *words).json()["verdict"]
    assert verdict["dollars_per_1000"] is None
    assert "$" not in verdict["sentence"]


def test_a_table_with_holes_says_which_rows_the_verdict_leaves_out(mild, tmp_path):
    columns = make_columns(150)
    asked = columns["correct__poet"].astype(float)
    asked[:50] = np.nan
    file = write_outcomes({**columns, "correct__poet": asked}, tmp_path / "log.parquet")
    words = ["--cv", 2, "--jobs", 1, "--families", "regression"]
    done = mild("tune", file, "--out", tmp_path / "r", *words)
    assert "note: 50 of 150 rows are left out: not every expert was asked there.\n" in done.err
    assert ", 100 rows, " in done.out


@pytest.mark.parametrize(("torch", "said"), [(None, "torch is not installed"), (1, "takes long")])
def test_a_family_that_is_left_out_is_named_with_the_reason(monkeypatch, capsys, torch, said):
    monkeypatch.setattr("mild.cli.tuned.importlib.util.find_spec", lambda name: torch)
    note_skipped(["mlp"])
    err = capsys.readouterr().err
    assert said in err
    assert ": mlp" in err
