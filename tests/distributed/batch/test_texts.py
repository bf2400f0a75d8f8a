"""Routers that read queries: columns are joined as when they learned, on one core or on several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from mild.artifact import load, save
from mild.data.queries import Recipe
from mild.distributed.batch import BatchOptions, route_dataset, run
from mild.errors import DataFileError, InvalidInputError
from mild.features import HashingFeatures
from mild.routers.linear import LinearRouter
from outcome_cases import EXPERTS, make_columns

COLUMNS = make_columns(120, 3)


def saved(folder, recipe):
    texts = COLUMNS["prompt"]
    features = HashingFeatures().fit(texts)
    costs = np.column_stack([1 - COLUMNS[f"correct__{name}"] for name in EXPERTS])
    router = LinearRouter(decision="argmax").fit(features.transform(texts), costs)
    notes = {"query": recipe.as_dict()} if recipe else {}
    return save(router, folder, expert_names=EXPERTS, text=features, notes=notes)


def routed(router, source, out, workers=1, **more):
    options = BatchOptions(partition_bytes=1, **more)
    route_dataset(router, str(source), str(out), options, workers=workers)
    return parquet.read_table(out)["expert"].to_pylist()


def names(router, texts):
    return [EXPERTS[k] for k in load(router).predict_texts(texts)]


def test_queries_are_made_by_the_recipe_of_the_router(tmp_path):
    router = saved(tmp_path / "router", Recipe(("question",), ("A", "B")))
    table = pa.table(
        {"question": COLUMNS["prompt"], "A": ["salt"] * 120, "B": [None, "verse"] * 60}
    )
    parquet.write_table(table, tmp_path / "q.parquet", row_group_size=50)
    wanted = names(
        router,
        [
            f"{q}\nA. salt" + ("\nB. verse" if i % 2 else "")
            for i, q in enumerate(COLUMNS["prompt"])
        ],
    )
    assert routed(router, tmp_path / "q.parquet", tmp_path / "out") == wanted
    parquet.write_table(table.select(["question"]), tmp_path / "bare.parquet")
    with pytest.raises(DataFileError, match="without its choices"):
        routed(router, tmp_path / "bare.parquet", tmp_path / "no")
    alone = routed(router, tmp_path / "bare.parquet", tmp_path / "yes", query="question")
    assert alone == names(router, COLUMNS["prompt"])


def test_processes_give_the_same_rows_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "PROCESS_BYTES", 0)
    router = saved(tmp_path / "router", None)
    parquet.write_table(
        pa.table({"prompt": COLUMNS["prompt"]}), tmp_path / "q.parquet", row_group_size=30
    )
    one = routed(router, tmp_path / "q.parquet", tmp_path / "one")
    assert one == names(router, COLUMNS["prompt"])
    assert routed(router, tmp_path / "q.parquet", tmp_path / "two", workers=2) == one


def test_texts_may_be_stored_in_several_ways(tmp_path):
    router = saved(tmp_path / "router", Recipe(("prompt",)))
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.null()]
    (tmp_path / "mixed").mkdir()
    for number, kind in enumerate(kinds):
        texts = [None] * 30 if kind == pa.null() else COLUMNS["prompt"][30 * number :][:30]
        table = pa.table({"prompt": pa.array(texts, kind)})
        parquet.write_table(table, tmp_path / "mixed" / f"{number}.parquet")
    wanted = names(router, COLUMNS["prompt"][:90]) + [None] * 30
    assert routed(router, tmp_path / "mixed", tmp_path / "out") == wanted
    with pytest.raises(DataFileError, match=r"1\.parquet: .*large_string, but string .* kept"):
        routed(router, tmp_path / "mixed", tmp_path / "kept", keep=("prompt",))


def test_a_row_without_a_text_has_no_expert(tmp_path):
    router = saved(tmp_path / "router", Recipe(("prompt",)))
    parquet.write_table(pa.table({"prompt": ["boil salt", None, ""]}), tmp_path / "q.parquet")
    found = routed(router, tmp_path / "q.parquet", tmp_path / "out")
    assert found[1] is None
    assert found[0] == names(router, ["boil salt"])[0]
    assert found[2] == names(router, [""])[0]


def test_columns_that_are_missing_or_no_text_are_named(tmp_path):
    router = saved(tmp_path / "router", Recipe(("prompt",)))
    parquet.write_table(pa.table({"other": ["a"], "prompt": [1]}), tmp_path / "numbers.parquet")
    parquet.write_table(pa.table({"other": ["a"]}), tmp_path / "missing.parquet")
    with pytest.raises(DataFileError, match="'prompt' holds int64"):
        routed(router, tmp_path / "numbers.parquet", tmp_path / "out")
    with pytest.raises(
        DataFileError, match=r"'prompt', which is a part of .*; found the columns other\. .*--query"
    ):
        routed(router, tmp_path / "missing.parquet", tmp_path / "out")
    with pytest.raises(InvalidInputError, match="takes texts"):
        routed(router, tmp_path / "missing.parquet", tmp_path / "out", vectors="other")
    assert routed(router, tmp_path / "missing.parquet", tmp_path / "out", query="other")


def test_a_killed_process_is_said_in_a_sentence_and_what_is_finished_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "PROCESS_BYTES", 0)
    router = saved(tmp_path / "router", None)
    table = pa.table({"prompt": COLUMNS["prompt"] * 50})
    parquet.write_table(table, tmp_path / "q.parquet", row_group_size=300)
    options = BatchOptions(partition_bytes=1)

    def kill(done, total, text):
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)

    words = [router, str(tmp_path / "q.parquet"), str(tmp_path / "out"), options]
    with pytest.raises(DataFileError, match=r"a worker process died \(BrokenProcessPool\)"):
        route_dataset(*words, workers=2, progress=kill)
    summary = route_dataset(*words, workers=1)
    assert 1 <= summary.skipped < 20
    found = parquet.read_table(tmp_path / "out")["expert"].to_pylist()
    assert found == names(router, COLUMNS["prompt"]) * 50


# Routes with two processes, and is killed when the first part is done.
KILLED = """
import os, signal, sys
from mild.distributed.batch import BatchOptions, route_dataset, run

def kill(done, total, text):
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    run.PROCESS_BYTES = 0
    route_dataset(*sys.argv[1:], BatchOptions(partition_bytes=1), workers=2, progress=kill)
"""


def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    router = saved(tmp_path / "router", None)
    table = pa.table({"prompt": COLUMNS["prompt"] * 50})
    parquet.write_table(table, tmp_path / "q.parquet", row_group_size=300)
    (tmp_path / "killed.py").write_text(KILLED)
    words = [router, tmp_path / "q.parquet", tmp_path / "out"]
    command = [sys.executable, tmp_path / "killed.py", *words]
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE) as parent:
        # The end of its output is that of everybody who could write there: the parent and its processes.
        assert parent.communicate(timeout=120) == (b"", None)
    assert parent.returncode == -signal.SIGKILL
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("part-*")}
    assert 1 <= len(before) < 20
    assert routed(router, *words[1:]) == names(router, COLUMNS["prompt"]) * 50
    after = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("part-*")}
    assert {name: after[name] for name in before} == before
