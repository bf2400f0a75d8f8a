"""Does routing pay? A judgement with an interval."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mild.arrays import FloatArray
from mild.metrics import simultaneous_intervals

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True)
class Verdict:
    """The chosen router against the best constant, in validation.

    Attributes
    ----------
    pays : True (better by more than the interval), False (no better), None (cannot be told)
    sentence : the same in words
    estimate, low, high : router minus constant in mean cost, with an interval that holds for all the
        candidates at once
    router_cost, constant_cost : mean costs in validation
    constant_expert : index of the best constant
    n_candidates, n_rows, confidence : what the interval rests on
    """

    pays: bool | None
    sentence: str
    estimate: float
    low: float
    high: float
    router_cost: float
    constant_cost: float
    constant_expert: int
    n_candidates: int
    n_rows: int
    confidence: float

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)


def judge(
    rows: FloatArray,
    constant_rows: FloatArray,
    chosen: int,
    constant_expert: int,
    constant_name: str,
    confidence: float,
    random_state: Any,
) -> Verdict:
    """Verdict on candidate ``chosen`` from out-of-fold costs, as ``linearised_rows`` gives them.

    Parameters
    ----------
    rows : (n, m) costs of the candidates' choices
    constant_rows : (n,) costs of the constant
    """
    found = simultaneous_intervals(rows - constant_rows[:, None], confidence, random_state)
    estimate = float(found.estimate[chosen])
    low, high = float(found.low[chosen]), float(found.high[chosen])
    n, m = rows.shape
    basis = f"{confidence:.0%} interval {low:+.4f} to {high:+.4f}, {m} candidate(s), {n} rows"
    if high < 0:
        pays: bool | None = True
        sentence = f"Routing pays: {-estimate:.4f} less than always {constant_name} ({basis})."
    elif estimate >= 0 or low > -1e-12:
        pays = False
        sentence = (
            f"Routing does not pay, as far as {n} rows can tell: nothing beats always "
            f"{constant_name} ({basis})."
        )
    else:
        pays = None
        sentence = (
            f"It cannot be told whether routing pays: {-estimate:.4f} less than always "
            f"{constant_name}, within the noise ({basis})."
        )
    return Verdict(
        pays,
        sentence,
        estimate,
        low,
        high,
        float(rows[:, chosen].mean()),
        float(constant_rows.mean()),
        constant_expert,
        m,
        n,
        confidence,
    )
