"""Text to features: learned on the training texts, saved with the router as JSON and arrays.

Importing this package imports NumPy and safetensors alone; other packages are imported on first use.
"""

from __future__ import annotations

import inspect
from typing import Any

from mild.core.arrays import invalid
from mild.errors import OptionError, check_option
from mild.features.base import TextFeatures
from mild.features.combined import CombinedFeatures
from mild.features.encoder import EncoderFeatures
from mild.features.hashing import HashingFeatures
from mild.features.onnx import OnnxFeatures
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
]

_CLASSES = (
    *(HashingFeatures, StaticFeatures, EncoderFeatures, CombinedFeatures, VectorFeatures),
    OnnxFeatures,
)
FEATURES: dict[str, type[TextFeatures]] = {features.kind: features for features in _CLASSES}


def make_features(name: str = "hashing", **options: Any) -> TextFeatures:
    """Unfitted features: ``name`` is one of FEATURES, ``options`` are parameters of the class,
    or of the encoder in hashing+encoder."""
    # Those of an ONNX file come with a trained encoder, and are not offered for others.
    offered = FEATURES if name in FEATURES else [kind for kind in FEATURES if kind != "onnx"]
    features = FEATURES[check_option("text", name, offered)]
    if features is CombinedFeatures:
        return CombinedFeatures(encoder=EncoderFeatures(**_checked("encoder", options)))
    return features(**_checked(name, options))


def _checked(name: str, options: dict[str, Any]) -> dict[str, Any]:
    features = FEATURES[name]
    known = inspect.signature(features).parameters
    for option in options:
        if option not in known:
            raise OptionError(
                f"{name} features take {', '.join(known) or 'no options'}; got {option!r}."
            )
    return options


def check_input(step: TextFeatures, queries: bool, vectors: bool) -> None:
    """Refuse features for which a table lacks the vectors or the queries."""
    if step.kind == "vectors" and not vectors:
        rule = "'vectors' needs a column of vectors in the table, such as embedding; it has none."
        raise invalid("text", rule)
    if step.kind != "vectors" and not queries:
        rule = f"{step.kind!r} needs queries, and the table has only vectors; use 'vectors'."
        raise invalid("text", rule)
