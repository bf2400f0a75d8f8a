"""One small run of the demo, shared by the tests of what is made of it."""

from __future__ import annotations

import pickle

import pytest
from filelock import FileLock

from mild.evaluation.demo.run import DemoResults, DemoSettings, run_demo


@pytest.fixture(scope="session")
def small_settings() -> DemoSettings:
    return DemoSettings(
        setups=("III", "severe"),
        experts=("synthetic",),
        seeds=2,
        alphas=(1e-4,),
        margin_factors=(1.0, 2.0),
        neighbours=(5,),
        folds=2,
        region_samples=600,
        tail_draws=2,
        jobs=1,
    )


@pytest.fixture(scope="session")
def small_results(small_settings, tmp_path_factory, worker_id) -> DemoResults:
    if worker_id == "master":
        return run_demo(small_settings)
    # It takes long: the first process that needs it keeps it for the others.
    file = tmp_path_factory.getbasetemp().parent / "demo_results"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            file.write_bytes(pickle.dumps(run_demo(small_settings)))
        return pickle.loads(file.read_bytes())
