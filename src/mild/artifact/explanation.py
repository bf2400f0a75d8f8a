"""Why did a query go where it went? The figures behind one decision."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.artifact import LoadedRouter
from mild.artifact.deciding import Decisions, decide_all
from mild.artifact.evidence import Evidence, by_leaving_out, by_terms
from mild.core.arrays import FloatArray
from mild.errors import UnsupportedError

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class Explanation:
    """One decision, and what it rests on.

    Attributes
    ----------
    expert, runner_up : names; the latter is None where there is one expert
    probabilities : expert -> estimate of its share of the expected reward
    expected_costs : expert -> expected cost; None where the router has not learned them
    values : expert -> what the choice is the best of
    by : what the values are: "expected cost", "probability", "score" or "confidence"
    margins : expert -> margin; None where the router has none
    lead : by how much the chosen expert is ahead of the next one, in what ``by`` says
    evidence : parts of the query and what they add to the lead, largest first
    others : what the parts that are not listed add together
    method : how the evidence was found: "terms", "words left out", "passages left out" or "none"
    unit : what the evidence is measured in
    """

    expert: str
    runner_up: str | None
    probabilities: dict[str, float]
    expected_costs: dict[str, float] | None
    values: dict[str, float]
    by: str
    margins: dict[str, float] | None
    lead: float
    evidence: tuple[Evidence, ...]
    others: float
    method: str
    unit: str

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)


def explain(router: LoadedRouter, content: Any, most: int = 12) -> Explanation:
    """Explain the decision on one query.

    For a linear router on hashed text the evidence is exact: the lead is a sum over terms. For any other,
    words (or passages of a long text) are left out one by one. A cascade and a constant have no lead.

    Parameters
    ----------
    router : with a text step
    content : text, or a vector where the router was fitted on vectors
    most : pieces of evidence at most
    """
    step = router.text
    if step is None:
        raise UnsupportedError(
            "this router was fitted on columns of numbers, so it cannot read a query; mild predict gives "
            "its choices for a table."
        )
    found = decide_all(router.policy, step.transform([content]))
    chosen = int(found.chosen[0])
    order = np.argsort(-found.values[0], kind="stable")
    other = next((int(k) for k in order if k != chosen), None)
    evidence, method, unit = _evidence(router, content, found.by, chosen, other)
    names = router.expert_names
    return Explanation(
        names[chosen],
        None if other is None else names[other],
        _named(names, found.probabilities[0]),
        None if found.costs is None else _named(names, found.costs[0]),
        _named(names, _shown_values(found)),
        found.by,
        _margins(router),
        0.0 if other is None else float(found.values[0, chosen] - found.values[0, other]),
        tuple(evidence[:most]),
        sum(entry.effect for entry in evidence[most:]),
        method,
        unit,
    )


def _evidence(
    router: LoadedRouter, content: Any, by: str, chosen: int, other: int | None
) -> tuple[list[Evidence], str, str]:
    step, policy = router.text, router.policy
    if step is None or other is None or not isinstance(content, str) or by == "confidence":
        return [], "none", ""
    found = by_terms(content, step, policy, chosen, other)
    if found is not None:
        return found, "terms", "log-odds" if by == "probability" else by

    def lead(texts: list[str]) -> FloatArray:
        values = decide_all(policy, step.transform(texts)).values
        return np.asarray(values[:, chosen] - values[:, other], np.float64)

    found, part = by_leaving_out(content, lead)
    if not any(entry.effect for entry in found):
        return [], "none", ""
    return found, f"{part}s left out", by


def _shown_values(found: Decisions) -> FloatArray:
    return -found.values[0] if found.by == "expected cost" else found.values[0]


def _margins(router: LoadedRouter) -> dict[str, float] | None:
    policy: Any = router.policy
    while not hasattr(policy, "decoder"):
        policy = getattr(policy, "inner", None) or getattr(policy, "final", None)
        if policy is None:
            return None
    return _named(router.expert_names, policy.decoder.margins)


def _named(names: list[str], values: FloatArray) -> dict[str, float]:
    return dict(zip(names, np.asarray(values, np.float64).tolist(), strict=True))
