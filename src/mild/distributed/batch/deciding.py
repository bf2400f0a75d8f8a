"""A batch of inputs to experts: by the shortest way where the choice alone is asked for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact import LoadedRouter
from mild.artifact.deciding import decide_all
from mild.core.decisions import DECISIONS
from mild.errors import UnsupportedError, check_option
from mild.policies import Policy, ScorePolicy, StandardizedPolicy

__all__ = ["Choices", "choose", "knows_costs", "with_decision"]

Bad = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Choices:
    """What a router makes of a batch.

    Attributes
    ----------
    chosen : (n,) index of the expert; without meaning for bad rows
    bad : (n,) which rows hold nothing that can be routed; None if there are none
    probabilities, costs : (n, n_experts), where asked for and known
    """

    chosen: NDArray[np.intp]
    bad: Bad | None = None
    probabilities: NDArray[Any] | None = None
    costs: NDArray[Any] | None = None


class _SuspiciousError(Exception):
    pass


def choose(router: LoadedRouter, X: Any, bad: Bad | None, probabilities: bool = False) -> Choices:
    """Decide for a batch X (n, n_features); rows that are not finite are bad.

    A linear router's scores tell whether its input was finite, so its input is read once.
    """
    policy = router.policy
    if bad is None and not probabilities and isinstance(policy, ScorePolicy) and policy.scores_tell:
        with suppress(_SuspiciousError), np.errstate(over="ignore", invalid="ignore"):
            return Choices(policy.predict(X, _suspect))
    X, bad = _sound(X, bad)
    if not probabilities:
        return Choices(policy.predict(X), bad)
    found = decide_all(policy, X)
    # The choice does not depend on what else is asked for, down to rounding.
    chosen = policy.predict(X) if _by_scores(policy) else found.chosen
    return Choices(chosen, bad, found.probabilities, found.costs)


def knows_costs(policy: Policy) -> bool:
    """Whether a policy has learned what each expert will cost."""
    try:
        policy.expected_costs(np.zeros((1, policy.n_features)))
    except UnsupportedError:
        return False
    return True


def with_decision(policy: Policy, rule: str | None) -> Policy:
    """The policy with another rule from scores to experts, "stationary" or "argmax"; None keeps its own."""
    if rule is None:
        return policy
    check_option("decision", rule, DECISIONS)
    if isinstance(policy, StandardizedPolicy):
        return StandardizedPolicy(policy.mean, policy.scale, with_decision(policy.inner, rule))
    if not isinstance(policy, ScorePolicy):
        raise UnsupportedError(
            f"a {policy.kind} router takes the least expected cost, so it has no other decision; leave "
            f"--decision out."
        )
    settings, tensors = policy.state()
    return type(policy).from_state({**settings, "decision": rule}, tensors)


def _suspect(block: Any, first_row: int) -> None:
    raise _SuspiciousError


def _by_scores(policy: Policy) -> bool:
    while isinstance(policy, StandardizedPolicy):
        policy = policy.inner
    return isinstance(policy, ScorePolicy)


def _sound(X: Any, bad: Bad | None) -> tuple[Any, Bad | None]:
    """X with zeros in bad rows, and which these are."""
    if bad is None:
        with np.errstate(over="ignore", invalid="ignore"):
            flat = X.ravel(order="K")
            # Exact: squares add up to a finite number only if all are finite.
            if np.isfinite(np.dot(flat, flat)):
                return X, None
    lost = ~np.isfinite(X).all(axis=1)
    bad = lost if bad is None else bad | lost
    if not bad.any():
        return X, None
    clean = np.array(X)
    clean[bad] = 0
    return clean, bad
