"""Compare methods on the same splits, and say in one sentence whether routing pays."""

from mild.evaluation.comparison.methods import METHODS, Method, chosen_methods
from mild.evaluation.comparison.outcome import Comparison, Row
from mild.evaluation.comparison.run import Inputs, MatrixInputs, TextInputs, compare
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
