"""How far apart two ways to one number may be: so many roundings of its type, and no processor's own."""

from __future__ import annotations

import numpy as np


def rounding(dtype: type, size: float = 1.0, steps: int = 16) -> dict[str, float]:
    """``rtol`` and ``atol`` of results that rounding alone may set apart.

    Processors differ in the order of sums and in fused products. Such a difference is relative to what
    was summed, not to the sum, which may be near 0.

    Parameters
    ----------
    dtype : of the arithmetic, not of what its result is stored in
    size : largest of the terms, or their sum without signs where it is known
    steps : roundings on the way, about as many as there are terms
    """
    unit = steps * float(np.finfo(dtype).eps)
    return {"rtol": unit, "atol": unit * float(size)}
