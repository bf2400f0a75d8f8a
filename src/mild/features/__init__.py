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
from mild.features.vectors import VectorFeatures

__all__ = [
    "FEATURES",
    "CombinedFeatures",
    "EncoderFeatures",
    "HashingFeatures",
    "OnnxFeatures",
    "TextFeatures",
    "VectorFeatures",
    "check_input",
    "make_features",
    "onnx_features",
]

#: Class of each kind of features, by its name, as in ``--text``.
FEATURES: dict[str, type[TextFeatures]] = {
    HashingFeatures.kind: HashingFeatures,
    EncoderFeatures.kind: EncoderFeatures,
    CombinedFeatures.kind: CombinedFeatures,
    VectorFeatures.kind: VectorFeatures,
    OnnxFeatures.kind: OnnxFeatures,
}


def make_features(name: str = "hashing", **options: Any) -> TextFeatures:
    """Unfitted features, with checked parameters.

    Parameters
    ----------
    name : str, default="hashing"
        A name in ``FEATURES``.
    **options : object
        Parameters of the class; for "hashing+encoder" those of the encoder.

    Returns
    -------
    features : TextFeatures
        Unfitted features.

    Examples
    --------
    >>> make_features("hashing", n_components=64)
    HashingFeatures(n_components=64)
    """
    if name not in FEATURES:
        # ONNX features come with a trained encoder, so that the message does not suggest them.
        check_option("text", name, [kind for kind in FEATURES if kind != "onnx"])
    features_class = FEATURES[name]
    if features_class is CombinedFeatures:
        encoder = cast(EncoderFeatures, make_features("encoder", **options))
        return CombinedFeatures(encoder=encoder)
    parameters = inspect.signature(features_class).parameters
    for option in options:
        if option not in parameters:
            raise OptionError(f"{name} features take {', '.join(parameters)}; got {option!r}.")
    features = features_class(**options)
    features.check_parameters()
    return features


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
