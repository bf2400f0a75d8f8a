"""Datasets in, routed parts out."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from batch_cases import NAMES, WIDTH, make_vectors, write_file
from mild.artifact import load, save
from mild.distributed.batch import BatchOptions, route_dataset
from mild.errors import DataFileError, OutputExistsError
from mild.features import VectorFeatures
from mild.routers.linear import LinearRouter


def test_every_row_gets_the_expert_of_the_router_in_the_order_of_the_input(routed, expected):
    for name in ("argmax", "linear", "regression"):
        summary, table = routed(name, out=name)
        assert table["id"].to_pylist() == list(range(400))
        assert table["expert"].to_pylist() == expected(name)
        assert summary.rows == 400
        assert summary.counts == {expert: expected(name).count(expert) for expert in NAMES}
        assert sum(summary.shares.values()) == pytest.approx(1)


def test_a_partition_is_a_range_of_row_groups_with_a_file_of_its_own(routed, tmp_path):
    summary, _ = routed(size=1)
    files = sorted(file.name for file in (tmp_path / "out").glob("part-*"))
    assert summary.partitions == 16
    assert files == [f"part-{number:06d}.parquet" for number in range(16)]
    assert {parquet.read_metadata(tmp_path / "out" / file).num_rows for file in files} == {25}
    whole, _ = routed(out="whole", size=2**30)
    assert whole.partitions == 4


def test_the_rows_do_not_depend_on_partitions_workers_or_what_else_is_asked_for(routed):
    _, table = routed()
    for place, more in enumerate(
        ({"size": 2**30}, {"workers": 1}, {"workers": 3}, {"probabilities": True})
    ):
        _, other = routed(out=f"out{place}", **more)
        assert other.select(["id", "expert"]).equals(table)


def test_the_rows_do_not_depend_on_how_vectors_are_stored(tmp_path):
    X = np.concatenate([make_vectors(100, number) for number in range(4)])
    costs = np.random.default_rng(7).random((400, 3)) * (X[:, :3] > 0)
    text = VectorFeatures(WIDTH, "embedding")
    router = save(LinearRouter().fit(X, costs), tmp_path / "router", expert_names=NAMES, text=text)
    for number in range(4):
        write_file(tmp_path / "one" / f"{number}.parquet", make_vectors(100, number))
        file = write_file(tmp_path / "mixed" / f"{number}.parquet", make_vectors(100, number))
        if number == 1:
            write_file(file, make_vectors(100, 1), kind="bytes")
        elif number > 1:
            kind = pa.list_(pa.float64()) if number == 2 else pa.large_list(pa.float32())
            table = parquet.read_table(file)
            lists = pa.array(table["embedding"].to_pylist(), kind)
            parquet.write_table(table.set_column(1, "embedding", lists), file)
    options = BatchOptions(keep=("id",), probabilities=True)
    for name in ("one", "mixed"):
        route_dataset(router, str(tmp_path / name), str(tmp_path / f"out-{name}"), options)
    one, mixed = (parquet.read_table(tmp_path / f"out-{name}") for name in ("one", "mixed"))
    assert len(one) == 400
    assert len(one["expert"].unique()) > 1
    assert mixed.equals(one)


def test_vectors_that_are_all_missing_in_a_file_have_no_expert(routed, dataset, expected):
    nothing = pa.table({"id": [400, 401], "embedding": pa.nulls(2)})
    parquet.write_table(nothing, dataset / "9.parquet")
    summary, table = routed()
    assert table["expert"].to_pylist() == [*expected(), None, None]
    assert summary.bad == 2


def test_a_complete_output_says_what_it_came_to_and_holds_nothing_else(routed, tmp_path):
    summary, _ = routed()
    written = json.loads((tmp_path / "out" / "_SUCCESS").read_text())
    assert written["rows"] == 400
    assert written["counts"] == summary.counts
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert {name for name in names if not name.startswith("part-")} == {
        "_SUCCESS",
        "_manifest.json",
    }


def test_a_rerun_does_nothing_twice(routed, tmp_path):
    first, table = routed()
    before = {f.name: f.stat().st_mtime_ns for f in (tmp_path / "out").glob("part-*")}
    again, same = routed()
    assert (first.skipped, again.skipped) == (0, 16)
    assert again.counts == first.counts
    assert same.equals(table)
    assert {f.name: f.stat().st_mtime_ns for f in (tmp_path / "out").glob("part-*")} == before


def test_what_is_missing_cut_off_or_of_another_job_is_done_again(routed, tmp_path):
    _, table = routed()
    out = tmp_path / "out"
    (out / "part-000003.parquet").unlink()
    content = (out / "part-000005.parquet").read_bytes()
    (out / "part-000005.parquet").write_bytes(content[: len(content) // 2])
    other = parquet.read_table(out / "part-000007.parquet").replace_schema_metadata({})
    parquet.write_table(other, out / "part-000007.parquet")
    again, same = routed()
    assert again.skipped == 13
    assert same.equals(table)


def test_another_router_input_or_option_is_refused_unless_it_may_overwrite(routed, dataset):
    routed()
    with pytest.raises(OutputExistsError, match=r"another router .*overwrite"):
        routed("regression")
    with pytest.raises(OutputExistsError, match="other options"):
        routed(keep=())
    summary, _ = routed("regression", overwrite=True)
    assert summary.skipped == 0
    info = (dataset / "2.parquet").stat()
    os.utime(dataset / "2.parquet", ns=(info.st_atime_ns, info.st_mtime_ns + 1_000_000))
    with pytest.raises(OutputExistsError, match="its files were changed since"):
        routed("regression")
    write_file(dataset / "4.parquet", make_vectors(10, 5))
    with pytest.raises(OutputExistsError, match=r"another input .*overwrite"):
        routed("regression")
    summary, table = routed("regression", size=2**30, overwrite=True)
    assert summary.partitions == 5
    assert table.num_rows == 410


def test_files_folders_patterns_and_addresses_are_the_same_input(
    routed, routers, dataset, tmp_path
):
    _, table = routed()
    out = f"file://{tmp_path}/at/an/address"
    route_dataset(routers(), str(dataset), out, BatchOptions(keep=("id",), partition_bytes=1))
    assert parquet.read_table(tmp_path / "at" / "an" / "address").equals(table)
    for place, source in enumerate(
        (f"{dataset}/*.parquet", f"file://{dataset}", f"{dataset}/[0-3].parquet")
    ):
        _, other = routed(out=f"out{place}", source=source)
        assert other.equals(table)
    _, one = routed(out="one", source=dataset / "1.parquet")
    assert one["id"].to_pylist() == list(range(100, 200))


def test_columns_of_numbers_are_found_by_name(routed, expected, tmp_path):
    X = np.concatenate([make_vectors(100, number) for number in range(4)])
    columns = {f"f_{place}": X[:, place] for place in range(WIDTH)}
    parquet.write_table(pa.table({"id": np.arange(400), **columns}), tmp_path / "wide.parquet")
    _, table = routed(source=tmp_path / "wide.parquet", features="f_*")
    assert table["expert"].to_pylist() == expected()
    with pytest.raises(DataFileError, match="the 4 columns that the router was fitted with; got 5"):
        routed(source=tmp_path / "wide.parquet", features="*", out="other")


def test_probabilities_and_expected_costs_are_those_of_the_router(routed, routers):
    X = np.concatenate([make_vectors(100, number) for number in range(4)])
    for name in ("linear", "regression"):
        router = load(routers(name))
        _, table = routed(name, out=name, probabilities=True)
        found = np.column_stack([table[f"p__{expert}"] for expert in NAMES])
        np.testing.assert_allclose(found, router.predict_proba(X), rtol=1e-4, atol=1e-6)
        known = [column for column in table.column_names if column.startswith("expected_cost__")]
        assert bool(known) == (name == "regression")
    costs = np.column_stack([table[f"expected_cost__{expert}"] for expert in NAMES])
    np.testing.assert_allclose(costs, router.expected_costs(X), rtol=1e-4, atol=1e-6)


def test_an_interrupted_job_goes_on_where_it_was(routed, tmp_path):
    def interrupt(done, total, text):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        routed(workers=1, progress=interrupt)
    out = tmp_path / "out"
    assert len(list(out.glob("part-*"))) == 3
    assert not (out / "_SUCCESS").exists()
    summary, table = routed()
    assert summary.skipped == 3
    shutil.rmtree(out)
    assert routed()[1].equals(table)


def test_a_second_job_on_the_same_output_is_refused_and_harms_nothing(routed, tmp_path):
    refused = []

    def intrude(done, total, text):
        if done == 3:
            with pytest.raises(OutputExistsError, match=f"process {os.getpid()} on ") as caught:
                routed("argmax", overwrite=True)
            refused.append(caught.value)

    summary, table = routed(workers=1, progress=intrude)
    assert refused
    assert (summary.rows, summary.skipped) == (400, 0)
    assert routed(out="other")[1].equals(table)
