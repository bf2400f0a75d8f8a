"""``mild demo``: the paper's expert setups on the digits, with numbers, intervals and pictures."""

from mild.evaluation.demo.findings import findings
from mild.evaluation.demo.results import document, write_results
from mild.evaluation.demo.run import DemoResults, DemoSettings, run_demo

__all__ = ["DemoResults", "DemoSettings", "document", "findings", "run_demo", "write_results"]
