"""Workers of a Ray cluster give the bits of one process, also when one of them is killed."""

from __future__ import annotations

import os
import signal
import warnings

import numpy as np
import pytest

from mild.distributed.ray_connection import connect
from mild.distributed.shards.workers import ray_workers
from mild.errors import DataFileError, InvalidInputError
from mild.evaluation.tasks import CostTerms
from shard_cases import make_rows, make_texts, sharded

pytest.importorskip("ray", reason="ray is not installed")
# What Ray leaves open is not ours.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def ray():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with connect(None, 2) as module:
            yield module


def hire(held):
    return ray_workers(held, CostTerms(), workers=2)


def test_the_bits_are_those_of_one_process(ray, shards):
    data = shards(make_rows(900, missing=0.1))
    found, expected = sharded(data.folder, open_workers=hire), sharded(data.folder)
    np.testing.assert_array_equal(found.model[-1].coef_, expected.model[-1].coef_)
    np.testing.assert_array_equal(found.model[0].scale_, expected.model[0].scale_)
    assert found.model[-1].objective_ == expected.model[-1].objective_
    assert found.fingerprint == expected.fingerprint
    np.testing.assert_array_equal(found.seen.marks, expected.seen.marks)


def test_texts_too(ray, shards):
    data = shards(make_texts(400))
    found, expected = sharded(data.folder, open_workers=hire), sharded(data.folder)
    np.testing.assert_array_equal(found.model.coef_, expected.model.coef_)


def test_a_worker_that_is_killed_is_replaced_and_changes_nothing(ray, shards):
    data = shards(make_rows(900))
    expected = sharded(data.folder)
    killed = []

    def hired(held):
        context = ray_workers(held, CostTerms(), workers=2)
        workers = context.__enter__()
        called = workers.call

        def call(method, *arguments):
            if method == "evaluate" and len(killed) < 2:
                pid = ray.get(workers.actors[len(killed)].pid.remote())
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            return called(method, *arguments)

        workers.call = call

        class Context:
            def __enter__(self):
                return workers

            def __exit__(self, *error):
                return context.__exit__(*error)

        return Context()

    found = sharded(data.folder, open_workers=hired)
    assert len(set(killed)) == 2
    np.testing.assert_array_equal(found.model[-1].coef_, expected.model[-1].coef_)
    assert found.evaluations == expected.evaluations


def test_a_broken_shard_is_named_from_afar(ray, shards):
    data = shards(make_rows(3000, d=30))
    file = data.folder / "2.parquet"
    content = bytearray(file.read_bytes())
    content[2000:60000] = bytes(58000)
    file.write_bytes(bytes(content))
    with pytest.raises(DataFileError, match=r"2\.parquet: "):
        sharded(data.folder, open_workers=hire)


def test_workers_that_find_no_processor_are_not_waited_for_forever(ray, shards, monkeypatch):
    monkeypatch.setattr("mild.distributed.shards.workers.START", 3.0)
    data = shards(make_rows(90))
    greedy = [ray.remote(num_cpus=1)(type("Greedy", (), {})).remote() for _ in range(2)]
    try:
        with pytest.raises(InvalidInputError, match="started 0 of 2 workers within 3 s"):
            sharded(data.folder, open_workers=hire)
    finally:
        for actor in greedy:
            ray.kill(actor)
