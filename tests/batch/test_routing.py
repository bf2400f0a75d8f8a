"""Data sets in, routed parts out, on one machine."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from batch_cases import NAMES, WIDTH, as_lists, damage, make_vectors, write_file
from mild.artifact import Router, load, save
from mild.batch.routing import _without_bad_rows, route_dataset
from mild.data.queries import Recipe
from mild.errors import DataFileError, InvalidInputError, MildError
from mild.features import HashingFeatures
from mild.routers.linear import LinearRouter
from outcome_cases import EXPERTS, make_columns

COLUMNS = make_columns(120, 3)


@pytest.mark.usefixtures("_small_pieces")
def test_every_row_gets_the_expert_of_the_router_in_the_order_of_the_input(routed, expected):
    for name in ("argmax", "linear", "ridge"):
        summary, table = routed(name, out=name)
        assert table["id"].to_pylist() == list(range(400))
        assert table["expert"].to_pylist() == expected(name)
        assert summary.rows == 400
        assert summary.files == 16
        assert summary.counts == {expert: expected(name).count(expert) for expert in NAMES}
        assert sum(summary.shares.values()) == pytest.approx(1)


def test_the_rows_do_not_depend_on_pieces_or_what_else_is_asked_for(routed, monkeypatch):
    _, table = routed()
    _, other = routed(out="more", probabilities=True)
    assert other.select(["id", "expert"]).equals(table)
    monkeypatch.setattr("mild.batch.parquet_files.PIECE_ROWS", 1)
    summary, other = routed(out="small")
    assert summary.files == 16
    assert other.equals(table)


def test_a_complete_output_holds_its_parts_and_a_summary_and_nothing_else(routed, tmp_path):
    summary, _ = routed()
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == ["_SUCCESS", *(f"part-{number:06d}.parquet" for number in range(4))]
    assert json.loads((tmp_path / "out" / "_SUCCESS").read_text()) == summary.as_dict()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out"]


def test_files_folders_patterns_and_addresses_are_the_same_input(
    routed, routers, dataset, tmp_path
):
    _, table = routed()
    out = f"file://{tmp_path}/at/an/address"
    route_dataset(routers(), str(dataset), out, keep=["id"])
    assert parquet.read_table(tmp_path / "at" / "an" / "address").equals(table)
    sources = (f"{dataset}/*.parquet", f"file://{dataset}", f"{dataset}/[0-3].parquet")
    for number, source in enumerate(sources):
        _, other = routed(out=f"out{number}", source=source)
        assert other.equals(table)
    _, one = routed(out="one", source=dataset / "1.parquet")
    assert one["id"].to_pylist() == list(range(100, 200))


def test_columns_of_numbers_are_found_by_name(routed, expected, tmp_path):
    X = np.concatenate([make_vectors(100, number) for number in range(4)])
    columns = {f"f_{column}": X[:, column] for column in range(WIDTH)}
    parquet.write_table(pa.table({"id": np.arange(400), **columns}), tmp_path / "wide.parquet")
    _, table = routed(source=tmp_path / "wide.parquet", features="f_*")
    assert table["expert"].to_pylist() == expected()
    with pytest.raises(DataFileError, match="the 4 columns that the router was fitted with; got 5"):
        routed(source=tmp_path / "wide.parquet", features="*", out="other")


def test_probabilities_and_expected_costs_are_those_of_the_router(routed, routers):
    X = np.concatenate([make_vectors(100, number) for number in range(4)])
    for name in ("linear", "ridge"):
        router = routers(name)
        _, table = routed(name, out=name, probabilities=True)
        found = np.column_stack([table[f"p__{expert}"] for expert in NAMES])
        np.testing.assert_allclose(found, router.predict_proba(X), rtol=1e-4, atol=1e-6)
        known = [column for column in table.column_names if column.startswith("expected_cost__")]
        assert bool(known) == (name == "ridge")
    costs = np.column_stack([table[f"expected_cost__{expert}"] for expert in NAMES])
    np.testing.assert_allclose(costs, router.expected_costs(X), rtol=1e-4, atol=1e-6)


def test_an_interrupt_leaves_nothing_that_looks_finished(routed, nothing_is_left):
    def interrupt(done, total, text):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        routed(progress=interrupt)
    nothing_is_left()
    routed()


def test_an_earlier_output_stays_until_the_new_one_is_complete(routed, dataset, tmp_path):
    _, table = routed()
    damage(dataset / "3.parquet")
    with pytest.raises(DataFileError, match=r"3\.parquet: it cannot be read"):
        routed("ridge", overwrite=True)
    assert parquet.read_table(tmp_path / "out").equals(table)


@pytest.mark.usefixtures("_small_pieces")
def test_a_damaged_file_is_named_and_nothing_is_left(routed, dataset, nothing_is_left):
    file = dataset / "2.parquet"
    damage(file)
    with pytest.raises(DataFileError, match=r"2\.parquet: it cannot be read from row 51 on"):
        routed()
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(DataFileError, match=r"2\.parquet: it is not a readable"):
        routed()
    nothing_is_left()


def test_an_output_within_the_input_is_refused(routed, dataset, tmp_path):
    for out in ("data/routed", "data"):
        with pytest.raises(InvalidInputError, match="must be apart from the input") as caught:
            routed(out=out, overwrite=True)
        assert caught.value.parameter == "out"
    assert len(list(dataset.iterdir())) == 4


def test_rows_without_a_vector_have_no_expert_or_are_left_out(routed, expected, tmp_path):
    X = make_vectors(100, 0)
    X[7, 2] = np.nan
    lists = as_lists(X, "lists").to_pylist()
    lists[11] = None
    vectors = pa.array(lists, pa.list_(pa.float32(), 4))
    file = tmp_path / "holes.parquet"
    parquet.write_table(pa.table({"id": np.arange(100), "embedding": vectors}), file)
    wanted = expected()[:100]
    for name in ("linear", "ridge"):
        summary, found = routed(name, source=file, out=name, probabilities=True)
        assert (summary.bad, summary.rows) == (2, 100)
        assert [i for i, e in enumerate(found["expert"].to_pylist()) if e is None] == [7, 11]
        assert found["p__small"].null_count == 2
    summary, found = routed(source=file, out="less", skip_bad=True)
    assert found["id"].to_pylist() == [i for i in range(100) if i not in (7, 11)]
    assert found["expert"].to_pylist() == [e for i, e in enumerate(wanted) if i not in (7, 11)]
    assert (summary.rows, summary.bad) == (98, 2)


def test_a_file_with_other_columns_or_types_is_named(routed, dataset, nothing_is_left):
    table = parquet.read_table(write_file(dataset / "9.parquet", make_vectors(5)))
    for changed, sentence in (
        (
            table.set_column(1, "embedding", pa.array(["x"] * 5)),
            r"9\.parquet: column 'embedding' must hold .*float.*0\.parquet; it holds string",
        ),
        (
            table.set_column(0, "id", table["id"].cast(pa.int32())),
            r"9\.parquet: column 'id' must hold int64, as in \S*0\.parquet; it holds int32",
        ),
        (
            table.drop_columns("id"),
            r"9\.parquet: its columns must be those of \S*0\.parquet; 'id' is missing",
        ),
    ):
        parquet.write_table(changed, dataset / "9.parquet")
        with pytest.raises(DataFileError, match=sentence) as caught:
            routed()
        assert caught.value.code == "invalid_data_file"
    nothing_is_left()


def test_lists_of_another_length_are_named_by_file_and_row(routed, tmp_path):
    lists = make_vectors(60).tolist()
    lists[33] = [1.0]
    table = pa.table({"id": np.arange(60), "embedding": pa.array(lists, pa.list_(pa.float32()))})
    parquet.write_table(table, tmp_path / "odd.parquet", row_group_size=30)
    with pytest.raises(DataFileError, match=r"^row 34 of \S*odd\.parquet: .*; it holds 1\.$"):
        routed(source=tmp_path / "odd.parquet")


def test_unreadable_input_is_reported_before_anything_is_written(routed, tmp_path):
    write_file(tmp_path / "none.parquet", make_vectors(0))
    parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "text.parquet")
    write_file(tmp_path / "wide.parquet", np.zeros((3, 7), np.float32))
    for source, sentence in {
        tmp_path / "nowhere": "no such file or folder",
        "ftp://host/x": "cannot open ftp",
        tmp_path / "none.parquet": "at least one row",
        tmp_path / "text.parquet": "column 'embedding' of vectors is missing; found text",
        tmp_path / "wide.parquet": "the 4 numbers that the router was fitted with; .* 7 each",
    }.items():
        with pytest.raises(DataFileError, match=sentence):
            routed(source=source)
    own = write_file(tmp_path / "x.parquet", make_vectors(5), expert=["me"] * 5)
    for options, sentence in (
        ({"keep": ("idd",)}, "did you mean 'id'"),
        ({"keep": ("expert",), "source": own}, "column 'expert' cannot be kept"),
        ({"engine": "rai"}, "engine must be one of 'local', 'ray'"),
        ({"address": "127.0.0.1:1"}, "address is for the engine ray"),
    ):
        with pytest.raises(MildError, match=sentence):
            routed(**options)
    assert not (tmp_path / "out").exists()


def test_categories_come_back_as_texts(routed, tmp_path):
    group = pa.array(["x"] * 5).dictionary_encode()
    file = write_file(tmp_path / "y.parquet", make_vectors(5), kind_of=group)
    assert routed(source=file, keep=("kind_of",))[1]["kind_of"].to_pylist() == ["x"] * 5


@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_bad_and_change_no_other(hole):
    X = make_vectors(500)
    clean = X.copy()
    X[[3, 400], [1, 2]] = hole
    X.flags.writeable = False
    empty = np.zeros(500, bool)
    empty[7] = True
    for no_query, rows in ((np.zeros(500, bool), [3, 400]), (empty, [3, 7, 400])):
        found, bad = _without_bad_rows(X, no_query)
        assert np.flatnonzero(bad).tolist() == rows
        assert found.dtype == X.dtype
        np.testing.assert_array_equal(found[~bad], clean[~bad])
        assert not found[bad].any()


@pytest.fixture
def reader(tmp_path) -> Router:
    """Save a router that reads queries, which a recipe makes of columns."""

    def make(recipe):
        texts = COLUMNS["prompt"]
        features = HashingFeatures().fit(texts)
        costs = np.column_stack([1 - COLUMNS[f"correct__{name}"] for name in EXPERTS])
        router = LinearRouter(decision="argmax").fit(features.transform(texts), costs)
        notes = {"query": recipe.as_dict()} if recipe else {}
        folder = save(router, tmp_path / "router", experts=EXPERTS, text=features, notes=notes)
        return load(folder)

    return make


def experts_of(router, columns, tmp_path, **options):
    file = tmp_path / "queries.parquet"
    parquet.write_table(pa.table(columns), file, row_group_size=50)
    route_dataset(router, str(file), str(tmp_path / "out"), overwrite=True, **options)
    return parquet.read_table(tmp_path / "out")["expert"].to_pylist()


def test_queries_are_made_by_the_recipe_of_the_router(reader, tmp_path):
    router = reader(Recipe(("question",), ("A", "B")))
    questions = COLUMNS["prompt"]
    columns = {"question": questions, "A": ["salt"] * 120, "B": [None, "verse"] * 60}
    texts = []
    for number, question in enumerate(questions):
        end = "\nB. verse" if number % 2 else ""
        texts.append(f"{question}\nA. salt{end}")
    assert experts_of(router, columns, tmp_path) == router.route(texts)
    with pytest.raises(DataFileError, match="without its choices"):
        experts_of(router, {"question": questions}, tmp_path)
    alone = experts_of(router, {"question": questions}, tmp_path, query="question")
    assert alone == router.route(questions)


def test_a_row_without_a_text_has_no_expert_and_a_blank_one_has(reader, tmp_path):
    router = reader(Recipe(("prompt",)))
    found = experts_of(router, {"prompt": ["boil salt", None, "", " "]}, tmp_path)
    assert found[1] is None
    assert [found[0], *found[2:]] == router.route(["boil salt", "", " "])
    nothing = {"prompt": pa.array([None, None], pa.string())}
    assert experts_of(router, nothing, tmp_path) == [None, None]


def test_columns_that_are_missing_or_not_text_are_named(reader, tmp_path):
    router = reader(Recipe(("prompt",)))
    with pytest.raises(DataFileError, match="'prompt' holds int64"):
        experts_of(router, {"other": ["a"], "prompt": [1]}, tmp_path)
    with pytest.raises(
        DataFileError,
        match=r"'prompt', which is a part of .*; found the columns other\. .*query=COLUMN",
    ):
        experts_of(router, {"other": ["a"]}, tmp_path)
    with pytest.raises(InvalidInputError, match="takes texts"):
        experts_of(router, {"other": ["a"]}, tmp_path, vectors="other")
    assert experts_of(router, {"other": ["a"]}, tmp_path, query="other")
