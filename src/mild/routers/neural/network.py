"""The network of a neural router: built or copied, placed on a device, and turned into a policy."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Self

import numpy as np
import torch
from torch import Tensor, nn

from mild.core.arrays import FloatArray, IntArray
from mild.errors import InvalidInputError, OptionError, UnsupportedError
from mild.policies import Decoder, PerceptronPolicy, Policy, ScorePolicy
from mild.routers.neural.problem import Problem, as_input, check_output

__all__ = [
    "ModulePolicy",
    "build_module",
    "find_device",
    "perceptron",
    "perceptron_policy",
    "warm_start",
]

REASON = (
    "a router around a module of your own cannot be written as JSON and safetensors: its weights "
    "need its code. Save the weights of policy_.module yourself, or fit "
    "NeuralRouter(module=None, hidden=...), which can be saved."
)


def find_device(name: Any) -> torch.device:
    """The device of this name; "auto" is a CUDA device if there is one, else the CPU.

    Examples
    --------
    >>> find_device("cpu")
    device(type='cpu')
    """
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError, ValueError) as error:
        raise OptionError(
            f"device must be 'auto' or a device of torch, such as 'cpu' or 'cuda'; got {name!r}.",
            parameter="device",
        ) from error
    try:
        # Reading a number back shows that the device works.
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError, ImportError) as error:
        raise OptionError(
            f"device {str(name)!r} is not available on this machine; use 'auto' or 'cpu'.",
            parameter="device",
        ) from error
    return device


def perceptron(n_features: int, hidden: Sequence[int], n_experts: int) -> nn.Sequential:
    """``x -> relu(W_1 x + b_1) -> ... -> W_L h + b_L``, the last layer initialised to 0.

    All experts start equal, so that permuting them permutes the trained network.

    Examples
    --------
    >>> perceptron(2, (8,), 3)
    Sequential(
      (0): Linear(in_features=2, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=3, bias=True)
    )
    """
    widths = [n_features, *map(int, hidden), n_experts]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    for value in network[-1].parameters():
        nn.init.zeros_(value)
    return network


def build_module(module: Any, hidden: Sequence[int], problem: Problem) -> nn.Module:
    """The network to train, in float32 on the problem's device; a given module is copied."""
    n_features, n_experts = problem.n_features, problem.n_experts
    if module is None:
        network: Any = perceptron(n_features, hidden, n_experts)
    elif isinstance(module, nn.Module):
        network = copy.deepcopy(module)
    elif callable(module):
        network = module(n_features, n_experts)
    else:
        raise InvalidInputError(
            f"module must be a torch.nn.Module, a callable (n_features, n_experts) that returns "
            f"one, or None; got {type(module).__name__}.",
            parameter="module",
        )
    if not isinstance(network, nn.Module):
        raise InvalidInputError(
            f"module must return a torch.nn.Module when called with (n_features, n_experts); "
            f"got {type(network).__name__}.",
            parameter="module",
        )
    network = network.to(problem.device, torch.float32)
    # A forward pass on a few rows initialises lazy layers and detects wrong shapes.
    rows = problem.train[:2]
    with torch.no_grad():
        check_output(network.eval()(problem.inputs(rows)), len(rows), n_experts)
    return network


def warm_start(module: nn.Module, policy: Policy) -> None:
    """Copy the weights of a policy whose network has the same names and shapes."""
    state: dict[str, Tensor] = {}
    if isinstance(policy, PerceptronPolicy):
        for layer, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
            state[f"{2 * layer}.weight"] = torch.from_numpy(np.array(weight))
            state[f"{2 * layer}.bias"] = torch.from_numpy(np.array(bias))
    elif isinstance(policy, ModulePolicy):
        state = policy.module.state_dict()
    own = module.state_dict()
    if {name: value.shape for name, value in own.items()} == {
        name: value.shape for name, value in state.items()
    }:
        module.load_state_dict(state)


def perceptron_policy(module: nn.Module, decoder: Decoder) -> PerceptronPolicy:
    """The built-in network as NumPy arrays: it decides without torch."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    return PerceptronPolicy(
        [layer.weight.detach().cpu().numpy().copy() for layer in layers],
        [layer.bias.detach().cpu().numpy().copy() for layer in layers],
        decoder,
    )


class ModulePolicy(ScorePolicy):
    """Scores from a torch module (n, n_features) -> (n, n_outputs) in evaluation mode.

    ``experts`` are the outputs that are experts; None for all. ``batch_size`` rows are scored at once.
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
