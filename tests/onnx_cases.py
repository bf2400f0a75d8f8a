"""A tiny encoder made by hand, without torch: the mean of fixed vectors of the tokens."""

from __future__ import annotations

import numpy as np

from mild.features import OnnxFeatures
from transformer_cases import VOCABULARY, build_tokenizer

WIDTH = 5


def build_encoder(width=WIDTH, vocabulary=VOCABULARY, inputs=("input_ids", "attention_mask")):
    """Bytes of an ONNX model: ``sum_t mask_t * table[token_t] / sum_t mask_t``."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    table = np.random.default_rng(0).normal(size=(vocabulary, width)).astype(np.float32)
    constants = {"table": table, "last": np.array([2]), "tokens": np.array([1])}
    nodes = [
        helper.make_node("Gather", ["table", inputs[0]], ["vectors"]),
        helper.make_node("Cast", [inputs[1]], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["kept"]),
        helper.make_node("Mul", ["vectors", "kept"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "tokens"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["kept", "tokens"], ["count"], keepdims=0),
        helper.make_node("Div", ["sum", "count"], ["vector"]),
    ]
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in inputs]
    wanted = [helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["n", width])]
    known = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "mean", given, wanted, known)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString(), table


def build_features(**options):
    """Features around that encoder, not fitted."""
    tokenizer = build_tokenizer().to_str().encode()
    return OnnxFeatures(build_encoder()[0], tokenizer, **{"max_length": 12, **options})
