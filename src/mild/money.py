"""Dollars and other figures as text, without exponents and without a minus sign before 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

# Smaller amounts of dollars are shown as 0: they are rounding errors.
_ROUNDING_ERROR = 1e-9


def amount(dollars: float, *, sign: bool = False) -> str:
    """Format an amount of dollars without the currency sign.

    Amounts from 1,000 on have no cents, amounts below 10 cents two significant digits, others two decimals.

    Parameters
    ----------
    dollars : float
        The amount.
    sign : bool, default=False
        Whether to write a plus sign before positive amounts.

    Returns
    -------
    str
        The amount, with a comma between thousands.

    Examples
    --------
    >>> amount(1234.5), amount(3.2), amount(0.4), amount(0.00421), amount(0)
    ('1,234', '3.20', '0.40', '0.0042', '0')
    >>> amount(157_200.0), amount(-1e-15), amount(2, sign=True)
    ('157,200', '0', '+2.00')
    """
    size = abs(dollars)
    if size < _ROUNDING_ERROR:
        return "0"
    text = f"{size:,.{_n_decimals(size)}f}"
    if dollars < 0:
        return f"-{text}"
    if sign:
        return f"+{text}"
    return text


def amounts(values: Sequence[float]) -> list[str]:
    """Format dollars that are compared: all with the decimals of the first amount that is not 0.

    Parameters
    ----------
    values : sequence of float
        Amounts of dollars.

    Returns
    -------
    list of str
        The amounts without the currency sign.

    Examples
    --------
    >>> amounts([0.1, 0.09996, 0.104]), amounts([1.5, -0.0001, 3.0]), amounts([1234.5, 999.9, 1500.0])
    (['0.10', '0.10', '0.10'], ['1.50', '0.00', '3.00'], ['1,234', '1,000', '1,500'])
    """
    digits = 0
    for value in values:
        if abs(value) >= _ROUNDING_ERROR:
            digits = _n_decimals(abs(value))
            break
    return [f"{round(value, digits) + 0.0:,.{digits}f}" for value in values]


def _n_decimals(size: float) -> int:
    """Return the number of decimals of a positive amount: small ones get two significant digits."""
    if size >= 1000:
        return 0
    if size >= 0.1:
        return 2
    return 1 - math.floor(math.log10(size))


def decimals(value: float, digits: int = 4, *, sign: bool = False) -> str:
    """Format a figure with a fixed number of decimals; 0 has no minus sign.

    Parameters
    ----------
    value : float
        The figure.
    digits : int, default=4
        Number of decimals.
    sign : bool, default=False
        Whether to write a plus sign before figures that are not negative.

    Returns
    -------
    str
        The figure.

    Examples
    --------
    >>> decimals(0.12345), decimals(-0.00001, 3), decimals(0.5, 2, sign=True)
    ('0.1235', '0.000', '+0.50')
    """
    rounded = round(value, digits) + 0.0
    if sign:
        return f"{rounded:+.{digits}f}"
    return f"{rounded:.{digits}f}"


def plain_number(value: float, digits: int = 6) -> str:
    """Format a number without an exponent.

    Parameters
    ----------
    value : float
        The number.
    digits : int, default=6
        Number of significant digits.

    Returns
    -------
    str
        The number.

    Examples
    --------
    >>> plain_number(50.0), plain_number(157_200_000.0), plain_number(0.00001), plain_number(2.5)
    ('50', '157200000', '0.00001', '2.5')
    """
    text = f"{value:.{digits}g}"
    if "e" in text:
        return f"{Decimal(text):f}"
    return text
