"""``torchrun -m mild fit --router neural``: one router, one voice."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from mild.artifact import load
from mild.cli.torchrun import training_together
from mild.errors import OptionError

torch = pytest.importorskip("torch", reason="torch is not installed")


def test_alone_nothing_happens(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with training_together("linear"):
        assert not torch.distributed.is_initialized()


def test_other_routers_are_not_trained_together(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    together = training_together("linear")
    with pytest.raises(OptionError, match="several processes can only train --router neural"):
        together.__enter__()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("words", [[], ["--json"], ["--router", "linear"]])
def test_only_the_first_process_says_what_is_wrong(mild, tmp_path, monkeypatch, rank, words):
    def end_as_torchrun_does(seconds):
        raise SystemExit(1)

    monkeypatch.setattr("mild.cli.torchrun.time.sleep", end_as_torchrun_does)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", str(rank))
    words = ["--router", "neural", *words]
    done = mild("fit", tmp_path / "none.parquet", "--out", tmp_path / "router", *words)
    assert done.code == 1
    assert bool(done.err) == (rank == 0)
    assert bool(done.out) == (rank == 0 and "--json" in words)


def test_what_the_first_process_does_not_find_wrong_is_said_by_another(mild, tmp_path, monkeypatch):
    monkeypatch.setattr("mild.cli.torchrun.GRACE", 0.0)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    words = ["--out", tmp_path / "router", "--router", "neural"]
    done = mild("fit", tmp_path / "none.parquet", *words)
    assert done.code == 1
    assert done.err.startswith("error: ")


def test_a_neural_router_is_fitted_and_saved(mild, logs, tmp_path):
    words = ["--router", "neural", "--epochs", 3, "--hidden", "8,4", "--json"]
    result = mild("fit", logs.log, "--out", tmp_path / "router", *words).json()
    assert result["kind"] == "perceptron"
    assert result["estimator"]["params"]["hidden"] == [8, 4]


def torchrun(*words):
    """``mild`` in two processes."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "mild"]
    return subprocess.run(
        [sys.executable, *launch, *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_two_processes_write_the_router_of_one(mild, logs, tmp_path):
    words = ["--router", "neural", "--epochs", "4", "--batch-size", "50", "--json"]
    done = torchrun("fit", logs.log, "--out", tmp_path / "two", *words)
    assert done.returncode == 0, done.stderr
    # One JSON object: the second process says nothing.
    result = json.loads(done.stdout)
    assert result["kind"] == "perceptron"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["two"]
    mild("fit", logs.log, "--out", tmp_path / "one", *words)
    two, one = load(tmp_path / "two"), load(tmp_path / "one")
    for ours, theirs in zip(two.policy.inner.weights, one.policy.inner.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
