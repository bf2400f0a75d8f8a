"""``mild fit`` on a folder or a pattern of shards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mild.artifact import load
from mild.distributed.shards import workers
from shard_cases import make_rows, make_texts, write

# ``mild``, killed in its third evaluation.
DIES = """
import os, signal, sys
from mild.cli import main
from mild.distributed.shards.fitting import ShardedObjective
whole = ShardedObjective._summed
def summed(self, W):
    if self.evaluations == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, W)
ShardedObjective._summed = summed
main()
"""


@pytest.fixture
def folder(tmp_path):
    """A folder of three shards, and the same rows in whole.parquet beside it."""
    columns = make_rows(600)
    there = tmp_path / "logs"
    there.mkdir()
    for number in range(3):
        rows = slice(200 * number, 200 * number + 200)
        write({name: values[rows] for name, values in columns.items()}, there / f"{number}.parquet")
    write(columns, tmp_path / "whole.parquet")
    return there


def test_a_folder_gives_the_router_of_the_whole_table(mild, folder):
    parent = folder.parent
    done = mild("fit", folder, "--out", parent / "a", "--beta", "cat=0.2")
    assert done.code == 0, done.err
    assert "3 shards" in done.err
    assert (
        mild("fit", parent / "whole.parquet", "--out", parent / "b", "--beta", "cat=0.2").code == 0
    )
    ours, theirs = load(parent / "a"), load(parent / "b")
    X = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    # As near as two searches for one optimum end, where a score is near 0, too.
    scores = theirs.decision_function(X)
    near = 1e-4 * np.abs(scores).max()
    np.testing.assert_allclose(ours.decision_function(X), scores, rtol=1e-4, atol=near)
    assert ours.info.kind == theirs.info.kind == "standardized"
    assert ours.info.notes["cost"] == theirs.info.notes["cost"]
    assert ours.info.notes["table"]["shards"] == 3
    assert ours.info.data.rows == 600
    np.testing.assert_array_equal(ours.query_hashes, theirs.query_hashes)
    assert sorted(path.name for path in parent.iterdir()) == ["a", "b", "logs", "whole.parquet"]


@pytest.mark.parametrize("source", ["logs/*.parquet", "whole.parquet"])
def test_patterns_and_streamed_files_are_the_same_dataset(mild, folder, source):
    words = ["--stream"] if source == "whole.parquet" else []
    out = folder.parent / "router"
    result = mild("fit", folder.parent / source, "--out", out, "--json", *words).json()
    assert result["rows"] == 600
    assert result["training"]["rows"] == 600
    assert result["shards"] == (1 if words else 3)
    assert result["training"]["summary"]["loss"] < result["training"]["summary"]["constant_loss"]


def test_texts_are_routed_afterwards(mild, tmp_path):
    (tmp_path / "logs").mkdir()
    write(make_texts(300), tmp_path / "logs" / "a.parquet")
    done = mild("fit", tmp_path / "logs", "--out", tmp_path / "router")
    assert done.code == 0, done.err
    assert load(tmp_path / "router").text.kind == "hashing"
    assert (
        mild("evaluate", tmp_path / "logs" / "a.parquet", "--router", tmp_path / "router").code == 0
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--router", "knn"], "fitted by a linear router; got KNNRouter"),
        (["--engine", "spark"], "--engine must be one of|engine must be one of"),
        (["--address", "127.0.0.1:1"], "--address is for --engine ray"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(mild, folder, words, said):
    done = mild("fit", folder, "--out", folder.parent / "router", *words)
    assert done.code == 1
    assert any(part in done.err for part in said.split("|")), done.err
    assert sorted(path.name for path in folder.parent.iterdir()) == ["logs", "whole.parquet"]


def test_jobs_are_for_shards(mild, folder):
    done = mild("fit", folder.parent / "whole.parquet", "--out", folder.parent / "r", "--jobs", 2)
    assert done.code == 1
    assert "--jobs and --scratch are for shards" in done.err


@pytest.mark.parametrize("jobs", [1, 3])
def test_as_many_threads_work_as_were_asked_for(mild, folder, monkeypatch, jobs):
    asked = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, threads):
            asked.append(threads)
            super().__init__(threads)

    monkeypatch.setattr(workers, "ThreadPoolExecutor", Pool)
    done = mild("fit", folder, "--out", folder.parent / "router", "--jobs", jobs)
    assert done.code == 0, done.err
    assert set(asked) == ({jobs} if jobs > 1 else set())


def test_ties_are_noted_as_of_the_whole_table(mild, folder):
    parent = folder.parent
    streamed = mild("fit", folder, "--out", parent / "a")
    whole = mild("fit", parent / "whole.parquet", "--out", parent / "b")
    (note,) = [line for line in whole.err.splitlines() if "are ties" in line]
    assert note in streamed.err.splitlines()


@pytest.mark.skipif(os.name != "posix", reason="kills by signal")
def test_an_address_that_does_not_answer_leaves_what_was_worked_out(mild, folder):
    fit = ["fit", str(folder), "--out", str(folder.parent / "router")]
    subprocess.run([sys.executable, "-c", DIES, *fit], check=False)
    kept = sorted(folder.parent.glob(".router.fit/evaluations-*/*.npz"))
    assert kept
    done = mild(*fit, "--alpha", "0.5", "--engine", "ray", "--address", "127.0.0.1:1")
    assert done.code == 1
    assert "no Ray cluster answers" in done.err
    assert sorted(folder.parent.glob(".router.fit/evaluations-*/*.npz")) == kept
    assert mild(*fit, "--json").json()["remembered"] == len(kept)


def test_a_broken_shard_is_named_and_nothing_is_left(mild, folder):
    file = folder / "1.parquet"
    file.write_bytes(file.read_bytes()[:-50])
    done = mild("fit", folder, "--out", folder.parent / "router")
    assert done.code == 1
    assert "1.parquet: it is not a readable .parquet file" in done.err
    assert sorted(path.name for path in folder.parent.iterdir()) == ["logs", "whole.parquet"]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills by signal")
def test_a_fit_that_is_killed_goes_on_where_it_was(mild, folder):
    out = folder.parent / "router"
    words = ["fit", str(folder), "--out", str(out), "--loss", "cwce"]
    done = subprocess.run([sys.executable, "-c", DIES, *words], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not out.exists()
    assert len(list(folder.parent.glob(".router.fit/evaluations-*/*.npz"))) == 2
    result = mild(*words, "--json").json()
    assert result["remembered"] == 2
    straight = folder.parent / "straight"
    mild("fit", folder, "--out", straight, "--loss", "cwce")
    np.testing.assert_array_equal(load(out).policy.inner.coef, load(straight).policy.inner.coef)
    assert not list(folder.parent.glob(".router.fit"))


@pytest.mark.slow
def test_another_fit_does_not_go_on_from_there(mild, folder):
    words = ["fit", str(folder), "--out", str(folder.parent / "router")]
    subprocess.run([sys.executable, "-c", DIES, *words], check=False)
    assert mild(*words, "--alpha", "0.5", "--json").json()["remembered"] == 0
