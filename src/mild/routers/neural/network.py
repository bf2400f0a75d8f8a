"""The network of a neural router, the data it is trained on, and the policy it becomes."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from mild.core.arrays import FloatArray, IntArray, invalid
from mild.errors import OptionError, UnsupportedError
from mild.nn import mild_loss
from mild.policies import Decoder, PerceptronPolicy, ScorePolicy
from mild.routers.base import weights_or_ones
from mild.routers.objective import Targets

# Dense rows up to this many bytes are kept on an accelerator; more is sent batch by batch.
RESIDENT = 4 << 30
# Rows per block when rows that are held out are scored.
BLOCK = 4096


class Problem:
    """The training data of a network, on its device, with the loss and the validation.

    Rewards are scaled to mean row sum 1 over the training rows.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, n_features)
        Features.
    costs : array of shape (n, n_experts)
        NaN where unknown.
    sample_weight : array of shape (n,) or None
        Weights of the rows; rows of weight 0 are left out.
    targets : Targets
        What the loss needs besides the scores.
    decoder : Decoder
        Turns scores into choices, for the deferral loss of validation rows.
    held_out : float
        Share of the rows that is held out for validation.
    seed : int
        Decides which rows are held out, and the order of the others in every epoch.
    device : torch.device
        Where the network is trained.

    Attributes
    ----------
    train, validation : arrays of row indices
    """

    def __init__(
        self,
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        targets: Targets,
        decoder: Decoder,
        held_out: float,
        seed: int,
        device: torch.device,
    ) -> None:
        self.X = X
        self.costs = costs
        self.sample_weight = sample_weight
        self.n_features = X.shape[1]
        self.n_experts = costs.shape[1]
        self.targets = targets
        self.decoder = decoder
        self.seed = seed
        self.device = device
        self._weight = weights_or_ones(sample_weight, len(costs))
        self.train, self.validation = self._split(held_out)
        self._rewards = self._tensor(self._scaled_rewards())
        self._margins: list[float] = targets.margins.tolist()
        self._asked: Tensor | None = None
        if targets.asked is not None:
            self._asked = torch.from_numpy(targets.asked).to(device)
        self._scale = self._optional_tensor(targets.scale)
        self._offset = self._optional_tensor(targets.offset)
        self._label_offset = self._optional_tensor(targets.label_offset)
        self._resident: Tensor | None = None
        if self._fits_on_accelerator():
            self._resident = as_input(X, device)

    def _scaled_rewards(self) -> FloatArray:
        """Return rewards (n, p) whose mean row sum over the training rows is 1."""
        total = float(self.targets.rewards[self.train].sum())
        if total <= 0:
            return self.targets.rewards
        return self.targets.rewards * (len(self.train) / total)

    def _fits_on_accelerator(self) -> bool:
        """Whether to keep all of X on the device, because it is an accelerator with enough memory."""
        is_sparse = hasattr(self.X, "toarray")
        return self.device.type != "cpu" and not is_sparse and 4 * self.X.size <= RESIDENT

    def _split(self, held_out: float) -> tuple[IntArray, IntArray]:
        """Return the rows to train on and the rows held out; resampling applies to the former alone."""
        resampled = self.targets.sample_weight
        rows = np.flatnonzero(self._weight > 0)
        order = np.random.default_rng([self.seed, 0]).permutation(rows)
        n_validation = int(held_out * len(rows))
        validation = np.sort(order[:n_validation])
        train = np.sort(order[n_validation:])
        train = train[resampled[train] > 0]
        if len(train) == 0:
            # Under-sampling kept only rows that were held out.
            return rows[resampled[rows] > 0], rows[:0]
        return train, validation

    def _tensor(self, values: FloatArray) -> Tensor:
        """Return values in float32 on the device."""
        return torch.from_numpy(np.array(values, dtype=np.float32)).to(self.device)

    def _optional_tensor(self, values: FloatArray | None) -> Tensor | None:
        """Return values in float32 on the device; None if there are none."""
        if values is None:
            return None
        return self._tensor(values)

    def _index(self, rows: IntArray) -> Tensor:
        """Return row indices on the device."""
        return torch.from_numpy(rows).to(self.device)

    def inputs(self, rows: IntArray) -> Any:
        """Return the input of the network for m rows: (m, n_features), float32, on the device."""
        if self._resident is not None:
            return self._resident[self._index(rows)]
        return as_input(self.X[rows], self.device)

    def batches(self, size: int, rng: np.random.Generator) -> list[IntArray]:
        """Divide the training rows into random batches, whose sizes differ by at most one."""
        return np.array_split(rng.permutation(self.train), math.ceil(len(self.train) / size))

    def losses(self, scores: Tensor, rows: IntArray) -> Tensor:
        """Return the loss (m,) of each of these rows on their scores (m, n_experts)."""
        index = self._index(rows)
        rewards = self._rewards[index]
        if self._scale is not None:
            scores = scores * self._scale
        if self._offset is not None:
            scores = scores + self._offset
        if self._label_offset is not None:
            scores = scores + torch.where(rewards > 0, self._label_offset, 0.0)
        asked = None
        if self._asked is not None:
            asked = self._asked[index]
        return mild_loss(scores, rewards, self._margins, self.targets.surrogate, asked=asked)

    def validate(self, module: nn.Module) -> dict[str, float]:
        """Return deferral loss and mean surrogate on the rows held out.

        Rows whose chosen expert was never asked are left out of the deferral loss; if that leaves
        none it is infinite. Both are NaN for scores that are not finite.
        """
        module.eval()
        rows = self.validation
        with torch.no_grad():
            scores = self._scores(module, rows)
            if not bool(torch.isfinite(scores).all()):
                return {"validation_loss": math.nan, "validation_surrogate": math.nan}
            surrogate = float(self.losses(scores, rows).mean())
        chosen = self.decoder.choose(scores.cpu().numpy())
        chosen_costs = self.costs[rows, chosen].astype(np.float64)
        is_known = ~np.isnan(chosen_costs)
        weight = self._weight[rows][is_known]
        total_weight = float(weight.sum())
        deferral_loss = math.inf
        if total_weight > 0:
            deferral_loss = float(weight @ chosen_costs[is_known]) / total_weight
        return {"validation_loss": deferral_loss, "validation_surrogate": surrogate}

    def _scores(self, module: nn.Module, rows: IntArray) -> Tensor:
        """Return the scores (m, n_experts) of m rows, computed in blocks."""
        blocks = np.array_split(rows, max(1, math.ceil(len(rows) / BLOCK)))
        return torch.cat([module(self.inputs(block)).float() for block in blocks])


def as_input(rows: Any, device: torch.device) -> Tensor:
    """Return dense or CSR rows as a float32 tensor on the device; always a copy."""
    if hasattr(rows, "toarray"):
        rows = rows.toarray()
    # Overflow to infinity is reported by training.
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.array(rows, dtype=np.float32)).to(device)


def check_output(scores: Any, n_rows: int, n_experts: int) -> None:
    """Check that a module returned scores (n_rows, n_experts)."""
    if not isinstance(scores, Tensor):
        got = type(scores).__name__
    elif scores.shape != (n_rows, n_experts):
        got = str(tuple(scores.shape))
    elif not scores.is_floating_point():
        got = f"dtype {scores.dtype}"
    else:
        return
    raise invalid(
        "module",
        f"must return float scores of shape (n_rows, n_experts) = ({n_rows}, {n_experts}); got {got}.",
    )


def find_device(name: Any) -> torch.device:
    """Return the device of this name; "auto" is a CUDA device if there is one, else the CPU."""
    if isinstance(name, str) and name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("cpu")
    rule = f"device must be 'auto' or a device of torch, such as 'cpu' or 'cuda'; got {name!r}."
    try:
        device = torch.device(name)
        rule = f"device {str(name)!r} is not available on this machine; use 'auto' or 'cpu'."
        # Reading a number back shows that the device works.
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, TypeError, ValueError, AssertionError, ImportError) as error:
        raise OptionError(rule, parameter="device") from error
    return device


def perceptron(n_features: int, hidden: Sequence[int], n_experts: int) -> nn.Sequential:
    """Return a ReLU network ``x -> relu(W_1 x + b_1) -> ... -> W_L h + b_L``.

    The last layer is initialised to 0: all experts start equal, so that permuting them permutes the trained
    network.
    """
    widths = [n_features, *map(int, hidden), n_experts]
    layers: list[nn.Module] = []
    for width, next_width in itertools.pairwise(widths):
        layers += [nn.Linear(width, next_width), nn.ReLU()]
    # Without the last ReLU: scores may be negative.
    network = nn.Sequential(*layers[:-1])
    for value in network[-1].parameters():
        nn.init.zeros_(value)
    return network


def build_module(module: Any, hidden: Sequence[int], problem: Problem) -> nn.Module:
    """Return the network to train, in float32 on the problem's device; a module is copied."""
    n_features = problem.n_features
    n_experts = problem.n_experts
    network = _new_network(module, hidden, n_features, n_experts)
    network = network.to(problem.device, torch.float32)
    # A forward pass on a few rows initialises lazy layers and detects wrong shapes.
    rows = problem.train[:2]
    with torch.no_grad():
        check_output(network.eval()(problem.inputs(rows)), len(rows), n_experts)
    return network


