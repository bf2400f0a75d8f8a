"""Both engines write the same files, whatever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

from batch_cases import make_vectors, write_file
from mild.artifact import save
from mild.batch import BatchOptions, route_dataset
from mild.engines import connect
from mild.exceptions import DataFileError, InvalidInputError
from mild.routers.nearest import KNNRouter

pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ray():
    """A Ray of two workers for all tests of this file."""
    with connect(workers=2) as module:
        yield module


@pytest.fixture(scope="module")
def slow_job(tmp_path_factory):
    """A router and a dataset of 24 partitions, each of which takes a while."""
    folder = tmp_path_factory.mktemp("slow")
    rng = np.random.default_rng(0)
    X = make_vectors(4000, 1)
    save(KNNRouter(n_neighbors=5).fit(X, rng.random((4000, 3))), folder / "router")
    for number in range(4):
        write_file(
            folder / "data" / f"{number}.parquet",
            make_vectors(6000, number),
            6000 * number,
            group=1000,
        )
    options = BatchOptions(keep=("id",), partition_bytes=1)

    def run(out, **more):
        return route_dataset(
            folder / "router", str(folder / "data"), str(out), options, **{"workers": 2, **more}
        )

    run(folder / "wanted")
    return run, parquet.read_table(folder / "wanted"), folder


def running_tasks():
    """Processes of Ray, below this one, that are routing a partition."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            title = (entry / "cmdline").read_bytes()
            below = _is_below(int(entry.name), os.getpid())
        except (OSError, ValueError):
            continue
        if title.startswith(b"ray::route_task") and below:
            found.append(int(entry.name))
    return found


def _is_below(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
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
    file = dataset / "1.parquet"
    content = bytearray(file.read_bytes())
    start = parquet.read_metadata(file).row_group(2).column(1).data_page_offset
    content[start : start + 30] = bytes(30)
    file.write_bytes(bytes(content))
    with pytest.raises(
        DataFileError, match=r"^\S*1\.parquet: it cannot be read at row 50"
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


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_killed_driver_is_followed_by_one_that_goes_on(slow_job, tmp_path, engine):
    run, wanted, folder = slow_job
    out = tmp_path / "out"
    code = (
        "import sys, time\n"
        "from mild.batch import BatchOptions, route_dataset\n"
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
