"""A loaded router checks what it is given, and changes without a refit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from mild.artifact import Router, RouterInfo, load
from mild.artifact.info import TableInfo, TargetInfo
from mild.errors import InvalidInputError, OutputExistsError, UnsupportedError
from mild.policies.base import BLOCK
from tolerances import rounding

NAMES = ["small", "medium", "large"]
METHODS = ["predict", "predict_proba", "decision_function"]


@pytest.fixture
def router(policies):
    return Router(policies["linear"], NAMES, ["a", "b", "c", "d"])


@pytest.mark.parametrize("layout", [sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_sparse_inputs_decide_as_dense_ones(router, layout, inputs):
    X = np.where(np.abs(inputs) > 0.5, inputs, 0)
    np.testing.assert_array_equal(router.predict(layout(X)), router.predict(X))
    near = rounding(np.float64, steps=64)
    np.testing.assert_allclose(router.predict_proba(layout(X)), router.predict_proba(X), **near)


def test_many_blocks_decide_as_one(router):
    X = np.random.default_rng(2).normal(size=(2 * BLOCK + 17, 4))
    parts = [router.predict(part) for part in np.array_split(X, 5)]
    np.testing.assert_array_equal(router.predict(X), np.concatenate(parts))
    assert router.predict_proba(X).shape == (len(X), 3)


def test_no_rows_give_no_decisions(router):
    assert router.predict(np.zeros((0, 4))).shape == (0,)
    assert router.predict_proba(np.zeros((0, 4))).shape == (0, 3)


def test_lists_integers_and_booleans_are_numbers(router):
    expected = router.predict(np.ones((2, 4)))
    np.testing.assert_array_equal(router.predict([[1, 1, 1, 1]] * 2), expected)
    np.testing.assert_array_equal(router.predict(np.ones((2, 4), bool)), expected)
    np.testing.assert_array_equal(router.predict(np.ones((2, 4), object)), expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (np.zeros(4), r"X must have shape .*got 1 dimension.*X\.reshape\(1, -1\)"),
        (np.zeros((1, 2, 4)), "got 3 dimension"),
        (np.zeros((2, 3)), r"X must have 4 features, .*; got 3"),
        ([["a", "b", "c", "d"]], "X must hold numbers; got <U1 such as np.str_"),
        (np.array([["x", 1, 2, 3]], object), "X must hold numbers; got could not convert"),
        (np.zeros((1, 4), complex), "X must hold numbers; got complex128"),
        (sp.csr_matrix((2, 3)), "got 3"),
    ],
)
def test_inputs_of_the_wrong_form_are_refused(router, method, X, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        getattr(router, method)(X)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_matrix, np.asfortranarray])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_value_that_is_not_finite_is_named(router, bad, layout, dtype):
    X = np.ones((BLOCK + 9, 4), dtype)
    X[BLOCK + 5, 2] = bad
    with pytest.raises(
        InvalidInputError,
        match=rf"X must be finite; got X\[{BLOCK + 5}, 2\] = {bad} \('c'\)",
    ):
        router.predict(layout(X))


def test_huge_finite_values_are_finite(router):
    X = np.full((3, 4), 1e30, np.float32)
    assert router.predict(X).shape == (3,)


class Table:
    """The least that a data frame is."""

    def __init__(self, columns):
        self.columns = columns

    def __array__(self, dtype=None, copy=None):
        return np.ones((2, len(self.columns)))


def test_columns_in_another_order_are_refused(router):
    assert router.predict(Table(["a", "b", "c", "d"])).shape == (2,)
    with pytest.raises(InvalidInputError, match="column 1 must be 'b', got 'c'"):
        router.predict(Table(["a", "c", "b", "d"]))


def test_a_missing_column_is_refused(router):
    with pytest.raises(InvalidInputError, match="4 feature"):
        router.predict(Table(["a", "b", "c"]))


@pytest.mark.parametrize("expert", [1, "medium"])
def test_without_an_expert_the_others_keep_their_names(router, inputs, expert):
    smaller = router.without(expert)
    assert smaller.experts == ["small", "large"]
    assert smaller.n_experts == 2
    assert set(smaller.predict(inputs)) <= {0, 1}
    assert router.n_experts == 3


def test_an_unknown_expert_is_refused_and_the_known_ones_are_named(router):
    with pytest.raises(InvalidInputError, match="one of small, medium, large; got 'huge'"):
        router.without("huge")
    with pytest.raises(InvalidInputError, match=r"index in \[0, 3\); got 3"):
        router.without(3)


def test_new_prices_change_the_decision_of_a_priced_router(policies, inputs):
    router = Router(policies["priced"], NAMES, info=RouterInfo(price_head="dollars"))
    dear = router.with_prices(price_weight=1e6)
    cheapest = policies["priced"].expected_prices(inputs).argmin(axis=1)
    np.testing.assert_array_equal(dear.predict(inputs), cheapest)
    assert (router.predict(inputs) != cheapest).any()


def test_a_router_with_one_head_refuses_new_prices(router):
    with pytest.raises(UnsupportedError, match="one head"):
        router.with_prices(price_weight=2.0)


def test_a_score_router_has_no_expected_costs(router, inputs):
    with pytest.raises(UnsupportedError, match="not what each will cost"):
        router.expected_costs(inputs)


def test_settings_and_repr_say_what_it_is(router):
    assert router.settings["decision"] == "stationary"
    assert repr(router) == "Router(linear, 4 features, experts small, medium, large)"


def test_decisions_check_their_inputs(router):
    with pytest.raises(InvalidInputError) as caught:
        router.decide(np.full((2, router.n_features), np.nan))
    assert caught.value.code == "invalid_X"


def test_a_router_is_a_small_table_in_a_notebook_and_nothing_in_it_is_markup(policies):
    info = RouterInfo(
        table=TableInfo("0" * 64, 1, "wide", ""),
        target=TargetInfo({}, None, 1.0, None, True, None, "a", "<script>alert(1)</script>"),
    )
    shown = Router(
        policies["standardized"], ["<b>small", "medium", "large"], info=info
    )._repr_html_()
    for words in ("standardized &gt; ", "&lt;b&gt;small, medium", "&lt;script&gt;", "1 row,"):
        assert words in shown
    assert "<script" not in shown


def test_a_router_saves_itself_as_it_is(router, inputs, tmp_path):
    folder = router.save(tmp_path / "r")
    np.testing.assert_array_equal(load(folder).predict_proba(inputs), router.predict_proba(inputs))
    with pytest.raises(OutputExistsError):
        router.save(folder)
    router.without("small").save(folder, overwrite=True)
    assert load(folder).experts == ["medium", "large"]
