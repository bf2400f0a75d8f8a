"""Saving of everything that can be saved."""

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
from mild.artifact.sources import source_of
from mild.core.arrays import invalid
from mild.features import TextFeatures


def save(
    router: Any,
    folder: str | os.PathLike[str],
    *,
    expert_names: Sequence[str] | None = None,
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
    router : fitted router, RouterCV, Router, or Pipeline that ends in a router, with text features as its
        first step or none, and StandardScaler steps
    folder : target; must not exist or be empty, unless ``overwrite``
    expert_names : one name per expert; None for those of the router
    feature_names : one name per feature; None for those of the router, if any
    data : (X, costs) of the training data, for the fingerprint, or a mapping with "fingerprint" and "rows"
    text : fitted text features, saved with the router; None for those of the router, if any
    notes : JSON-ready facts to keep with the router; None for those of its ``info``
    overwrite : whether an existing router may be replaced
    query_hashes : (n,) uint64, ascending, distinct: hashes of the training queries, to recognise them
        later; None for those of the router

    Returns
    -------
    Path of the folder

    Examples
    --------
    >>> import tempfile
    >>> from mild.artifact import load
    >>> from mild.routers.linear import LinearRouter
    >>> router = LinearRouter().fit([[0.0], [1.0], [2.0]], [[0, 1], [0, 1], [1, 0]])
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     load(save(router, parent + "/router", expert_names=["small", "large"]))
    Router(linear, 1 features, experts small, large)
    """
    source = source_of(router)
    info = source.info
    for name, value in (("expert_names", expert_names), ("feature_names", feature_names)):
        if isinstance(value, str):
            raise invalid(name, f"must be a list of names; got {value!r}.")
    if notes is not None:
        known = RouterInfo.from_notes(notes)
        info = replace(known, data=info.data, estimator=info.estimator)
    if isinstance(data, Mapping):
        info = replace(info, data=DataInfo(str(data["fingerprint"]), int(data["rows"])))
    elif data is not None:
        rows = int(np.shape(data[1])[0])
        info = replace(info, data=DataInfo(fingerprint(*data), rows))
    given: dict[str, Any] = {
        "expert_names": expert_names,
        "feature_names": feature_names,
        "text": text,
        "query_hashes": query_hashes,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(source, info=info, **changes).save(folder, overwrite)
