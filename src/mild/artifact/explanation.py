"""Explanation of one decision: its figures, and the parts of the query that it rests on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.artifact.deciding import decide_all
from mild.artifact.loaded import LoadedRouter
from mild.core.arrays import FloatArray
from mild.errors import UnsupportedError
from mild.features import HashingFeatures, TextFeatures
from mild.features.terms import shorten
from mild.policies import LinearCostPolicy, LinearPolicy, Policy, StandardizedPolicy

__all__ = ["Evidence", "Explanation", "explain"]

# Texts of at most so many words are explained word by word, longer ones passage by passage.
MOST_WORDS = 150
PASSAGES = 50
# Characters of a part that are shown.
SHOWN = 48
# Step of the numerical derivative of log-odds.
STEP = 1e-3
# Lower bound of probabilities under the logarithm.
TINY = 1e-300
# Readable names of the plain numbers.
NUMBER_WORDS = {
    "<log_length>": "(length of the text)",
    "<log_lines>": "(number of lines)",
    "<log_questions>": "(question marks)",
    "<digits>": "(share of digits)",
    "<capitals>": "(share of capitals)",
    "<code>": "(share of code signs)",
    "<arithmetic>": "(share of arithmetic signs)",
    "<spaces>": "(share of spaces)",
    "<not_ascii>": "(share outside ASCII)",
}


@dataclass(frozen=True)
class Evidence:
    """A part of a query, and what it adds to the lead of the chosen expert over the next one."""

    part: str
    effect: float


@dataclass(frozen=True)
class Explanation:
    """One decision and its figures.

    Attributes
    ----------
    expert, runner_up : names; the latter is None where there is one expert
    probabilities : expert -> estimate of its share of the expected reward
    expected_costs : expert -> expected cost; None where the router has not learned them
    values : expert -> the quantity that the choice is the best of
    by : name of that quantity: "expected cost", "probability", "score" or "confidence"
    margins : expert -> margin; None where the router has none
    lead : difference between the chosen expert and the runner-up, in that quantity
    evidence : parts of the query and what each adds to the lead, largest first
    others : sum over the parts that are not listed
    method : how the evidence was found: "terms", "words left out", "passages left out" or "none"
    unit : unit of the evidence
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

    For a linear router on hashed text the evidence is exact: the lead is a sum over terms. For any other
    router, words (or passages of a long text) are left out one by one. A cascade and a constant have no
    evidence.

    Parameters
    ----------
    router : router with text features
    content : text, or a vector where the router was fitted on vectors
    most : pieces of evidence at most
    """
    if router.text is None:
        raise UnsupportedError(
            "this router was fitted on columns of numbers, so it cannot read a query; mild predict gives "
            "its choices for a table."
        )
    found = router.decide(router.features([content]))
    chosen = int(found.chosen[0])
    order = np.argsort(-found.values[0], kind="stable")
    other = next((int(k) for k in order if k != chosen), None)
    evidence, method, unit = _evidence(router, content, found.by, chosen, other)
    names, values = router.expert_names, found.values[0]
    return Explanation(
        expert=names[chosen],
        runner_up=None if other is None else names[other],
        probabilities=_named(names, found.probabilities[0]),
        expected_costs=None if found.costs is None else _named(names, found.costs[0]),
        values=_named(names, -values if found.by == "expected cost" else values),
        by=found.by,
        margins=_margins(router),
        lead=0.0 if other is None else float(values[chosen] - values[other]),
        evidence=tuple(evidence[:most]),
        others=sum(entry.effect for entry in evidence[most:]),
        method=method,
        unit=unit,
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


def _margins(router: LoadedRouter) -> dict[str, float] | None:
    policy: Any = router.policy
    while not hasattr(policy, "decoder"):
        policy = getattr(policy, "inner", None) or getattr(policy, "final", None)
        if policy is None:
            return None
    return _named(router.expert_names, policy.decoder.margins)


def _named(names: list[str], values: FloatArray) -> dict[str, float]:
    return dict(zip(names, np.asarray(values, np.float64).tolist(), strict=True))


def by_terms(
    text: str, step: TextFeatures, policy: Policy, chosen: int, other: int
) -> list[Evidence] | None:
    """Shares of a linear router's lead, term by term, largest first; None for other routers.

    The lead is a difference of scores or of expected costs, and the shares are exact; with unequal margins
    it is one of log-odds, and they are exact to first order. Pieces of words count with their words.
    """
    if not isinstance(step, HashingFeatures):
        return None
    slope = slopes(policy, step.transform_one(text), chosen, other)
    if slope is None:
        return None
    names, parts = step.explain(text)
    effects = np.asarray(parts, np.float64) @ slope
    # The mean is the same for every text.
    shares = [
        (name, float(effect))
        for name, effect in zip(names, effects, strict=True)
        if name != "<mean>"
    ]
    read = shorten(text, step.first, step.last)
    found = [
        Evidence(NUMBER_WORDS.get(name, name), effect) for name, effect in by_words(read, shares)
    ]
    return sorted(found, key=lambda entry: -abs(entry.effect))


def by_words(text: str, shares: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Add the shares of pieces of words (``…xxxxx…``) to the words of the text that contain them.

    The share of a piece is divided evenly among its words, so the sum does not change.

    Examples
    --------
    >>> by_words("Flour, floor", [("flour", 1.0), ("… floo…", 0.5), ("…flou…", 0.25)])
    [('flour', 1.25), ('floor', 0.5)]
    """
    words = dict.fromkeys(re.findall(r"\w+", text.lower()))
    # A piece never spans two words, so a space marks either edge.
    edged = "\n".join(f" {word} " for word in words)
    total: dict[str, float] = {}
    for name, effect in shares:
        owners = _owners(name, edged) if len(name) > 2 and name[0] == name[-1] == "…" else [name]
        for owner in owners:
            total[owner] = total.get(owner, 0.0) + effect / len(owners)
    return list(total.items())


