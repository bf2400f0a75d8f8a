"""A transformer encoder that is fine-tuned to route, and saved as ONNX.

Importing this package imports neither torch nor transformers.
"""

from experiments.llm.transformer.router import DEBERTA, TransformerRouter

__all__ = ["DEBERTA", "TransformerRouter"]
