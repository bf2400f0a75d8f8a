"""What in a query speaks for the chosen expert, and what for the next one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from mild.core.arrays import FloatArray
from mild.features import HashingFeatures, TextFeatures
from mild.features.hashing.terms import shorten
from mild.policies import LinearCostPolicy, LinearPolicy, Policy, StandardizedPolicy

__all__ = ["Evidence", "by_leaving_out", "by_terms", "slopes"]

# Words that are left out one by one; a longer text is left out passage by passage.
MOST_WORDS = 150
PASSAGES = 50
SHOWN = 48
# Step of the numerical derivative of log-odds.
STEP = 1e-3
# Where no probability may be zero.
TINY = 1e-300
# The plain numbers behind the terms, for people.
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


def by_terms(
    text: str, step: TextFeatures, policy: Policy, chosen: int, other: int
) -> list[Evidence] | None:
    """Exact shares of a linear router's lead, term by term, largest first; None for other routers.

    The lead is a difference of scores or of expected costs; with margins that differ, of log-odds, whose
    shares are exact to first order. Pieces of words count with the words that they are pieces of.
    """
    if not isinstance(step, HashingFeatures):
        return None
    slope = slopes(policy, step.transform_one(text), chosen, other)
    if slope is None:
        return None
    names, parts = step.explain(text)
    effects = np.asarray(parts, np.float64) @ slope
    # What every text has says nothing about this one.
    shares = [
        (name, float(effect))
        for name, effect in zip(names, effects, strict=True)
        if name != "<mean>"
    ]
    read = shorten(text, step.first, step.last)
    found = [Evidence(_named(name), effect) for name, effect in by_words(read, shares)]
    return sorted(found, key=lambda entry: -abs(entry.effect))


def by_words(text: str, shares: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Add what pieces of words (``…xxxxx…``) contribute to the words of the text that have them.

    A piece of several words is divided evenly among them; the sum of all shares stays what it is.

    Examples
    --------
    >>> by_words("Flour, floor", [("flour", 1.0), ("… floo…", 0.5), ("…flou…", 0.25)])
    [('flour', 1.25), ('floor', 0.5)]
    """
    words = dict.fromkeys(re.findall(r"\w+", text.lower()))
    # A piece never spans two words, so a blank stands for any edge.
    edged = "\n".join(f" {word} " for word in words)
    total: dict[str, float] = {}
    for name, effect in shares:
        owners = _owners(name, edged) if len(name) > 2 and name[0] == name[-1] == "…" else [name]
        for owner in owners:
            total[owner] = total.get(owner, 0.0) + effect / len(owners)
    return list(total.items())


def _owners(piece: str, edged: str) -> list[str]:
    """Words with this piece; the piece itself if there are none."""
    inside = re.sub(r"\W", " ", piece[1:-1])
    pattern = rf"^.*{re.escape(inside)}.*$"
    return [line.strip() for line in re.findall(pattern, edged, re.MULTILINE)] or [piece]


def slopes(policy: Policy, x: FloatArray, chosen: int, other: int) -> FloatArray | None:
    """Derivative (n_features,) of the lead by the features; None where the router is not linear."""
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
        odds = np.log(
            np.maximum(
                policy.decoder.distribution(np.concatenate([scores + moves, scores - moves])), TINY
            )
        )
        lead = odds[:, chosen] - odds[:, other]
        direction = (lead[: policy.n_experts] - lead[policy.n_experts :]) / (2 * STEP)
    return np.asarray(direction @ policy.coef, np.float64)


def by_leaving_out(
    text: str, lead: Callable[[list[str]], FloatArray]
) -> tuple[list[Evidence], str]:
    """Leave out each word, or each passage of a long text, and see by how much the lead shrinks.

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


def _named(term: str) -> str:
    """A plain number of the text in words; terms as they are."""
    return NUMBER_WORDS.get(term, term)


def _shown(part: str) -> str:
    """A part on one line, not longer than can be read."""
    line = " ".join(part[: 4 * SHOWN].split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
