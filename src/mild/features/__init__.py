"""Text to features: learned on the training texts, saved with the router as JSON and arrays.

Importing this package imports NumPy and safetensors alone. Fitting hashing features needs scipy; static
embeddings need ``tokenizers``, sentence encoders ``transformers`` and ``torch``, exported ones
``onnxruntime`` and ``tokenizers``; each is imported on first use.
"""

from __future__ import annotations

import inspect
from typing import Any

from mild.errors import OptionError, check_option
from mild.features.base import TextFeatures
from mild.features.encoder import EncoderFeatures
from mild.features.hashing import HashingFeatures
from mild.features.onnx import OnnxFeatures
from mild.features.static import StaticFeatures
from mild.features.vectors import VectorFeatures

__all__ = [
    "FEATURES",
    "EncoderFeatures",
    "HashingFeatures",
    "OnnxFeatures",
    "StaticFeatures",
    "TextFeatures",
    "VectorFeatures",
    "make_features",
]

FEATURES: dict[str, type[TextFeatures]] = {
    "hashing": HashingFeatures,
    "static": StaticFeatures,
    "encoder": EncoderFeatures,
    "vectors": VectorFeatures,
    "onnx": OnnxFeatures,
}


def make_features(name: str = "hashing", **options: Any) -> TextFeatures:
    """Unfitted features.

    Parameters
    ----------
    name : one of ``FEATURES``
    options : parameters of the class

    Examples
    --------
    >>> make_features("hashing", dimensions=32).kind
    'hashing'
    """
    features = FEATURES[check_option("features", name, FEATURES)]
    known = inspect.signature(features).parameters
    for option in options:
        if option not in known:
            raise OptionError(
                f"{name} features take {', '.join(known) or 'no options'}; got {option!r}."
            )
    return features(**options)