def _owners(piece: str, edged: str) -> list[str]:
    """Words with this piece; the piece itself if there is none."""
    inside = re.sub(r"\W", " ", piece[1:-1])
    pattern = rf"^.*{re.escape(inside)}.*$"
    return [line.strip() for line in re.findall(pattern, edged, re.MULTILINE)] or [piece]


def slopes(policy: Policy, x: FloatArray, chosen: int, other: int) -> FloatArray | None:
    """Derivative (n_features,) of the lead with respect to x; None where the router is not linear."""
    if isinstance(policy, StandardizedPolicy):
        inner = slopes(policy.inner, (x - policy.mean) / policy.scale, chosen, other)
        return None if inner is None else inner / policy.scale
    if isinstance(policy, LinearCostPolicy):
        return np.asarray(policy.coef[other] - policy.coef[chosen], np.float64)
    if not isinstance(policy, LinearPolicy):
        return None
    direction = np.zeros(policy.n_experts)
    direction[chosen], direction[other] = 1.0, -1.0
    if not policy.decoder.by_argmax:
        scores = np.asarray(policy.decision_function(x[None])[0], np.float64)
        moves = STEP * np.eye(policy.n_experts)
        shares = policy.decoder.distribution(np.concatenate([scores + moves, scores - moves]))
        odds = np.log(np.maximum(shares, TINY))
        lead = odds[:, chosen] - odds[:, other]
        direction = (lead[: policy.n_experts] - lead[policy.n_experts :]) / (2 * STEP)
    return np.asarray(direction @ policy.coef, np.float64)


def by_leaving_out(
    text: str, lead: Callable[[list[str]], FloatArray]
) -> tuple[list[Evidence], str]:
    """Leave out each word, or each passage of a long text, and measure the change of the lead.

    Parameters
    ----------
    text : the query
    lead : texts -> (n,) lead of the chosen expert over the next one

    Returns
    -------
    evidence, largest effect first, and what was left out: "word" or "passage"

    Examples
    --------
    >>> count = lambda texts: np.array([float(text.count("yes")) for text in texts])
    >>> by_leaving_out("yes or no", count)[0][0]
    Evidence(part='yes', effect=1.0)
    """
    words = re.findall(r"\S+", text)
    distinct = list(dict.fromkeys(word.lower() for word in words))
    unit = "word"
    if len(distinct) <= MOST_WORDS and len(text) <= 50 * MOST_WORDS:
        parts = distinct
        without = [" ".join(w for w in words if w.lower() != part) for part in parts]
    else:
        size = -(-len(text) // PASSAGES)
        places = range(0, len(text), size)
        parts = [text[start : start + size] for start in places]
        without = [f"{text[:start]} {text[start + size :]}" for start in places]
        unit = "passage"
    if not parts:
        return [], unit
    effects = lead([text])[0] - lead(without)
    found = [Evidence(_shown(p), float(e)) for p, e in zip(parts, effects, strict=True)]
    return sorted(found, key=lambda entry: -abs(entry.effect)), unit


def _shown(part: str) -> str:
    """A part on one line, shortened."""
    line = " ".join(part[: 4 * SHOWN].split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
