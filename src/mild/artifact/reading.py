"""Loading of routers from folders."""

from __future__ import annotations

import os

from mild.artifact.content import read_router
from mild.artifact.router import Router
from mild.artifact.versions import read_versions
from mild.errors import RouterFileError, check_arguments


@check_arguments
def load(folder: str | os.PathLike[str], version: int | None = None) -> Router:
    """Read a router that ``save`` wrote.

    Nothing in the folder is executed or unpickled. scikit-learn, scipy and torch are not imported. Models
    that are not stored in the folder (static embeddings saved by reference, a sentence encoder) are looked
    up and must be the ones that the router was fitted with; an encoder is looked up on first use.

    Parameters
    ----------
    folder : str or path
        Folder of the router.
    version : int, default=None
        Version to load, if the folder holds several; None for the one in service.

    Returns
    -------
    Router
        The router, as it was saved.

    Raises
    ------
    RouterFileError
        If files are missing or damaged, the schema is another one, the tensors do not have the expected
        shapes, or the folder holds a pickle.

    Examples
    --------
    >>> import mild, tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     loaded = mild.load(router.save(f"{parent}/router"))
    >>> loaded.route(["Who wrote Emma?"])
    ['large']
    """
    return read_router(folder, version, Router)


def load_candidate(folder: str | os.PathLike[str]) -> Router | None:
    """The version that has learned and is not yet proven; None if there is none that can be read."""
    try:
        candidate = read_versions(folder).candidate
        if candidate is None:
            return None
        return load(folder, candidate)
    except RouterFileError:
        # It may just have been replaced, and nothing depends on it.
        return None