def _new_network(module: Any, hidden: Sequence[int], n_features: int, n_experts: int) -> nn.Module:
    """Return a perceptron, a copy of the user's module, or what the user's callable returns."""
    if module is None:
        return perceptron(n_features, hidden, n_experts)
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    if not callable(module):
        raise invalid(
            "module",
            f"must be a torch.nn.Module, a callable (n_features, n_experts) that returns one, or "
            f"None; got {type(module).__name__}.",
        )
    network = module(n_features, n_experts)
    if not isinstance(network, nn.Module):
        raise invalid(
            "module",
            f"must return a torch.nn.Module when called with (n_features, n_experts); got "
            f"{type(network).__name__}.",
        )
    return network


def warm_start(module: nn.Module, policy: ScorePolicy) -> None:
    """Copy the weights of a policy whose network has the same names and shapes."""
    weights = {name: torch.as_tensor(array) for name, array in policy.network_weights().items()}
    if _shapes(weights) == _shapes(module.state_dict()):
        module.load_state_dict(weights)


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    """Return the shape of each tensor."""
    return {name: tensor.shape for name, tensor in weights.items()}


def perceptron_policy(module: nn.Module, decoder: Decoder) -> PerceptronPolicy:
    """Return the policy of a perceptron, as NumPy arrays: it decides without torch."""
    arrays = [value.detach().cpu().numpy().copy() for value in module.parameters()]
    return PerceptronPolicy(arrays[::2], arrays[1::2], decoder)


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
        if experts is None:
            experts = np.arange(self.n_experts)
        self.experts = experts

    def decision_function(self, X: Any) -> FloatArray:
        """Scores (n, n_experts), in the precision of X but computed in float32."""
        result = np.empty((X.shape[0], self.n_experts), X.dtype)
        with torch.no_grad():
            for start in range(0, X.shape[0], self.batch_size):
                rows = slice(start, start + self.batch_size)
                scores = self.module(as_input(X[rows], self.device))
                result[rows] = scores.float().cpu().numpy()[:, self.experts]
        return result

    def network_weights(self) -> dict[str, Any]:
        return self.module.state_dict()

    def with_experts(self, experts: IntArray) -> ModulePolicy:
        """Return a policy that decides between these experts; the module still scores all of them."""
        changed = copy.copy(self)
        changed.decoder = self.decoder.with_experts(experts)
        changed.n_experts = len(experts)
        changed.experts = self.experts[experts]
        return changed

    def state(self) -> NoReturn:
        raise UnsupportedError(
            "a router around a module of your own cannot be written as JSON and safetensors: its "
            "weights need its code. Save the weights of policy_.module yourself, or fit "
            "NeuralRouter(module=None, hidden=...), which can be saved."
        )
