"""scikit-learn's own checks, of a classifier that makes up its experts: the checks have none."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

pytest.importorskip("torch")

from mild.deferral import DeferralClassifier
from mild.errors import DegenerateDataWarning, InvalidInputError


class WithExperts(DeferralClassifier):
    """One expert that gives the label of each third row and else that of the first row."""

    def fit(self, X: Any, y: Any, experts: Any = None) -> Self:
        if experts is None and y is not None:
            labels = np.asarray(y).ravel()
            experts = np.where(np.arange(len(labels)) % 3 == 0, labels, labels[:1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateDataWarning)
            return super().fit(X, y, experts=experts)


@parametrize_with_checks([WithExperts(), WithExperts("mild"), WithExperts("two_stage_tdef")])
def test_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([WithExperts("mixture_of_experts", body=(8,), epochs=30, lr=0.03)])
def test_a_network_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_without_experts_a_fit_is_refused():
    with pytest.raises(InvalidInputError, match="experts must be given"):
        DeferralClassifier().fit([[0.0], [1.0]], [0, 1])
