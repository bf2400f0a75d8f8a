"""Tables from arrays of features and whole costs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from mild.data import Outcomes
from mild.errors import DataFileError, InvalidInputError


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


def test_the_columns_of_a_frame_are_features_and_whole_costs():
    table = table_of_numbers(experts=["a", "b"], feature_names=["x", "y"])
    columns = table.wide_columns()
    assert list(columns) == ["x", "y", "cost__a", "cost__b"]
    assert columns["cost__a"].to_pylist() == table.given_costs[:, 0].tolist()


def test_features_are_taken_in_the_order_of_a_router():
    table = table_of_numbers(feature_names=["x", "y"])
    np.testing.assert_array_equal(table.with_features(["y"]).vectors, table.vectors[:, [1]])
    with pytest.raises(InvalidInputError, match="must have a feature 'z'; it has x, y"):
        table.with_features(["z"])
    bare = table_of_numbers()
    assert bare.with_features(["x", "y"]).feature_names == ["x", "y"]
    with pytest.raises(InvalidInputError, match="it has 2 without names"):
        bare.with_features(["x"])


def test_experts_are_selected():
    costs = np.array([[1.0, 2.0], [0.5, np.nan]])
    table = Outcomes.from_arrays([[1.0], [2.0]], costs, experts=["small", "large"])
    assert table.experts == ["large", "small"]
    np.testing.assert_array_equal(table.given_costs, costs[:, ::-1])
    np.testing.assert_array_equal(table.select(["large"]).costs(), [[2.0]])
    with pytest.raises(InvalidInputError, match="the table has no expert 'huge'"):
        table.select(["small", "huge"])


def test_costs_beyond_all_measure_are_refused():
    with pytest.raises(DataFileError, match=r"1e\+160 in row 2 of expert 0") as caught:
        Outcomes.from_arrays(np.ones((2, 1)), [[1.0, 2.0], [1e160, 0.0]])
    assert caught.value.parameter == "costs"


def test_single_precision_is_kept_and_other_numbers_become_floats():
    X = np.ones((2, 1), np.float32)
    assert Outcomes.from_arrays(X, [[True, False], [0, 1]]).vectors.dtype == np.float32
    assert Outcomes.from_arrays([[1], [2]], [[0, 1], [1, 0]]).vectors.dtype == np.float64


def test_a_table_of_numbers_is_described_by_its_losses():
    found = table_of_numbers().describe()
    content = found.as_dict()
    assert content["best_constant"]["accuracy"] is None
    assert content["all_right"] is None
    assert content["headroom"] >= 0
    assert not any("right" in sentence for sentence in found.sentences)
