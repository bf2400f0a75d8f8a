"""A classifier that may defer to experts: it chooses between its own answer and theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.policies.base import Policy, ScorePolicy, Settings, Tensors, in_blocks
from mild.policies.decoder import Decoder
from mild.policies.scores import PerceptronPolicy

#: How probabilities and values are read from the scores of a network.
READINGS = ("shares", "sigmoid", "asymmetric_softmax", "separate", "gate", "router")
# Shares and probabilities are at least this.
TINY = 1e-30
# Estimates without an upper limit end here, which single precision holds.
LARGEST_VALUE = 1e30


class DeferralValues(NamedTuple):
    """What a network says about n rows, on the scale of probabilities."""

    classes: FloatArray  # (n, K) estimate of P(y = k)
    model: FloatArray  # (n,) value of the classifier's own answer
    experts: FloatArray  # (n, p) value of each expert's answer


@dataclass(eq=False, repr=False)
class DeferralPolicy(Policy, kind="deferral"):
    """Scores K classes and p experts; asks the expert of the largest value if it exceeds the model's.

    The "experts" of this policy are its options: option 0 is the model itself, option j the j-th expert.
    The value of an option estimates 1 minus what its answer costs, where a wrong answer costs 1 and asking
    expert j costs ``costs[j]``. The scores f of a row (classes first, N = K + p) are read as

    - "shares": P is the stationary distribution of f under ``score_margins``, which for equal margins is a
      softmax, and estimates each alternative's share of the rewards. Rewards are ``b - cost`` with
      ``b = (1 - strength) * scale + strength * (sum of all costs)``, and the costs of the classes sum to
      K - 1; this gives the costs themselves.
    - "sigmoid": sigmoid(f_k), sigmoid(g_j).
    - "asymmetric_softmax": softmax over the classes; for the expert exp(g) over the sum of all
      exponentials less the largest one of a class.
    - "separate": softmax over the classes; sigmoid(g_j).
    - "gate": softmax over the classes; values are the softmax over (0, g_1, ..., g_p), model first.
    - "router": softmax over the classes; 1 + p more scores are those of a router among the options.

    Parameters
    ----------
    network : gives the scores (n, n_outputs)
    classes : labels of the K classes
    reading : one of ``READINGS``
    costs : (1 + p,) costs of asking, 0 for the model
    costs_in_loss : whether the values already contain the costs
    score_margins : (N,) margins for "shares", (1 + p,) for "router", ones where no margins are used
    strength, scale : of the rewards, for "shares"
    threshold : an expert is asked if its value exceeds the model's by more than this
    options : the options that are left, in their order; None for all
    """

    network: ScorePolicy
    classes: list[Any]
    reading: str
    costs: FloatArray
    costs_in_loss: bool
    score_margins: FloatArray
    strength: float = 0.0
    scale: float = 1.0
    threshold: float = 0.0
    options: list[int] | None = None

    setting_names = (
        "classes",
        "reading",
        "costs_in_loss",
        "strength",
        "scale",
        "threshold",
        "options",
    )
    tensor_names = ("costs", "score_margins")

    def __post_init__(self) -> None:
        if self.options is None:
            self.options = list(range(len(self.costs)))
        self.n_features = self.network.n_features
        self.n_experts = len(self.options)
        self._decoder = Decoder(np.asarray(self.score_margins, float), "stationary", "logistic")

    def scores(self, X: Any) -> FloatArray:
        """Scores (n, n_outputs) of the network."""
        return np.asarray(self.network.decision_function(X), np.float64)

    def values(self, X: Any) -> DeferralValues:
        """Values of the model and of all experts, costs included."""
        scores = self.scores(X)
        values = _READERS[self.reading](self, scores)
        if self.costs_in_loss:
            return values
        return values._replace(experts=values.experts - self.costs[1:])

    def expert_probabilities(self, X: Any) -> FloatArray:
        """Estimate (n, p) that each expert is right: its value without the cost of asking."""
        return np.clip(self.values(X).experts + self.costs[1:], 0, 1)

    def class_probabilities(self, X: Any) -> FloatArray:
        """Estimate (n, K) of P(y = k)."""
        positive = np.clip(self.values(X).classes, TINY, None)
        return positive / positive.sum(axis=1, keepdims=True)

    def decision_function(self, X: Any) -> FloatArray:
        """Value (n, n_experts) of each option; that of the model is raised by the threshold."""
        values: FloatArray = in_blocks(self._option_values, X)
        return values.astype(X.dtype, copy=False)

    def predict(self, X: Any) -> IntArray:
        """Option of the largest value; the model, and then the first expert, where values tie."""
        return in_blocks(lambda block: self._largest(self._option_values(block)), X)

    def predict_proba(self, X: Any) -> FloatArray:
        """Values (n, n_experts) of the options as shares of their sum."""
        positive = np.clip(self.decision_function(X), TINY, None)
        shares = positive / positive.sum(axis=1, keepdims=True, dtype=np.float64)
        return shares.astype(X.dtype, copy=False)

    def with_experts(self, experts: IntArray) -> DeferralPolicy:
        kept = np.array(self.options)[experts]
        return replace(self, options=kept.tolist())

    def state(self) -> tuple[Settings, Tensors]:
        settings, tensors = super().state()
        network_settings, network_tensors = self.network.state()
        weights = {
            name: array
            for name, array in network_tensors.items()
            if name.startswith(("weight_", "bias_"))
        }
        return {**settings, "layers": network_settings["layers"]}, tensors | weights

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        layers = range(settings["layers"])
        weights = [tensors[f"weight_{layer}"] for layer in layers]
        biases = [tensors[f"bias_{layer}"] for layer in layers]
        fields: dict[str, Any] = {name: settings[name] for name in cls.setting_names}
        for name in cls.tensor_names:
            fields[name] = tensors[name]
        return cls(network=score_network(weights, biases), **fields)

    def _option_values(self, X: Any) -> FloatArray:
        values = self.values(X)
        model = values.model + self.threshold
        of_all = np.column_stack([model, values.experts])
        return of_all[:, self.options]

    def _largest(self, values: FloatArray) -> IntArray:
        """Position of the largest value; of options that tie, the one of the lowest number."""
        lowest_first = np.argsort(np.array(self.options))
        return lowest_first[values[:, lowest_first].argmax(axis=1)]


def full_deferral_policy(policy: Policy) -> DeferralPolicy | None:
    """The policy, if it chooses between a classifier and all its experts; otherwise None."""
    if isinstance(policy, DeferralPolicy) and policy.options == list(range(len(policy.costs))):
        return policy
    return None


def score_network(weights: list[FloatArray], biases: list[FloatArray]) -> PerceptronPolicy:
    """A network of these layers; one layer is linear. Its scores are read, never decided by."""
    decoder = Decoder(np.ones(len(biases[-1])), "argmax", "logistic")
    return PerceptronPolicy(weights, biases, decoder)


def _read_shares(policy: DeferralPolicy, scores: FloatArray) -> DeferralValues:
    """Costs from shares of rewards, of which those of the classes sum to K - 1.

    With B the expected b, S the expected sum of all costs and R = N B - S the sum of the rewards, the
    share of k is q_k = (B - c_k) / R. Over the classes, with Q the sum of their shares,
    Q R = K B - (K - 1), where B = (1 - strength) scale + strength S. This is linear in S.
    """
    n_classes = len(policy.classes)
    n_alternatives = scores.shape[1]
    shares = policy._decoder.distribution(scores)
    class_share = np.maximum(shares[:, :n_classes].sum(axis=1), TINY)
    strength = policy.strength
    level = (1 - strength) * policy.scale
    if strength == 0:
        baseline = np.full(len(scores), level)
        total_reward = (n_classes * level - (n_classes - 1)) / class_share
    else:
        above = n_classes * level - (n_classes - 1) - class_share * n_alternatives * level
        below = class_share * (n_alternatives * strength - 1) - n_classes * strength
        # Scores that fit no distribution of costs are moved to the nearest one.
        most = n_classes - 1 + (1 + policy.costs[1:]).sum()
        cost_sum = np.clip(_ratio(above, below), n_classes - 1, most)
        baseline = level + strength * cost_sum
        total_reward = np.maximum(n_alternatives * baseline - cost_sum, TINY)
    with np.errstate(over="ignore"):
        values = 1 - baseline[:, None] + shares * total_reward[:, None]
    values = np.minimum(values, LARGEST_VALUE)
    classes = values[:, :n_classes]
    return DeferralValues(classes, classes.max(axis=1), values[:, n_classes:])


def _read_sigmoid(policy: DeferralPolicy, scores: FloatArray) -> DeferralValues:
    values = _sigmoid(scores)
    classes = values[:, : len(policy.classes)]
    return DeferralValues(classes, classes.max(axis=1), values[:, len(policy.classes) :])


def _read_asymmetric_softmax(policy: DeferralPolicy, scores: FloatArray) -> DeferralValues:
    n_classes = len(policy.classes)
    class_scores = scores[:, :n_classes]
    top_score = class_scores.max(axis=1, keepdims=True)
    others = np.exp(class_scores - top_score).sum(axis=1) - 1
    odds = scores[:, n_classes] - top_score[:, 0] - np.log(np.maximum(others, TINY))
    classes = _softmax(class_scores)
    return DeferralValues(classes, classes.max(axis=1), _sigmoid(odds)[:, None])


def _read_separate(policy: DeferralPolicy, scores: FloatArray) -> DeferralValues:
    n_classes = len(policy.classes)
    classes = _softmax(scores[:, :n_classes])
    return DeferralValues(classes, classes.max(axis=1), _sigmoid(scores[:, n_classes:]))


def _read_gate(policy: DeferralPolicy, scores: FloatArray) -> DeferralValues:
    n_classes = len(policy.classes)
    classes = _softmax(scores[:, :n_classes])
    with_model = np.column_stack([np.zeros(len(scores)), scores[:, n_classes:]])
    shares = _softmax(with_model)
    return DeferralValues(classes, shares[:, 0], shares[:, 1:])


def _read_router(policy: DeferralPolicy, scores: FloatArray) -> DeferralValues:
    n_classes = len(policy.classes)
    classes = _softmax(scores[:, :n_classes])
    shares = policy._decoder.distribution(np.ascontiguousarray(scores[:, n_classes:]))
    return DeferralValues(classes, shares[:, 0], shares[:, 1:])


_READERS = {
    "shares": _read_shares,
    "sigmoid": _read_sigmoid,
    "asymmetric_softmax": _read_asymmetric_softmax,
    "separate": _read_separate,
    "gate": _read_gate,
    "router": _read_router,
}


def _sigmoid(scores: FloatArray) -> FloatArray:
    """``1 / (1 + exp(-scores))`` without overflow."""
    return np.exp(-np.logaddexp(0, -scores))


def _softmax(scores: FloatArray) -> FloatArray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """``above / below``; 0 / 0 is 0, and other divisions by 0 are infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(above / below, nan=0.0, posinf=np.inf, neginf=-np.inf)
