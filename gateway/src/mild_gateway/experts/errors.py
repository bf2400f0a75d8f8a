"""Why a request to an expert failed, and what follows from that."""

from __future__ import annotations

import email.utils
import itertools
import math
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
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.status = status
        self.retry_after = retry_after
        self.headers = headers or {}
        self.may_cost = kind in _CHARGED if may_cost is None else may_cost
        self.permanent = permanent or kind == "credentials"
        self.retryable, self.description = FAILURES[kind]


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
    else:
        kind = "client_error" if status >= 400 else "garbled"
    wait = retry_after(headers) if kind in ("rate", "server") else None
    return ExpertError(kind, detail, status, wait, headers=rate_limit_headers(headers))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds by ``retry-after-ms`` or ``Retry-After`` (a number or a date), at most an hour, if any."""
    seconds = math.nan
    said = headers.get("Retry-After", "")
    with suppress(ValueError, TypeError, OverflowError):
        seconds = email.utils.parsedate_to_datetime(said).timestamp() - time.time()
    with suppress(ValueError):
        seconds = float(said)
    with suppress(ValueError, KeyError):
        seconds = float(headers["retry-after-ms"]) / 1000
    return min(max(0.0, seconds), MAX_RETRY_AFTER) if math.isfinite(seconds) else None


def rate_limit_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """What an expert says about its limits, for the client: ``retry-after`` and ``x-ratelimit-*``.

    >>> rate_limit_headers({"X-RateLimit-Remaining-Requests": "9", "Server": "x"})
    {'x-ratelimit-remaining-requests': '9'}
    """
    found = {
        name.lower(): value
        for name, value in headers.items()
        if name.lower().startswith(("x-ratelimit-", "retry-after"))
        and (name + value).isascii()
        and value.isprintable()
    }
    return dict(itertools.islice(found.items(), _MAX_PASSED_ON))
