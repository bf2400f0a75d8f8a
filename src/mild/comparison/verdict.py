"""Does routing pay? One sentence, with the interval behind it and the money where prices are known."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Statement", "state"]

STARTS = {
    True: "Routing pays",
    False: "Routing does not pay",
    None: "It cannot be told whether routing pays",
}


@dataclass(frozen=True)
class Statement:
    """A router against the best constant.

    Attributes
    ----------
    pays : True (cheaper by more than the interval), False (no cheaper), None (cannot be told)
    sentence : the same in words
    estimate, low, high : mean cost of the router minus the constant's, with its interval
    dollars_per_1000 : price of the router minus the constant's, per 1,000 inputs; None without prices
    rows_needed : rows with which a difference of this size would show; None if it shows, or is none
    """

    pays: bool | None
    sentence: str
    estimate: float
    low: float
    high: float
    dollars_per_1000: float | None = None
    rows_needed: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)


def state(
    router: str,
    constant: str,
    interval: tuple[float, float, float],
    basis: str,
    n_rows: int,
    dollars: float | None = None,
) -> Statement:
    """Put a difference into a sentence.

    Parameters
    ----------
    router, constant : names
    interval : estimate, low and high of the router's mean cost minus the constant's
    basis : what the interval rests on, in words
    n_rows : rows behind it
    dollars : mean price of an input by the router minus by the constant

    Examples
    --------
    >>> state("kNN", "large", (-0.02, -0.03, -0.01), "95 % interval", 500).sentence
    'Routing pays: kNN costs 0.0200 less per input than always large (95 % interval).'
    >>> state("kNN", "large", (-0.01, -0.03, 0.01), "95 % interval", 500).rows_needed
    2000
    """
    estimate, low, high = interval
    pays = True if high < 0 else False if estimate >= 0 or low == high == 0 else None
    if estimate == 0:
        said = f"{router} costs as much as always {constant}"
    else:
        word = "less" if estimate < 0 else "more"
        said = f"{router} costs {abs(estimate):.4f} {word} per input than always {constant}"
    sentence = f"{STARTS[pays]}: {said}{', within the noise' if pays is None else ''} ({basis})"
    needed = None
    if pays is None:
        needed = math.ceil(n_rows * ((high - low) / 2 / abs(estimate)) ** 2)
        sentence += f"; if the difference is what it seems, {needed:,} rows would show it"
    money = None if dollars is None else 1000 * dollars
    if money is not None and abs(money) >= 0.005:
        sentence += f"; ${abs(money):,.2f} {'less' if money < 0 else 'more'} per 1,000 inputs"
    return Statement(pays, sentence + ".", estimate, low, high, money, needed)
