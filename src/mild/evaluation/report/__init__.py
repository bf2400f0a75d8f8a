"""One offline HTML page on a router: does it pay, where, whom does it ask, and what does it regret."""

from mild.evaluation.report.document import SCHEMA, build_document, comparison_document
from mild.evaluation.report.page import optimism, render
from mild.evaluation.report.writing import read_document, write_document, write_report

__all__ = [
    "SCHEMA",
    "build_document",
    "comparison_document",
    "optimism",
    "read_document",
    "render",
    "write_document",
    "write_report",
]
