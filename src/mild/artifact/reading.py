"""Loading of routers from folders."""

from __future__ import annotations

import os

from mild.artifact.content import read_router
from mild.artifact.router import Router
from mild.errors import check_arguments


@check_arguments
def load(folder: str | os.PathLike[str]) -> Router:
    """Read a router that ``save`` wrote.

    Nothing in the folder is executed or unpickled. scikit-learn, scipy and torch are not imported. Models
    that are not stored in the folder (a sentence encoder) are looked up on first use, and must be the ones
    that the router was fitted with.

    Parameters
    ----------
    folder : str or path
        Folder of the router; of a folder with versions, the one that serves is read.

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
    return read_router(folder, Router)
