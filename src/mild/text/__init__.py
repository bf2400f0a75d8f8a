"""Text to features: learned on the training texts, saved with the router as JSON and arrays.

Importing this package imports NumPy alone. Fitting hashing features uses scipy; static embeddings use
``tokenizers``, sentence encoders ``transformers`` and ``torch``, exported ones ``onnxruntime`` and
``tokenizers``, each when it is first needed.
"""

from mild.text.base import TextFeatures
from mild.text.encoder import EncoderFeatures
from mild.text.hashing import HashingFeatures
from mild.text.onnx import OnnxFeatures
from mild.text.registry import FEATURES, make_features
from mild.text.static import StaticFeatures
from mild.text.vectors import VectorFeatures

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
