"""Live shares beside the usual ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mild.gateway.dashboard.drift import CONFIDENCE, LEAST, WINDOW, bands

__all__ = ["Reference", "share_document", "trained"]


@dataclass(frozen=True)
class Reference:
    """The usual shares as counts of decisions; ``name`` says where they are from."""

    counts: tuple[float, ...]
    name: str

    @property
    def rows(self) -> float:
        """Decisions behind it."""
        return sum(self.counts)


def trained(
    metadata: Mapping[str, Any], expert_names: Sequence[str], price_weight: float | None
) -> Reference | None:
    """Shares that the router had in training; None if it does not say, or decides otherwise now.

    They are in the notes of the artefact: ``{"shares": {"rows": 1000, "experts": {"small": 0.8, ...}}}``.
    """
    notes = metadata.get("notes") or {}
    shares = notes.get("shares")
    if not isinstance(shares, Mapping):
        return None
    fitted = (notes.get("cost") or {}).get("price_weight")
    if price_weight is not None and price_weight != fitted:
        return None
    rows, experts = shares.get("rows"), shares.get("experts")
    if not isinstance(rows, (int, float)) or rows <= 0 or not isinstance(experts, Mapping):
        return None
    try:
        counts = tuple(float(rows) * float(experts[name]) for name in expert_names)
    except (KeyError, TypeError, ValueError):
        return None
    return Reference(counts, "trained")


def share_document(
    expert_names: Sequence[str], draws: Sequence[str], reference: Reference | None, explore: float
) -> dict[str, Any]:
    """Shares of the newest decisions, their bands, and whether they have left them.

    Parameters
    ----------
    expert_names : in the router's order
    draws : experts of the newest decisions, newest first
    reference : the usual shares; None takes the decisions before the newest ones for usual
    explore : share of exploration
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
    drifted = []
    if reference is not None:
        # Without enough decisions, the bands that enough would have.
        found = bands(reference.counts, max(n, LEAST), explore)
        for line, band in zip(lines, found, strict=True):
            size = max(n, LEAST)
            line |= {
                "usual": band.expected / size,
                "low": band.low / size,
                "high": band.high / size,
                "outside": n >= LEAST and not band.low <= line["count"] <= band.high,
            }
            if line["outside"]:
                drifted.append(line)
    return {
        "window": n,
        "least": LEAST,
        "full": WINDOW,
        "confidence": CONFIDENCE,
        "reference": None if reference is None else reference.name,
        "reference_rows": None if reference is None else round(reference.rows),
        "explore": explore,
        "drift": bool(drifted),
        "sentence": _sentence(n, reference, drifted),
        "experts": lines,
    }


def _sentence(n: int, reference: Reference | None, drifted: Sequence[Mapping[str, Any]]) -> str:
    if n == 0:
        return "No decisions yet."
    if reference is None:
        return (
            f"{n:,} decisions; the router does not say its trained shares, and there are too few "
            f"earlier decisions to compare with."
        )
    usual = "in training" if reference.name == "trained" else "among earlier decisions"
    if n < LEAST:
        return f"{n:,} decisions so far; they are judged from {LEAST} on."
    if not drifted:
        return f"All shares of the last {n:,} decisions lie in their bands."
    parts = [
        f"{line['name']} has {_percent(line['live'])} of the last {n:,} decisions, and {usual} had "
        f"{_percent(line['usual'])} (band {_percent(line['low'])} to {_percent(line['high'])})"
        for line in drifted
    ]
    return (
        "; ".join(parts)
        + ". The queries, or the router, are not what they were: consider fitting anew."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"
