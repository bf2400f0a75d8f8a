"""The same matrices from every format, and one sentence for every file that cannot be read."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from mild.data import read_matrices
from mild.errors import DataFileError

FORMATS = ["npz", "parquet", "csv"]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    costs = rng.uniform(size=(9, 2))
    costs[3, 1] = np.nan
    return rng.normal(size=(9, 3)), costs


@pytest.fixture(params=FORMATS)
def file(request, tmp_path, data):
    """The same data in every format, with names."""
    X, costs = data
    path = tmp_path / f"log.{request.param}"
    if request.param == "npz":
        np.savez(
            path,
            X=X,
            costs=costs,
            feature_names=["f_0", "f_1", "age"],
            expert_names=["small", "large"],
        )
        return path
    columns = {"f_0": X[:, 0], "f_1": X[:, 1], "age": X[:, 2]}
    columns |= {"cost__small": costs[:, 0], "cost__large": costs[:, 1]}
    table = pa.table(columns)
    if request.param == "parquet":
        parquet.write_table(table, path)
    else:
        arrow_csv.write_csv(table, path)
    return path


def refusal(path, **options):
    with pytest.raises(DataFileError) as caught:
        read_matrices(path, **options)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def test_every_format_gives_the_same_matrices(file, data):
    table = read_matrices(file)
    np.testing.assert_array_equal(table.X, data[0])
    np.testing.assert_array_equal(table.costs, data[1])
    assert table.feature_names == ["f_0", "f_1", "age"]
    assert table.expert_names == ["small", "large"]
    assert (table.rows, table.experts_named, table.left_out) == (9, True, ())


@pytest.mark.parametrize("features", ["age,f_*", ["age", "f_0", "f_1"]])
def test_features_are_chosen_by_pattern_or_list_and_in_that_order(file, data, features):
    table = read_matrices(file, features=features)
    assert table.feature_names == ["age", "f_0", "f_1"]
    np.testing.assert_array_equal(table.X, data[0][:, [2, 0, 1]])


@pytest.mark.parametrize("costs", ["cost__large", "cost__l*", ["cost__large"]])
def test_costs_are_chosen_by_name_or_pattern(file, data, costs):
    table = read_matrices(file, costs=costs)
    assert table.expert_names == ["large"]
    np.testing.assert_array_equal(table.costs, data[1][:, 1:])
    assert table.feature_names == ["f_0", "f_1", "age"]


def test_experts_are_put_in_the_order_of_the_router(file, data):
    table = read_matrices(file)
    np.testing.assert_array_equal(table.costs_of(["large", "small"]), data[1][:, ::-1])
    np.testing.assert_array_equal(table.costs_of(["large"]), data[1][:, [1]])
    with pytest.raises(DataFileError, match="'huge' has none, found small, large"):
        table.costs_of(["small", "huge"])


def test_a_pattern_that_matches_nothing_suggests_a_name(file):
    assert "'agee' is not one; did you mean 'age'?" in refusal(file, features="agee")
    assert "'zzz*' is not one; found f_0, f_1, age" in refusal(file, features="zzz*")
    assert "costs must name columns of the file; 'cost_x" in refusal(file, costs="cost_x*")


def test_costs_are_needed_only_where_they_are(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)))
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    for name in ("a.npz", "a.csv"):
        table = read_matrices(tmp_path / name, need_costs=False)
        assert table.costs is None
        assert table.X.shape[1] == 2
        with pytest.raises(DataFileError, match="there must be cost columns to judge"):
            table.costs_of(["a"])
    assert "there must be cost columns, named cost__<expert> or by --costs; found x, y" in refusal(
        tmp_path / "a.csv"
    )
    assert "a .npz must hold the arrays X and costs; found X" in refusal(tmp_path / "a.npz")


def test_what_is_no_file_of_a_known_kind_is_named(tmp_path):
    (tmp_path / "log.xlsx").write_text("x")
    assert "must end in .npz, .parquet, .csv, .tsv; got '.xlsx'" in refusal(tmp_path / "log.xlsx")
    assert "there is no such file" in refusal(tmp_path / "nothing.csv")
    assert "must be a file; got a folder" in refusal(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_file_is_refused(tmp_path, name):
    path = tmp_path / f"log.{name}"
    path.touch()
    assert "the file is empty" in refusal(path)


@pytest.mark.parametrize("name", ["npz", "parquet"])
@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 0.95])
def test_a_file_that_is_cut_off_is_refused(tmp_path, data, name, part):
    path = tmp_path / f"log.{name}"
    if name == "npz":
        np.savez_compressed(path, X=data[0], costs=data[1])
    else:
        parquet.write_table(pa.table({"a": data[0][:, 0], "cost__x": data[1][:, 0]}), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    assert "cut off" in refusal(path)


def test_bytes_that_mean_nothing_are_refused(tmp_path, data):
    for name in ("log.npz", "log.parquet"):
        (tmp_path / name).write_bytes(np.random.default_rng(0).bytes(3000))
        assert refusal(tmp_path / name)
    with open(tmp_path / "a.npz", "wb") as stream:
        np.save(stream, np.ones((2, 2)))
    assert "single array" in refusal(tmp_path / "a.npz")
    np.savez_compressed(tmp_path / "a.npz", X=np.tile(data[0], (100, 1)), costs=np.ones((900, 2)))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[300:600] = bytes(300)
    (tmp_path / "a.npz").write_bytes(bytes(content))
    assert refusal(tmp_path / "a.npz")


# .csv


def csv(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_text(text)
    return path


def test_an_empty_cost_is_an_expert_that_was_not_asked(tmp_path):
    table = read_matrices(csv(tmp_path, "x,cost__a,cost__b\n1,2,\n3,NaN,1\n"))
    np.testing.assert_array_equal(table.costs, [[2, np.nan], [np.nan, 1]])


def test_text_columns_are_left_out_of_the_features_and_listed(tmp_path):
    table = read_matrices(csv(tmp_path, "id,x,day,cost__a\nq1,1,2024-01-01,2\nq2,3,2024-01-02,1\n"))
    assert table.feature_names == ["x"]
    assert table.left_out == ("id", "day")


def test_a_column_of_numbers_with_one_word_is_not_quietly_left_out(tmp_path):
    message = refusal(csv(tmp_path, "x,y,cost__a\n1,1,1\n2,2,1\n3,three,1\n"))
    assert "column 'y' must hold numbers; it holds some, but also text such as 'three'" in message
    table = read_matrices(tmp_path / "log.csv", features="x")
    assert table.feature_names == ["x"]


def test_a_late_fraction_among_integers_is_read(tmp_path):
    rows = "".join(f"{i},1\n" for i in range(300_000))
    table = read_matrices(csv(tmp_path, f"x,cost__a\n{rows}0.5,1\n"))
    assert table.X[-1, 0] == 0.5


def test_booleans_and_integers_are_numbers(tmp_path):
    table = read_matrices(csv(tmp_path, "long,n,cost__a\ntrue,12345678901234567,1\nfalse,2,1\n"))
    np.testing.assert_array_equal(table.X, [[1, 12345678901234567], [0, 2]])


@pytest.mark.parametrize(
    ("text", "features", "words"),
    [
        ("x,cost__a\n", None, "at least one row"),
        ("x,y,cost__a\n1,1,2\n1,,1\n", None, "empty in row 2 (row 1 is the first"),
        ("x,y,cost__a\n1,1,2\n1,inf,1\n", None, "column 'y' is inf"),
        ("id,x,cost__a\nq1,1,2\n", "id,x", "column 'id' must hold numbers"),
        ("x,cost__a\n1,2\n2,cheap\n", None, "it holds text such as 'cheap'"),
        ("x,cost__a\n1,2\n", "*", "'cost__a' is both"),
        ("x,cost__a\n1,2\n", " , ", "features must name at least one column"),
        ("id,cost__a\nq1,2\n", None, "there must be numeric columns besides the costs"),
    ],
)
def test_what_is_wrong_with_columns_is_said(tmp_path, text, features, words):
    assert words in refusal(csv(tmp_path, text), features=features)


def test_other_cost_columns_keep_their_names(tmp_path):
    path = csv(tmp_path, "x,ms_a,ms_b,cost__c\n1,2,3,4\n")
    table = read_matrices(path, costs="ms_*")
    assert table.expert_names == ["ms_a", "ms_b"]
    assert table.feature_names == ["x"]


# .parquet


def test_types_of_columns(tmp_path):
    single, decimal = pa.array([1.0], pa.float32()), pa.array([1.5]).cast(pa.decimal128(10, 2))
    for columns, dtype in (({"x": single}, np.float32), ({"x": decimal}, np.float64)):
        parquet.write_table(pa.table(columns | {"cost__a": [0.5]}), tmp_path / "a.parquet")
        table = read_matrices(tmp_path / "a.parquet")
        assert (table.X.dtype, table.costs.dtype) == (dtype, np.float64)
    table = pa.table({"x": [1.0], "v": [[1.0, 2.0]], "cost__a": [0.5]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read_matrices(tmp_path / "a.parquet").left_out == ("v",)
    assert "it holds list<" in refusal(tmp_path / "a.parquet", features="x,v")


# .npz


def test_an_archive_without_names_numbers_its_experts(tmp_path, data):
    np.savez(tmp_path / "a.npz", X=data[0].astype(np.float32), costs=data[1])
    table = read_matrices(tmp_path / "a.npz")
    assert table.X.dtype == np.float32
    assert table.feature_names is None
    assert table.expert_names == ["expert_0", "expert_1"]
    np.testing.assert_array_equal(table.costs_of(["any", "names"]), data[1])
    with pytest.raises(DataFileError, match="'c' has none"):
        table.costs_of(["c", "d", "e"])


def test_features_without_names_are_taken_in_order_by_a_router_only(tmp_path, data):
    np.savez(tmp_path / "a.npz", X=data[0], costs=data[1])
    table = read_matrices(tmp_path / "a.npz", features=["a", "b", "c"])
    np.testing.assert_array_equal(table.X, data[0])
    for features in ("a*", ["a", "b"]):
        assert "features cannot be chosen by name" in refusal(tmp_path / "a.npz", features=features)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"X": np.ones(9)}, "array X must have two dimensions, a row per input; got shape (9,)"),
        ({"X": np.ones((8, 3))}, "must have as many rows; got shapes (8, 3) and (9, 2)"),
        ({"X": np.full((9, 3), "a")}, "array X must hold numbers; got <U1 such as np.str_('a')"),
        ({"costs": np.ones((9, 2), complex)}, "array costs must hold numbers; got complex128"),
        ({"X": np.full((9, 3), np.nan)}, "column 0 is nan or is empty in row 1"),
        ({"X": np.ones((0, 3)), "costs": np.ones((0, 2))}, "at least one row"),
        ({"expert_names": ["a"]}, "array expert_names must hold 2 strings; got <U1, shape (1,)"),
        ({"expert_names": ["a", "a"]}, "expert names must differ; 'a' appears twice"),
        ({"feature_names": [1, 2, 3]}, "array feature_names must hold 3 strings; got int64"),
    ],
)
def test_an_array_that_breaks_its_rule_is_named(tmp_path, data, change, sentence):
    np.savez(tmp_path / "a.npz", **({"X": data[0], "costs": data[1]} | change))
    assert sentence in refusal(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (["0,1", "-1,1"], "got -1 in row 2 of expert 'a'"),
        (["0,1", "0,inf"], "got inf in row 2 of expert 'b'"),
        (["0,1", ",", ","], "row 2 has none"),
    ],
)
def test_a_cost_that_is_none_is_named_by_its_row_from_1(tmp_path, cells, sentence):
    file = tmp_path / "a.csv"
    file.write_text("f,cost__a,cost__b\n" + "".join(f"1,{pair}\n" for pair in cells))
    assert sentence in refusal(file)
    assert read_matrices(file, costs="cost__b", need_costs=False).rows == len(cells)


class Bomb:
    """Leaves a mark if it is ever unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


