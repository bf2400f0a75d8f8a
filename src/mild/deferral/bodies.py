"""Networks that score classes and experts: linear, a perceptron, or a module of the user's own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mild.core.arrays import FloatArray, invalid
from mild.errors import OptionError
from mild.routers.neural.network import perceptron

#: Widths of the hidden layers of ``body="mlp"``.
MLP_WIDTHS = (64,)


@dataclass(frozen=True)
class Body:
    """What ``body`` means: widths of hidden layers, none for a linear head, or a module."""

    hidden: tuple[int, ...] = ()
    module: Any = None

    @property
    def is_linear(self) -> bool:
        """Whether scores are linear in the features."""
        return self.module is None and not self.hidden

    def build(self, n_features: int, n_outputs: int) -> nn.Module:
        """Make a new network (n, n_features) -> (n, n_outputs)."""
        if self.module is None:
            return perceptron(n_features, self.hidden, n_outputs)
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module)
        network = self.module(n_features, n_outputs)
        if not isinstance(network, nn.Module):
            raise invalid(
                "body",
                "must return a torch.nn.Module when called with (n_features, n_outputs); got "
                f"{type(network).__name__}.",
            )
        return network

    def check_two_networks(self, loss: str) -> None:
        """Refuse a module that cannot be built twice, for a method with two networks."""
        if isinstance(self.module, nn.Module):
            raise invalid(
                "body",
                f"must be a callable (n_features, n_outputs) that returns a module for loss={loss!r}, "
                "which trains two networks; got one module.",
            )


class SideBySide(nn.Module):
    """The outputs of two networks, one beside the other: classes, then experts."""

    def __init__(self, classifier: nn.Module, expert_network: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier
        self.expert_network = expert_network

    def forward(self, X: Tensor) -> Tensor:
        """Return the scores (n, n_classes + n_experts) of both networks."""
        return torch.cat([self.classifier(X), self.expert_network(X)], dim=1)


def read_body(body: Any) -> Body:
    """Check the parameter ``body``, and return it as a ``Body``."""
    if body == "linear":
        return Body()
    if body == "mlp":
        return Body(MLP_WIDTHS)
    if isinstance(body, str):
        raise OptionError(
            f"body must be 'linear', 'mlp', widths of hidden layers, a torch module or a callable; got "
            f"{body!r}.",
            parameter="body",
        )
    if isinstance(body, (Sequence, np.ndarray)):
        for width in body:
            if isinstance(width, bool) or not isinstance(width, Integral) or width < 1:
                raise invalid("body", f"must hold widths of at least 1; got {width!r}.")
        return Body(tuple(int(width) for width in body))
    if callable(body):
        return Body(module=body)
    raise invalid(
        "body",
        "must be 'linear', 'mlp', widths of hidden layers, a torch module or a callable; got "
        f"{type(body).__name__}.",
    )


def check_outputs(network: nn.Module, X: Tensor, n_outputs: int) -> None:
    """Refuse a module that does not return ``n_outputs`` scores for each row of X."""
    with torch.no_grad():
        scores = network.eval()(X)
    shape = tuple(getattr(scores, "shape", ()))
    if shape != (len(X), n_outputs):
        raise invalid(
            "body",
            f"must return scores of shape (n_rows, {n_outputs}), one for each class and expert; got "
            f"{shape or type(scores).__name__} for {len(X)} rows.",
        )


#: Weights and biases of a network, layer by layer.
Layers = tuple[list[FloatArray], list[FloatArray]]


def layers_of(network: nn.Module) -> Layers:
    """Return weights and biases of a perceptron, or of two side by side."""
    if isinstance(network, SideBySide):
        return side_by_side(layers_of(network.classifier), layers_of(network.expert_network))
    arrays = [value.detach().cpu().numpy().copy() for value in network.parameters()]
    return arrays[::2], arrays[1::2]


def side_by_side(first: Layers, second: Layers) -> Layers:
    """Return the layers of one network that gives the outputs of two networks of the same depth.

    Both read the same input, so the weights of the first layer are stacked. In further layers each network
    reads its own units: their weights are blocks on the diagonal.
    """
    first_weights, first_biases = first
    second_weights, second_biases = second
    weights = [np.concatenate([first_weights[0], second_weights[0]])]
    for upper, lower in zip(first_weights[1:], second_weights[1:], strict=True):
        weights.append(_block_diagonal(upper, lower))
    biases = []
    for upper, lower in zip(first_biases, second_biases, strict=True):
        biases.append(np.concatenate([upper, lower]))
    return weights, biases


def _block_diagonal(upper: FloatArray, lower: FloatArray) -> FloatArray:
    """Return a matrix with two blocks on its diagonal, and 0 elsewhere."""
    height = upper.shape[0] + lower.shape[0]
    width = upper.shape[1] + lower.shape[1]
    blocks = np.zeros((height, width), np.result_type(upper, lower))
    blocks[: upper.shape[0], : upper.shape[1]] = upper
    blocks[upper.shape[0] :, upper.shape[1] :] = lower
    return blocks
