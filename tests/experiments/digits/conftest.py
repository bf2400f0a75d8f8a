"""One small run, shared by the tests of what is made of it."""

from __future__ import annotations

import pickle

import pytest
from filelock import FileLock

from experiments.digits.run import DigitsResults, DigitsSettings, run_digits


@pytest.fixture(scope="session")
def small_settings() -> DigitsSettings:
    return DigitsSettings(
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
def small_results(small_settings, tmp_path_factory, worker_id) -> DigitsResults:
    if worker_id == "master":
        return run_digits(small_settings)
    # It takes long: the first process that needs it keeps it for the others.
    file = tmp_path_factory.getbasetemp().parent / "digits_results"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            file.write_bytes(pickle.dumps(run_digits(small_settings)))
        return pickle.loads(file.read_bytes())


@pytest.fixture(scope="session")
def row_of():
    """The row of a method in a block."""
    return lambda block, key: next(row for row in block["rows"] if row["method"] == key)
