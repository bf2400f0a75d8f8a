"""Settings whose expected loss is certified to stay below a limit: Learn-then-Test with betting.

A setting, such as a threshold of a router, is certified if the hypothesis "its expected loss is above the
limit" is rejected on rows that were kept for this, the calibration rows. Settings are tested from the
safest on, and testing stops at the first that is not rejected, so no correction for the number of
settings is needed (Angelopoulos et al., 2021). The p-values are those of a gambler who bets against the
hypothesis (Waudby-Smith and Ramdas, 2024); they hold for any distribution and any number of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import BoolArray, FloatArray, check_entries, float_matrix, invalid

# The bets are this many times those that would be best for the wealth after the last row: larger bets
# waste less of the error probability.
BET_FACTOR = 1.5


@dataclass(frozen=True, eq=False)
class Certificate:
    """The settings that were certified, in the order in which they were tested.

    Attributes
    ----------
    n_certified : settings 0 to n_certified - 1 are certified together
    p_values : (n_settings,) of the hypothesis "the expected loss is above the limit"
    estimates : (n_settings,) mean losses of the calibration rows
    limit, guarantee : the arguments of ``certify``
    n : number of calibration rows
    rows_needed : about how many rows would certify the next setting, inf if its mean loss is not below the
        limit; None if all settings are certified, or if the estimate is not larger than ``n``
    """

    n_certified: int
    p_values: FloatArray
    estimates: FloatArray
    limit: float
    guarantee: float
    n: int
    rows_needed: float | None


def betting_p_values(losses: ArrayLike, limit: float, level: float = 0.1) -> FloatArray:
    """Return p-values for the hypothesis that the expected loss of a setting is above ``limit``.

    With ``x_i = (1 + loss_i) / 2`` and ``m = (1 + limit) / 2``, the wealth after t rows of a gambler who
    bets against the hypothesis, starting with 1, is::

        wealth_t = prod over i <= t of (1 - bet_i * (x_i - m))

    If the hypothesis holds, the expected wealth is at most 1 for any distribution, provided that the bet
    on a row depends on earlier rows only. So ``1 / max_t wealth_t`` is a p-value (Ville's inequality).
    The bets are chosen to make the p-value small if the hypothesis is false: with n rows in all, and a
    variance v of x, they are proportional to ``sqrt(2 log(1 / level) / (n v))``.

    Parameters
    ----------
    losses : array of shape (n_samples, n_settings)
        Losses in [-1, 1], rows in random order.
    limit : float
        Number in (-1, 1).
    level : float, default=0.1
        Significance level that the p-values will be compared with. They are also valid at other levels,
        but larger than necessary there.

    Returns
    -------
    p_values : array of shape (n_settings,)

    Examples
    --------
    >>> betting_p_values([[-1.0], [0.0]] * 50, limit=0.1).round(6)
    array([0.])
    """
    values = float_matrix("losses", losses).astype(np.float64)
    check_entries("losses", values, ~(np.abs(values) <= 1), "lie in [-1, 1]")
    if not -1 < limit < 1:
        raise invalid("limit", f"must be above -1 and below 1; got {limit}.")
    if not 0 < level < 1:
        raise invalid("level", f"must be above 0 and below 1; got {level}.")
    n = len(values)
    x = (1 + values) / 2
    m = (1 + limit) / 2
    n_seen = np.arange(1, n + 1)[:, None]
    # Running means and variances start as if there had been a row with mean 1/2 and variance 1/4.
    means = (0.5 + np.cumsum(x, axis=0)) / (n_seen + 1)
    variances = (0.25 + np.cumsum((x - means) ** 2, axis=0)) / (n_seen + 1)
    # The bet on a row may use earlier rows only: otherwise the p-value would not be valid.
    variances_before = np.vstack([np.full((1, x.shape[1]), 0.25), variances[:-1]])
    bets = BET_FACTOR * np.sqrt(2 * math.log(1 / level) / (n * variances_before))
    # No row may cost more than half of the wealth, which could otherwise become negative.
    bets = np.minimum(bets, 0.5 / (1 - m))
    log_wealth = np.cumsum(np.log1p(-bets * (x - m)), axis=0)
    # The largest wealth is at least the 1 that the gambler starts with.
    largest_log_wealth = np.maximum(log_wealth.max(axis=0), 0)
    return np.exp(-largest_log_wealth)


def certify(losses: ArrayLike, limit: float, guarantee: float = 0.9) -> Certificate:
    """Certify settings whose expected loss is at most ``limit``, testing the safest one first.

    With probability ``guarantee`` or more over the draw of the calibration rows, no certified setting has
    an expected loss above the limit. Rows must be independent draws, in random order, that were not used
    for anything else.

    Parameters
    ----------
    losses : array of shape (n_samples, n_settings)
        Losses in [-1, 1] of the calibration rows. The columns are ordered from the setting that is probably
        the safest to the riskiest.
    limit : float
        Number in (-1, 1).
    guarantee : float, default=0.9
        Confidence of the certificate, in (0, 1).

    Returns
    -------
    certificate : Certificate
    """
    if not 0 < guarantee < 1:
        raise invalid("guarantee", f"must be above 0 and below 1; got {guarantee}.")
    values = float_matrix("losses", losses).astype(np.float64)
    level = 1 - guarantee
    p_values = betting_p_values(values, limit, level)
    estimates = values.mean(axis=0)
    n_certified = _n_before_first_false(p_values <= level)
    rows_needed = None
    if n_certified < len(p_values):
        first_failure = n_certified
        gap = limit - estimates[first_failure]
        rows_needed = _rows_needed(values[:, first_failure], gap, level)
    return Certificate(
        n_certified=n_certified,
        p_values=p_values,
        estimates=estimates,
        limit=limit,
        guarantee=guarantee,
        n=len(values),
        rows_needed=rows_needed,
    )


def _n_before_first_false(rejected: BoolArray) -> int:
    """Return the number of hypotheses that were rejected in order, before the first that was not."""
    if rejected.all():
        return len(rejected)
    return int(np.argmin(rejected))


def _rows_needed(losses: FloatArray, gap: float, level: float) -> float | None:
    """Return about how many rows would certify a setting with such losses (n,); inf if no number would.

    With the gap from the mean loss up to the limit this is ``2 variance log(1 / level) / gap^2``. None if
    that is n or less: the formula is too rough to say how many more rows than n are needed.
    """
    n = len(losses)
    if gap <= 0:
        return math.inf
    variance = max(float(losses.var()), 1 / n)
    n_needed = math.ceil(2 * variance * math.log(1 / level) / gap**2)
    if n_needed <= n:
        return None
    return float(n_needed)
