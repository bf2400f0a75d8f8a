"""What cannot be routed is said in a sentence, by its file, and nothing is written by halves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from batch_cases import as_lists, make_vectors, write_file
from mild.errors import DataFileError, InvalidInputError, MildError, OutputExistsError


def test_a_folder_of_other_things_is_left_alone(routed, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years")
    with pytest.raises(OutputExistsError, match=r"thesis\.txt"):
        routed(overwrite=True)
    (out / "thesis.txt").rename(out / "part-000000.parquet")
    with pytest.raises(OutputExistsError, match="no _manifest"):
        routed()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputExistsError, match="must be a folder"):
        routed(out="file")


def test_an_output_within_the_input_is_refused(routed, dataset, tmp_path):
    with pytest.raises(InvalidInputError, match="must not lie within the input"):
        routed(out="data/routed")
    with pytest.raises(InvalidInputError, match="must not lie within the input"):
        routed(source=tmp_path / "*" / "*.parquet", out="out")
    assert not (dataset / "routed").exists()


def test_rows_without_a_vector_have_no_expert_or_are_left_out(routed, expected, tmp_path):
    X = make_vectors(100, 0)
    X[7, 2] = np.nan
    lists = as_lists(X, "lists").to_pylist()
    lists[11] = None
    table = pa.table(
        {"id": np.arange(100), "embedding": pa.array(lists, pa.list_(pa.float32(), 4))}
    )
    file = tmp_path / "holes.parquet"
    parquet.write_table(table, file)
    wanted = expected()[:100]
    for name in ("linear", "regression"):
        summary, found = routed(name, source=file, out=name, probabilities=True)
        assert summary.bad == 2
        assert summary.rows == 100
        assert [i for i, e in enumerate(found["expert"].to_pylist()) if e is None] == [7, 11]
        assert found["p__small"].null_count == 2
    summary, found = routed(source=file, out="less", skip_bad=True)
    assert found["id"].to_pylist() == [i for i in range(100) if i not in (7, 11)]
    assert found["expert"].to_pylist() == [e for i, e in enumerate(wanted) if i not in (7, 11)]
    assert (summary.rows, summary.bad) == (98, 2)
    again, _ = routed(source=file, out="less", skip_bad=True)
    assert (again.skipped, again.bad, again.counts) == (1, 2, summary.counts)


def test_a_corrupt_shard_is_named_and_what_is_finished_stays(routed, dataset, tmp_path):
    file = dataset / "2.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataFileError, match=r"2\.parquet: it is not a readable"):
        routed()
    assert not (tmp_path / "out").exists()
    damaged = bytearray(whole)
    start = parquet.ParquetFile(pa.BufferReader(whole)).metadata.row_group(1).column(1)
    place = start.data_page_offset
    damaged[place : place + 30] = bytes(30)
    file.write_bytes(bytes(damaged))
    with pytest.raises(DataFileError, match=r"2\.parquet: it cannot be read from row 26 on"):
        routed(workers=1)
    assert len(list((tmp_path / "out").glob("part-*"))) == 9
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert not list((tmp_path / "out").glob("_tmp*"))


def test_drift_between_shards_names_file_column_and_types(routed, dataset):
    file = write_file(dataset / "9.parquet", make_vectors(5))
    table = parquet.read_table(file)
    parquet.write_table(table.set_column(1, "embedding", pa.array(["x"] * 5)), file)
    with pytest.raises(
        DataFileError, match=r"9\.parquet: .*'embedding' must hold vectors, .*0\.parquet; .* text"
    ):
        routed()
    write_file(file, make_vectors(5).astype(np.float64))
    with pytest.raises(
        DataFileError, match=r"9\.parquet: column 'embedding' holds .*double.*float.*kept"
    ):
        routed(keep=("embedding",))
    parquet.write_table(table.set_column(0, "id", table["id"].cast(pa.int32())), file)
    with pytest.raises(DataFileError, match=r"9\.parquet: column 'id' holds int32, but int64"):
        routed()
    for kind in ("fixed", "bytes"):
        write_file(file, np.zeros((3, 7), np.float32), kind=kind)
        with pytest.raises(DataFileError, match=r"9\.parquet: .* 4 numbers .* 7 each"):
            routed()
    parquet.write_table(pa.table({"embedding": as_lists(make_vectors(5))}), dataset / "9.parquet")
    with pytest.raises(
        DataFileError,
        match=r"9\.parquet: its columns must be those of .*0\.parquet; 'id' is missing",
    ):
        routed()
    summary, _ = routed(keep=())
    assert summary.rows == 405


def test_what_cannot_be_read_is_said_before_anything_is_written(routed, routers, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    write_file(tmp_path / "none.parquet", make_vectors(0))
    parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "text.parquet")
    write_file(tmp_path / "wide.parquet", np.zeros((3, 7), np.float32))
    for source, sentence in {
        empty: "there must be files in the folder",
        tmp_path / "*.csv": "that fit the pattern",
        tmp_path / "nowhere": "no such file or folder",
        "ftp://host/x": "cannot open ftp",
        tmp_path / "none.parquet": "at least one row",
        tmp_path / "text.parquet": "column 'embedding' of vectors is missing; found text",
        tmp_path / "wide.parquet": "the 4 numbers that the router was fitted with; .* 7 each",
    }.items():
        with pytest.raises(DataFileError, match=sentence):
            routed(source=source)
    own = write_file(tmp_path / "x.parquet", make_vectors(5), expert=["me"] * 5)
    group = pa.array(["x"] * 5).dictionary_encode()
    mine = write_file(tmp_path / "y.parquet", make_vectors(5), kind_of=group)
    for options, sentence in (
        ({"keep": ("idd",)}, "did you mean 'id'"),
        ({"keep": ("expert",)}, "expert"),
        ({"keep": ("expert",), "source": own}, "column 'expert' cannot be kept"),
        ({"engine": "rai"}, "engine must be one of 'local', 'ray'"),
        ({"address": "127.0.0.1:1"}, "address must go with"),
    ):
        with pytest.raises(MildError, match=sentence):
            routed(**options)
    assert not (tmp_path / "out").exists()
    # Categories come back as texts.
    assert routed(source=mine, keep=("kind_of",))[1]["kind_of"].to_pylist() == ["x"] * 5


def test_lists_of_another_length_are_named_by_file_and_row(routed, tmp_path):
    lists = make_vectors(60).tolist()
    lists[33] = [1.0]
    table = pa.table({"id": np.arange(60), "embedding": pa.array(lists, pa.list_(pa.float32()))})
    parquet.write_table(table, tmp_path / "odd.parquet", row_group_size=30)
    with pytest.raises(DataFileError, match=r"^row 34 of \S*odd\.parquet: .*; it holds 1\.$"):
        routed(source=tmp_path / "odd.parquet")


def test_a_file_that_is_written_again_during_the_job_is_noticed(routed, dataset, tmp_path):
    def meddle(done, total, text):
        if done == 2:
            write_file(dataset / "3.parquet", make_vectors(100, 8), 300)

    with pytest.raises(DataFileError, match=r"3\.parquet: it was changed since the job began"):
        routed(workers=1, progress=meddle)
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_a_page_whose_checksum_is_wrong_is_no_vector(routed, tmp_path):
    file = tmp_path / "sums.parquet"
    table = pa.table({"id": np.arange(60), "embedding": as_lists(make_vectors(60))})
    parquet.write_table(
        table, file, write_page_checksum=True, compression="none", use_dictionary=False
    )
    whole = bytearray(file.read_bytes())
    column = parquet.ParquetFile(file).metadata.row_group(0).column(1)
    end = column.data_page_offset + column.total_compressed_size
    whole[end - 8 : end] = bytes(8)
    file.write_bytes(bytes(whole))
    with pytest.raises(DataFileError, match=r"sums\.parquet: it cannot be read"):
        routed(source=file, out="sums")
