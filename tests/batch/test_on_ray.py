"""On Ray: the files, fits and searches of one process, whatever is killed meanwhile.

The tests share one cluster, which is why they share a file.
"""

from __future__ import annotations

import json
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
from joblib import Parallel, delayed
from typer.testing import CliRunner

from batch_cases import damage, make_vectors, write_file
from mild.artifact import load
from mild.batch import fitting, ray_connection
from mild.batch.fitting import fit_dataset
from mild.batch.joblib_ray import joblib_on_ray
from mild.batch.ray_connection import connect
from mild.batch.routing import RoutingJob, route_dataset
from mild.cli.app import build_app
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import (
    DataFileError,
    InvalidInputError,
    OutputExistsError,
    TuningInterruptedWarning,
    UnsupportedError,
)
from mild.routers.cost_models import KNNRouter
from mild.routers.linear import LinearRouter
from mild.routers.search import RouterCV
from mild.tuning.fit import fit_data
from mix_cases import QUERIES, mixed_router
from outcome_cases import make_columns, write_outcomes
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
    with connect(workers=3) as inner:
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


# --- fitting ---

NAMES = ["cat", "ant", "bee"]


def make_rows(n, kind):
    """Columns in which each expert does well in its own region; some cells are unknown."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n, 8)) * np.arange(1, 9) + 2).astype(np.float32)
    chance = 1 / (1 + np.exp(-((X - 2) / np.arange(1, 9))[:, :3] * 2))
    scores = (rng.random((n, 3)) < chance).astype(float)
    scores[rng.random((n, 3)) < 0.1] = np.nan
    columns = {f"correct__{name}": scores[:, k] for k, name in enumerate(NAMES)}
    columns |= {f"cost__{name}": np.full(n, 0.001 * (k + 1)) for k, name in enumerate(NAMES)}
    if kind == "vectors":
        return columns | {"embedding": list(X)}
    words = np.array(["sum", "poem", "law", "code", "tree", "river", "stone", "cloud"])
    prompts = [f"{' '.join(words[row > 2])} {number % 97}" for number, row in enumerate(X)]
    return columns | {"prompt": prompts, "split": np.where(np.arange(n) % 5, "train", "test")}


def write_shards(folder, columns, count=4, group=500):
    folder.mkdir()
    n = len(columns["correct__cat"])
    for number, rows in enumerate(np.array_split(np.arange(n), count)):
        part = {name: [values[row] for row in rows] for name, values in columns.items()}
        parquet.write_table(pa.table(part), folder / f"{number}.parquet", row_group_size=group)
    return str(folder)


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize(
    ("kind", "n", "options"),
    [
        ("vectors", 20_000, {}),
        ("vectors", 2_000, {"loss": "cwce"}),
        ("texts", 3_000, {"margins": [1.0, 2.0, 0.5]}),
    ],
)
def test_a_fit_on_shards_chooses_as_a_fit_in_memory(tmp_path, monkeypatch, kind, n, options):
    monkeypatch.setattr("mild.batch.parquet_files.PIECE_ROWS", 1000)
    folder = write_shards(tmp_path / "logs", make_rows(n, kind))
    terms = CostTerms({"bee": 0.05}, price_weight=10.0)
    there = fit_dataset(folder, LinearRouter(**options), terms)
    here = fit_data(read_outcomes(folder), LinearRouter(**options), terms)
    table = read_outcomes(folder)
    contents = table.vectors if kind == "vectors" else table.queries
    X = here.router.features(contents)
    np.testing.assert_allclose(there.router.features(contents), X, rtol=1e-5, atol=1e-5)
    scores = np.sort(here.router.decision_function(X), axis=1)
    same = there.router.predict(X) == here.router.predict(X)
    # Where two experts tie, rounding may decide.
    assert (same | (scores[:, -1] - scores[:, -2] < 1e-4)).all()
    assert same.mean() > 0.999
    assert there.router.experts == here.router.experts
    np.testing.assert_array_equal(there.router.query_hashes, here.router.query_hashes)
    ours, theirs = there.router.info, here.router.info
    for name in ("query", "cost", "constant", "mean_scores", "estimator"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.data.rows == theirs.data.rows
    assert ours.table.explanation == theirs.table.explanation


def test_a_worker_that_is_killed_in_the_middle_does_not_change_the_result(
    ray, tmp_path, monkeypatch
):
    monkeypatch.setattr("mild.batch.parquet_files.PIECE_ROWS", 1000)
    folder = write_shards(tmp_path / "logs", make_rows(20_000, "vectors"))
    expected = fit_dataset(folder, LinearRouter(), CostTerms()).router
    evaluate = fitting.ShardedObjective.__call__
    killed = []

    def kill_first(objective, W):
        if len(killed) < 2:
            pid = actor_pids("ValueActor")[0]
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        return evaluate(objective, W)

    monkeypatch.setattr(fitting.ShardedObjective, "__call__", kill_first)
    found = fit_dataset(folder, LinearRouter(), CostTerms()).router
    assert len(killed) == 2
    for name, tensor in expected.policy.state()[1].items():
        np.testing.assert_array_equal(found.policy.state()[1][name], tensor)
    wait_until(lambda: not actor_pids("ValueActor"))


@pytest.mark.usefixtures("ray")
def test_a_broken_shard_is_named_from_afar(tmp_path):
    columns = make_rows(300, "vectors")
    columns["embedding"] = [row.tolist() for row in columns["embedding"]]
    columns["embedding"][250] = [1.0]
    folder = write_shards(tmp_path / "logs", columns, count=3)
    with pytest.raises(DataFileError, match=r"2\.parquet: ") as caught:
        fit_dataset(folder, LinearRouter(), CostTerms())
    assert "\n" not in str(caught.value)


def test_what_cannot_be_fitted_on_ray_is_refused(tmp_path):
    folder = write_shards(tmp_path / "logs", make_rows(60, "vectors"))
    with pytest.raises(UnsupportedError, match="fits linear routers; got KNNRouter"):
        fit_dataset(folder, KNNRouter(), CostTerms())
    with pytest.raises(UnsupportedError) as caught:
        fit_dataset(folder, LinearRouter(norms="mean"), CostTerms())
    assert caught.value.parameter == "norms"
    constant = make_rows(60, "vectors")
    for name in NAMES:
        constant[f"correct__{name}"] = np.ones(60)
    folder = write_shards(tmp_path / "constant", constant)
    with pytest.raises(InvalidInputError, match="there is nothing to route"):
        fit_dataset(folder, LinearRouter(), CostTerms())
    long = pa.table({"prompt": ["a", "a"], "model": ["x", "y"], "score": [1.0, 0.0]})
    parquet.write_table(long, tmp_path / "long.parquet")
    with pytest.raises(DataFileError, match="one row per query"):
        fit_dataset(str(tmp_path / "long.parquet"), LinearRouter(), CostTerms())


@pytest.mark.usefixtures("ray")
def test_the_command_fits_on_ray(tmp_path):
    folder = write_shards(tmp_path / "logs", make_rows(600, "texts"))
    words = ["fit", folder, "--out", tmp_path / "router", "--engine", "ray"]
    done = invoke(*words, "--where", "split=train", "--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["rows"] == len(read_outcomes(folder, where="split=train"))
    assert result["training"]["summary"]["loss"] < result["training"]["summary"]["constant_loss"]
    assert load(tmp_path / "router").route(["sum 3"])[0] in NAMES
    for more, sentence in (
        (["--router", "knn"], "fits linear routers"),
        (["--address", "nowhere"], "address must be HOST:PORT"),
    ):
        refused = invoke(*words, "--overwrite", *more)
        assert refused.exit_code == 1
        assert sentence in refused.stderr


# --- searching ---


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
    return RouterCV(families=["linear", "ridge", "stack"], cv=2, n_jobs=n_jobs, progress=progress)


@pytest.fixture(scope="module")
def near(data):
    """The search of one process."""
    return search(1).fit(*data)


@pytest.mark.usefixtures("pool")
def test_results_are_those_of_one_process(data, near):
    told = []
    far = search(2, lambda done, total, _: told.append((done, total))).fit(*data)
    assert far.cv_results_ == near.cv_results_
    assert far.best_params_ == near.best_params_
    np.testing.assert_array_equal(far.predict(data[0]), near.predict(data[0]))
    # One by one, as they came, and not all at the end.
    assert len(told) > 3
    assert told[-1][0] == told[-1][1]


@pytest.mark.usefixtures("pool")
@pytest.mark.filterwarnings("ignore:.*tasks which were still being processed:UserWarning")
def test_an_interrupt_keeps_finished_fits_and_the_next_search_works(data, near):
    def stop(done, total, message):
        # By now both workers have answered, and some candidates are judged on every fold.
        if done > 0.7 * total:
            raise KeyboardInterrupt

    with pytest.warns(TuningInterruptedWarning, match="the search was stopped"):
        found = search(2, stop).fit(*data)
    assert found.interrupted_
    assert len(found.cv_results_["family"]) < len(near.cv_results_["family"])
    assert not search(2).fit(*data).interrupted_


@pytest.mark.usefixtures("pool")
def test_a_large_array_is_sent_once(ray, monkeypatch):
    array = np.zeros(1 << 20)
    put, sent = ray.put, []
    monkeypatch.setattr(ray, "put", lambda value: sent.append(value) or put(value))
    sums = Parallel(n_jobs=2)(delayed(lambda a, b: float(a.sum()) + b)(array, i) for i in range(6))
    assert sums == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert len([value for value in sent if value is array]) == 1


@pytest.mark.usefixtures("pool")
def test_an_error_comes_back_as_it_is():
    def fail():
        raise InvalidInputError("not like this.")

    with pytest.raises(InvalidInputError, match="not like this"):
        Parallel(n_jobs=2)(delayed(fail)() for _ in range(3))
    assert Parallel(n_jobs=2)(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]
    assert set(Parallel(n_jobs=1)(delayed(os.getpid)() for _ in range(2))) == {os.getpid()}


@pytest.mark.usefixtures("ray")
def test_a_comparison_on_ray_is_that_of_one_machine(tmp_path):
    log = write_outcomes(make_columns(150, prices=True), tmp_path / "log.parquet")
    words = f"compare {log} --n-splits 2 --methods mild --methods ce --json".split()

    def compared(*more):
        done = invoke(*words, *more)
        assert done.exit_code == 0, done.stderr
        result = json.loads(done.stdout)
        for row in result["methods"]:
            row.pop("seconds", None)
        return result

    assert compared("--engine", "ray", "--n-jobs", "2") == compared("--n-jobs", "1")
