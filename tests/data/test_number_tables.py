"""Tables of numbers: the same from every format, and one sentence for every one that cannot be read."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest
import scipy.sparse as sp

from mild.data import Outcomes, read_outcomes, write_outcomes
from mild.data.number_tables import read_features
from mild.errors import DataFileError, InvalidInputError

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
        read_outcomes(path, **options)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def test_every_format_gives_the_same_numbers(file, data):
    table = read_outcomes(file)
    np.testing.assert_array_equal(table.vectors, data[0])
    # Experts are sorted; the files have small before large.
    assert table.experts == ["large", "small"]
    np.testing.assert_array_equal(table.given_costs, data[1][:, ::-1])
    assert table.feature_names == ["f_0", "f_1", "age"]
    assert (len(table), table.form, table.columns.column_names) == (9, "numbers", [])
    assert np.isnan(table.scores).all()


@pytest.mark.parametrize("features", ["age,f_*", ["age", "f_0", "f_1"]])
def test_features_are_chosen_by_pattern_or_list_and_in_that_order(file, data, features):
    table = read_outcomes(file, features=features)
    assert table.feature_names == ["age", "f_0", "f_1"]
    np.testing.assert_array_equal(table.vectors, data[0][:, [2, 0, 1]])


@pytest.mark.parametrize("costs", ["cost__large", "cost__l*", ["cost__large"]])
def test_costs_are_chosen_by_name_or_pattern(file, data, costs):
    table = read_outcomes(file, costs=costs)
    assert table.experts == ["large"]
    np.testing.assert_array_equal(table.given_costs, data[1][:, 1:])
    assert table.feature_names == ["f_0", "f_1", "age"]


def test_experts_are_selected(file, data):
    table = read_outcomes(file)
    assert table.select(["small", "large"]) is table
    alone = table.select(["large"])
    np.testing.assert_array_equal(alone.costs(), data[1][~np.isnan(data[1][:, 1])][:, [1]])
    with pytest.raises(
        InvalidInputError, match="the table has no expert 'huge'; it has large, small"
    ):
        table.select(["small", "huge"])


def test_a_pattern_that_matches_nothing_suggests_a_name(file):
    assert "'agee' is not one; did you mean 'age'?" in refusal(file, features="agee")
    assert "'zzz*' is not one; found f_0, f_1, age" in refusal(file, features="zzz*")
    assert "costs must name columns of the file; 'cost_x" in refusal(file, costs="cost_x*")


def test_costs_are_not_needed_to_route(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)))
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    for name in ("a.npz", "a.csv"):
        X, _ = read_features(tmp_path / name, None)
        assert X.shape[1] == 2
    assert "cost__<expert> or by costs" in refusal(tmp_path / "a.csv", form="numbers")
    assert "a .npz must hold the arrays X and costs; found X" in refusal(tmp_path / "a.npz")


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
    table = read_outcomes(csv(tmp_path, "x,cost__a,cost__b\n1,2,\n3,NaN,1\n"))
    np.testing.assert_array_equal(table.given_costs, [[2, np.nan], [np.nan, 1]])


def test_text_columns_are_left_out_of_the_features_and_listed(tmp_path):
    table = read_outcomes(csv(tmp_path, "id,x,day,cost__a\nq1,1,2024-01-01,2\nq2,3,2024-01-02,1\n"))
    assert table.feature_names == ["x"]
    assert table.columns.column_names == ["id", "day"]
    assert table.column("id") == ["q1", "q2"]


def test_a_column_of_numbers_with_one_word_is_not_quietly_left_out(tmp_path):
    message = refusal(csv(tmp_path, "x,y,cost__a\n1,1,1\n2,2,1\n3,three,1\n"))
    assert "column 'y' must hold numbers; it holds some, but also text such as 'three'" in message
    table = read_outcomes(tmp_path / "log.csv", features="x")
    assert table.feature_names == ["x"]


def test_a_late_fraction_among_integers_is_read(tmp_path):
    rows = "".join(f"{i},1\n" for i in range(300_000))
    table = read_outcomes(csv(tmp_path, f"x,cost__a\n{rows}0.5,1\n"))
    assert table.vectors[-1, 0] == 0.5


def test_booleans_and_integers_are_numbers(tmp_path):
    table = read_outcomes(csv(tmp_path, "long,n,cost__a\ntrue,12345678901234567,1\nfalse,2,1\n"))
    np.testing.assert_array_equal(table.vectors, [[1, 12345678901234567], [0, 2]])


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
def test_the_error_says_what_is_wrong_with_columns(tmp_path, text, features, words):
    assert words in refusal(csv(tmp_path, text), features=features)


def test_other_cost_columns_keep_their_names(tmp_path):
    path = csv(tmp_path, "x,ms_a,ms_b,cost__c\n1,2,3,4\n")
    table = read_outcomes(path, costs="ms_*")
    assert table.experts == ["ms_a", "ms_b"]
    assert table.feature_names == ["x"]


# .parquet


def test_types_of_columns(tmp_path):
    single, decimal = pa.array([1.0], pa.float32()), pa.array([1.5]).cast(pa.decimal128(10, 2))
    for columns, dtype in (({"x": single}, np.float32), ({"x": decimal}, np.float64)):
        parquet.write_table(pa.table(columns | {"cost__a": [0.5]}), tmp_path / "a.parquet")
        table = read_outcomes(tmp_path / "a.parquet")
        assert (table.vectors.dtype, table.given_costs.dtype) == (dtype, np.float64)
    table = pa.table({"x": [1.0], "v": [[1.0, 2.0]], "cost__a": [0.5]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read_outcomes(tmp_path / "a.parquet").columns.column_names == ["v"]
    assert "it holds list<" in refusal(tmp_path / "a.parquet", features="x,v")


# .npz


def test_an_archive_without_names_numbers_its_experts(tmp_path, data):
    np.savez(tmp_path / "a.npz", X=data[0].astype(np.float32), costs=data[1])
    table = read_outcomes(tmp_path / "a.npz")
    assert table.vectors.dtype == np.float32
    assert table.feature_names is None
    assert table.experts == ["expert_0", "expert_1"]
    np.testing.assert_array_equal(table.costs(), data[1])


def test_features_without_names_are_taken_in_order_by_a_router_only(tmp_path, data):
    np.savez(tmp_path / "a.npz", X=data[0], costs=data[1])
    table = read_outcomes(tmp_path / "a.npz", features=["a", "b", "c"])
    np.testing.assert_array_equal(table.vectors, data[0])
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
def test_the_error_gives_the_row_of_an_invalid_cost_from_1(tmp_path, cells, sentence):
    file = tmp_path / "a.csv"
    file.write_text("f,cost__a,cost__b\n" + "".join(f"1,{pair}\n" for pair in cells))
    assert sentence in refusal(file)
    X, _ = read_features(file, ["f"])
    assert len(X) == len(cells)


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
    assert len(read_outcomes(tmp_path / "a.npz")) == 9
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
        read_outcomes(file)
    assert caught.value.parameter == "costs"
    assert "1e+160 in row 2" in str(caught.value)


# What is done with them


def table_of_numbers(**options):
    rng = np.random.default_rng(1)
    X, costs = rng.normal(size=(6, 2)), rng.uniform(size=(6, 2))
    return Outcomes.from_arrays(X, costs, **options)


def test_arrays_and_frames_become_a_table():
    table = table_of_numbers()
    assert table.experts == ["expert_0", "expert_1"]
    assert table.feature_names is None
    named = table_of_numbers(experts=["a", "b"], feature_names=["x", "y"])
    assert (named.experts, named.feature_names) == (["a", "b"], ["x", "y"])
    pandas = pytest.importorskip("pandas")
    frame = Outcomes.from_arrays(
        pandas.DataFrame(named.vectors, columns=["x", "y"]),
        pandas.DataFrame(named.given_costs, columns=["a", "b"]),
    )
    assert frame.fingerprint() == named.fingerprint()
    assert frame.feature_names == ["x", "y"]


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [
        ({"X": np.ones(3)}, "X"),
        ({"X": [["a"]], "costs": [[1]]}, "X"),
        ({"costs": np.ones((2, 2))}, "costs"),
        ({"costs": -np.ones((3, 2))}, "costs"),
        ({"costs": np.full((3, 2), np.nan)}, "costs"),
        ({"X": np.full((3, 1), np.inf)}, "X"),
        ({"X": sp.csr_array(np.ones((3, 1)))}, "X"),
        ({"costs": sp.csr_array(np.ones((3, 2)))}, "costs"),
        ({"experts": ["a"]}, "experts"),
        ({"experts": ["a", ""]}, "experts"),
        ({"experts": ["a", "a"]}, "experts"),
        ({"feature_names": "x"}, "feature_names"),
    ],
)
def test_arrays_that_break_their_rule_are_refused(arguments, parameter):
    given = {"X": np.ones((3, 1)), "costs": np.ones((3, 2))} | arguments
    with pytest.raises((InvalidInputError, DataFileError)) as caught:
        Outcomes.from_arrays(**given)
    assert caught.value.parameter == parameter
    assert caught.value.code == f"invalid_{parameter}"


def test_an_argument_that_arrays_do_not_have_is_refused():
    with pytest.raises(InvalidInputError, match="Did you mean 'experts'"):
        table_of_numbers(expert=["a", "b"])


@pytest.mark.parametrize(
    "terms", [{"beta": {"expert_0": 1.0}}, {"price_weight": 1.0}, {"latency_weight": 0.0}]
)
def test_given_costs_are_used_as_they_are(terms):
    table = table_of_numbers()
    np.testing.assert_array_equal(table.costs(), table.given_costs)
    with pytest.raises(InvalidInputError, match="needs a table with scores"):
        table.costs(**terms)


@pytest.mark.parametrize("name", ["wide.parquet", "wide.csv", "wide.jsonl"])
def test_written_files_are_read_back_unchanged(tmp_path, name):
    columns = {"id": ["q1", "q2"], "x": [0.5, 2.0], "cost__a": [0.25, None], "cost__b": [1.0, 0.0]}
    table = read_outcomes(pa.table(columns))
    again = read_outcomes(write_outcomes(table, tmp_path / name))
    assert again.fingerprint() == table.fingerprint()
    assert again.feature_names == ["x"]
    assert again.column("id") == ["q1", "q2"]


def test_features_that_would_be_read_as_something_else_are_not_written(tmp_path):
    columns = {"prompt": ["Who wrote it?"], "x": [1.0], "y": [2.0], "cost__a": [1.0]}
    table = read_outcomes(pa.table(columns), form="numbers", features="x")
    assert list(table.wide_columns()) == ["x", "cost__a"]
    hidden = read_outcomes(pa.table({"id": [1], "cost__a": [1.0]}), features="id")
    with pytest.raises(DataFileError, match="'id' would not be read as a feature"):
        hidden.wide_columns()


def test_features_are_taken_in_the_order_of_a_router():
    columns = {"id": [7, 8], "x": [0.5, 2.0], "y": [1.0, 3.0], "cost__a": [0.25, 0.5]}
    table = read_outcomes(pa.table(columns))
    np.testing.assert_array_equal(table.with_features(["y", "id"]).vectors, [[1, 7], [3, 8]])
    with pytest.raises(InvalidInputError, match="must have a feature 'z'; it has x, y"):
        table.with_features(["z"])
    bare = table_of_numbers()
    assert bare.with_features(["x", "y"]).feature_names == ["x", "y"]
    with pytest.raises(InvalidInputError, match="it has 2 without names"):
        bare.with_features(["x"])


def test_arguments_of_queries_and_scores_are_refused():
    table = pa.table({"x": [0.5, 2.0], "cost__a": [0.25, 0.5]})
    with pytest.raises(DataFileError, match="answer_kind is for tables with queries and scores"):
        read_outcomes(table, answer_kind="number")


def test_a_table_of_numbers_is_described_by_its_losses():
    found = table_of_numbers().describe()
    content = found.as_dict()
    assert content["best_constant"]["accuracy"] is None
    assert content["all_right"] is None
    assert content["headroom"] >= 0
    assert not any("right" in sentence for sentence in found.sentences)
