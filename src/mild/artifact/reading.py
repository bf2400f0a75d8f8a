"""Loading of routers from folders."""

from __future__ import annotations

import os

from mild.artifact import hub
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
        Folder of the router; of a folder with versions, the one that serves is read. A text such as
        "hf://owner/name" is a repository of the Hugging Face Hub (extra ``hub``), to which
        ``Router.push_to_hub`` wrote it: its router is downloaded into the cache of ``huggingface_hub``.

    Returns
    -------
    Router
        The router, as it was saved.

    Raises
    ------
    RouterFileError
        If files are missing or damaged, the schema is another one, the tensors do not have the expected
        shapes, the folder holds a pickle, or the Hub does not give the repository.
    MissingExtraError
        If a repository is named and ``huggingface_hub`` is not installed.

    Examples
    --------
    >>> import mild, tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     loaded = mild.load(router.save(f"{parent}/router"))
    >>> loaded.route(["Who wrote Emma?"])
    ['large']
    """
    if isinstance(folder, str) and folder.startswith(hub.PREFIX):
        folder = hub.download(folder.removeprefix(hub.PREFIX))
    return read_router(folder, Router)
