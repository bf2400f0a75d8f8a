"""One HTML page on a router that needs no network: does it pay, where, and which experts does it ask?"""

from mild.report.certainty import GUARANTEE, certainty_sentence, certainty_setting
from mild.report.document import (
    EVALUATION_FILE,
    SCHEMA,
    optimism,
    read_comparison,
    read_document,
    read_evaluation,
    report_title,
    write_document,
)
from mild.report.page import check_report, render, write_report
from mild.report.verdict_part import target_lines

__all__ = [
    "EVALUATION_FILE",
    "GUARANTEE",
    "SCHEMA",
    "certainty_sentence",
    "certainty_setting",
    "check_report",
    "optimism",
    "read_comparison",
    "read_document",
    "read_evaluation",
    "render",
    "report_title",
    "target_lines",
    "write_document",
    "write_report",
]
