"""What the probability of a draw says about it."""

from __future__ import annotations

# A draw with a propensity this near to 1 could not have had another result.
CERTAIN = 1 - 1e-9


def is_preferred(propensity: float, n_experts: int) -> bool:
    """Whether the expert that was drawn is the one that the router would choose without exploration.

    Of m experts, another than the preferred one is drawn with explore / m, less than 1 / m.

    Examples
    --------
    >>> is_preferred(0.8, 3), is_preferred(0.1, 3), is_preferred(1.0, 1)
    (True, False, True)
    """
    return propensity >= CERTAIN or propensity > 1 / n_experts + 1e-9
