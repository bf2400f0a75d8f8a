"""Moments as people write them on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from mild.errors import OptionError

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([mhdw])")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def moment(name: str, text: str | None, now: float) -> float | None:
    """Seconds since 1970 of a date, a date with time (UTC unless it says otherwise), or a time ago.

    >>> moment("since", "2026-11-01", 0.0)
    1793491200.0
    >>> moment("since", "2h", 10_000.0)
    2800.0
    """
    if text is None:
        return None
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise OptionError(
            f"{name} must be a date such as 2026-11-01 or 2026-11-01T12:30, or a time ago such as 7d, "
            f"12h, 30m; got {text!r}."
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
