"""Every method on the same splits, and one sentence about whether routing pays."""

from mild.evaluation.comparison.inputs import Inputs, MatrixInputs, TextInputs
from mild.evaluation.comparison.methods import METHODS, Method, chosen_methods
from mild.evaluation.comparison.outcome import Comparison, Row
from mild.evaluation.comparison.run import compare
from mild.metrics import Statement

__all__ = [
    "METHODS",
    "Comparison",
    "Inputs",
    "MatrixInputs",
    "Method",
    "Row",
    "Statement",
    "TextInputs",
    "chosen_methods",
    "compare",
]
