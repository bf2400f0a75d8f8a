"""On Ray: the files, fits and searches of one process, whatever is killed meanwhile.

The tests share one cluster, which is why they share a file.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow.parquet as parquet
import pytest
from joblib import Parallel, delayed
from typer.testing import CliRunner

from batch_cases import damage, make_vectors, running_tasks, write_file
from mild.cli.app import build_app
from mild.data.cost_terms import CostTerms
from mild.distributed import ray_connection
from mild.distributed.batch import route_dataset
from mild.distributed.joblib_ray import joblib_on_ray
from mild.distributed.ray_connection import connect
from mild.distributed.shards.workers import ray_workers
from mild.errors import DataFileError, InvalidInputError, TuningInterruptedWarning
from mild.routers.search import RouterCV
from outcome_cases import make_columns, write_outcomes
from shard_cases import damage_pages, make_rows, make_texts, sharded
from waiting import wait_until

pytest.importorskip("ray", reason="ray is not installed")
# What Ray leaves open is not ours.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def ray():
    """A Ray of two processors, which is shut down at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with connect(workers=2) as module:
            yield module
    assert not module.is_initialized()


def test_a_ray_that_is_there_is_used_and_stays(ray):
    assert ray.cluster_resources()["CPU"] == 2
    with connect(workers=3) as inner:
        assert inner is ray
    assert ray.is_initialized()
    with (
        pytest.raises(InvalidInputError, match="connected to a Ray already"),
        connect(ray.get_runtime_context().gcs_address),
    ):
        pass


def test_both_engines_give_the_same_files(ray, routed, tmp_path):
    here, table = routed()
    there, other = routed(out="ray", engine="ray")
    assert other.equals(table)
    assert (there.counts, there.partitions) == (here.counts, here.partitions)
    for file in (tmp_path / "out").glob("part-*"):
        assert (tmp_path / "ray" / file.name).read_bytes() == file.read_bytes()
    # One engine goes on where the other was ended.
    for number in (2, 5):
        (tmp_path / "ray" / f"part-{number:06d}.parquet").unlink()
    summary, same = routed(out="ray")
    assert summary.skipped == 14
    assert same.equals(table)


def test_an_error_on_a_worker_is_its_sentence(ray, routed, dataset):
    damage(dataset / "1.parquet")
    with pytest.raises(
        DataFileError, match=r"^\S*1\.parquet: it cannot be read from row 51 on"
    ) as caught:
        routed(engine="ray")
    assert "\n" not in str(caught.value)


