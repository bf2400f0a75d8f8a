"""Live shares beside the usual ones: do they lie in their bands? Without SciPy.

The decisions are those before exploration. The reference says that expert k has a share ``r_k``, known from
``m`` earlier decisions. Among the last N decisions the count of k is then beta-binomial: binomial, with a
probability that is itself known only as well as m decisions tell. The band of k holds the middle
``1 - (1 - confidence) / K`` of that distribution, for K experts: at any one look, all K counts lie in their
bands with at least the confidence if nothing has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild_gateway.decide import UsualShares

CONFIDENCE = 0.99
# Decisions that are looked at, and how many there must be.
WINDOW = 500
MIN_DECISIONS = 50


@dataclass(frozen=True)
class Band:
    """Counts of one expert that are no surprise: from ``low`` to ``high``, both included."""

    low: int
    high: int
    expected: float


def bands(counts: Sequence[float], n: int, confidence: float = CONFIDENCE) -> list[Band]:
    """Bands for the counts among n decisions, by the ``counts`` of the reference.

    >>> bands([600, 400], 100)
    [Band(low=45, high=74, expected=60.0), Band(low=26, high=55, expected=40.0)]
    """
    total = sum(counts)
    tail = (1 - confidence) / len(counts) / 2
    expert_bands = []
    for count in counts:
        # Half a decision for and against: a share that was never seen is small, not impossible.
        a = count + 0.5
        b = total - count + 0.5
        low, high = _middle(n, a, b, tail)
        expected_share = a / (a + b)
        if total:
            expected_share = count / total
        expert_bands.append(Band(low, high, n * expected_share))
    return expert_bands


def _middle(n: int, a: float, b: float, tail: float) -> tuple[int, int]:
    """Quantiles of the beta-binomial distribution: at most ``tail`` lies below, and at most that above."""
    k = np.arange(n)
    # Each probability by the one before it.
    steps = np.log((n - k) * (k + a) / ((k + 1) * (n - 1 - k + b)))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    weights = np.exp(logs - logs.max())
    limit = tail * weights.sum()
    low = np.searchsorted(np.cumsum(weights), limit, side="right")
    high = n - np.searchsorted(np.cumsum(weights[::-1]), limit, side="right")
    return int(low), int(high)


@dataclass(frozen=True)
class Reference:
    """The usual shares as counts of decisions; ``name`` says where they are from."""

    counts: tuple[float, ...]
    name: str


def trained(
    usual: UsualShares | None, expert_names: Sequence[str], price_weight: float | None
) -> Reference | None:
    """Shares that the router had in training; None if it does not say, or decides otherwise now."""
    if usual is None or price_weight not in (None, usual.price_weight):
        return None
    try:
        counts = [usual.rows * float(usual.shares[name]) for name in expert_names]
    except (KeyError, TypeError, ValueError):
        return None
    # Not a number is no count either.
    if not sum(counts) > 0:
        return None
    return Reference(tuple(counts), "trained")


def share_document(
    expert_names: Sequence[str], preferred_experts: Sequence[str], reference: Reference | None
) -> dict[str, Any]:
    """Shares of the newest decisions, their bands, and whether they have left them.

    ``preferred_experts`` are those of the decisions, newest first. Without a reference, earlier decisions
    are the usual ones.
    """
    n = len(preferred_experts[:WINDOW])
    if reference is None:
        reference = _earlier_shares(expert_names, preferred_experts[WINDOW:])
    counts = Counter(preferred_experts[:WINDOW])
    lines: list[dict[str, Any]] = []
    for name in expert_names:
        live = None
        if n:
            live = counts[name] / n
        lines.append({"name": name, "count": counts[name], "live": live})
    document: dict[str, Any] = {
        "window": n,
        "least": MIN_DECISIONS,
        "full": WINDOW,
        "confidence": CONFIDENCE,
        "reference": None,
        "reference_rows": None,
    }
    if reference is not None:
        document["reference"] = reference.name
        document["reference_rows"] = round(sum(reference.counts))
        _add_bands(lines, n, reference)
    drifted = [line for line in lines if line.get("outside")]
    document["drift"] = bool(drifted)
    document["sentence"] = _share_sentence(n, reference, drifted)
    document["experts"] = lines
    return document


def _earlier_shares(expert_names: Sequence[str], earlier: Sequence[str]) -> Reference | None:
    """The shares among earlier decisions; None if these are too few."""
    counts = Counter(earlier)
    counts_by_expert = tuple(float(counts[name]) for name in expert_names)
    if sum(counts_by_expert) < MIN_DECISIONS:
        return None
    return Reference(counts_by_expert, "earlier")


def _add_bands(lines: Sequence[dict[str, Any]], n: int, reference: Reference) -> None:
    """Add the usual share of each expert and its band, and whether the live share is outside."""
    # Without enough decisions, the bands that enough would have.
    size = max(n, MIN_DECISIONS)
    for line, band in zip(lines, bands(reference.counts, size), strict=True):
        line["usual"] = band.expected / size
        line["low"] = band.low / size
        line["high"] = band.high / size
        line["outside"] = n >= MIN_DECISIONS and not band.low <= line["count"] <= band.high


def _share_sentence(
    n: int, reference: Reference | None, drifted: Sequence[Mapping[str, Any]]
) -> str:
    if n == 0:
        return "No decisions yet."
    if reference is None:
        return (
            f"{n:,} decisions; the router does not record its shares in training, and there are too "
            "few earlier decisions to compare with."
        )
    if n < MIN_DECISIONS:
        return f"{n:,} decisions so far; shares are compared from {MIN_DECISIONS} decisions on."
    if not drifted:
        return f"All shares of the last {n:,} decisions are within their bands."
    usual = "among earlier decisions"
    if reference.name == "trained":
        usual = "in training"
    sentences = []
    for line in drifted:
        band = f"band {_percent(line['low'])} to {_percent(line['high'])}"
        sentences.append(
            f"{line['name']} has {_percent(line['live'])} of the last {n:,} decisions; {usual} it had "
            f"{_percent(line['usual'])} ({band})"
        )
    return (
        "; ".join(sentences)
        + ". The queries or the router have changed: consider fitting the router again."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"
