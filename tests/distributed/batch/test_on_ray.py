"""Both engines write the same files, whatever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow.parquet as parquet
import pytest

from batch_cases import damage, make_vectors, running_tasks, write_file
from mild.distributed import ray_connection
from mild.distributed.batch import route_dataset
from mild.errors import DataFileError, InvalidInputError

pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.slow


def until(condition):
    for _ in range(1500):
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_both_engines_give_the_same_files(ray, routed, tmp_path):
    here, table = routed()
    there, other = routed(out="ray", engine="ray")
    assert other.equals(table)
    assert (there.counts, there.partitions) == (here.counts, here.partitions)
    for file in (tmp_path / "out").glob("part-*"):
        assert (tmp_path / "ray" / file.name).read_bytes() == file.read_bytes()


def test_one_engine_goes_on_where_the_other_was_ended(ray, routed, tmp_path):
    _, table = routed(engine="ray")
    for number in (2, 5):
        (tmp_path / "out" / f"part-{number:06d}.parquet").unlink()
    summary, same = routed()
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
    assert until(lambda: not running_tasks())


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
    assert until(lambda: not running_tasks())
    assert [file.name for file in out.iterdir()] == ["_manifest.json"]


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_killed_driver_is_followed_by_one_that_goes_on(slow_job, tmp_path, engine):
    run, wanted, folder = slow_job
    out = tmp_path / "out"
    code = (
        "import sys, time\n"
        "from mild.distributed.batch import BatchOptions, route_dataset\n"
        "route_dataset(*sys.argv[1:4], BatchOptions(keep=('id',), partition_bytes=1), "
        "engine=sys.argv[4], workers=1, progress=lambda *words: time.sleep(0.05))"
    )
    words = [str(folder / "router"), str(folder / "data"), str(out), engine]
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
