"""Policies made of policies: other inputs, other prices, and a blend of costs."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.errors import UnsupportedError
from mild.policies.base import (
    POLICIES,
    CostPolicy,
    Decisions,
    Policy,
    Settings,
    Tensors,
    dense,
    in_blocks,
    loaded_ranks,
    stored_ranks,
)


class WrapperPolicy(Policy):
    """Decides as another policy, for which it prepares the inputs."""

    @property
    @abstractmethod
    def deciding(self) -> Policy:
        """The policy that decides."""

    def prepare(self, X: Any) -> Any:
        """Inputs as the deciding policy takes them."""
        return X

    def decision_function(self, X: Any) -> FloatArray:
        return self.deciding.decision_function(self.prepare(X))

    def predict_proba(self, X: Any) -> FloatArray:
        return self.deciding.predict_proba(self.prepare(X))

    def predict(self, X: Any) -> IntArray:
        return self.deciding.predict(self.prepare(X))

    def decide(self, X: Any) -> Decisions:
        return self.deciding.decide(self.prepare(X))

    def expected_costs(self, X: Any) -> FloatArray:
        return self.deciding.expected_costs(self.prepare(X))

    def expected_errors(self, X: Any) -> FloatArray:
        return self.deciding.expected_errors(self.prepare(X))

    def expected_prices(self, X: Any) -> FloatArray:
        return self.deciding.expected_prices(self.prepare(X))

    @property
    def margins(self) -> FloatArray | None:
        return self.deciding.margins

    @property
    def ranks(self) -> IntArray | None:
        return self.deciding.ranks

    @property
    def has_errors(self) -> bool:
        return self.deciding.has_errors

    @property
    def parts(self) -> list[str]:
        return [self.kind, *self.deciding.parts]


class InnerPolicy(WrapperPolicy):
    """A wrapper whose changes of prices, rule and experts are those of the policy inside."""

    inner: Policy

    def __post_init__(self) -> None:
        self.n_features = self.inner.n_features
        self.n_experts = self.inner.n_experts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def deciding(self) -> Policy:
        return self.inner

    @property
    def has_prices(self) -> bool:
        return self.inner.has_prices

    def _around(self, inner: Policy) -> Self:
        """The same wrapper around another policy."""
        changed = copy.copy(self)
        changed.inner = inner
        changed.n_experts = inner.n_experts
        return changed

    def with_decision(self, rule: str) -> Policy:
        return self._around(self.inner.with_decision(rule))

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Policy:
        return self._around(self.inner.with_prices(betas, price_weight))

    def with_experts(self, experts: IntArray) -> Policy:
        return self._around(self.inner.with_experts(experts))

    def with_ranks(self, ranks: IntArray | None) -> Policy:
        return self._around(self.inner.with_ranks(ranks))


@dataclass(eq=False, repr=False)
class StandardizedPolicy(InnerPolicy, kind="standardized"):
    """``(x - mean) / scale`` before another policy."""

    mean: FloatArray
    scale: FloatArray
    inner: Policy

    def prepare(self, X: Any) -> FloatArray:
        scaled: FloatArray = (dense(X) - self.mean) / self.scale
        return scaled

    def decision_function(self, X: Any) -> FloatArray:
        return in_blocks(super().decision_function, X)

    def predict_proba(self, X: Any) -> FloatArray:
        return in_blocks(super().predict_proba, X)

    def predict(self, X: Any) -> IntArray:
        return in_blocks(super().predict, X)

    def expected_costs(self, X: Any) -> FloatArray:
        return in_blocks(super().expected_costs, X)

    def decide_one(self, x: FloatArray) -> int:
        return self.inner.decide_one((x - self.mean) / self.scale)

    def slopes(self, x: FloatArray, chosen: int, other: int) -> FloatArray | None:
        inner = self.inner.slopes((x - self.mean) / self.scale, chosen, other)
        if inner is None:
            return None
        return inner / self.scale

    def state(self) -> tuple[Settings, Tensors]:
        return nested([self.inner], mean=self.mean, scale=self.scale)

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        (inner,) = unnested(settings, tensors)
        return cls(tensors["mean"], tensors["scale"], inner)


@dataclass(eq=False, repr=False)
class TradeoffPolicy(InnerPolicy, kind="tradeoff"):
    """Decides as ``inner``; under other prices as ``heads``, which estimate error and price apart.

    ``cascades`` and ``routers`` are other settings that a tuned router can be set to.
    """

    inner: Policy
    heads: Policy
    cascades: list[Policy] = field(default_factory=list)
    routers: list[Policy] = field(default_factory=list)

    def decide_one(self, x: FloatArray) -> int:
        return self.inner.decide_one(x)

    def slopes(self, x: FloatArray, chosen: int, other: int) -> FloatArray | None:
        return self.inner.slopes(x, chosen, other)

    @property
    def has_prices(self) -> bool:
        return self.heads.has_prices

    def decided_by(self, inner: Policy) -> TradeoffPolicy:
        """The same heads and settings, decided by another policy."""
        return replace(self, inner=inner)

    def without_settings(self) -> TradeoffPolicy:
        """The same policy without the cascades and routers that it can be set to."""
        return TradeoffPolicy(self.inner, self.heads)

    def with_decision(self, rule: str) -> Policy:
        return self.inner.with_decision(rule)

    def with_experts(self, experts: IntArray) -> TradeoffPolicy:
        return TradeoffPolicy(self.inner.with_experts(experts), self.heads.with_experts(experts))

    def with_ranks(self, ranks: IntArray | None) -> TradeoffPolicy:
        inner = self.inner.with_ranks(ranks)
        return replace(self, inner=inner, heads=self.heads.with_ranks(ranks))

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Policy:
        return self.heads.with_prices(betas, price_weight)

    def state(self) -> tuple[Settings, Tensors]:
        return nested([self.heads, self.inner, *self.cascades, *self.routers])

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        heads, inner, *others = unnested(settings, tensors)
        cascades = [policy for policy in others if policy.kind == "cascade"]
        routers = [policy for policy in others if policy.kind != "cascade"]
        return cls(inner, heads, cascades, routers)


@dataclass(eq=False, repr=False)
class BlendPolicy(CostPolicy, kind="blend"):
    """A weighted sum of several policies' estimates of differences in cost.

    ``E[c_k | x] = level(x) + sum_m weights_m (e_mk(x) - mean_j e_mj(x))`` with ``e_m`` the
    ``believed_costs`` of member m, and ``level(x) = sum_m levels_m mean_j e_mj(x)``. Weights and levels
    (members,) are non-negative.
    """

    members: list[Policy]
    weights: FloatArray
    levels: FloatArray

    def __post_init__(self) -> None:
        self.n_features = self.members[0].n_features
        self.n_experts = self.members[0].n_experts

    def expected_costs(self, X: Any) -> FloatArray:
        total = np.zeros((X.shape[0], self.n_experts), self.weights.dtype)
        weights = self.weights.tolist()
        levels = self.levels.tolist()
        for member, weight, level in zip(self.members, weights, levels, strict=True):
            if weight or level:
                costs = believed_costs(member, X)
                mean = costs.mean(axis=1, keepdims=True)
                total += weight * (costs - mean) + level * mean
        return total

    @property
    def parts(self) -> list[str]:
        return [self.kind, *_kinds(self.members)]

    def with_experts(self, experts: IntArray) -> BlendPolicy:
        members = [member.with_experts(experts) for member in self.members]
        return replace(self, members=members, ranks=self._ranks_of(experts))

    def state(self) -> tuple[Settings, Tensors]:
        tensors = {"weights": self.weights, "levels": self.levels}
        if self.ranks is not None:
            tensors["ranks"] = stored_ranks(self.ranks)
        return nested(self.members, **tensors)

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        return cls(
            unnested(settings, tensors),
            tensors["weights"],
            tensors["levels"],
            ranks=loaded_ranks(tensors),
        )


def believed_costs(policy: Policy, X: Any) -> FloatArray:
    """Expected costs (n, p) of a policy, or minus its distribution if it has none."""
    try:
        return policy.expected_costs(X)
    except UnsupportedError:
        return -policy.predict_proba(X)


def _kinds(policies: Sequence[Policy]) -> list[str]:
    """Kinds of these policies and of those inside."""
    return [kind for policy in policies for kind in policy.parts]


def nested(policies: Sequence[Policy], **tensors: FloatArray) -> tuple[Settings, Tensors]:
    """State of several policies in one: settings in a list, tensors with a numbered prefix.

    Other tensors are added as they are.
    """
    all_settings: list[Settings] = []
    all_tensors: Tensors = {}
    for number, policy in enumerate(policies):
        settings, policy_tensors = policy.state()
        all_settings.append({"kind": policy.kind, "settings": settings})
        for name, tensor in policy_tensors.items():
            all_tensors[f"{number}.{name}"] = tensor
    return {"parts": all_settings}, all_tensors | tensors


def unnested(settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> list[Policy]:
    """Policies from what ``nested`` returned."""
    policies = []
    for number, part in enumerate(settings["parts"]):
        prefix = f"{number}."
        policy_tensors = {}
        for name, tensor in tensors.items():
            if name.startswith(prefix):
                policy_tensors[name.removeprefix(prefix)] = tensor
        kind = POLICIES[part["kind"]]
        policies.append(kind.from_state(part["settings"], policy_tensors))
    return policies
