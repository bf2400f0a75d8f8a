"""Text to features: scikit-learn transformers, saved with the router as JSON and arrays.

Importing this package imports NumPy and safetensors only; other packages, scikit-learn among them, are
imported on first use.
"""

from __future__ import annotations

import inspect
from typing import Any, cast

from mild.core.arrays import invalid
from mild.errors import OptionError, check_option
from mild.features.base import TextFeatures
from mild.features.combined import CombinedFeatures
from mild.features.encoder import EncoderFeatures
from mild.features.hashing import HashingFeatures
from mild.features.onnx import OnnxFeatures
from mild.features.onnx_export import onnx_features
from mild.features.static import StaticFeatures
from mild.features.vectors import VectorFeatures

__all__ = [
    "FEATURES",
    "CombinedFeatures",
    "EncoderFeatures",
    "HashingFeatures",
    "OnnxFeatures",
    "StaticFeatures",
    "TextFeatures",
    "VectorFeatures",
    "check_input",
    "make_features",
    "onnx_features",
]

_CLASSES = (
    *(HashingFeatures, StaticFeatures, EncoderFeatures, CombinedFeatures, VectorFeatures),
    OnnxFeatures,
)
# Name, as in ``--text``, to class.
FEATURES: dict[str, type[TextFeatures]] = {features.kind: features for features in _CLASSES}


def make_features(name: str = "hashing", **options: Any) -> TextFeatures:
    """Unfitted features, with checked parameters.

    ``name`` is one of FEATURES, ``options`` are parameters of the class, or of the encoder in
    hashing+encoder.

    Examples
    --------
    >>> make_features("hashing", dimensions=64)
    HashingFeatures(dimensions=64)
    """
    # Those of an ONNX file come with a trained encoder, and are not offered for others.
    offered = FEATURES if name in FEATURES else [kind for kind in FEATURES if kind != "onnx"]
    features = FEATURES[check_option("text", name, offered)]
    if features is CombinedFeatures:
        return CombinedFeatures(encoder=cast(EncoderFeatures, make_features("encoder", **options)))
    known = inspect.signature(features).parameters
    for option in options:
        if option not in known:
            raise OptionError(f"{name} features take {', '.join(known)}; got {option!r}.")
    made = features(**options)
    made.check_parameters()
    return made


def check_input(step: TextFeatures, queries: bool, vectors: bool) -> None:
    """Refuse features for which a table lacks the vectors or the queries.

    Examples
    --------
    >>> check_input(HashingFeatures(), queries=True, vectors=False)
    """
    if step.kind == "vectors" and not vectors:
        rule = "'vectors' needs a column of vectors in the table, such as embedding; it has none."
        raise invalid("text", rule)
    if step.kind != "vectors" and not queries:
        rule = f"{step.kind!r} needs queries, and the table has only vectors; use 'vectors'."
        raise invalid("text", rule)
