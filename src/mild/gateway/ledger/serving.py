"""Which version of a router served when, and how many requests."""

from __future__ import annotations

import os
from dataclasses import replace

from mild.artifact.versions import Versions, read_versions
from mild.errors import check_arguments
from mild.gateway.ledger.reading import ledger_location, requests_by_router


@check_arguments
def versions(
    folder: str | os.PathLike[str], ledger: str | os.PathLike[str] | None = None
) -> Versions:
    """The versions of a saved router: which one serves, what served before, and why.

    Parameters
    ----------
    folder : of a saved router
    ledger : SQLite file, postgresql:// URL, or the mild.toml that names it; adds how many requests each
        version decided, and when

    Examples
    --------
    >>> import tempfile
    >>> import mild
    >>> from mild.gateway.demo import demo_router
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     folder = demo_router().save(parent + "/router")
    ...     [(one.version, one.why) for one in mild.versions(folder).versions]
    [(1, 'as it was saved')]
    """
    found = read_versions(folder)
    if ledger is None:
        return found
    return replace(found, requests=requests_by_router(ledger_location(ledger)))
