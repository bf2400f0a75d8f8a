"""Which outcomes to buy: a posterior of the experts' error heads, and what more labels would change.

The heads are Bayesian ridge regressions of the error on features, one per expert. Where draws of the heads
choose different experts for a query, these experts are worth asking about it, cheap ones sooner. They are
asked about the same query: what makes a query hard then cancels when they are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray

# Directions of the features that the heads use: with few labels, more of them only add variance.
DIRECTIONS = 32
# Variances of the part of an error that the features tell, of which the evidence picks one.
SLOPES = (0.001, 0.003, 0.01, 0.03, 0.1)
# Variance of an expert's mean error around that of all experts, and the least noise of an error.
BETWEEN, LEAST_NOISE = 0.05, 0.02
# Draws of the heads, and rows at a time.
DRAWS, BLOCK = 64, 1_000
# An expert of average price is asked about a query if one of so many draws chooses it.
CHANCES = 16
# Queries on which the value of labels is measured, at most.
MEASURED = 2_000


@dataclass(frozen=True, eq=False)
class HeadPosterior:
    """Normal posterior of the heads, ``error_k(x) = offset + mean_k . x`` with a leading 1 in x."""

    mean: FloatArray  # (n_experts, n_features)
    covariance: FloatArray  # (n_experts, n_features, n_features)
    offset: float
    noise: float  # variance of an error around its head

    def errors(self, X: FloatArray) -> FloatArray:
        """Expected errors (n_samples, n_experts)."""
        return X @ self.mean.T + self.offset

    def variances(self, X: FloatArray) -> FloatArray:
        """Variances (n_samples, n_experts) of the heads."""
        return np.stack([((X @ matrix) * X).sum(axis=1) for matrix in self.covariance], axis=1)

    def removable(self, X: FloatArray, rows: FloatArray, cells: IntArray) -> FloatArray:
        """By how much labels for ``cells`` (m, 2), rows of ``X`` and experts, lower ``variances(rows)``."""
        removed = np.zeros((len(rows), len(self.mean)))
        for k in np.unique(cells[:, 1]):
            asked = X[cells[cells[:, 1] == k, 0]]
            precision = np.linalg.inv(self.covariance[k]) + asked.T @ asked / self.noise
            change = self.covariance[k] - np.linalg.inv(precision)
            removed[:, k] = ((rows @ change) * rows).sum(axis=1)
        return np.maximum(removed, 0.0)


def head_features(X: Any) -> FloatArray:
    """Features (n_samples, at most 33) of the heads: a 1, then the leading directions of ``X``."""
    dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    dense = dense - dense.mean(axis=0)
    if dense.shape[1] > DIRECTIONS:
        _, vectors = np.linalg.eigh(dense.T @ dense)
        dense = dense @ vectors[:, ::-1][:, :DIRECTIONS]
    # Of mean square 1 together, so that the strength of a prior means the same for all features.
    scale = np.sqrt((dense**2).sum(axis=1).mean())
    return np.hstack([np.ones((len(dense), 1)), dense / (scale or 1.0)])


def fit_posterior(X: FloatArray, errors: FloatArray) -> HeadPosterior:
    """The posterior of the heads by errors (n_samples, n_experts), NaN where an expert was not asked.

    An expert without any label has the prior: the mean of the others, and their spread.
    """
    known = ~np.isnan(errors)
    counts = known.sum(axis=0)
    asked = np.flatnonzero(counts)
    sums = np.where(known, errors, 0.0).sum(axis=0)
    means = sums[asked] / counts[asked]
    offset = float(means.mean())
    around = (errors[:, asked] - means)[known[:, asked]]
    noise = max(LEAST_NOISE, float((around**2).mean()))
    inputs = [X[known[:, k]] for k in asked]
    grams = [rows.T @ rows / noise for rows in inputs]
    moments = [
        rows.T @ (errors[known[:, k], k] - offset) / noise
        for k, rows in zip(asked, inputs, strict=True)
    ]

    def prior(slope: float) -> FloatArray:
        return np.array([BETWEEN] + [slope] * (X.shape[1] - 1))

    def evidence(slope: float) -> float:
        # Log marginal likelihood, without what does not depend on the slope.
        total, variance = 0.0, prior(slope)
        for gram, moment in zip(grams, moments, strict=True):
            lower = np.linalg.cholesky(np.diag(1 / variance) + gram)
            half = np.linalg.solve(lower, moment)
            total += 0.5 * half @ half - np.log(np.diag(lower)).sum() - 0.5 * np.log(variance).sum()
        return float(total)

    variance = prior(max(SLOPES, key=evidence))
    covariance = np.tile(np.diag(variance), (errors.shape[1], 1, 1))
    mean = np.zeros((errors.shape[1], X.shape[1]))
    for k, gram, moment in zip(asked, grams, moments, strict=True):
        covariance[k] = np.linalg.inv(np.diag(1 / variance) + gram)
        mean[k] = covariance[k] @ moment
    return HeadPosterior(mean, covariance, offset, noise)


def _draws(
    costs: FloatArray, variances: FloatArray, rng: np.random.Generator
) -> Iterator[tuple[slice, FloatArray]]:
    """Draws (rows, n_experts, DRAWS) of the costs, in blocks of rows; their mean is the cost."""
    for start in range(0, len(costs), BLOCK):
        rows = slice(start, start + BLOCK)
        half = rng.standard_normal((*costs[rows].shape, DRAWS // 2))
        noise = np.concatenate([half, -half], axis=2)
        yield rows, costs[rows, :, None] + np.sqrt(variances)[rows, :, None] * noise


def expected_saving(costs: FloatArray, variances: FloatArray, rng: np.random.Generator) -> float:
    """What the best choice after costs change by normal ``variances`` saves, as a mean over the rows."""
    saved = [
        costs[rows].min(axis=1) - draws.min(axis=1).mean(axis=1)
        for rows, draws in _draws(costs, variances, rng)
    ]
    return max(0.0, float(np.concatenate(saved).mean()))


def removed_regret(
    posterior: HeadPosterior, X: FloatArray, asking: FloatArray, cells: IntArray | None
) -> float:
    """By how much labels for ``cells`` are expected to lower the mean cost of the decisions.

    None is for perfect knowledge of the heads: the regret of the decisions as they are.
    """
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(X))[:MEASURED]
    at = X[rows]
    variances = posterior.variances(at) if cells is None else posterior.removable(X, at, cells)
    return expected_saving(posterior.errors(at) + asking[rows], variances, rng)


def plan_cells(
    posterior: HeadPosterior,
    X: FloatArray,
    asking: FloatArray,
    unknown: BoolArray,
    dollars: FloatArray,
    spend: float,
    rng: np.random.Generator,
) -> IntArray:
    """Cells (m, 2), query and expert, to ask about for ``spend`` dollars at most.

    Of queries in random order, the experts that draws of the heads choose are asked: one that a share F
    of the draws chooses with probability ``1 - (1 - F)^(16 sqrt(mean price / its price))``, and the one
    that is chosen now. Queries about which the draws agree are left out. ``asking`` (n_samples,
    n_experts) is what a choice costs beside its error.
    """
    costs = posterior.errors(X) + asking
    shares = np.empty_like(costs)
    for rows, draws in _draws(costs, posterior.variances(X), rng):
        shares[rows] = (draws == draws.min(axis=1, keepdims=True)).mean(axis=2)
    # What costs nothing counts as very cheap.
    price = np.maximum(dollars, 1e-3 * dollars.mean() + 1e-12)
    chances = CHANCES * np.sqrt(price.mean(axis=1, keepdims=True) / price)
    worth = rng.random(costs.shape) < 1 - (1 - shares) ** chances
    worth[np.arange(len(costs)), costs.argmin(axis=1)] = True
    # One answer about a query compares nothing.
    worth &= (worth | ~unknown).sum(axis=1, keepdims=True) > 1
    return row_cells(worth & unknown, dollars, spend, rng)


def random_cells(
    unknown: BoolArray, dollars: FloatArray, spend: float, rng: np.random.Generator
) -> IntArray:
    """Unknown cells in random order, as far as ``spend`` goes."""
    return _affordable(rng.permutation(np.flatnonzero(unknown)), dollars, spend)


def row_cells(
    wanted: BoolArray, dollars: FloatArray, spend: float, rng: np.random.Generator
) -> IntArray:
    """The wanted cells, queries in random order, as far as ``spend`` goes."""
    rows = rng.permutation(len(wanted))
    order = np.arange(wanted.size).reshape(wanted.shape)[rows][wanted[rows]]
    return _affordable(order, dollars, spend)


def _affordable(order: IntArray, dollars: FloatArray, spend: float) -> IntArray:
    """The cells (m, 2) at the beginning of an order, by flat index, that cost ``spend`` at most."""
    paid = dollars.ravel()[order].cumsum()
    # Sums of dollars are not exact.
    count = int(np.searchsorted(paid, spend * (1 + 1e-9), side="right"))
    return np.stack(np.divmod(order[:count], dollars.shape[1]), axis=1)
