"""One pass gives what three calls give."""

from __future__ import annotations

import numpy as np
import pytest

from mild.artifact import load
from mild.artifact.deciding import decide_all
from mild.errors import InvalidInputError, UnsupportedError
from outcome_cases import make_columns

NAMES = ["linear", "argmax", "regression", "knn", "priced", "stack", "constant"]


@pytest.mark.no_cover
@pytest.mark.parametrize("name", NAMES)
def test_decisions_are_those_of_the_router(folders, name):
    router = load(folders(name))
    X = router.features(make_columns(40, 1)["prompt"])
    found = router.decide(X)
    np.testing.assert_array_equal(found.chosen, router.predict(X))
    np.testing.assert_allclose(found.probabilities, router.predict_proba(X), rtol=1e-6)
    try:
        np.testing.assert_allclose(found.costs, router.expected_costs(X))
    except UnsupportedError:
        assert found.costs is None


@pytest.mark.parametrize("name", [name for name in NAMES if name != "constant"])
def test_the_choice_is_the_largest_value(folders, name):
    router = load(folders(name))
    found = decide_all(router.policy, router.features(make_columns(40, 1)["prompt"]))
    rows = np.arange(40)
    np.testing.assert_array_equal(found.values[rows, found.chosen], found.values.max(axis=1))


def test_inputs_are_checked(folders):
    router = load(folders("linear"))
    with pytest.raises(InvalidInputError) as caught:
        router.decide(np.full((2, router.n_features), np.nan))
    assert caught.value.code == "invalid_X"
