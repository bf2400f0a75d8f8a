"""Rows that are not finite are shown to whoever inspects them, without a word from numpy."""

from __future__ import annotations

import numpy as np
import pytest

from mild.errors import InvalidInputError
from mild.policies import Decoder, LinearPolicy


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("rule", ["argmax", "stationary"])
def test_scores_of_both_signs_at_infinity_are_inspected_without_a_warning(rule, bad):
    coef = np.array([[1.0, 2.0], [-1.0, 0.5], [0.0, -3.0]])
    policy = LinearPolicy(coef, np.zeros(3), Decoder(np.ones(3), rule, "logistic"))
    assert policy.scores_tell
    X = np.ones((5, 2))
    X[3, 0] = bad

    def refuse(block, first_row):
        raise InvalidInputError(f"rows from {first_row}: {np.argwhere(~np.isfinite(block))}")

    with pytest.raises(InvalidInputError, match=r"rows from 0: \[\[3 0\]\]"):
        policy.predict_checked(X, refuse)
