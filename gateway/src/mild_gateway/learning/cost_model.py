"""A model of what each expert costs, fitted on logged answers of other requests."""

from __future__ import annotations

import numpy as np

from mild_gateway.arrays import FloatArray, IntArray

FOLDS = 5
# Ridge strengths, as multiples of the mean variance of a feature.
STRENGTHS = 10.0 ** np.arange(-4, 5)
# With fewer rows of an expert only their mean is learned.
MIN_RIDGE_ROWS = 10


def expected_costs(
    features: FloatArray,
    chosen: IntArray,
    costs: FloatArray,
    groups: IntArray,
    n_experts: int,
    seed: int = 0,
) -> FloatArray:
    """Predict the cost of each expert on each row, with models fitted on other rows.

    For each expert and fold, a ridge regression of the cost on the features is fitted on the rows of the
    other folds in which this expert was chosen. Its strength is chosen by generalised cross-validation.
    An expert with few such rows gets their mean cost; one without any, the mean over all experts.

    Parameters
    ----------
    features : (n, d) array
    chosen : (n,) array
        Index of the expert that answered; -1 for one that is not among the n_experts.
    costs : (n,) array
        Costs of these answers.
    groups : (n,) array
        Rows of one group, such as an episode, are in one fold.
    n_experts : int
    seed : int, default=0
        Seed of the folds.

    Returns
    -------
    (n, n_experts) array
    """
    columns = _regression_columns(features, costs)
    fold_of_row = _fold_of_row(groups, seed)
    predicted = np.empty((len(costs), n_experts))
    for fold in range(FOLDS):
        is_test = fold_of_row == fold
        mean_cost = 0.0
        train_costs = costs[(chosen >= 0) & ~is_test]
        if train_costs.size:
            mean_cost = float(train_costs.mean())
        for expert in range(n_experts):
            train_columns = columns[(chosen == expert) & ~is_test]
            coefficients = _ridge(train_columns.T @ train_columns)
            if coefficients is None:
                coefficients = np.zeros(columns.shape[1] - 1)
                coefficients[0] = mean_cost
            predicted[is_test, expert] = columns[is_test, :-1] @ coefficients
    return predicted


def _regression_columns(features: FloatArray, costs: FloatArray) -> FloatArray:
    """Return the columns (1, X, y), with X standardised.

    Their products are all that a ridge regression needs.
    """
    scale = features.std(axis=0, dtype=np.float64)
    columns = np.empty((len(costs), len(scale) + 2))
    columns[:, 0] = 1.0
    columns[:, 1:-1] = features - features.mean(axis=0, dtype=np.float64)
    columns[:, 1:-1] /= np.where(scale > 0, scale, 1.0)
    columns[:, -1] = costs
    return columns


def _fold_of_row(groups: IntArray, seed: int) -> IntArray:
    """Return the fold (n,) of each row, drawn at random by group."""
    _, group_of_row = np.unique(groups, return_inverse=True)
    n_groups = int(group_of_row.max(initial=-1)) + 1
    fold_of_group = np.random.default_rng(seed).permutation(n_groups) % FOLDS
    return fold_of_group[group_of_row]


def _ridge(products: FloatArray) -> FloatArray | None:
    """Fit a ridge regression from the products of the columns (1, X, y).

    Returns intercept and slope (1 + n_features,), or None without any row.
    """
    count = products[0, 0]
    if count == 0:
        return None
    mean = products[0] / count
    covariance = products / count - np.outer(mean, mean)
    eigenvalues, eigenvectors = np.linalg.eigh(covariance[1:-1, 1:-1])
    eigenvalues = np.clip(eigenvalues, 0.0, None)
    # The covariance of X and y along the eigenvectors.
    along = eigenvectors.T @ covariance[1:-1, -1]
    mean_variance = float(eigenvalues.mean())
    best_slope = np.zeros(len(eigenvalues))
    if count >= MIN_RIDGE_ROWS and mean_variance > 0:
        least_error = np.inf
        for strength in STRENGTHS * mean_variance:
            slope = along / (eigenvalues + strength)
            residual = max(covariance[-1, -1] - 2 * slope @ along + slope**2 @ eigenvalues, 0.0)
            # The intercept is a parameter, too.
            freedom = 1 - (1 + (eigenvalues / (eigenvalues + strength)).sum()) / count
            if freedom > 0 and residual / freedom**2 < least_error:
                least_error = residual / freedom**2
                best_slope = slope
    coefficients = eigenvectors @ best_slope
    return np.append(mean[-1] - mean[1:-1] @ coefficients, coefficients)
