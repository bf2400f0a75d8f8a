"""On Ray: the files, fits and searches of one process, whatever is killed meanwhile.

The tests share one cluster, which is why they share a file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from batch_cases import damage, make_vectors, write_file
from mild.artifact import load
from mild.batch import ray_connection
from mild.batch.ray_connection import connect
from mild.batch.routing import RoutingJob, route_dataset
from mild.cli.app import build_app
from mild.errors import (
    DataFileError,
    InvalidInputError,
    OutputExistsError,
)
from mild.routers.cost_models import KNNRouter
from mix_cases import QUERIES, mixed_router
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
        with connect() as module:
            yield module
    assert not module.is_initialized()


def actor_pids(name):
    """Processes of Ray that are actors of a class."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            title = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(f"ray::{name}".encode()):
            pids.append(int(entry.name))
    return pids


def invoke(*words):
    return CliRunner().invoke(build_app(), [str(word) for word in words])


def test_an_existing_connection_to_ray_is_used_and_stays_open(ray):
    assert ray.cluster_resources()["CPU"] == 2
    with connect() as inner:
        assert inner is ray
    assert ray.is_initialized()
    with (
        pytest.raises(InvalidInputError, match="connected to Ray already"),
        connect(ray.get_runtime_context().gcs_address),
    ):
        pass


# --- routing ---


@pytest.mark.usefixtures("ray", "_small_pieces")
def test_a_mix_decides_on_ray_as_on_one_machine(tmp_path):
    router = mixed_router()
    source = tmp_path / "queries.parquet"
    parquet.write_table(pa.table({"prompt": QUERIES}), source, row_group_size=20)
    route_dataset(router, str(source), str(tmp_path / "out"), engine="ray")
    chosen = parquet.read_table(tmp_path / "out")["expert"].to_pylist()
    assert chosen == router.route(QUERIES)


@pytest.mark.usefixtures("ray", "_small_pieces")
def test_both_engines_write_the_same_files(routed, tmp_path):
    here, table = routed(probabilities=True)
    there, other = routed(out="ray", engine="ray", probabilities=True)
    assert other["id"].to_pylist() == list(range(400))
    assert other.equals(table)
    assert there.as_dict() == here.as_dict()
    for file in (tmp_path / "out").iterdir():
        assert (tmp_path / "ray" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.usefixtures("ray", "_small_pieces")
def test_an_error_on_a_worker_is_reported_and_nothing_is_left(routed, dataset, nothing_is_left):
    damage(dataset / "1.parquet")
    with pytest.raises(
        DataFileError, match=r"^\S*1\.parquet: it cannot be read from row 51 on"
    ) as caught:
        routed(engine="ray")
    assert "\n" not in str(caught.value)
    assert caught.value.code == "invalid_data_file"
    nothing_is_left()


@pytest.mark.usefixtures("ray")
def test_bad_rows_are_those_of_one_process(routed, tmp_path):
    X = make_vectors(100)
    X[7, 2] = np.nan
    file = write_file(tmp_path / "holes.parquet", X)
    summaries = []
    for engine in ("local", "ray"):
        summary, table = routed(source=file, out=engine, engine=engine, skip_bad=True)
        assert table["id"].to_pylist() == [i for i in range(100) if i != 7]
        summaries.append(summary.as_dict())
    assert summaries[0] == summaries[1]
    assert summaries[0]["rows_without_a_query"] == 1


@pytest.mark.usefixtures("ray")
def test_an_existing_output_is_refused_before_anything_is_routed(routed):
    routed()
    done = []
    with pytest.raises(OutputExistsError, match="exists; choose another folder"):
        routed(engine="ray", progress=lambda *said: done.append(said))
    assert done == []


@pytest.fixture
def slow_dataset(tmp_path, monkeypatch):
    """A router that takes a while for each of the 24 pieces of a data set, and the data set."""
    monkeypatch.setattr("mild.batch.parquet_files.PIECE_ROWS", 1)
    from mild.artifact import save

    rng = np.random.default_rng(0)
    X = make_vectors(4000, 1)
    router = load(save(KNNRouter(n_neighbors=5).fit(X, rng.random((4000, 3))), tmp_path / "router"))
    for number in range(4):
        file = tmp_path / "data" / f"{number}.parquet"
        write_file(file, make_vectors(6000, number), 6000 * number, group=1000)
    return router, str(tmp_path / "data")


@pytest.mark.usefixtures("ray")
def test_no_rows_are_lost_when_a_worker_is_killed(slow_dataset, tmp_path):
    router, data = slow_dataset
    route_dataset(router, data, str(tmp_path / "wanted"), keep=["id"])
    killed = []

    def kill(done, total, text):
        if done < total and len(killed) < 2:
            pid = actor_pids("ValueActor")[0]
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    out = str(tmp_path / "out")
    summary = route_dataset(router, data, out, keep=["id"], engine="ray", progress=kill)
    assert len(killed) == 2
    assert summary.rows == 24_000
    assert parquet.read_table(out).equals(parquet.read_table(tmp_path / "wanted"))


@pytest.mark.usefixtures("ray")
def test_an_interrupt_ends_the_workers_and_leaves_nothing(slow_dataset, tmp_path):
    router, data = slow_dataset

    def interrupt(done, total, text):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        route_dataset(router, data, str(tmp_path / "out"), engine="ray", progress=interrupt)
    wait_until(lambda: not actor_pids("ValueActor"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "router"]


def test_a_worker_that_dies_again_and_again_is_an_error_of_one_sentence(
    ray, routed, monkeypatch, nothing_is_left
):
    monkeypatch.setattr(ray_connection, "RETRIES", 1)

    def die(self, number):
        os._exit(1)

    monkeypatch.setattr(RoutingJob, "route_piece", die)
    # Workers take the class from this process, not from its module.
    ray.cloudpickle.register_pickle_by_value(sys.modules["mild.batch.routing"])
    try:
        with pytest.raises(DataFileError, match=r"a worker of the Ray cluster was lost \(\w+\), 2"):
            routed(engine="ray")
    finally:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules["mild.batch.routing"])
    nothing_is_left()


def test_a_cluster_without_a_free_processor_is_not_waited_for_forever(ray, routed, monkeypatch):
    monkeypatch.setattr(ray_connection, "START_SECONDS", 2.0)
    hog = ray.remote(num_cpus=2)(threading.Event).remote()
    ray.get(hog.is_set.remote())
    try:
        with pytest.raises(InvalidInputError, match=r"no worker has started .* within 2 s"):
            routed(engine="ray")
    finally:
        ray.kill(hog)


def test_an_address_that_does_not_answer_leaves_nothing_behind(routed, nothing_is_left):
    with pytest.raises(InvalidInputError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 "):
        routed(engine="ray", address="127.0.0.1:1")
    nothing_is_left()


def test_the_command_uses_a_cluster_and_ray_says_nothing(ray, slow_dataset, tmp_path):
    _, data = slow_dataset
    command = [sys.executable, "-m", "mild", "route", tmp_path / "router", data, "--keep", "id"]
    command += ["--out", tmp_path / "out", "--engine", "ray"]
    command += ["--address", ray.get_runtime_context().gcs_address]
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("24,000 rows in 4 files")
    for word in ("Actor", "ray.", "Ray", "INFO", "WARNING", "core_worker"):
        assert word not in done.stdout.replace(str(tmp_path), "")
    assert parquet.read_table(tmp_path / "out")["id"].to_pylist() == list(range(24_000))
