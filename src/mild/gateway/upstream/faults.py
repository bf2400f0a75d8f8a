"""What can go wrong with an expert, and what that means for the next attempt."""

from __future__ import annotations

from mild.errors import MildError

__all__ = ["FAULTS", "Fault"]

# Kind -> (the same expert may be tried again at once, it counts against the expert, in words).
FAULTS: dict[str, tuple[bool, bool, str]] = {
    "connect": (False, True, "could not be connected to"),
    "timeout": (False, True, "did not answer in time"),
    "cut": (True, True, "broke off its answer"),
    "server": (True, True, "answered with a server error"),
    "garbled": (True, True, "answered with something that is not the protocol"),
    "credentials": (False, True, "refused the gateway's credentials or knows no such model"),
    "rate": (False, False, "is limiting the rate of requests"),
}

# The expert may have done its work, and charge for it, though nothing of use came back.
CHARGED = ("timeout", "cut", "garbled")


class Fault(MildError):  # noqa: N818
    """An attempt that came to nothing before any byte of it reached the client.

    Parameters
    ----------
    kind : one of ``FAULTS``
    detail : for the operator; never sent to a client
    status : HTTP status of the expert, if it gave one
    retry_after : seconds that the expert asked to wait

    Examples
    --------
    >>> fault = Fault("rate", "429", status=429, retry_after=2.0)
    >>> fault.again, fault.counts, fault.words
    (False, False, 'is limiting the rate of requests')
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.status = status
        self.retry_after = retry_after
        self.may_cost = kind in CHARGED
        self.again, self.counts, self.words = FAULTS[kind]
