"""Policies that score experts: linear, and a multilayer perceptron in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from mild.core.arrays import FloatArray
from mild.core.surrogates import Surrogate
from mild.policies.base import ScorePolicy, Settings, Tensors
from mild.policies.decoder import Decoder

__all__ = ["LinearPolicy", "PerceptronPolicy"]


class LinearPolicy(ScorePolicy):
    """``f(x, k) = coef_k . x + intercept_k``."""

    kind = "linear"
    scores_tell = True

    def __init__(self, coef: FloatArray, intercept: FloatArray, decoder: Decoder) -> None:
        self.coef = np.ascontiguousarray(coef)
        self.intercept = intercept
        self.decoder = decoder
        self.n_experts, self.n_features = coef.shape
        self._columns = np.ascontiguousarray(coef.T)

    def decision_function(self, X: Any) -> FloatArray:
        scores = np.asarray(X @ self._columns)
        scores += self.intercept
        return scores

    def scores_experts_first(self, X: Any) -> FloatArray:
        if not isinstance(X, np.ndarray):
            return super().scores_experts_first(X)
        scores = self.coef @ X.T
        scores += self.intercept[:, None]
        return scores

    def decide_one(self, x: FloatArray) -> int:
        return self.decoder.choose_one(x @ self._columns + self.intercept)

    def without(self, expert: int) -> LinearPolicy:
        keep = self._kept(expert)
        return LinearPolicy(self.coef[keep], self.intercept[keep], self.decoder.without(expert))

    def state(self) -> tuple[Settings, Tensors]:
        return self.decoder_settings(), {
            "coef": self.coef,
            "intercept": self.intercept,
            "margins": self.decoder.margins,
        }

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        return cls(tensors["coef"], tensors["intercept"], stored_decoder(settings, tensors))


class PerceptronPolicy(ScorePolicy):
    """A ReLU network: ``x -> relu(W_1 x + b_1) -> ... -> W_L h + b_L``."""

    kind = "perceptron"

    def __init__(
        self,
        weights: Sequence[FloatArray],
        biases: Sequence[FloatArray],
        decoder: Decoder,
    ) -> None:
        self.weights = list(weights)
        self.biases = list(biases)
        self.decoder = decoder
        self.n_features = self.weights[0].shape[1]
        self.n_experts = self.weights[-1].shape[0]

    def decision_function(self, X: Any) -> FloatArray:
        hidden = X
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = np.asarray(hidden @ weight.T) + bias
            if layer < len(self.weights) - 1:
                np.maximum(hidden, 0, out=hidden)
        return np.asarray(hidden)

    def without(self, expert: int) -> PerceptronPolicy:
        keep = self._kept(expert)
        return PerceptronPolicy(
            [*self.weights[:-1], self.weights[-1][keep]],
            [*self.biases[:-1], self.biases[-1][keep]],
            self.decoder.without(expert),
        )

    def state(self) -> tuple[Settings, Tensors]:
        tensors = {"margins": self.decoder.margins}
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            tensors[f"weight_{layer}"] = weight
            tensors[f"bias_{layer}"] = bias
        return {**self.decoder_settings(), "layers": len(self.weights)}, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        layers = range(int(settings["layers"]))
        return cls(
            [tensors[f"weight_{layer}"] for layer in layers],
            [tensors[f"bias_{layer}"] for layer in layers],
            stored_decoder(settings, tensors),
        )


def stored_decoder(settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Decoder:
    """Decoder from an artefact's settings."""
    form, tau = settings["surrogate"]
    return Decoder(
        tensors["margins"].astype(np.float64), settings["decision"], Surrogate(form, float(tau))
    )
