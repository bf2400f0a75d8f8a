"""Which rows can be compared: those in which everything that is compared is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import BoolArray
from mild.metrics.loss import chosen_costs, constant_losses
from mild.metrics.rows import evaluated_costs
from mild.metrics.statement import FEWEST_UNITS

__all__ = ["CommonRows", "common_constant", "common_rows"]


@dataclass(frozen=True, eq=False)
class CommonRows:
    """Rows on which routers, constants and the oracle are compared.

    Attributes
    ----------
    rows : (n_samples,) mask of these rows
    complete : whether every expert was asked in all of them; if not, there are too few such rows, all rows
        are taken, and means are over different ones
    asked : rows in which every expert was asked
    """

    rows: BoolArray
    complete: bool
    asked: int

    @property
    def left_out(self) -> int:
        """Rows that are not compared."""
        return int((~self.rows).sum())

    @property
    def sentence(self) -> str | None:
        """What was left out and why, or what is not the same; None if every expert was asked throughout."""
        total = len(self.rows)
        if not self.complete:
            return (
                f"only {self.asked:,} of {total:,} rows asked every expert: each mean is over the rows "
                f"that asked, which is fair only if it was left to chance who was asked."
            )
        if not self.left_out:
            return None
        verb = "is" if self.left_out == 1 else "are"
        return f"{self.left_out:,} of {total:,} rows {verb} left out: not every expert was asked there."


def common_rows(costs: ArrayLike, chosen: ArrayLike | None = None) -> CommonRows:
    """Rows in which every expert was asked, if they are 30 or half of all; all rows otherwise.

    Means over different rows cannot be compared unless it was left to chance who was asked, and rows that
    know two routers' choices are too often those on which the two agree. Whether every expert was asked has
    nothing to do with the choices. Experts that were asked nowhere are not compared, and rows that went to
    them are left out.

    Parameters
    ----------
    costs : (n_samples, n_experts); NaN where an expert was never asked
    chosen : (n_samples,) experts that a router chose, if there is one

    Examples
    --------
    >>> found = common_rows([[0.0, 1.0], [1.0, 0.0], [0.0, np.nan]])
    >>> found.rows, found.sentence
    (array([ True,  True, False]), '1 of 3 rows is left out: not every expert was asked there.')
    """
    array = evaluated_costs(costs)
    known = ~np.isnan(array)
    full: BoolArray = np.asarray((known | ~known.any(axis=0)).all(axis=1))
    if chosen is not None:
        full &= ~np.isnan(chosen_costs(array, chosen))
    asked = int(full.sum())
    if asked >= FEWEST_UNITS or 2 * asked >= len(full):
        return CommonRows(full, True, asked)
    return CommonRows(np.ones(len(full), dtype=bool), False, asked)


def common_constant(costs: ArrayLike, sample_weight: ArrayLike | None = None) -> int:
    """The expert that costs least on the rows of ``common_rows``, ties to the lowest index.

    An expert that was asked about easy rows alone is not best for that.

    Examples
    --------
    >>> nan = np.nan
    >>> common_constant([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [nan, 0.0], [nan, 0.0]])
    0
    """
    array = evaluated_costs(costs)
    rows = common_rows(array).rows
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight is None or weight[rows].any():
        array, weight = array[rows], None if weight is None else weight[rows]
    return int(np.nanargmin(constant_losses(array, weight)))
