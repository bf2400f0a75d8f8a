"""A batch of inputs to experts."""

from __future__ import annotations

import numpy as np
import pytest

from batch_cases import make_vectors
from mild.artifact import load
from mild.distributed.batch.deciding import choose, knows_costs, with_decision
from mild.errors import OptionError, UnsupportedError
from mild.policies import StandardizedPolicy

KINDS = ["argmax", "linear", "regression"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("probabilities", [False, True])
def test_the_choice_is_the_routers(routers, kind, probabilities):
    router, X = load(routers(kind)), make_vectors(500)
    found = choose(router, X, None, probabilities)
    np.testing.assert_array_equal(found.chosen, router.predict(X))
    assert found.bad is None
    assert (found.probabilities is not None) == probabilities


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_bad_and_change_no_other(routers, kind, hole):
    router, X = load(routers(kind)), make_vectors(500)
    wanted = router.predict(X)
    X[[3, 400], [1, 2]] = hole
    X.flags.writeable = False
    given = np.zeros(500, bool)
    given[7] = True
    for bad, rows in ((None, [3, 400]), (given, [3, 7, 400])):
        found = choose(router, X, bad)
        assert np.flatnonzero(found.bad).tolist() == rows
        np.testing.assert_array_equal(found.chosen[~found.bad], wanted[~found.bad])


@pytest.mark.parametrize("kind", KINDS)
def test_large_numbers_are_not_bad(routers, kind):
    X = make_vectors(50) * np.float32(1e30)
    with np.errstate(over="ignore", invalid="ignore"):
        assert choose(load(routers(kind)), X, None).bad is None


def test_who_knows_costs(routers):
    assert [knows_costs(load(routers(kind)).policy) for kind in KINDS] == [False, False, True]


def test_another_decision_reaches_into_scaled_inputs(routers):
    policy, X = load(routers("linear")).policy, make_vectors(500)
    scaled = StandardizedPolicy(np.zeros(4), np.ones(4), policy)
    by_score = policy.decision_function(X).argmax(axis=1)
    np.testing.assert_array_equal(with_decision(scaled, "argmax").predict(X), by_score)
    assert (scaled.predict(X) != by_score).any()
    assert with_decision(scaled, None) is scaled
    with pytest.raises(OptionError, match="decision must be one of"):
        with_decision(policy, "best")
    with pytest.raises(UnsupportedError):
        with_decision(load(routers("regression")).policy, "argmax")
