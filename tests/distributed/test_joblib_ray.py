"""A search on Ray is the search of one machine, results and interrupts included."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from joblib import Parallel, delayed

from mild.distributed.joblib_ray import joblib_on_ray
from mild.errors import InvalidInputError, TuningInterruptedWarning
from mild.routers.search import RouterCV

ray = pytest.importorskip("ray", reason="ray is not installed")
# What Ray leaves open is not ours.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _pool():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with joblib_on_ray(workers=2):
            yield


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    return X, np.clip(X[:, :3] + rng.normal(size=(400, 3)), 0, None)


def search(n_jobs, progress=None):
    return RouterCV(
        families=["linear", "regression", "stack"], cv=3, n_jobs=n_jobs, progress=progress
    )


def test_results_are_those_of_one_process(data):
    told = []
    far = search(2, lambda done, total, _: told.append((done, total))).fit(*data)
    near = search(1).fit(*data)
    assert far.cv_results_ == near.cv_results_
    assert far.best_params_ == near.best_params_
    np.testing.assert_array_equal(far.predict(data[0]), near.predict(data[0]))
    # One by one, as they came, and not all at the end.
    assert len(told) > 3
    assert told[-1][0] == told[-1][1]


@pytest.mark.filterwarnings("ignore:.*tasks which were still being processed:UserWarning")
def test_an_interrupt_keeps_what_was_judged_and_the_next_search_works(data):
    def stop(done, total, message):
        # By now both workers have answered, and some candidates are judged on every fold.
        if done > 0.7 * total:
            raise KeyboardInterrupt

    with pytest.warns(TuningInterruptedWarning, match="the search was stopped"):
        found = search(2, stop).fit(*data)
    assert found.interrupted_
    assert len(found.cv_results_["family"]) < len(search(1).fit(*data).cv_results_["family"])
    assert not search(2).fit(*data).interrupted_


def test_a_large_array_is_sent_once(monkeypatch):
    array = np.zeros(1 << 20)
    put, sent = ray.put, []
    monkeypatch.setattr(ray, "put", lambda value: sent.append(value) or put(value))
    sums = Parallel(n_jobs=2)(delayed(lambda a, b: float(a.sum()) + b)(array, i) for i in range(6))
    assert sums == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert len([value for value in sent if value is array]) == 1


def test_an_error_comes_back_as_it_is():
    def fail():
        raise InvalidInputError("not like this.")

    with pytest.raises(InvalidInputError, match="not like this"):
        Parallel(n_jobs=2)(delayed(fail)() for _ in range(3))
    assert Parallel(n_jobs=2)(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]


def test_one_job_stays_here():
    import os

    assert set(Parallel(n_jobs=1)(delayed(os.getpid)() for _ in range(2))) == {os.getpid()}
