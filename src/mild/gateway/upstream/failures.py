"""Failed attempts of an expert, for the dashboard."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

MINUTES = 60


class ExpertFailures:
    """Failed attempts of the last hour, and the newest failure.

    Examples
    --------
    >>> failures = ExpertFailures(clock=lambda: 90.0)
    >>> failures.add("server"), failures.document()
    (None, {'attempts': 1, 'last': {'kind': 'server', 'time': 90.0}})
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._minutes: Counter[int] = Counter()
        self._last: dict[str, Any] | None = None

    def add(self, kind: str) -> None:
        """An attempt failed."""
        now = self._clock()
        self._minutes[int(now // 60)] += 1
        self._last = {"kind": kind, "time": now}

    def document(self) -> dict[str, Any]:
        """Both, ready for JSON."""
        first = int(self._clock() // 60) - MINUTES + 1
        for minute in [minute for minute in self._minutes if minute < first]:
            del self._minutes[minute]
        return {"attempts": self._minutes.total(), "last": self._last}
