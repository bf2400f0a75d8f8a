"""One HTML page on a router that needs no network: does it pay, where, and which experts does it ask?"""

from mild.report.document import (
    EVALUATION_FILE,
    SCHEMA,
    optimism,
    read_document,
    write_document,
)
from mild.report.page import check_report, render, write_report

__all__ = [
    "EVALUATION_FILE",
    "SCHEMA",
    "check_report",
    "optimism",
    "read_document",
    "render",
    "write_document",
    "write_report",
]
