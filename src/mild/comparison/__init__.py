"""Every method on the same splits, and one sentence about whether routing pays."""

from mild.comparison.inputs import Inputs, MatrixInputs, TextInputs
from mild.comparison.methods import METHODS, Method, chosen_methods
from mild.comparison.outcome import Comparison, Row
from mild.comparison.run import compare
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
