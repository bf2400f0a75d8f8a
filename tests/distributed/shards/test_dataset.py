"""Shards are one table, or it is said which of them is not like the others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.distributed.shards import dataset as module
from mild.distributed.shards.dataset import concatenate, open_dataset
from mild.errors import DataFileError, MildError
from mild.tuning.tasks import make_task
from shard_cases import ASIS, as_bytes, cut, damage_pages, make_rows, make_texts, sharded, write


def all_rows(dataset):
    return concatenate([piece for part in dataset.partitions for piece in dataset.read(part)])


@pytest.mark.parametrize("group", [50, 400])
def test_all_pieces_are_the_table(shards, monkeypatch, group):
    monkeypatch.setattr(module, "PIECE_ROWS", 64)
    monkeypatch.setattr(module, "PART_ROWS", 120)
    data = shards(make_rows(500, missing=0.2), group=group)
    found = all_rows(open_dataset(str(data.folder), ASIS))
    whole = read_outcomes(data.whole)
    np.testing.assert_array_equal(found.scores, whole.scores)
    np.testing.assert_array_equal(found.vectors, whole.vectors)
    np.testing.assert_array_equal(found.prices, whole.prices)
    assert found.expert_names == whole.expert_names


def test_queries_are_those_of_the_table_also_with_categories(tmp_path):
    columns = make_texts(90)
    columns["question"] = columns.pop("prompt")
    columns |= {"A": ["yes"] * 90, "B": pa.array(["no"] * 90).dictionary_encode()}
    file = write(columns, tmp_path / "a.parquet")
    assert all_rows(open_dataset(str(file), ASIS)).queries == read_outcomes(file).queries


def test_parts_are_runs_of_row_groups(shards, monkeypatch):
    monkeypatch.setattr(module, "PART_ROWS", 100)
    dataset = open_dataset(str(shards(make_rows(300), count=2, group=40).folder), ASIS)
    assert [(*part.groups, part.rows) for part in dataset.partitions] == [
        (0, 2, 80), (2, 4, 70), (0, 2, 80), (2, 4, 70),
    ]  # fmt: skip
    assert [part.number for part in dataset.partitions] == [0, 1, 2, 3]


def test_experts_are_found_by_name_in_any_order(shards):
    columns = make_rows(200)
    data = shards(columns, count=2)
    turned = cut({name: columns[name] for name in reversed(columns)}, range(100, 200))
    write(turned, data.folder / "1.parquet")
    found = all_rows(open_dataset(str(data.folder), ASIS))
    np.testing.assert_array_equal(found.scores, read_outcomes(data.whole).scores)


def test_a_shard_with_damaged_pages_is_named(shards):
    data = shards(make_rows(3000, d=30))
    damage_pages(data.folder / "2.parquet")
    with pytest.raises(DataFileError, match=r"2\.parquet: "):
        sharded(data.folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: (c.pop("correct__bee"), c.pop("cost__bee")), "'correct__bee' is missing"),
        (lambda c: c.update(correct__dog=[1.0] * 30), "'correct__dog' is not among those"),
        (lambda c: c.update(embedding=["x"] * 30), "'embedding' is missing|must hold vectors"),
        (
            lambda c: c.update(cost__ant=["dear"] * 30),
            "'cost__ant' must hold numbers, .* holds text",
        ),
    ],
)
def test_columns_that_drift_are_named_with_both_files(shards, change, said):
    data = shards(make_rows(90))
    columns = make_rows(30)
    columns["prompt"] = ["q"] * 30
    for file in data.folder.iterdir():
        write(columns, file)
    change(columns)
    write(columns, data.folder / "1.parquet")
    with pytest.raises(DataFileError, match=rf"1\.parquet: .*({said})") as error:
        open_dataset(str(data.folder), ASIS)
    assert "0.parquet" in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"embedding": [np.zeros(7, np.float32)] * 30}, "7"),
        ({"embedding": pa.array([bytes(18)] * 30, pa.binary(18))}, "'embedding' holds 18 bytes"),
    ],
)
def test_a_shard_whose_values_cannot_be_used_is_named(shards, change, said):
    data = shards(make_rows(90))
    write(make_rows(30) | change, data.folder / "1.parquet")
    with pytest.raises(DataFileError, match=rf"1\.parquet: .*{said}"):
        sharded(data.folder, terms=CostTerms(price_weight=1.0))


def test_files_without_rows_or_cut_off_are_refused(shards):
    data = shards(make_rows(90))
    for file in data.folder.iterdir():
        parquet.write_table(parquet.read_table(file).slice(0, 0), file)
    with pytest.raises(DataFileError, match="there must be at least one row; got none"):
        open_dataset(str(data.folder), ASIS)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataFileError, match=rf"{file.name}: it is not a readable \.parquet file"):
        open_dataset(str(data.folder), ASIS)


def test_a_shard_in_which_nobody_is_known_is_like_the_others(shards):
    data = shards(make_rows(90))
    columns = make_rows(30)
    columns["correct__ant"] = [None] * 30
    write(columns, data.folder / "1.parquet")
    dataset = open_dataset(str(data.folder), ASIS)
    assert np.isnan(all_rows(dataset).scores[30:60, 0]).all()


def test_vectors_may_be_stored_in_several_ways(shards):
    columns = make_rows(90)
    data = shards(columns)
    kinds = {0: as_bytes(columns["embedding"][:30]), 1: pa.array(columns["embedding"][30:60])}
    kinds[1] = kinds[1].cast(pa.large_list(pa.float64()))
    for number, vectors in kinds.items():
        file = data.folder / f"{number}.parquet"
        parquet.write_table(parquet.read_table(file).set_column(0, "embedding", vectors), file)
    found = all_rows(open_dataset(str(data.folder), ASIS))
    np.testing.assert_array_equal(found.vectors, read_outcomes(data.whole).vectors)


def test_rows_per_query_and_model_must_be_brought_together_first(tmp_path):
    columns = {"query": ["a", "a"], "model_name": ["x", "y"], "performance": [1.0, 0.0]}
    write(columns, tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match="one row per query"):
        open_dataset(str(tmp_path), ASIS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cost__bee", -1.0),
        ("correct__cat", 7.0),
        ("embedding", np.full(5, np.inf, np.float32)),
        ("embedding", np.zeros(9, np.float32)),
    ],
)
def test_a_row_has_the_number_that_it_has_in_its_file(tmp_path, monkeypatch, name, value):
    monkeypatch.setattr(module, "PIECE_ROWS", 16)
    monkeypatch.setattr(module, "PART_ROWS", 100)
    columns = make_rows(200)
    for expert in ("ant", "bee", "cat"):
        columns[f"correct__{expert}"][165] = np.nan
    columns[name][170] = value
    file = write(columns, tmp_path / "a.parquet", row_group_size=50)
    terms = CostTerms(price_weight=1.0)
    with pytest.raises(DataFileError, match=rf"^{file}: .*row 171") as streamed:
        sharded(file, terms=terms)
    with pytest.raises(MildError) as whole:
        make_task(read_outcomes(file), terms)
    # Lengths are compared to that of the first row; here to that of the piece, of 16 rows from 100 on.
    expected = (
        str(whole.value).removeprefix(f"{file}: ").replace("where row 1 has", "where row 165 has")
    )
    assert str(streamed.value) == f"{file}: {expected}"


def test_vectors_of_another_width_are_named_with_their_row(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PIECE_ROWS", 20)
    columns = make_rows(80)
    columns["embedding"][40:] = list(np.zeros((40, 7), np.float32))
    file = write(columns, tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match=rf"^{file}: .* 5 numbers, .*; row 41 has 7 "):
        sharded(file)


def test_vectors_of_several_widths_are_refused_also_where_texts_are_learned_from(shards):
    columns = make_texts(60) | {"embedding": [[0.0] * (2 if i < 20 else 3) for i in range(60)]}
    data = shards(columns)
    with pytest.raises(DataFileError, match="same length; some have 2 and others 3 numbers"):
        sharded(data.folder)


def test_a_piece_in_which_nobody_was_asked_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PIECE_ROWS", 50)
    columns = make_rows(300)
    for name in ("ant", "bee", "cat"):
        columns[f"correct__{name}"][100:150] = np.nan
    assert sharded(write(columns, tmp_path / "a.parquet")).rows == 250


def test_text_that_is_not_utf_8_is_named_with_its_file_and_column(tmp_path):
    columns = make_texts(90)
    bad = pa.array([b"\xff\xfe", *(text.encode() for text in columns["prompt"][1:])])
    columns["prompt"] = bad.view(pa.string())
    file = write(columns, tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match=rf"^{file}: column 'prompt' is broken, or its text"):
        sharded(file)


def test_a_shard_that_was_changed_since_it_was_looked_at_is_named(shards):
    data = shards(make_rows(200), count=2)
    dataset = open_dataset(str(data.folder), ASIS)
    write(cut(make_rows(200, seed=1), range(100, 200)), data.folder / "1.parquet")
    assert list(dataset.read(dataset.partitions[0]))
    with pytest.raises(DataFileError, match=r"1\.parquet: it was changed since the job began"):
        list(dataset.read(dataset.partitions[-1]))
