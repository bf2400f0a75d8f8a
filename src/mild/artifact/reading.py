"""Loading of routers from folders."""

from __future__ import annotations

import os

from mild.artifact.content import read_parts
from mild.artifact.router import Router
from mild.artifact.versions import read_versions
from mild.errors import ArtifactError, check_arguments


@check_arguments
def load(folder: str | os.PathLike[str], version: int | None = None) -> Router:
    """Read a router that ``save`` wrote: of a folder with versions the one that serves, or ``version``.

    Nothing in the folder is executed or unpickled. scikit-learn, scipy and torch are not imported. Models
    outside the folder (static embeddings by reference, a sentence encoder) are looked up and must be those
    that the router was fitted with; an encoder is looked up on first use.

    Raises ArtifactError for missing or damaged files, a newer schema, tensors that do not fit, and a pickle
    in the folder.
    """
    return Router(**read_parts(folder, version))


def load_candidate(folder: str | os.PathLike[str]) -> Router | None:
    """The version that has learned and is not yet proven; None if there is none that can be read."""
    try:
        candidate = read_versions(folder).candidate
        return None if candidate is None else load(folder, candidate)
    except ArtifactError:
        # It may just have been replaced, and nothing depends on it.
        return None
