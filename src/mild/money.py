"""Amounts of money as text."""

from __future__ import annotations

import math


def amount(dollars: float) -> str:
    """Dollars without the currency sign, small amounts with two significant digits.

    Examples
    --------
    >>> amount(1234.5), amount(3.2), amount(0.4), amount(0.00421), amount(0)
    ('1,234', '3.20', '0.40', '0.0042', '0')
    """
    size = abs(dollars)
    if size >= 1000:
        text = f"{size:,.0f}"
    elif size >= 0.1:
        text = f"{size:.2f}"
    else:
        text = f"{size:.{1 - math.floor(math.log10(size))}f}" if size else "0"
    return f"-{text}" if dollars < 0 else text
