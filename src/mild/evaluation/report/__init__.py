"""One HTML page on a router that needs no network: does it pay, where, and which experts does it ask?"""

from mild.evaluation.report.document import (
    EVALUATION_FILE,
    SCHEMA,
    build_document,
    comparison_document,
    optimism,
    read_document,
    write_document,
)
from mild.evaluation.report.page import check_report, render, write_report

__all__ = [
    "EVALUATION_FILE",
    "SCHEMA",
    "build_document",
    "check_report",
    "comparison_document",
    "optimism",
    "read_document",
    "render",
    "write_document",
    "write_report",
]
