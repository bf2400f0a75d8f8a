"""scikit-learn's own checks. They reshape y to one column: one expert only; test_common.py has three."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mild.routers.base import BaseRouter
from mild.routers.classifier import CostSensitiveClassifier
from router_cases import CASES, LINEAR_CASES

# scikit-learn expects (n_samples, 1) predictions from an estimator with a two-dimensional y, and that only
# classifiers have predict_proba. Sparse input has a check of its own below.
EXPECTED_FAILURES = {
    "check_estimator_sparse_array": "a router predicts one expert per row, not one column",
    "check_estimator_sparse_matrix": "a router predicts one expert per row, not one column",
}


# With one expert every loss is zero, so the checks tell apart only the paths through the fit: a loss of
# labels, one of pairs, one with kinks, and no intercept. test_common.py runs all with three experts.
LINEAR_PATHS = ("linear-ce", "linear-pairwise-logistic", "linear-hinge", "linear-no-intercept")


def run(estimator, check):
    """Run a check, unless it is known to fail."""
    if isinstance(estimator, BaseRouter) and (reason := EXPECTED_FAILURES.get(check.func.__name__)):
        pytest.xfail(reason)
    check(estimator)


@parametrize_with_checks([*(case.router for case in CASES), CostSensitiveClassifier()])
def test_passes_the_checks_of_scikit_learn(estimator, check):
    run(estimator, check)


@pytest.mark.slow
@parametrize_with_checks(
    [
        *(case.router for case in LINEAR_CASES if case.name in LINEAR_PATHS),
        CostSensitiveClassifier("hinge"),
        CostSensitiveClassifier(reduction="sum"),
        CostSensitiveClassifier(reduction="log_sum"),
        CostSensitiveClassifier(0.5, margins="uniform"),
    ]
)
def test_variants_pass_the_checks_of_scikit_learn(estimator, check):
    run(estimator, check)
