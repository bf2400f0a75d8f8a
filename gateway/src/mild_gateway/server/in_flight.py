"""How many requests are served at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class RequestsInFlight:
    """Requests that one worker serves, in all and by caller.

    A caller may have at most half of them, unless it is the only one.

    >>> requests = RequestsInFlight(4, has_one_caller=lambda: False)
    >>> [requests.enter("alice"), requests.enter("alice"), requests.enter("alice")]
    [True, True, False]
    >>> [requests.enter("ben"), requests.enter("ben"), requests.enter("carol")]
    [True, True, False]
    >>> requests.leave("ben")
    >>> requests.enter("carol")
    True
    """

    def __init__(self, most: int, has_one_caller: Callable[[], bool]) -> None:
        self._most = most
        self._most_of_one = max(1, most // 2)
        self._has_one_caller = has_one_caller
        self._by_caller: Counter[str] = Counter()
        self._total = 0

    def enter(self, caller: str) -> bool:
        """Count a request, if there is room for it."""
        if self._total >= self._most:
            return False
        if self._by_caller[caller] >= self._most_of_one and not self._has_one_caller():
            return False
        self._total += 1
        self._by_caller[caller] += 1
        return True

    def leave(self, caller: str) -> None:
        """A request has ended."""
        self._total -= 1
        self._by_caller[caller] -= 1
        if not self._by_caller[caller]:
            del self._by_caller[caller]
