"""Commands use all rows of a table, say whether they did what was asked, and change nothing if not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mild
from journeys.commands import LONGEST, Finished, mild_here, process
from journeys.world import log

pytestmark = pytest.mark.slow

N_ROWS = 300


def files_in(folder: Path) -> dict[str, bytes]:
    """What every file in a folder holds."""
    files = sorted(folder.rglob("*"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if file.is_file()}


def stopped_half_way(folder: Path, *words: str) -> int:
    """The exit status of ``mild WORDS`` in a terminal where Ctrl-C is typed at half of the progress bar."""
    pty = pytest.importorskip("pty")
    ours, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mild", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    shown = b""
    is_stopped = False
    while piece := _read_terminal(ours):
        shown += piece
        if not is_stopped and re.search(rb"[5-9]\d%", shown):
            is_stopped = True
            # A terminal tells all processes of the command.
            os.killpg(process.pid, signal.SIGINT)
    os.close(ours)
    assert is_stopped, shown.decode(errors="replace")
    return process.wait(LONGEST)


def _read_terminal(terminal: int) -> bytes:
    """What a program writes next; nothing at its end, which is an error on Linux."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def run(folder: Path, *words: str) -> Finished:
    """Run ``mild WORDS`` in a folder."""
    return mild_here(folder, words)


def table_of(seed: int, n_rows: int = N_ROWS) -> pd.DataFrame:
    """Outcomes of questions of several kinds."""
    return pd.DataFrame(log(seed, n_rows))


def test_all_rows_are_used_whatever_a_column_is_called(tmp_path):
    fitted = mild.fit(table_of(100), price_weight=20)
    table = table_of(101)
    table["split"] = np.where(np.arange(N_ROWS) % 3 == 0, "test", "train")
    judged = {}
    for name in ("split", "remark"):
        file = tmp_path / f"{name}.csv"
        table.rename(columns={"split": name}).to_csv(file, index=False)
        judged[name] = {
            "tune": mild.tune(file, keep_quality=0.9).verdict.as_dict(),
            "compare": mild.compare(file, methods=["mild"], n_splits=2).verdict.as_dict(),
            "evaluate": mild.evaluate(fitted, file).verdict.as_dict(),
        }
    assert judged["split"] == judged["remark"]
    assert judged["split"]["tune"]["n_rows"] == N_ROWS

    fit = ["fit", "split.csv", "--out", "router", "--price-weight", "20", "--json"]
    assert run(tmp_path, *fit).figures["training"]["rows"] == N_ROWS
    evaluate = ["evaluate", "router", "split.csv", "--json"]
    assert run(tmp_path, *evaluate).figures["rows"] == N_ROWS
    assert run(tmp_path, *evaluate, "--where", "split=test").figures["rows"] == N_ROWS / 3


def test_a_router_decides_by_the_costs_it_was_made_for(tmp_path):
    table_of(102).to_csv(tmp_path / "log.csv", index=False)
    mild.fit(tmp_path / "log.csv", router="priced", price_weight=20).save(tmp_path / "router")
    for command in (["route", "router"], ["explain", "router", "What is 2 plus 7?"]):
        assert run(tmp_path, *command).code == 0
        # Costs in wrong answers are part of a fit, and no option afterwards.
        assert run(tmp_path, *command, "--beta", "large=1,small=0").code == 2


def test_ctrl_c_leaves_the_router_that_is_there(tmp_path):
    table_of(103, 600).to_csv(tmp_path / "log.csv", index=False)
    mild.fit(tmp_path / "log.csv", router="ridge").save(tmp_path / "router")
    before = files_in(tmp_path)
    words = ["tune", "log.csv", "--out", "router", "--price-weight", "20", "--overwrite"]
    assert stopped_half_way(tmp_path, *words) == 130
    assert files_in(tmp_path) == before


def test_a_missed_target_is_told_and_saves_nothing_unless_it_is_asked_for(tmp_path):
    table_of(104).to_csv(tmp_path / "log.csv", index=False)
    words = ["tune", "log.csv", "--out", "router", "--json"]
    # The small expert alone takes twice as much.
    impossible = ["--max-dollars", "0.1"]
    missed = run(tmp_path, *words, *impossible)
    assert (missed.code, missed.figures["router"], missed.figures["met"]) == (3, None, False)
    assert files_in(tmp_path).keys() == {"log.csv"}

    met = run(tmp_path, *words, "--keep-quality", "0.9")
    assert (met.code, met.figures["met"]) == (0, True)
    assert (tmp_path / "router").samefile(met.figures["router"])
    before = files_in(tmp_path)
    assert run(tmp_path, *words, *impossible, "--overwrite").code == 3
    assert files_in(tmp_path) == before

    saved = run(tmp_path, *words, *impossible, "--overwrite", "--save-anyway")
    assert (saved.code, saved.figures["met"]) == (3, False)
    assert (tmp_path / "router").samefile(saved.figures["router"])
    assert files_in(tmp_path) != before
    assert mild.load(tmp_path / "router").route(["What is 2 plus 7?"]) == ["small"]
    assert not mild.tune(tmp_path / "log.csv", max_dollars=0.1).met


def test_a_search_runs_on_whatever_joblib_runs(tmp_path):
    table_of(105).to_csv(tmp_path / "log.csv", index=False)
    # With multiprocessing, all results come at the end, and are sent as pickle alone can.
    program = """
import joblib
import mild

if __name__ == "__main__":
    with joblib.parallel_config(backend="multiprocessing", n_jobs=2):
        found = mild.tune("log.csv", price_weight=20)
        compared = mild.compare("log.csv", methods=["ridge"], n_splits=2, n_jobs=2, price_weight=20)
    print(found.verdict.estimate, compared.verdict.estimate)
"""
    printed = process(tmp_path, ["-c", program])
    assert printed.code == 0, printed.err
    found = mild.tune(tmp_path / "log.csv", price_weight=20)
    compared = mild.compare(tmp_path / "log.csv", methods=["ridge"], n_splits=2, price_weight=20)
    assert [float(word) for word in printed.out.split()] == pytest.approx(
        [found.verdict.estimate, compared.verdict.estimate]
    )
