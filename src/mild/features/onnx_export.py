"""Export of a sentence encoder to ONNX, checked against the network it was made from."""

from __future__ import annotations

import copy
import importlib.util
import io
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from mild.errors import MissingExtraError, RouterFileError, install_hint
from mild.features.encoder import EncoderFeatures, LoadedEncoder, find_encoder
from mild.features.onnx import ENCODER_FILE, INPUTS, OnnxFeatures
from mild.features.pretrained import Tokens

if TYPE_CHECKING:
    from mild.features.pooling import PooledEncoder

#: Largest difference between vectors of the network and of its export, relative to the largest entry.
TOLERANCE = 1e-4
OPSET = 17
# Largest number of bytes of weights: a file of protocol buffers has at most 2 GB.
MAX_BYTES = 2**31 - 2**20
# Texts on which network and export are compared: empty, short, long, and letters of several scripts.
PROBES = (
    "",
    "a",
    "What is 17 * 23?",
    "Ελλάδα, 中国, Ägypten 🙂",
    "Which is true? " * 80,
    "0123456789" * 200,
)


def exported(encoder: PooledEncoder, tokenizer: bytes, max_length: int, pad: int) -> OnnxFeatures:
    """The encoder as features that need neither torch nor transformers, with a scale of 1."""
    import torch

    from mild.features.pooling import encode_rows

    cpu = torch.device("cpu")
    if next(encoder.parameters()).device != cpu:
        encoder = copy.deepcopy(encoder).to(cpu)
    encoder.eval()
    features = OnnxFeatures(to_onnx(encoder), tokenizer, max_length=max_length, pad=pad)
    features.take_scale(np.zeros(encoder.width), np.ones(1))
    ids = Tokens(tokenizer, max_length, pad).ids(PROBES)
    expected = encode_rows(encoder, ids, pad, cpu).numpy()
    difference = float(np.abs(features.vectorize(PROBES) - expected).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise RouterFileError(
            f"{ENCODER_FILE} must give the vectors of the network to {TOLERANCE:g}; they differ by "
            f"{difference:.2g}. This encoder cannot be exported by this version of torch."
        )
    return features


def to_onnx(encoder: PooledEncoder) -> bytes:
    """Model of an encoder on the CPU: input_ids, attention_mask (n, length) -> vector (n, width)."""
    if importlib.util.find_spec("onnx") is None:
        raise MissingExtraError(
            f"exporting an encoder needs the package onnx; {install_hint('encoder')}."
        )
    import torch

    size = 0
    for weight in encoder.state_dict().values():
        size += weight.numel() * weight.element_size()
    if size > MAX_BYTES:
        raise RouterFileError(
            f"an encoder must have less than 2 GB of weights to be one ONNX file; got {size:,} bytes."
        )
    # Two texts of different length: both axes are dynamic, and the mask is traced.
    ids = torch.ones((2, 7), dtype=torch.int64)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    dynamic_axes = {"vector": {0: "texts"}}
    for name in INPUTS:
        dynamic_axes[name] = {0: "texts", 1: "tokens"}
    buffer = io.BytesIO()
    export: Any = torch.onnx.export
    with warnings.catch_warnings(), torch.no_grad():
        # Tracing warns about every shape it reads; the result is compared with the network.
        warnings.simplefilter("ignore")
        export(
            encoder,
            (ids, mask),
            buffer,
            input_names=list(INPUTS),
            output_names=["vector"],
            dynamic_axes=dynamic_axes,
            opset_version=OPSET,
            dynamo=False,
        )
    return buffer.getvalue()


def onnx_features(features: EncoderFeatures) -> OnnxFeatures:
    """Fitted sentence-encoder features as ONNX: the same vectors, saved with the router.

    The router then serves with onnxruntime and tokenizers, without torch and transformers.

    Parameters
    ----------
    features : EncoderFeatures
        Fitted features.

    Returns
    -------
    exported : OnnxFeatures
        Fitted features with the same vectors.

    Examples
    --------
    >>> from mild.artifact import save
    >>> def save_without_torch(router, features, folder):
    ...     return save(router, folder, text=onnx_features(features))
    """
    from mild.features.pooling import PooledEncoder

    settings, tensors = features.state()
    files = find_encoder(str(features.source), settings["path"])
    encoder = LoadedEncoder(files, settings["max_length"], "cpu")
    pooled = PooledEncoder(encoder.model, files.pooling, files.width, files.normalize)
    tokenizer_json = encoder.tokenizer.backend_tokenizer.to_str().encode()
    pad = int(encoder.tokenizer.pad_token_id or 0)
    onnx = exported(pooled, tokenizer_json, settings["max_length"], pad)
    onnx.take_scale(tensors["centre"], tensors["scale"])
    return onnx
