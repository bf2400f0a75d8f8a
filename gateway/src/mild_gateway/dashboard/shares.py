"""Live shares beside the usual ones: do they lie in their bands? Without SciPy.

The reference says that expert k has a share ``r_k``, known from ``m`` earlier decisions. With an
exploration share e and K experts, a new decision falls on k with probability ``(1 - e) r_k + e / K``. Among
the last N decisions the count of k is then beta-binomial: binomial, with a probability that is itself known
only as well as m decisions tell. The band of k holds the middle ``1 - (1 - confidence) / K`` of that
distribution: at any one look, all K counts lie in their bands with at least the confidence if nothing
has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.artifact import RouterInfo

CONFIDENCE = 0.99
# Decisions that are looked at, and how many there must be.
WINDOW = 500
LEAST = 50
KNOWN = 1e9


@dataclass(frozen=True)
class Band:
    """Counts of one expert that are no surprise: from ``low`` to ``high``, both included."""

    low: int
    high: int
    expected: float


def bands(
    counts: Sequence[float], n: int, explore: float = 0.0, confidence: float = CONFIDENCE
) -> list[Band]:
    """Bands for the counts among n decisions, by the ``counts`` of the reference, which was not explored.

    >>> bands([600, 400], 100)
    [Band(low=45, high=74, expected=60.0), Band(low=26, high=55, expected=40.0)]
    """
    total = sum(counts)
    experts = len(counts)
    tail = (1 - confidence) / experts / 2
    result = []
    for count in counts:
        # Half a decision for and against: a share that was never seen is small, not impossible.
        a, b = count + 0.5, total - count + 0.5
        share = a / (a + b)
        mean = (1 - explore) * share + explore / experts
        variance = (1 - explore) ** 2 * share * (1 - share) / (a + b + 1)
        # With exploration alone the probability is known: as if from very many decisions.
        known = mean * (1 - mean) / variance - 1 if variance > 0 else KNOWN
        low, high = _middle(n, mean * known, (1 - mean) * known, tail)
        seen = (1 - explore) * count / total + explore / experts if total else mean
        result.append(Band(low, high, n * seen))
    return result


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
    info: RouterInfo, expert_names: Sequence[str], price_weight: float | None
) -> Reference | None:
    """Shares that the router had in training; None if it does not say, or decides otherwise now."""
    if info.shares is None:
        return None
    fitted = None if info.cost is None else info.cost.price_weight
    if price_weight is not None and price_weight != fitted:
        return None
    rows, experts = info.shares.rows, info.shares.experts
    try:
        counts = tuple(rows * float(experts[name]) for name in expert_names)
    except (KeyError, TypeError, ValueError):
        return None
    return Reference(counts, "trained") if sum(counts) > 0 else None


def share_document(
    expert_names: Sequence[str], draws: Sequence[str], reference: Reference | None, explore: float
) -> dict[str, Any]:
    """Shares of the newest decisions, their bands, and whether they have left them.

    ``draws`` are experts, newest first. Without a reference, earlier decisions are the usual ones.
    """
    window = draws[:WINDOW]
    live = Counter(window)
    n = len(window)
    if reference is None:
        earlier = Counter(draws[WINDOW:])
        counts = tuple(float(earlier[name]) for name in expert_names)
        # Those decisions were explored as much as the new ones.
        explore = 0.0
        reference = Reference(counts, "earlier") if sum(counts) >= LEAST else None
    lines: list[dict[str, Any]] = [
        {"name": name, "count": live[name], "live": live[name] / n if n else None}
        for name in expert_names
    ]
    if reference is not None:
        # Without enough decisions, the bands that enough would have.
        size = max(n, LEAST)
        for line, band in zip(lines, bands(reference.counts, size, explore), strict=True):
            line |= {
                "usual": band.expected / size,
                "low": band.low / size,
                "high": band.high / size,
                "outside": n >= LEAST and not band.low <= line["count"] <= band.high,
            }
    drifted = [line for line in lines if line.get("outside")]
    return {
        "window": n,
        "least": LEAST,
        "full": WINDOW,
        "confidence": CONFIDENCE,
        "reference": None if reference is None else reference.name,
        "reference_rows": None if reference is None else round(sum(reference.counts)),
        "explore": explore,
        "drift": bool(drifted),
        "sentence": _share_sentence(n, reference, drifted),
        "experts": lines,
    }


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
    usual = "in training" if reference.name == "trained" else "among earlier decisions"
    if n < LEAST:
        return f"{n:,} decisions so far; shares are compared from {LEAST} decisions on."
    if not drifted:
        return f"All shares of the last {n:,} decisions are within their bands."
    parts = [
        f"{line['name']} has {_percent(line['live'])} of the last {n:,} decisions; {usual} it had "
        f"{_percent(line['usual'])} (band {_percent(line['low'])} to {_percent(line['high'])})"
        for line in drifted
    ]
    return (
        "; ".join(parts)
        + ". The queries or the router have changed: consider fitting the router again."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"
