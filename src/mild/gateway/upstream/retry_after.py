"""When an expert asked us to come back."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

__all__ = ["retry_after"]

# Longer waits are not believed.
MOST_SECONDS = 3600.0


def retry_after(headers: Mapping[bytes, bytes]) -> float | None:
    """Seconds by ``retry-after-ms`` or ``Retry-After`` (a number or a date); None if neither says them.

    Examples
    --------
    >>> retry_after({b"retry-after": b"2"}), retry_after({b"retry-after-ms": b"250"}), retry_after({})
    (2.0, 0.25, None)
    >>> retry_after({b"retry-after": b"soon"}) is None
    True
    """
    finer = headers.get(b"retry-after-ms")
    if finer is not None and (milliseconds := _number(finer)) is not None:
        return min(milliseconds / 1000, MOST_SECONDS)
    said = headers.get(b"retry-after")
    if said is None:
        return None
    seconds = _number(said)
    if seconds is None:
        seconds = _until(said)
    return None if seconds is None else min(seconds, MOST_SECONDS)


def _number(value: bytes) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _until(value: bytes) -> float | None:
    from email.utils import parsedate_to_datetime  # dates are rare, and this import is not free

    try:
        return max(0.0, parsedate_to_datetime(value.decode("latin-1")).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
