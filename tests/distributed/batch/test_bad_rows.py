"""Bad rows, and the router as the options change it."""

from __future__ import annotations

import numpy as np
import pytest

from batch_cases import make_vectors
from mild.artifact import Router, load
from mild.distributed.batch.run import BatchOptions, _without_bad_rows, prepare
from mild.errors import OptionError, UnsupportedError
from mild.policies import StandardizedPolicy


@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_bad_and_change_no_other(hole):
    X = make_vectors(500)
    clean = X.copy()
    X[[3, 400], [1, 2]] = hole
    X.flags.writeable = False
    empty = np.zeros(500, bool)
    empty[7] = True
    for given, rows in ((None, [3, 400]), (empty, [3, 7, 400])):
        found, bad = _without_bad_rows(X, given)
        assert np.flatnonzero(bad).tolist() == rows
        assert found.dtype == X.dtype
        np.testing.assert_array_equal(found[~bad], clean[~bad])
        assert not found[bad].any()


def test_large_numbers_are_not_bad():
    X = make_vectors(50) * np.float32(1e30)
    found, bad = _without_bad_rows(X, None)
    assert found is X
    assert bad is None


def test_another_decision_reaches_into_scaled_inputs(routers):
    router, X = load(routers("linear")), make_vectors(500)
    scaled = Router(StandardizedPolicy(np.zeros(4), np.ones(4), router.policy), router.expert_names)
    by_score = router.decision_function(X).argmax(axis=1)
    changed = prepare(scaled, BatchOptions(decision="argmax"))
    np.testing.assert_array_equal(changed.predict(X), by_score)
    assert (scaled.predict(X) != by_score).any()
    assert prepare(scaled, BatchOptions()) is scaled
    with pytest.raises(OptionError) as caught:
        prepare(router, BatchOptions(decision="best"))
    assert caught.value.parameter == "decision"
    with pytest.raises(UnsupportedError) as caught:
        prepare(load(routers("regression")), BatchOptions(decision="argmax"))
    assert caught.value.parameter == "decision"
