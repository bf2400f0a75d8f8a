"""One HTML page on a router that needs no network: does it pay, where, and which experts does it ask?"""

from mild.report.certainty import GUARANTEE, certainty_sentence, certainty_setting
from mild.report.page import check_report, render, write_report
from mild.report.verdict_part import target_lines

__all__ = [
    "GUARANTEE",
    "certainty_sentence",
    "certainty_setting",
    "check_report",
    "render",
    "target_lines",
    "write_report",
]
