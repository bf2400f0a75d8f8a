"""Features of texts as the ledger keeps them where it keeps no text."""

from __future__ import annotations

import base64
import hashlib
import json

import numpy as np

from mild.core.arrays import FloatArray
from mild.features import TextFeatures


def features_tag(step: TextFeatures) -> str:
    """A short name of a fitted text step: that of another step differs."""
    settings, tensors = step.state()
    digest = hashlib.sha256(json.dumps([step.kind, settings], sort_keys=True, default=str).encode())
    for name in sorted(tensors):
        digest.update(name.encode() + np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()[:12]


def pack_features(features: FloatArray, tag: str) -> str:
    """Features of a text as the ledger keeps them: half precision, with the ``features_tag`` of their step.

    >>> unpack_features(pack_features(np.array([0.5, -2.0]), "ab"), "ab")
    array([ 0.5, -2. ], dtype=float32)
    """
    most = np.finfo(np.float16).max
    values = np.clip(features, -most, most).astype("<f2")
    return f"{tag}:{base64.b64encode(values.tobytes()).decode()}"


def unpack_features(packed: str, tag: str) -> FloatArray | None:
    """Features that were packed; None if they are those of another step."""
    step, _, values = packed.partition(":")
    if step != tag:
        return None
    return np.frombuffer(base64.b64decode(values), "<f2").astype(np.float32)
