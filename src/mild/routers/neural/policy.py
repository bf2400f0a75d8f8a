"""What a trained network becomes: a NumPy perceptron, or a policy around the module itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self

import numpy as np
import torch
from torch import nn

from mild.core.arrays import FloatArray, IntArray
from mild.errors import UnsupportedError
from mild.policies import Decoder, PerceptronPolicy, ScorePolicy
from mild.routers.neural.problem import as_input

__all__ = ["ModulePolicy", "perceptron_policy"]

REASON = (
    "a router around a module of your own cannot be written as JSON and safetensors: its weights "
    "are nothing without its code. Save the weights of policy_.module yourself, or fit "
    "NeuralRouter(module=None, hidden=...), which can be saved."
)


def perceptron_policy(module: nn.Module, decoder: Decoder) -> PerceptronPolicy:
    """The built-in network as NumPy arrays: it decides without torch."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    return PerceptronPolicy(
        [layer.weight.detach().cpu().numpy().copy() for layer in layers],
        [layer.bias.detach().cpu().numpy().copy() for layer in layers],
        decoder,
    )


class ModulePolicy(ScorePolicy):
    """Scores from a torch module, in batches, without gradients.

    Parameters
    ----------
    module : network (n, n_features) -> (n, n_outputs), in evaluation mode
    decoder : how scores become choices
    n_features : number of features
    batch_size : rows given to the module at once
    device : where the module lives
    experts : outputs of the module that are experts; None for as many as there are margins
    """

    kind = "module"

    def __init__(
        self,
        module: nn.Module,
        decoder: Decoder,
        n_features: int,
        batch_size: int,
        device: torch.device,
        experts: IntArray | None = None,
    ) -> None:
        self.module = module
        self.decoder = decoder
        self.n_features = n_features
        self.n_experts = decoder.margins.size
        self.batch_size = batch_size
        self.device = device
        self.experts = np.arange(self.n_experts) if experts is None else experts

    def decision_function(self, X: Any) -> FloatArray:
        """Scores (n, n_experts), in the precision of X but computed in float32."""
        result = np.empty((X.shape[0], self.n_experts), X.dtype)
        with torch.no_grad():
            for start in range(0, X.shape[0], self.batch_size):
                rows = slice(start, start + self.batch_size)
                scores = self.module(as_input(X[rows], self.device))
                result[rows] = scores.float().cpu().numpy()[:, self.experts]
        return result

    def without(self, expert: int) -> ModulePolicy:
        """The module still scores every expert; the decision leaves one out."""
        self._check_drop(expert)
        return ModulePolicy(
            self.module,
            self.decoder.without(expert),
            self.n_features,
            self.batch_size,
            self.device,
            np.delete(self.experts, expert),
        )

    def state(self) -> NoReturn:
        raise UnsupportedError(REASON)

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        raise UnsupportedError(REASON)
