"""An encoder to ONNX, checked against the network that it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mild.errors import ArtifactError
from mild.features import EncoderFeatures, OnnxFeatures
from mild.features.encoder import RunningEncoder, find_encoder
from mild.features.onnx import ENCODER_FILE
from mild.features.tokens import Tokens

if TYPE_CHECKING:
    from mild.routers.transformer.network import PooledEncoder

__all__ = ["TOLERANCE", "exported", "onnx_features"]

#: By how much vectors of the network and of its export may differ, relative to the largest entry.
TOLERANCE = 1e-4
# What they are compared on: nothing, little, much, and letters of all kinds.
PROBES = (
    "",
    "a",
    "What is 17 * 23?",
    "Ελλάδα, 中国, Ägypten 🙂",
    "Which of the following is true? " * 40,
    "0123456789" * 200,
)


def exported(encoder: PooledEncoder, tokenizer: bytes, max_length: int, pad: int) -> OnnxFeatures:
    """The encoder as a feature step that needs neither torch nor transformers, its scale not yet set.

    Parameters
    ----------
    encoder : network on any device
    tokenizer : JSON of its tokenizer
    max_length : tokens that are read of a text
    pad : number of the padding token
    """
    # Here and not above: these import torch.
    from mild.routers.transformer.export import to_onnx, vectors_of

    tokens = Tokens(tokenizer, max_length, pad)
    features = OnnxFeatures(to_onnx(encoder), tokenizer, max_length=max_length, pad=pad)
    features.take_scale(np.zeros(encoder.width), np.ones(1))
    wanted = vectors_of(encoder, tokens.ids(PROBES), pad)
    apart = float(np.abs(features.transform(PROBES) - wanted).max())
    if not apart <= TOLERANCE * max(1.0, float(np.abs(wanted).max())):
        raise ArtifactError(
            f"{ENCODER_FILE} must give the vectors of the network to {TOLERANCE:g}; they differ by "
            f"{apart:.2g}. This encoder cannot be exported by this version of torch."
        )
    return features


def onnx_features(features: EncoderFeatures) -> OnnxFeatures:
    """Fitted sentence-encoder features as ONNX: the same vectors, carried by the router that they serve.

    Parameters
    ----------
    features : fitted; its encoder must be at hand

    Examples
    --------
    >>> from mild.artifact import save
    >>> def save_without_torch(router, features, folder):
    ...     return save(router, folder, text=onnx_features(features))
    """
    from mild.routers.transformer.network import PooledEncoder

    settings, tensors = features.state()
    files = find_encoder(features.source, settings["path"])
    running = RunningEncoder(files, settings["max_length"], "cpu")
    model, tokenizer = running.model, running.tokenizer
    pooled = PooledEncoder(model, files.pooling, files.width, False, files.normalize)
    content = tokenizer.backend_tokenizer.to_str().encode()
    pad = int(tokenizer.pad_token_id or 0)
    found = exported(pooled, content, settings["max_length"], pad)
    found.take_scale(tensors["centre"], tensors["scale"])
    return found
