"""A folder of Parquet files is routed: on one machine, on a Ray with two workers, and by commands.

Every row must come out once, with its own columns and the expert that the router would have named for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mild
from journeys import adapter
from journeys.world import EXPERTS, PRICE_WEIGHT, log, share_of_best
from mild.errors import DataFileError, MildError, OutputExistsError
from waiting import wait_until

TESTS = Path(__file__).parents[1]
MILD = Path(sys.executable).with_name("mild")
COLUMNS = ["id", "kind", "when", "scores"]
LONGEST = 300
# Seconds for all that Ray does.
LONGEST_ON_RAY = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a router, another one, and a data set of three files with several pieces each."""
    folder = tmp_path_factory.mktemp("batch")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(log(61, 300))
    mild.fit(table, "linear", price_weight=PRICE_WEIGHT).save(folder / "router")
    mild.fit(table, "constant").save(folder / "constant")
    (folder / "data").mkdir()
    for number in range(3):
        asked = log(62 + number, 120)
        columns = {
            "id": np.arange(120) + 120 * number,
            "query": asked["query"],
            "kind": asked["kind"],
            "when": pa.array(np.arange(120) * 3600, pa.timestamp("s", "UTC")),
            "scores": pa.array(rng.random((120, 2)).tolist(), pa.list_(pa.float64())),
        }
        file = folder / "data" / f"{number}.parquet"
        pq.write_table(pa.table(columns), file, row_group_size=50)
    return folder


@pytest.fixture(scope="module")
def router(folder):
    return mild.load(folder / "router")


def rows_of(folder):
    """Rows of all files of a folder, in the order of their names."""
    files = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


def assert_routed(out, source, router):
    """Whether each row of the source is in the output once, with its columns and the right expert."""
    given, found = rows_of(source), rows_of(out)
    assert found.column_names == [*COLUMNS, "expert"]
    assert found["id"].to_pylist() == list(range(len(given)))
    assert found.select(COLUMNS).equals(given.select(COLUMNS))
    chosen = found["expert"].to_pylist()
    assert chosen == router.route(given["query"].to_pylist())
    assert set(chosen) <= set(EXPERTS)


def test_every_row_of_a_folder_is_routed_once(folder, router, tmp_path):
    out = tmp_path / "out"
    told = []
    adapter.route_dataset(
        router, folder / "data", out, COLUMNS, progress=lambda *words: told.append(words[:2])
    )
    assert_routed(out, folder / "data", router)
    done, total = told[-1]
    assert done == total
    routed = rows_of(out).to_pydict()
    assert share_of_best(routed, routed["expert"]) > 0.8

    # An output is replaced as a whole, and only if told.
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    constant = mild.load(folder / "constant")
    with pytest.raises(OutputExistsError):
        adapter.route_dataset(constant, folder / "data", out, COLUMNS)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    adapter.route_dataset(constant, folder / "data", out, COLUMNS, overwrite=True)
    assert_routed(out, folder / "data", constant)
    # A folder with something else is never replaced.
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputExistsError):
        adapter.route_dataset(router, folder / "data", out, COLUMNS, overwrite=True)
    assert (out / "notes.txt").read_text(encoding="utf-8") == "mine"


def damage_rows(file):
    """Zeros amid the queries of the second piece of a file."""
    content = bytearray(file.read_bytes())
    metadata = pq.read_metadata(file)
    place = metadata.schema.names.index("query")
    start = metadata.row_group(1).column(place).data_page_offset
    content[start : start + 40] = bytes(40)
    file.write_bytes(content)


def cut_off(file):
    file.write_bytes(file.read_bytes()[:-100])


def rename_query(file):
    table = pq.read_table(file)
    columns = ["text" if name == "query" else name for name in table.column_names]
    pq.write_table(table.rename_columns(columns), file)


