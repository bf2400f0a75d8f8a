"""A transformer encoder fine-tuned to route, and served as ONNX without torch.

Importing this package imports neither torch nor transformers.
"""

from mild.routers.transformer.router import DEBERTA, TransformerRouter
from mild.routers.transformer.serving import onnx_features

__all__ = ["DEBERTA", "TransformerRouter", "onnx_features"]
