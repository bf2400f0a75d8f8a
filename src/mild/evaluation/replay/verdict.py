"""The plain sentence: better, worse, or cannot be told, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mild.evaluation.replay.estimates import Estimate
from mild.evaluation.replay.overlap import Overlap

__all__ = ["ENOUGH", "Verdict", "judge"]

# Effective draws below which the intervals are not to be trusted.
ENOUGH = 100.0


@dataclass(frozen=True)
class Verdict:
    """``better`` is True, False, or None if it cannot be told."""

    better: bool | None
    sentence: str


def judge(
    overlap: Overlap, gap: Estimate | None, unit: str, left_out: Mapping[str, int]
) -> Verdict:
    """Judge the difference, new router minus what was logged, per request.

    Parameters
    ----------
    overlap : what the log can tell
    gap : doubly robust estimate of the difference; None if there are no draws
    unit : what is counted: "$", or "" for costs in errors
    left_out : rows that do not count, by reason
    """
    if overlap.draws == 0 or gap is None:
        return Verdict(None, _nothing(left_out))
    if overlap.unseen:
        names = ", ".join(f"{name} ({share:.1%})" for name, share in overlap.unseen.items())
        return _open(
            f"the new router gives queries to experts that were never drawn here: {names}. What they "
            f"would have cost is in no row; add them to the gateway and explore."
        )
    if not overlap.weights_fit:
        return _open(
            f"the weights must be 1 on average and are {overlap.mean_weight:.3f} (standard error "
            f"{overlap.weight_error:.3f}): the logged propensities are not those of the draws."
        )
    if overlap.effective < ENOUGH:
        return _open(
            f"{overlap.draws:,} draws tell as much about the new router as {overlap.effective:.0f} of "
            f"its own would, and below {ENOUGH:.0f} the intervals are not to be trusted; explore more or "
            f"longer."
        )
    span = f"{gap.confidence * 100:g} % interval of the difference {_money(gap.low, unit)} to "
    span += _money(gap.high, unit)
    size = _money(abs(gap.mean), unit)
    if gap.high < 0:
        return Verdict(
            True,
            f"The new router would have been better: {size} less per request than was logged ({span}).",
        )
    if gap.low > 0:
        return Verdict(
            False,
            f"The new router would have been worse: {size} more per request than was logged ({span}).",
        )
    more = ""
    if gap.mean != 0 and gap.standard_error > 0:
        reach = (gap.high - gap.low) / 2
        factor = (reach / abs(gap.mean)) ** 2
        if factor < 100:
            more = f" If it is as it looks, about {factor:.1f} times as many draws would show it."
    return _open(f"the difference of {_money(gap.mean, unit)} is within the noise ({span}).{more}")


def _open(reason: str) -> Verdict:
    return Verdict(None, f"It cannot be told whether the new router is better: {reason}")


def _nothing(left_out: Mapping[str, int]) -> str:
    start = "It cannot be told whether the new router is better: "
    certain = left_out.get("drawn without exploration", 0)
    if certain:
        return (
            start
            + f"all {certain:,} routed requests were decided without exploration, so that no row shows "
            "what another expert would have cost. Set explore = 0.05 under [routing] and come back later."
        )
    if left_out.get("without a query"):
        return (
            start
            + "the ledger has no texts, and the new router needs them. Set keep_text = true under "
            "[ledger], or give the queries with --queries."
        )
    said = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    return start + (f"no row counts ({said})." if said else "the ledger has no rows in this span.")


def _money(value: float, unit: str) -> str:
    sign = "-" if value < 0 else ""
    return f"{sign}{unit}{abs(value):.3g}" if unit else f"{value:.4f}"
