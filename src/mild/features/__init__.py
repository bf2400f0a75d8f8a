"""Text to features: learned on the training texts, saved with the router as JSON and arrays.

Importing this package imports NumPy alone. Fitting hashing features uses scipy; static embeddings use
``tokenizers``, sentence encoders ``transformers`` and ``torch``, exported ones ``onnxruntime`` and
``tokenizers``, each when it is first needed.
"""

from mild.features.base import TextFeatures
from mild.features.encoder import EncoderFeatures
from mild.features.hashing import HashingFeatures
from mild.features.onnx import OnnxFeatures
from mild.features.registry import FEATURES, make_features
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
