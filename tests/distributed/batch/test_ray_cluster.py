"""A Ray that others use as well: what is waited for, how much is taken, and what is said."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time

import pyarrow.parquet as parquet
import pytest

from batch_cases import damage, running_tasks

pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.slow


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


def test_another_process_of_a_cluster_is_limited_by_jobs_and_told_errors(ray, slow_job, tmp_path):
    _, wanted, folder = slow_job
    address = ray.get_runtime_context().gcs_address
    words = ["--address", address, "--jobs", 1, "--keep", "id"]
    code, said = route(folder, tmp_path / "out", *words)
    assert code == 0, said
    assert re.match(r"24,000 rows in 4 parts *\n", said), said
    assert parquet.read_table(tmp_path / "out").equals(wanted)
    file = tmp_path / "copy" / "data" / "0.parquet"
    file.parent.mkdir(parents=True)
    (tmp_path / "copy" / "router").symlink_to(folder / "router")
    shutil.copy(folder / "data" / "0.parquet", file)
    damage(file)
    code, said = route(tmp_path / "copy", tmp_path / "no", *words)
    assert code == 1
    assert re.fullmatch(r"error: \S*0\.parquet: it cannot be read from row 1 on; [^\n]*\n", said)
