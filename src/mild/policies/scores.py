"""Policies that score experts: linear, and a multilayer perceptron in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.policies.base import ScorePolicy, Settings, Tensors
from mild.policies.decoder import Decoder

# Change of a score in the numerical derivative of log-odds.
STEP = 1e-3
# Probabilities are at least this before their logarithm is taken.
TINY = 1e-300


@dataclass(eq=False, repr=False)
class LinearPolicy(ScorePolicy, kind="linear"):
    """``f(x, k) = coef_k . x + intercept_k``."""

    coef: FloatArray
    intercept: FloatArray
    decoder: Decoder

    tensor_names = ("coef", "intercept")
    scores_tell = True

    def __post_init__(self) -> None:
        self.coef = np.ascontiguousarray(self.coef)
        self.n_experts, self.n_features = self.coef.shape
        self._columns = np.ascontiguousarray(self.coef.T)

    def decision_function(self, X: Any) -> FloatArray:
        scores = np.asarray(X @ self._columns)
        scores += self.intercept
        return scores

    def decide_one(self, x: FloatArray) -> int:
        return self.decoder.choose_one(x @ self._columns + self.intercept)

    def slopes(self, x: FloatArray, chosen: int, other: int) -> FloatArray:
        if self.decoder.by_argmax:
            # The lead is the difference of two scores.
            return self.coef[chosen].astype(np.float64) - self.coef[other]
        return np.asarray(self._slopes_of_odds(x, chosen, other) @ self.coef, np.float64)

    def _slopes_of_odds(self, x: FloatArray, chosen: int, other: int) -> FloatArray:
        """Derivative (n_experts,) of the log-odds of an expert against another in the scores."""
        scores = np.asarray(self.decision_function(x[None])[0], np.float64)
        steps = STEP * np.eye(self.n_experts)
        shares = self.decoder.distribution(np.concatenate([scores + steps, scores - steps]))
        log_shares = np.log(np.maximum(shares, TINY))
        lead = log_shares[:, chosen] - log_shares[:, other]
        slopes: FloatArray = (lead[: self.n_experts] - lead[self.n_experts :]) / (2 * STEP)
        return slopes

    def with_experts(self, experts: IntArray) -> LinearPolicy:
        decoder = self.decoder.with_experts(experts)
        return LinearPolicy(self.coef[experts], self.intercept[experts], decoder)


@dataclass(eq=False, repr=False)
class PerceptronPolicy(ScorePolicy, kind="perceptron"):
    """A ReLU network: ``x -> relu(W_1 x + b_1) -> ... -> W_L h + b_L``."""

    weights: list[FloatArray]
    biases: list[FloatArray]
    decoder: Decoder

    def __post_init__(self) -> None:
        self.n_features = self.weights[0].shape[1]
        self.n_experts = self.weights[-1].shape[0]

    def decision_function(self, X: Any) -> FloatArray:
        hidden = X
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = np.asarray(hidden @ weight.T) + bias
            if layer < len(self.weights) - 1:
                np.maximum(hidden, 0, out=hidden)
        return np.asarray(hidden)

    def network_weights(self) -> dict[str, Any]:
        """As a ``torch.nn.Sequential`` names them, in which a ReLU follows each linear layer."""
        arrays = {}
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays[f"{2 * layer}.weight"] = weight
            arrays[f"{2 * layer}.bias"] = bias
        return arrays

    def with_experts(self, experts: IntArray) -> PerceptronPolicy:
        return PerceptronPolicy(
            [*self.weights[:-1], self.weights[-1][experts]],
            [*self.biases[:-1], self.biases[-1][experts]],
            self.decoder.with_experts(experts),
        )

    def state(self) -> tuple[Settings, Tensors]:
        settings, tensors = super().state()
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            tensors[f"weight_{layer}"] = weight
            tensors[f"bias_{layer}"] = bias
        return {**settings, "layers": len(self.weights)}, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        weights = []
        biases = []
        for layer in range(int(settings["layers"])):
            weights.append(tensors[f"weight_{layer}"])
            biases.append(tensors[f"bias_{layer}"])
        return cls(weights, biases, cls.stored_decoder(settings, tensors))
