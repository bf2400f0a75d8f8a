"""Save routers of every kind."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact.fingerprints import fingerprint
from mild.artifact.info import DataInfo, RouterInfo
from mild.artifact.sources import as_router
from mild.core.arrays import invalid
from mild.features import TextFeatures


def save(
    router: Any,
    folder: str | os.PathLike[str],
    *,
    experts: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    data: tuple[Any, Any] | Mapping[str, Any] | None = None,
    text: TextFeatures | None = None,
    notes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    query_hashes: NDArray[np.uint64] | None = None,
) -> Path:
    """Write a fitted router to a folder, as JSON and safetensors.

    The folder appears complete or not at all.

    Parameters
    ----------
    router : Router, fitted router, RouterCV or Pipeline
        A Pipeline ends in a router, after StandardScaler steps, or after text features as its first step.
    folder : str or path
        Folder to write; must be empty or not exist yet, unless ``overwrite``.
    experts : list of str, default=None
        One name per expert; None for those of the router.
    feature_names : list of str, default=None
        One name per feature; None for those of the router, if any.
    data : tuple or dict, default=None
        (X, costs) of the training data, for the fingerprint, or a mapping with "fingerprint" and "rows".
    text : TextFeatures, default=None
        Fitted text features, saved with the router; None for those of the router, if any.
    notes : dict, default=None
        JSON-ready facts to keep with the router; None for those of its ``info``.
    overwrite : bool, default=False
        Whether an existing router may be replaced.
    query_hashes : ndarray of shape (n_queries,), default=None
        Hashes of the training queries, to recognise them later: uint64, ascending, distinct; None for
        those of the router.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import tempfile
    >>> from mild.artifact import load
    >>> from mild.routers.linear import LinearRouter
    >>> router = LinearRouter().fit([[0.0], [1.0], [2.0]], [[0, 1], [0, 1], [1, 0]])
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     load(save(router, parent + "/router", experts=["small", "large"]))
    Router(linear, 1 features, experts small, large)
    """
    source = as_router(router)
    info = source.info
    for name, value in (("experts", experts), ("feature_names", feature_names)):
        if isinstance(value, str):
            raise invalid(name, f"must be a list of names; got {value!r}.")
    if notes is not None:
        noted = RouterInfo.from_notes(notes)
        info = replace(noted, data=info.data, estimator=info.estimator)
    if data is not None:
        info = replace(info, data=_data_info(data))
    saved = replace(source, info=info)
    if experts is not None:
        saved = replace(saved, experts=list(experts))
    if feature_names is not None:
        saved = replace(saved, feature_names=list(feature_names))
    if text is not None:
        saved = replace(saved, text=text)
    if query_hashes is not None:
        saved = replace(saved, query_hashes=query_hashes)
    return saved.save(folder, overwrite)


def _data_info(data: tuple[Any, Any] | Mapping[str, Any]) -> DataInfo:
    """What is recorded of the training data."""
    if isinstance(data, Mapping):
        return DataInfo(str(data["fingerprint"]), int(data["rows"]))
    X, costs = data
    n_rows = int(np.shape(costs)[0])
    return DataInfo(fingerprint(X, costs), n_rows)