@pytest.mark.parametrize("spoil", [damage_rows, cut_off, rename_query])
def test_nothing_half_written_stays_when_a_file_is_damaged(spoil, folder, router, tmp_path):
    source = tmp_path / "data"
    source.mkdir()
    for file in (folder / "data").iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    spoil(source / "2.parquet")
    with pytest.raises(DataFileError) as caught:
        adapter.route_dataset(router, source, tmp_path / "out", COLUMNS)
    assert caught.value.code == "invalid_data_file"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    # What was there before stays as it was.
    adapter.route_dataset(router, folder / "data", tmp_path / "out", COLUMNS)
    with pytest.raises(DataFileError):
        adapter.route_dataset(router, source, tmp_path / "out", COLUMNS, overwrite=True)
    assert_routed(tmp_path / "out", folder / "data", router)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "out"}


def test_an_output_inside_the_input_is_refused(folder, router):
    before = sorted((folder / "data").iterdir())
    with pytest.raises(MildError):
        adapter.route_dataset(router, folder / "data", folder / "data" / "out", COLUMNS)
    assert sorted((folder / "data").iterdir()) == before


# Ray.

# Two workers; mild uses the connection that there is.
ON_RAY = """
import sys
import ray
from journeys import adapter
import mild

ray.init(
    num_cpus=2,
    _node_ip_address="127.0.0.1",
    include_dashboard=False,
    object_store_memory=128 << 20,
    log_to_driver=False,
)
assert ray.cluster_resources()["CPU"] == 2
router, source, out, *columns = sys.argv[1:]
adapter.route_dataset(mild.load(router), source, out, columns, engine="ray")
ray.shutdown()
"""


def processes_of(home):
    """Processes that run with this HOME, by their id."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
                is_zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if f"HOME={home}".encode() in variables and not is_zombie:
                found.append(int(entry.name))
    return found


@pytest.fixture
def home():
    """A home of its own, and no process of it at the end. The names of Ray's sockets must be short."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as home:
        yield home
        for number in processes_of(home):
            os.kill(number, signal.SIGKILL)
        wait_until(lambda: not processes_of(home))


@pytest.mark.slow
def test_two_workers_of_ray_write_what_one_process_writes(folder, router, home, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed")
    script = tmp_path / "on_ray.py"
    script.write_text(ON_RAY, encoding="utf-8")
    path = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, script, folder / "router", folder / "data", tmp_path / "ray", *COLUMNS],
        env={
            **os.environ,
            "HOME": home,
            "RAY_TMPDIR": home,
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": os.pathsep.join(path),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=LONGEST_ON_RAY)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, said
    assert_routed(tmp_path / "ray", folder / "data", router)
    adapter.route_dataset(router, folder / "data", tmp_path / "here", COLUMNS)
    assert rows_of(tmp_path / "ray").equals(rows_of(tmp_path / "here"))
    # Ray ends with the process that started it.
    wait_until(lambda: not processes_of(home))


# Commands.


def run(folder, words, given=None, code=0):
    done = subprocess.run(
        [MILD, *words],
        cwd=folder,
        input=given,
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_lines_in_lines_out(folder, router, tmp_path):
    texts = [" ".join(text.split()) for text in rows_of(folder / "data")["query"].to_pylist()]
    expected = router.route(texts)
    (tmp_path / "questions.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    words = adapter.route(str(folder / "router"), "questions.txt")
    assert adapter.read_routes(run(tmp_path, words)) == expected
    lines = "".join(f"{json.dumps({'say': text})}\n" for text in texts)
    words = [*adapter.route(str(folder / "router")), adapter.QUERY, "say"]
    assert adapter.read_routes(run(tmp_path, words, lines)) == expected
    # A line without a query is an error, and the router of a folder that is not there, too.
    run(tmp_path, words, lines + '{"say": 3\n', code=1)
    run(tmp_path, adapter.route("nowhere", "questions.txt"), code=1)


def test_files_in_files_out(folder, router, tmp_path):
    words = adapter.route_files(
        str(folder / "router"), str(folder / "data"), str(tmp_path / "out"), COLUMNS
    )
    run(tmp_path, words)
    assert_routed(tmp_path / "out", folder / "data", router)
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    run(tmp_path, words, code=1)
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before
    run(tmp_path, [*words, "--overwrite"])
    assert_routed(tmp_path / "out", folder / "data", router)
