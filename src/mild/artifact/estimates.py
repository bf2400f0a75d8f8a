"""What a router expects of its experts, within what is possible: the same number everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mild.artifact.info import CostInfo
from mild.core.arrays import BoolArray, FloatArray
from mild.policies import Policy, mix_of


@dataclass(frozen=True, eq=False)
class Estimates:
    """What can be expected of p experts on n inputs, and how far it can be trusted."""

    costs: FloatArray | None  # (n, p) expected costs; None where the router has not learned them
    # (n, p) probability of a right answer; None where it is not known, NaN for a novel input
    right: FloatArray | None
    # (n,) share of the held-out inputs that are nearer to the training inputs; None if it is not recorded
    novelty: FloatArray | None
    novel: BoolArray | None  # (n,) whether that share is above 99 %


def possible_costs(
    policy: Policy,
    X: FloatArray,
    costs: FloatArray,
    expert_names: Sequence[str],
    terms: CostInfo | None,
) -> FloatArray:
    """Expected costs (n, p) of features X within their possible range, for people and logs.

    ``costs`` are those that the policy estimates; a linear one can leave the range, and decisions rest on
    it as it is. No cost is negative. Where ``terms`` say that the costs are those of a table of outcomes,
    an error is at most 1, and asking expert k costs at least its beta::

        cost[k] = error[k] + beta[k] + what it costs in dollars and seconds,    0 <= error[k] <= 1

    The experts keep the order of their estimates, so that the expert of least estimated cost has the least
    cost here, too; where the limits would put another expert below it, that one is raised to its cost.

    >>> from mild.policies import LinearCostPolicy
    >>> policy = LinearCostPolicy(np.array([[1.0], [0.0]]), np.array([0.0, 0.5]))
    >>> X, terms = np.array([[-0.3], [1.2]]), CostInfo("error", None, None, None)
    >>> possible_costs(policy, X, policy.expected_costs(X), ["a", "b"], terms)
    array([[0. , 0.5],
           [1. , 0.5]])
    """
    mix = mix_of(policy)
    if mix is not None:

        def costs_of_part(part: Policy, inputs: FloatArray, estimates: FloatArray) -> FloatArray:
            return possible_costs(part, inputs, estimates, expert_names, terms)

        costs_of_parts: FloatArray = mix.by_part(costs_of_part, X, costs)
        return costs_of_parts
    low, high = _cost_range(policy, X, costs, expert_names, terms)
    limited = np.clip(costs, low, high)
    if not np.array_equal(limited, costs):
        limited = _in_order_of(costs, limited)
    return np.asarray(limited, costs.dtype)


def _cost_range(
    policy: Policy,
    X: FloatArray,
    costs: FloatArray,
    expert_names: Sequence[str],
    terms: CostInfo | None,
) -> tuple[FloatArray | float, FloatArray | float]:
    """Least and largest possible cost: numbers, (p,) by expert, or (n, p) by input and expert."""
    if terms is None:
        return 0.0, np.inf
    if policy.has_errors:
        # With heads of their own, prices are what costs are besides errors.
        prices = costs - policy.expected_errors(X)
        return prices, prices + 1.0
    if policy.is_constant:
        return 0.0, np.inf
    betas = _betas(terms, expert_names)
    if terms.price_weight or terms.latency_weight:
        # How much of a cost is dollars or seconds is not known.
        return betas, np.inf
    return betas, betas + 1.0


def _in_order_of(costs: FloatArray, limited: FloatArray) -> FloatArray:
    """Limited costs (n, p), raised where an expert would fall below one that was estimated to be cheaper.

    From the least estimated cost on, none is below the one before; of equal ones the last is chosen.
    """
    n_experts = costs.shape[1]
    # Of equal costs the last expert comes first: the columns are sorted in reverse.
    order = n_experts - 1 - np.argsort(costs[:, ::-1], axis=1, kind="stable")
    ordered = np.take_along_axis(limited, order, axis=1)
    raised = np.empty_like(limited)
    np.put_along_axis(raised, order, np.maximum.accumulate(ordered, axis=1), axis=1)
    return raised


def chances(
    policy: Policy,
    X: FloatArray,
    costs: FloatArray | None,
    expert_names: Sequence[str],
    terms: CostInfo | None,
) -> FloatArray | None:
    """Probability (n, p) of a right answer, for graded answers the expected score; None if unknown.

    It is known where errors have a head of their own, or where costs are errors and betas only.
    """
    if policy.has_errors:
        errors = policy.expected_errors(X)
    elif costs is not None and terms and not (terms.price_weight or terms.latency_weight):
        errors = costs - _betas(terms, expert_names)
    else:
        return None
    return np.clip(1 - errors, 0.0, 1.0)


def _betas(terms: CostInfo, names: Sequence[str]) -> FloatArray:
    """What asking each expert costs (p,), in wrong answers; 0 where nothing is recorded."""
    betas = terms.beta or {}
    return np.array([float(betas.get(name, 0.0)) for name in names])
