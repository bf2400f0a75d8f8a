"""A network to the bytes of an ONNX model. Needs torch and onnx."""

from __future__ import annotations

import copy
import importlib.util
import io
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from mild.errors import ArtifactError, MissingExtraError
from mild.features.base import Rows
from mild.features.onnx import INPUTS
from mild.features.tokens import Ids
from mild.routers.transformer.network import PooledEncoder, RoutingNetwork

__all__ = ["to_onnx", "vectors_of"]

OPSET = 17
# One file of protocol buffers holds no more.
MOST = 2**31 - 2**20

_export: Any = torch.onnx.export


def to_onnx(encoder: PooledEncoder) -> bytes:
    """Model with inputs input_ids and attention_mask (n, length) and the output vector (n, width)."""
    if importlib.util.find_spec("onnx") is None:
        raise MissingExtraError(
            "a transformer router is written as ONNX, which needs the package onnx; pip install "
            "'mild-learn[transformer]'."
        )
    size = sum(value.numel() * value.element_size() for value in encoder.state_dict().values())
    if size > MOST:
        raise ArtifactError(
            f"an encoder must have less than 2 GB of weights to be one ONNX file; got {size:,} bytes."
        )
    network = _on_cpu(encoder)
    # Two texts of unlike length: both sizes are free, and the mask plays its part.
    ids = torch.ones((2, 7), dtype=torch.int64)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    axes = {name: {0: "texts", 1: "tokens"} for name in INPUTS}
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        # Tracing warns of every shape that it looks at; what comes out is compared with the network.
        warnings.simplefilter("ignore")
        _export(
            network,
            (ids, mask),
            buffer,
            input_names=list(INPUTS),
            output_names=["vector"],
            dynamic_axes={**axes, "vector": {0: "texts"}},
            opset_version=OPSET,
            dynamo=False,
        )
    return buffer.getvalue()


def vectors_of(encoder: PooledEncoder, ids: Sequence[Ids], pad: int) -> Rows:
    """Vectors (n, width) of the network itself, on the CPU."""
    return RoutingNetwork(_on_cpu(encoder), 1, pad).embed(ids)


def _on_cpu(encoder: PooledEncoder) -> PooledEncoder:
    if next(encoder.parameters()).device.type != "cpu":
        encoder = copy.deepcopy(encoder).to("cpu")
    return encoder.eval()
