"""Requests that a browser sends on behalf of somebody else's page, where no key would stop them."""

from __future__ import annotations

import ipaddress

from mild.gateway.config import Settings, is_loopback
from mild.gateway.refusals import Refusal
from mild.gateway.server.request import Request

__all__ = ["Doorkeeper", "is_local_name"]

# Say nothing that matters, and are asked for under any name.
OPEN = ("/health", "/health/liveliness", "/health/readiness")
# Names of a Host header that are remembered once they were found to be right.
REMEMBERED = 64


class Doorkeeper:
    """Refuses what other sites make a browser send to a gateway that needs no key.

    A page of another site can make its reader's browser ask any address on that machine, and can give its
    own name the address of the machine. Browsers say the first in ``Sec-Fetch-Site``, or, to an address
    in the clear that is not loopback, in ``Origin`` alone; the second shows in ``Host``, which must then
    be a name of this machine.

    Parameters
    ----------
    settings : where the gateway listens, and whether it needs keys
    """

    __slots__ = ("_host", "_known", "_local", "_watches")

    def __init__(self, settings: Settings) -> None:
        self._watches = not settings.requires_key
        self._host = settings.host.strip("[]").lower()
        # Elsewhere nobody knows by which names a machine is reached.
        self._local = is_loopback(settings.host) and not settings.host.startswith("/")
        self._known: set[bytes] = set()

    def check(self, request: Request) -> None:
        """Refuse with 403 what only a stranger's page would send."""
        if not self._watches or request.path in OPEN:
            return
        host = site = origin = None
        for name, value in request.headers:
            if name == b"host":
                host = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"origin":
                origin = value
        if host is not None and self._local and host not in self._known:
            self._look_at(host)
        strange = site in (b"cross-site", b"same-site")
        if origin is not None and site is None:
            strange = origin.partition(b"://")[2].lower() != (host or b"").lower()
        # The page itself may be reached by a link.
        if strange and request.path != "/":
            raise Refusal(
                403,
                "Pages of other sites may not use this gateway, because it needs no key.",
                code="cross_site_request",
            )

    def _look_at(self, host: bytes) -> None:
        name = _bare_name(host.decode("latin-1"))
        if name != self._host and not is_local_name(name):
            raise Refusal(
                403,
                "The Host header must be localhost or a loopback address, because this gateway needs "
                "no key; with require_key = true any name will do.",
                code="unknown_host",
            )
        if len(self._known) < REMEMBERED:
            self._known.add(host)


def is_local_name(name: str) -> bool:
    """Whether a name can only mean this machine.

    Examples
    --------
    >>> is_local_name("localhost"), is_local_name("127.0.0.1"), is_local_name("evil.example")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _bare_name(host: str) -> str:
    """Without port and brackets."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")
