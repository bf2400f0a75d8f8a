"""One decision: expected costs and probabilities of every expert, by the shortest way there is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.artifact import LoadedRouter
from mild.artifact.deciding import decide_all
from mild.artifact.prices import new_prices
from mild.core.arrays import FloatArray
from mild.errors import MildError
from mild.gateway.refusals import Refusal
from mild.policies import Policy, PricedPolicy, StandardizedPolicy

__all__ = ["Chooser", "Scores"]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a router makes of one text.

    Attributes
    ----------
    best : index of the expert that it chooses
    order : every expert, the one to ask first in front
    probabilities : of each expert
    costs : expected, of each expert; None where the router has not learned them
    """

    best: int
    order: list[int]
    probabilities: list[float]
    costs: list[float] | None


Score = Callable[[FloatArray, Sequence[float | None]], list[Scores]]


class Chooser:
    """A router made ready for one text at a time.

    Parameters
    ----------
    router : with a text step
    price_weight : in place of the router's own

    Attributes
    ----------
    names : of the experts, in the router's order
    fixed : why another price weight is refused; None if it is not

    Raises
    ------
    MildError
        the router has no text step, or takes no other price weight
    """

    def __init__(self, router: LoadedRouter, price_weight: float | None = None) -> None:
        self.router = new_prices(router, price_weight=price_weight).on(router)
        router.features([""])  # a router without a text step says so here
        self.names = list(router.expert_names)
        self.fixed: str | None = None
        try:
            new_prices(router, price_weight=1.0)
        except MildError as error:
            self.fixed = str(error)
        assert self.router.text is not None
        self._features = self.router.text
        self._score = _score_of(self.router.policy)

    def score(self, text: str, price_weight: float | None = None) -> Scores:
        """Score every expert for one text, perhaps under another price weight."""
        return self._score(self._features.transform_one(text)[None], (price_weight,))[0]

    def score_all(self, texts: Sequence[str], weights: Sequence[float | None]) -> list[Scores]:
        """Score several texts at once, each under its own price weight: much cheaper than one by one."""
        if len(texts) == 1:
            return [self.score(texts[0], weights[0])]
        return self._score(self._features.transform(texts), weights)

    def check_weight(self, price_weight: float | None) -> None:
        """Refuse another price weight where the router takes none."""
        if price_weight is not None and self.fixed is not None:
            raise Refusal(
                400, f"router-mild-<t> cannot be used with this router: {self.fixed}", param="model"
            )

    def weighed(self, price_weight: float | None) -> LoadedRouter:
        """The router, perhaps under another price weight."""
        if price_weight is None:
            return self.router
        return self.router.with_prices(price_weight=price_weight)


def _score_of(policy: Policy) -> Score:
    if isinstance(policy, StandardizedPolicy):
        inner, mean, scale = _score_of(policy.inner), policy.mean, policy.scale
        return lambda X, weights: inner((X - mean) / scale, weights)
    if isinstance(policy, PricedPolicy):
        return _priced(policy)

    def score(X: FloatArray, weights: Sequence[float | None]) -> list[Scores]:
        found = decide_all(policy, X)
        values = (-found.values if found.costs is None else found.costs).tolist()
        shares = found.probabilities.tolist()
        scores = []
        for i, best in enumerate(found.chosen.tolist()):
            costs = None if found.costs is None else values[i]
            scores.append(Scores(best, _order(values[i], best), shares[i], costs))
        return scores

    return score


def _priced(policy: PricedPolicy) -> Score:
    """``PricedPolicy`` for a few inputs: both heads in one product, the rest in plain numbers."""
    count = policy.n_experts
    heads = np.ascontiguousarray(np.concatenate([policy.error_coef, policy.price_coef]).T)
    shifts = np.concatenate([policy.error_intercept, policy.price_intercept])
    betas: list[float] = np.asarray(policy.betas, np.float64).tolist()
    logistic, scale = policy.kind_of_error == "logistic", policy.error_scale

    def score(X: FloatArray, weights: Sequence[float | None]) -> list[Scores]:
        scores = []
        raws: list[list[float]] = (X @ heads + shifts).tolist()
        for raw, weight in zip(raws, weights, strict=True):
            price_weight = policy.price_weight if weight is None else weight
            costs = []
            for k in range(count):
                error = scale * _sigmoid(raw[k]) if logistic else max(raw[k], 0.0)
                costs.append(error + price_weight * (max(raw[count + k], 0.0) + betas[k]))
            best = count - 1 - costs[::-1].index(min(costs))
            scores.append(Scores(best, _order(costs, best), _shares(costs), costs))
        return scores

    return score


def _sigmoid(value: float) -> float:
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    small = math.exp(value) if value > -700 else 0.0
    return small / (1 + small)


def _order(costs: Sequence[float], best: int) -> list[int]:
    """The choice, then the others by expected cost."""
    return sorted(range(len(costs)), key=lambda k: (k != best, costs[k]))


def _shares(costs: Sequence[float]) -> list[float]:
    """Each expert's share of the rewards ``sum of the others' costs``; equal where all are 0."""
    known = [max(cost, 0.0) for cost in costs]
    total = math.fsum(known)
    rewards = [max(total - cost, 0.0) for cost in known]
    whole: Any = math.fsum(rewards)
    return [reward / whole for reward in rewards] if whole > 0 else [1 / len(costs)] * len(costs)
