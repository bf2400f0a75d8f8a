"""Policies made of policies: other inputs, other experts' order, a blend of costs, and a stack."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from mild.core.arrays import FloatArray, IntArray, float_vector
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
)
from mild.policies.costs import LinearCostPolicy


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
    def has_errors(self) -> bool:
        return self.deciding.has_errors

    @property
    def parts(self) -> list[str]:
        return [self.kind, *self.deciding.parts]


class InnerPolicy(WrapperPolicy):
    """A wrapper whose changes of prices, rule and experts are those of the policy inside."""

    inner: Policy

    def __post_init__(self) -> None:
        self.n_features, self.n_experts = self.inner.n_features, self.inner.n_experts

    @property
    def deciding(self) -> Policy:
        return self.inner

    @property
    def has_prices(self) -> bool:
        return self.inner.has_prices

    def _around(self, inner: Policy) -> Self:
        changed = copy.copy(self)
        changed.inner, changed.n_experts = inner, inner.n_experts
        return changed

    def with_decision(self, rule: str) -> Policy:
        return self._around(self.inner.with_decision(rule))

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Policy:
        return self._around(self.inner.with_prices(betas, price_weight))

    def calibrated(self, slopes: FloatArray, offsets: FloatArray) -> Policy:
        return self._around(self.inner.calibrated(slopes, offsets))

    def without(self, expert: int) -> Policy:
        return self._around(self.inner.without(expert))


@dataclass(eq=False)
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
        return None if inner is None else inner / self.scale

    def state(self) -> tuple[Settings, Tensors]:
        return nested([self.inner], mean=self.mean, scale=self.scale)

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        (inner,) = unnested(settings, tensors)
        return cls(tensors["mean"], tensors["scale"], inner)


@dataclass(eq=False)
class OrderedPolicy(InnerPolicy, kind="ordered"):
    """Decides as ``inner``, whose experts are in another order: its k-th is expert ``order[k]`` here.

    A router of a table is fitted on experts in an order of their own, so that neither its fit nor its ties
    depend on the order of the columns; its users know the experts in the order of the columns.

    >>> from mild.policies import ConstantPolicy
    >>> policy = OrderedPolicy(np.array([1, 0]), ConstantPolicy(np.array([0.2, 0.5]), 1))
    >>> policy.predict(np.zeros((1, 1))), policy.expected_costs(np.zeros((1, 1)))
    (array([1]), array([[0.5, 0.2]]))
    """

    order: IntArray
    inner: Policy

    def __post_init__(self) -> None:
        self.order = np.asarray(self.order, dtype=np.intp)
        self.places = np.argsort(self.order)  # of each expert here, in the inner policy
        super().__post_init__()

    @property
    def shown(self) -> Policy:
        return self.inner.shown

    @property
    def shown_settings(self) -> Settings:
        return self._as_known(self.inner.shown_settings)

    def _as_known(self, settings: Settings) -> Settings:
        """Settings of the inner policy, or of its parts, with its experts as they are known here."""
        found = dict(settings)
        if found.get("named") is not None:
            found["named"] = int(self.order[found["named"]])
        if found.get("order") is not None:
            found["order"] = self.order[found["order"]].tolist()
        if found.get("columns") is not None:
            found["columns"] = np.asarray(found["columns"])[self.places].tolist()
        if "parts" in found:
            found["parts"] = [
                {**part, "settings": self._as_known(part["settings"])} for part in found["parts"]
            ]
        return found

    def decision_function(self, X: Any) -> FloatArray:
        return self.inner.decision_function(X)[:, self.places]

    def predict_proba(self, X: Any) -> FloatArray:
        return self.inner.predict_proba(X)[:, self.places]

    def predict(self, X: Any) -> IntArray:
        return self.order[self.inner.predict(X)]

    def predict_checked(self, X: Any, check: Callable[[Any, int], None]) -> IntArray:
        return self.order[self.inner.predict_checked(X, check)]

    def decide_one(self, x: FloatArray) -> int:
        return int(self.order[self.inner.decide_one(x)])

    def decide(self, X: Any) -> Decisions:
        found, places = self.inner.decide(X), self.places
        return Decisions(
            self.order[found.chosen],
            found.probabilities[:, places],
            None if found.costs is None else found.costs[:, places],
            found.values[:, places],
            found.by,
        )

    def slopes(self, x: FloatArray, chosen: int, other: int) -> FloatArray | None:
        return self.inner.slopes(x, int(self.places[chosen]), int(self.places[other]))

    def expected_costs(self, X: Any) -> FloatArray:
        return self.inner.expected_costs(X)[:, self.places]

    def expected_errors(self, X: Any) -> FloatArray:
        return self.inner.expected_errors(X)[:, self.places]

    def expected_prices(self, X: Any) -> FloatArray:
        return self.inner.expected_prices(X)[:, self.places]

    @property
    def margins(self) -> FloatArray | None:
        margins = self.inner.margins
        return None if margins is None else margins[self.places]

    @property
    def parts(self) -> list[str]:
        return self.inner.parts

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Policy:
        if betas is not None:
            betas = float_vector("betas", betas, self.n_experts)[self.order].tolist()
        return super().with_prices(betas, price_weight)

    def calibrated(self, slopes: FloatArray, offsets: FloatArray) -> Policy:
        return super().calibrated(slopes[self.order], offsets[self.order])

    def without(self, expert: int) -> OrderedPolicy:
        place = int(self.places[self._check_drop(expert)])
        order = np.delete(self.order, place)
        return OrderedPolicy(order - (order > expert), self.inner.without(place))

    def state(self) -> tuple[Settings, Tensors]:
        settings, tensors = nested([self.inner])
        return {"order": self.order.tolist(), **settings}, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        (inner,) = unnested(settings, tensors)
        return cls(np.asarray(settings["order"]), inner)


@dataclass(eq=False)
class TradeoffPolicy(InnerPolicy, kind="tradeoff"):
    """Decides as ``inner``; under other prices as ``heads``, which estimate error and price apart."""

    inner: Policy
    heads: Policy

    def decide_one(self, x: FloatArray) -> int:
        return self.inner.decide_one(x)

    def slopes(self, x: FloatArray, chosen: int, other: int) -> FloatArray | None:
        return self.inner.slopes(x, chosen, other)

    @property
    def has_prices(self) -> bool:
        return self.heads.has_prices

    def with_decision(self, rule: str) -> Policy:
        return self.inner.with_decision(rule)

    def without(self, expert: int) -> TradeoffPolicy:
        return TradeoffPolicy(self.inner.without(expert), self.heads.without(expert))

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Policy:
        return self.heads.with_prices(betas, price_weight)

    def state(self) -> tuple[Settings, Tensors]:
        return nested([self.heads, self.inner])

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        heads, inner = unnested(settings, tensors)
        return cls(inner, heads)


@dataclass(eq=False)
class StackPolicy(WrapperPolicy, kind="stack"):
    """A final policy whose features are the concatenated distributions of several policies."""

    members: list[Policy]
    final: Policy

    def __post_init__(self) -> None:
        self.n_features = self.members[0].n_features
        self.n_experts = self.final.n_experts

    @property
    def deciding(self) -> Policy:
        return self.final

    def prepare(self, X: Any) -> FloatArray:
        """Distributions of the members, (n, members x experts)."""
        return np.concatenate([member.predict_proba(X) for member in self.members], axis=1)

    @property
    def parts(self) -> list[str]:
        return [self.kind, *_kinds([*self.members, self.final])]

    def without(self, expert: int) -> StackPolicy:
        """The members keep every expert; only the final policy drops one."""
        return replace(self, final=self.final.without(expert))

    def state(self) -> tuple[Settings, Tensors]:
        return nested([*self.members, self.final])

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        *members, final = unnested(settings, tensors)
        return cls(members, final)


@dataclass(eq=False)
class BlendPolicy(CostPolicy, kind="blend"):
    """A weighted sum of several policies' estimates of differences in cost.

    ``E[c_k | x] = level(x) + sum_m weights_m (e_mk(x) - mean_j e_mj(x))`` with ``e_m`` the
    ``believed_costs`` of member m, and ``level(x) = sum_m levels_m mean_j e_mj(x)``. Weights and levels
    (members,) are non-negative. A calibrated blend expects ``slope_k E[c_k | x] + offset_k``.
    """

    members: list[Policy]
    weights: FloatArray
    levels: FloatArray
    calibration: FloatArray | None = None  # (2, n_experts) slopes and offsets

    def __post_init__(self) -> None:
        self.n_features = self.members[0].n_features
        self.n_experts = self.members[0].n_experts

    def expected_costs(self, X: Any) -> FloatArray:
        parts = zip(self.members, self.weights.tolist(), self.levels.tolist(), strict=True)
        total = np.zeros((X.shape[0], self.n_experts), self.weights.dtype)
        for member, weight, level in parts:
            if weight or level:
                costs = believed_costs(member, X)
                mean = costs.mean(axis=1, keepdims=True)
                total += weight * (costs - mean) + level * mean
        if self.calibration is not None:
            total = self.calibration[0] * total + self.calibration[1]
        return total

    @property
    def parts(self) -> list[str]:
        return [self.kind, *_kinds(self.members)]

    def calibrated(self, slopes: FloatArray, offsets: FloatArray) -> BlendPolicy:
        before = self.calibration
        if before is not None:
            slopes, offsets = slopes * before[0], slopes * before[1] + offsets
        return replace(self, calibration=np.stack([slopes, offsets]).astype(self.weights.dtype))

    def without(self, expert: int) -> BlendPolicy:
        kept = self.calibration
        if kept is not None:
            kept = np.delete(kept, expert, axis=1)
        members = [member.without(expert) for member in self.members]
        return replace(self, members=members, calibration=kept)

    def state(self) -> tuple[Settings, Tensors]:
        own = {"weights": self.weights, "levels": self.levels}
        if self.calibration is not None:
            own["calibration"] = self.calibration
        return nested(self.members, **own)

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        own = tensors["weights"], tensors["levels"], tensors.get("calibration")
        return cls(unnested(settings, tensors), *own)


@dataclass(eq=False)
class MixedPolicy(LinearCostPolicy, kind="mixed"):
    """``E[c_k | x] = coef_k . e(x) + intercept_k`` with ``e(x)`` the expected costs of ``inner``."""

    inner: Policy

    def __post_init__(self) -> None:
        self.n_experts, self.n_features = len(self.coef), self.inner.n_features

    def expected_costs(self, X: Any) -> FloatArray:
        return super().expected_costs(self.inner.expected_costs(X))

    def slopes(self, x: FloatArray, chosen: int, other: int) -> None:
        return None

    @property
    def parts(self) -> list[str]:
        return [self.kind, *self.inner.parts]

    def state(self) -> tuple[Settings, Tensors]:
        return nested([self.inner], coef=self.coef, intercept=self.intercept)

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        return cls(tensors["coef"], tensors["intercept"], *unnested(settings, tensors))


def believed_costs(policy: Policy, X: Any) -> FloatArray:
    """Expected costs (n, p) of a policy, or minus its distribution if it has none."""
    try:
        return policy.expected_costs(X)
    except UnsupportedError:
        return -policy.predict_proba(X)


def _kinds(policies: Sequence[Policy]) -> list[str]:
    return [kind for policy in policies for kind in policy.parts]


def nested(policies: Sequence[Policy], **own: FloatArray) -> tuple[Settings, Tensors]:
    """State of several policies in one: settings in a list, tensors with a numbered prefix."""
    parts: list[Settings] = []
    tensors: Tensors = {}
    for number, policy in enumerate(policies):
        settings, arrays = policy.state()
        parts.append({"kind": policy.kind, "settings": settings})
        tensors.update({f"{number}.{name}": array for name, array in arrays.items()})
    return {"parts": parts}, tensors | own


def unnested(settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> list[Policy]:
    """Policies from what ``nested`` returned."""
    result = []
    for number, part in enumerate(settings["parts"]):
        start = f"{number}."
        own = {name[len(start) :]: x for name, x in tensors.items() if name.startswith(start)}
        result.append(POLICIES[part["kind"]].from_state(part["settings"], own))
    return result