def test_a_killed_worker_costs_time_and_no_rows(ray, slow_job, tmp_path):
    run, wanted, _ = slow_job
    killed = []

    def kill(done, total, text):
        if len(killed) < 2:
            for pid in running_tasks()[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    summary = run(tmp_path / "out", engine="ray", progress=kill)
    assert killed
    assert summary.rows == 24_000
    assert parquet.read_table(tmp_path / "out").equals(wanted)
    assert len(list((tmp_path / "out").glob("part-*"))) == 24
    assert not list((tmp_path / "out").glob("_tmp*"))


def test_a_part_that_ends_every_worker_is_named(ray, slow_job, tmp_path, monkeypatch):
    run, _, _ = slow_job
    out = tmp_path / "out"
    monkeypatch.setattr(ray_connection, "RETRIES", 1)
    ended = threading.Event()

    def kill():
        killed = 0
        while not ended.is_set():
            # What is begun and not renamed stays: one file for each worker that was killed.
            if len(list(out.glob("_tmp-*/part-*"))) > killed:
                for pid in running_tasks():
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            time.sleep(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(
            DataFileError, match=r"the worker of part \d \(\S*\d\.parquet\) died \(\w+\); .* again"
        ):
            run(out, size=2**30, engine="ray", workers=1)
    finally:
        ended.set()
        killer.join()
    assert not list(out.glob("_tmp*"))


@pytest.fixture
def endless(tmp_path):
    """A file of one partition, of minutes: who is not told to end is at it for as long."""
    vectors = np.zeros((4_000_000, 4), np.float32)
    return write_file(tmp_path / "data" / "long.parquet", vectors, group=4_000_000)


def test_an_error_ends_what_is_under_way(ray, slow_job, endless, tmp_path):
    _, _, folder = slow_job
    damage(write_file(endless.parent / "bad.parquet", make_vectors(100)))
    with pytest.raises(DataFileError, match=r"bad\.parquet: it cannot be read"):
        route_dataset(
            folder / "router", str(endless.parent), str(tmp_path / "out"), engine="ray", workers=2
        )
    wait_until(lambda: not running_tasks())


def test_an_interrupt_ends_what_is_under_way(ray, slow_job, endless, tmp_path):
    _, _, folder = slow_job
    out = tmp_path / "out"
    ended = threading.Event()

    def interrupt():
        while not ended.wait(0.01):
            if list(out.glob("_tmp-*/part-*")):
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            route_dataset(folder / "router", str(endless), str(out), engine="ray")
    finally:
        ended.set()
        watcher.join()
    wait_until(lambda: not running_tasks())
    assert [file.name for file in out.iterdir()] == ["_manifest.json"]


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_killed_driver_is_followed_by_one_that_goes_on(ray, slow_job, tmp_path, engine):
    run, wanted, folder = slow_job
    out = tmp_path / "out"
    code = (
        "import sys, time\n"
        "from mild.distributed.batch import BatchOptions, route_dataset\n"
        "route_dataset(*sys.argv[1:4], BatchOptions(keep=('id',), partition_bytes=1), "
        "engine=sys.argv[4], address=(sys.argv[5:] or [None])[0], workers=1, "
        "progress=lambda done, *words: time.sleep(600 if done >= 2 else 0))"
    )
    words = [str(folder / "router"), str(folder / "data"), str(out), engine]
    if engine == "ray":
        words.append(ray.get_runtime_context().gcs_address)
    with subprocess.Popen([sys.executable, "-c", code, *words]) as driver:
        while len(list(out.glob("part-*"))) < 2 and driver.poll() is None:
            time.sleep(0.01)
        driver.kill()
    assert driver.returncode == -signal.SIGKILL
    assert not (out / "_SUCCESS").exists()
    before = {file.name: file.stat().st_mtime_ns for file in out.glob("part-*")}
    assert 2 <= len(before) < 24
    summary = run(out)
    assert summary.skipped >= len(before)
    after = {file.name: file.stat().st_mtime_ns for file in out.glob("part-*")}
    assert {name: after[name] for name in before} == before
    assert parquet.read_table(out).equals(wanted)


def test_an_address_that_does_not_answer_leaves_nothing_behind(routed, tmp_path):
    with pytest.raises(InvalidInputError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 "):
        routed(engine="ray", address="127.0.0.1:1")
    assert not (tmp_path / "out").exists()


def test_a_busy_cluster_is_waited_for_in_a_sentence(ray, routed):
    hog = ray.remote(num_cpus=2)(threading.Event).remote()
    ray.get(hog.is_set.remote())
    said = []

    def notice(sentence):
        said.append(sentence)
        ray.kill(hog)

    summary, _ = routed(engine="ray", notice=notice)
    assert said == ["waiting for a processor: the Ray cluster has 2 CPUs, 0 of them free."]
    assert summary.rows == 400


def test_so_many_parts_are_routed_at_a_time_as_was_said(ray, slow_job, tmp_path):
    run, wanted, _ = slow_job
    ended = threading.Event()
    seen = []

    def watch():
        while not ended.is_set():
            seen.append(len(running_tasks()))
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run(tmp_path / "out", engine="ray", workers=1)
    finally:
        ended.set()
        watcher.join()
    assert max(seen) == 1
    assert parquet.read_table(tmp_path / "out").equals(wanted)


def route(folder, out, *words, terminal=False):
    """``mild route`` in a process of its own: its exit code, and all that it says."""
    command = [sys.executable, "-m", "mild", "route", folder / "router", folder / "data"]
    command += ["--out", out, "--engine", "ray", *words]
    if not terminal:
        done = subprocess.run(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return done.returncode, done.stdout.decode()
    mine, theirs = pty.openpty()
    with subprocess.Popen(
        [str(word) for word in command], stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while content := os.read(mine, 65536):
                said += content
        except OSError:  # how Linux says that the other side was closed
            pass
        finally:
            os.close(mine)
    return process.returncode, said.decode()


def test_ray_says_nothing_and_the_bar_is_ours(slow_job, tmp_path):
    _, _, folder = slow_job
    code, said = route(folder, tmp_path / "out", "--jobs", 1, terminal=True)
    assert code == 0, said
    assert "Routing" in said
    assert "24,000 rows in 4 parts" in said
    for word in ("Map(", "Dataset ", "ray.", "Ray", "INFO", "WARNING"):
        assert word not in said.replace(str(tmp_path), "")


def test_another_process_of_a_cluster_is_limited_by_jobs(ray, slow_job, tmp_path):
    _, wanted, folder = slow_job
    address = ray.get_runtime_context().gcs_address
    words = ["--address", address, "--jobs", 1, "--keep", "id"]
    code, said = route(folder, tmp_path / "out", *words)
    assert code == 0, said
    assert re.match(r"24,000 rows in 4 parts *\n", said), said
    assert parquet.read_table(tmp_path / "out").equals(wanted)


def hire(held, workers=2):
    return ray_workers(held, CostTerms(), workers=workers)


def test_texts_have_the_bits_of_one_process(ray, shards):
    data = shards(make_texts(400))
    found, expected = sharded(data.folder, open_workers=hire), sharded(data.folder)
    np.testing.assert_array_equal(found.model.coef_, expected.model.coef_)


def test_a_worker_that_is_killed_is_replaced_and_changes_no_bit(ray, shards):
    data = shards(make_rows(900, missing=0.1))
    expected = sharded(data.folder)
    killed = []

    @contextmanager
    def hired(held):
        with hire(held) as workers:
            called = workers.call

            def call(method, *arguments):
                if method == "evaluate" and not killed:
                    killed.append(ray.get(workers.actors[1].pid.remote()))
                    os.kill(killed[0], signal.SIGKILL)
                return called(method, *arguments)

            workers.call = call
            yield workers
            assert ray.get(workers.actors[1].pid.remote()) != killed[0]

    found = sharded(data.folder, open_workers=hired)
    np.testing.assert_array_equal(found.model[-1].coef_, expected.model[-1].coef_)
    np.testing.assert_array_equal(found.model[0].scale_, expected.model[0].scale_)
    assert found.model[-1].objective_ == expected.model[-1].objective_
    assert found.fingerprint == expected.fingerprint
    np.testing.assert_array_equal(found.seen.hashes, expected.seen.hashes)
    assert found.evaluations == expected.evaluations


def test_a_broken_shard_is_named_from_afar(ray, shards):
    data = shards(make_rows(3000, d=30))
    damage_pages(data.folder / "2.parquet")
    with pytest.raises(DataFileError, match=r"2\.parquet: "):
        sharded(data.folder, open_workers=partial(hire, workers=1))


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


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    return X, np.clip(X[:, :3] + rng.normal(size=(200, 3)), 0, None)


@pytest.fixture
def pool(ray):
    """Parallel calls of joblib run on Ray."""
    with joblib_on_ray():
        yield


def search(n_jobs, progress=None):
    return RouterCV(
        families=["linear", "regression", "stack"], cv=2, n_jobs=n_jobs, progress=progress
    )


@pytest.fixture(scope="module")
def near(data):
    """The search of one process."""
    return search(1).fit(*data)


def test_results_are_those_of_one_process(data, near, pool):
    told = []
    far = search(2, lambda done, total, _: told.append((done, total))).fit(*data)
    assert far.cv_results_ == near.cv_results_
    assert far.best_params_ == near.best_params_
    np.testing.assert_array_equal(far.predict(data[0]), near.predict(data[0]))
    # One by one, as they came, and not all at the end.
    assert len(told) > 3
    assert told[-1][0] == told[-1][1]


@pytest.mark.filterwarnings("ignore:.*tasks which were still being processed:UserWarning")
def test_an_interrupt_keeps_what_was_judged_and_the_next_search_works(data, near, pool):
    def stop(done, total, message):
        # By now both workers have answered, and some candidates are judged on every fold.
        if done > 0.7 * total:
            raise KeyboardInterrupt

    with pytest.warns(TuningInterruptedWarning, match="the search was stopped"):
        found = search(2, stop).fit(*data)
    assert found.interrupted_
    assert len(found.cv_results_["family"]) < len(near.cv_results_["family"])
    assert not search(2).fit(*data).interrupted_


def test_a_large_array_is_sent_once(ray, pool, monkeypatch):
    array = np.zeros(1 << 20)
    put, sent = ray.put, []
    monkeypatch.setattr(ray, "put", lambda value: sent.append(value) or put(value))
    sums = Parallel(n_jobs=2)(delayed(lambda a, b: float(a.sum()) + b)(array, i) for i in range(6))
    assert sums == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert len([value for value in sent if value is array]) == 1


def test_an_error_comes_back_as_it_is(pool):
    def fail():
        raise InvalidInputError("not like this.")

    with pytest.raises(InvalidInputError, match="not like this"):
        Parallel(n_jobs=2)(delayed(fail)() for _ in range(3))
    assert Parallel(n_jobs=2)(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]
    assert set(Parallel(n_jobs=1)(delayed(os.getpid)() for _ in range(2))) == {os.getpid()}


def test_a_comparison_on_ray_is_that_of_one_machine(ray, tmp_path):
    log = write_outcomes(make_columns(150, prices=True), tmp_path / "log.parquet")
    words = f"compare {log} --splits 2 --method mild --method ce --cv 2 --json".split()

    def compared(*more):
        done = CliRunner().invoke(build_app(), [*words, *more])
        assert done.exit_code == 0, done.stderr
        result = json.loads(done.stdout)
        for row in result["methods"]:
            row.pop("seconds", None)
        return result

    assert compared("--engine", "ray", "--jobs", "2") == compared("--jobs", "1")