def test_objects_in_an_archive_are_never_loaded(tmp_path, data):
    bombs = np.empty((9, 3), object)
    bombs[:] = Bomb(tmp_path / "exploded")
    np.savez(tmp_path / "a.npz", X=bombs, costs=data[1])
    assert "X holds Python objects (a pickle), which are never loaded" in refusal(
        tmp_path / "a.npz"
    )
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert "(a pickle), which are never loaded" in refusal(tmp_path / "b.npz")
    # What is of no interest is not read.
    np.savez(tmp_path / "a.npz", X=data[0], costs=data[1], notes=bombs)
    assert read_matrices(tmp_path / "a.npz").rows == 9
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("format", FORMATS)
def test_costs_beyond_all_measure_are_refused(tmp_path, format):
    file = tmp_path / f"log.{format}"
    X, costs = np.ones((3, 1)), np.array([[1.0, 2.0], [1e160, 0.0], [np.nan, 1e18]])
    if format == "npz":
        np.savez(file, X=X, costs=costs)
    else:
        columns = {"f": X[:, 0], "cost__a": costs[:, 0], "cost__b": costs[:, 1]}
        write = parquet.write_table if format == "parquet" else arrow_csv.write_csv
        write(pa.table(columns), file)
    with pytest.raises(DataFileError) as caught:
        read_matrices(file)
    assert caught.value.parameter == "costs"
    assert "1e+160 in row 2" in str(caught.value)
