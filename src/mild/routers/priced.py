"""Separate heads for errors and prices, so that new prices need no new training."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from mild.core.arrays import FloatArray, check_strength, float_matrix
from mild.errors import InvalidInputError, check_option
from mild.policies import PricedPolicy
from mild.routers.base import BaseRouter
from mild.routers.heads import Heads, logistic_heads, observed, ridge_heads

__all__ = ["PricedRouter"]


class PricedRouter(BaseRouter):
    """Two heads per expert: its expected error and its expected price.

    Decides for the least ``E[error_k | x] + price_weight * E[price_k | x]``. New prices or a new weight
    (``with_prices``) need no retraining.

    Parameters
    ----------
    error_head : "logistic" or "ridge"
        "logistic": ``E[error_k | x] = scale * sigmoid(w_k . x + b_k)``, with errors as soft targets;
        the scale is the largest error present, at least 1. "ridge": linear, cut off at 0.
    alpha : float
        L2 strength of both heads, against the mean over the rows on which the expert was asked.
    price_weight : float, how much one unit of price counts in units of error

    Attributes
    ----------
    error_scale_ : float, the scale of the logistic head; 1 for ridge
    n_iter_ : int, iterations of the error head

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> errors = [[0, 0], [0, 0], [1, 0], [1, 0]]
    >>> router = PricedRouter().fit(X, errors, prices=[0.0, 0.2])
    >>> router.predict([[0.0], [3.0]])
    array([0, 1])
    >>> router.with_prices(betas=[0.0, 2.0]).predict([[0.0], [3.0]])
    array([0, 0])
    """

    policy_: PricedPolicy

    def __init__(
        self, error_head: str = "logistic", alpha: float = 1e-3, price_weight: float = 1.0
    ) -> None:
        self.error_head = error_head
        self.alpha = alpha
        self.price_weight = price_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None, prices: Any = None) -> Self:
        """Learn from inputs X, errors y and, if there are any, prices.

        Parameters
        ----------
        X : (n_samples, n_features) dense or sparse
        y : (n_samples, n_experts) errors, without prices; NaN where an expert was never asked
        sample_weight : (n_samples,) optional
        prices : optional
            (n_experts,) for prices that do not depend on the input, or (n_samples, n_experts) to
            learn them from the input by ridge regression, NaN where unknown.
        """
        inputs, errors, weight = self._check_fit(X, y, sample_weight)
        self.policy_ = self._fit_heads(inputs, errors, weight, prices)
        return self

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> PricedPolicy:
        return self._fit_heads(X, costs, sample_weight, None)

    def _fit_heads(
        self, X: Any, errors: FloatArray, sample_weight: FloatArray | None, prices: Any
    ) -> PricedPolicy:
        alpha = check_strength("alpha", self.alpha)
        price_weight = check_strength("price_weight", self.price_weight)
        kind = check_option("error_head", self.error_head, ("logistic", "ridge"))
        price_head, betas = self._price_head(X, prices, errors.shape, sample_weight, alpha)
        weights = observed("errors", errors, sample_weight)
        self.error_scale_ = 1.0
        if kind == "logistic":
            self.error_scale_ = max(1.0, float(np.nanmax(np.where(weights > 0, errors, 0))))
            error_head = logistic_heads(X, errors / self.error_scale_, weights, alpha)
        else:
            error_head = ridge_heads(X, errors, weights, alpha * weights.sum(axis=0))
        self.n_iter_ = error_head.n_iter
        return PricedPolicy(
            error_head.coef,
            error_head.intercept,
            price_head.coef,
            price_head.intercept,
            betas.astype(X.dtype),
            price_weight,
            kind,
            self.error_scale_,
        )

    def _price_head(
        self,
        X: Any,
        prices: Any,
        shape: tuple[int, ...],
        sample_weight: FloatArray | None,
        alpha: float,
    ) -> tuple[Heads, FloatArray]:
        p = shape[1]
        zero = Heads(np.zeros((p, X.shape[1]), X.dtype), np.zeros(p, X.dtype))
        if prices is None:
            return zero, np.zeros(p)
        constant = np.ndim(prices) == 1
        matrix = float_matrix("prices", np.atleast_2d(np.asarray(prices)))
        if matrix.shape != ((1, p) if constant else shape):
            raise InvalidInputError(
                f"prices must have shape (n_experts,) = ({p},) or (n_samples, n_experts) = {shape}; "
                f"got {np.shape(prices)}.",
                parameter="prices",
            )
        wrong = np.isinf(matrix) | (matrix < 0) | (np.isnan(matrix) if constant else False)
        if wrong.any():
            row, expert = np.argwhere(wrong)[0]
            where = f"for expert {expert}" if constant else f"in row {row}, expert {expert}"
            raise InvalidInputError(
                f"prices must be finite and non-negative; got {matrix[row, expert]:g} {where}.",
                parameter="prices",
            )
        if constant:
            return zero, matrix[0]
        weights = observed("prices", matrix, sample_weight)
        return ridge_heads(X, matrix, weights, alpha * weights.sum(axis=0)), np.zeros(p)

    def expected_errors(self, X: Any) -> FloatArray:
        """Expected error (n_samples, n_experts) of each expert, without prices."""
        inputs = self._check_inputs(X)
        return self.policy_.expected_errors(inputs)

    def expected_prices(self, X: Any) -> FloatArray:
        """Expected price (n_samples, n_experts) of each expert, before ``price_weight``."""
        inputs = self._check_inputs(X)
        return self.policy_.expected_prices(inputs)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the mean cost of the chosen experts.

        ``y`` is the total cost here, ``errors + price_weight * prices``, unlike in ``fit``: it is what
        the decisions are for, and new prices change it.
        """
        return super().score(X, y, sample_weight)
