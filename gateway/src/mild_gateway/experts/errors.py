"""Why a request to an expert failed, and what follows from that."""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Mapping
from contextlib import suppress

from mild.errors import MildError

# Kind -> (the same expert may be tried again at once, in words).
FAILURES: dict[str, tuple[bool, str]] = {
    "connect": (False, "could not be reached"),
    "timeout": (False, "did not answer in time"),
    "cut": (True, "broke off its answer"),
    "server": (True, "answered with a server error"),
    "garbled": (True, "gave an answer that does not follow the protocol"),
    "credentials": (False, "refused the gateway's credentials or does not know the model"),
    "rate": (False, "is limiting the rate of requests"),
    "client_error": (False, "refused the request"),
}
# The expert may have done its work, and charge for it, though nothing of use came back.
_CHARGED = ("timeout", "cut", "garbled")
MAX_RETRY_AFTER = 3600.0
_MAX_PASSED_ON = 32


class ExpertError(MildError):
    """A request to an expert that failed; ``kind`` is one of ``FAILURES``.

    ``detail`` is for the operator and never sent to a client; ``retry_after`` is the seconds that the
    expert asked to wait, ``headers`` what it said about its limits, ``may_cost`` whether it may charge
    all the same (None: as its kind says). If ``permanent``, every later request would fail in the same
    way.

    The rule for another attempt: if the error is ``transient``, the same request may be answered later,
    after ``retry_after`` or ``pause_before_retry`` seconds. If it is also ``retryable``, it makes sense to
    ask the same expert again at once, even where others could be asked instead.

    >>> error = ExpertError("rate", "429", status=429, retry_after=2.0)
    >>> error.retryable, error.may_cost, error.description
    (False, False, 'is limiting the rate of requests')
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        status: int | None = None,
        retry_after: float | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        may_cost: bool | None = None,
        permanent: bool = False,
        transient: bool | None = None,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.status = status
        self.retry_after = retry_after
        self.headers = headers or {}
        if may_cost is None:
            may_cost = kind in _CHARGED
        self.may_cost = may_cost
        self.permanent = permanent or kind == "credentials"
        if transient is None:
            transient = not self.permanent and kind != "client_error"
        self.transient = transient
        is_retried_at_once, self.description = FAILURES[kind]
        self.retryable = is_retried_at_once and self.transient


def pause_before_retry(n_failures: int, first_pause: float, longest_pause: float = 60.0) -> float:
    """Seconds before another attempt: twice as long after each failure, drawn from the upper half.

    Requests that failed together are so not sent again all at once.
    """
    longest = min(longest_pause, first_pause * 2 ** (n_failures - 1))
    return longest * random.uniform(0.5, 1.0)


def status_error(status: int, detail: str, headers: Mapping[str, str]) -> ExpertError:
    """What a status that is not 2xx says.

    >>> [status_error(status, "", {}).kind for status in (400, 404, 429, 503)]
    ['client_error', 'credentials', 'rate', 'server']
    """
    if status in (401, 402, 403, 404):
        kind = "credentials"
    elif status == 429:
        kind = "rate"
    elif status >= 500 or status in (408, 409, 425):
        kind = "server"
    elif status >= 400:
        kind = "client_error"
    else:
        kind = "garbled"
    wait = None
    if kind in ("rate", "server"):
        wait = retry_after(headers)
    return ExpertError(kind, detail, status, wait, headers=rate_limit_headers(headers))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds by ``retry-after-ms`` or ``Retry-After`` (a number or a date), at most an hour, if any."""
    seconds = math.nan
    header = headers.get("Retry-After", "")
    with suppress(ValueError, TypeError, OverflowError):
        seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
    with suppress(ValueError):
        seconds = float(header)
    with suppress(ValueError, KeyError):
        seconds = float(headers["retry-after-ms"]) / 1000
    if not math.isfinite(seconds):
        return None
    return min(max(0.0, seconds), MAX_RETRY_AFTER)


def rate_limit_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """What an expert says about its limits, for the client: ``retry-after`` and ``x-ratelimit-*``.

    >>> rate_limit_headers({"X-RateLimit-Remaining-Requests": "9", "Server": "x"})
    {'x-ratelimit-remaining-requests': '9'}
    """
    passed_on: dict[str, str] = {}
    for header, value in headers.items():
        name = header.lower()
        is_about_limits = name.startswith(("x-ratelimit-", "retry-after"))
        is_plain = (header + value).isascii() and value.isprintable()
        if is_about_limits and is_plain and len(passed_on) < _MAX_PASSED_ON:
            passed_on[name] = value
    return passed_on
