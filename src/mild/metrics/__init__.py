"""Metrics of a routing: losses, shares, intervals of differences, and the verdict.

Ties: a router's choice goes to the highest index, the oracle's to the lowest.
"""

from mild.metrics.curves import two_expert_curve
from mild.metrics.deferral import (
    AccuracyCoverageCurve,
    DeferralSummary,
    ReliabilityCurve,
    accuracy_coverage_curve,
    deferral_summary,
    expected_calibration_error,
    expert_correctness,
    mean_coverage_curve,
    reliability_curve,
)
from mild.metrics.interval import Interval
from mild.metrics.intervals import (
    grouped_rows,
    joint_intervals,
    linearised_rows,
    paired_interval,
    split_intervals,
)
from mild.metrics.results import Results
from mild.metrics.routing import (
    balanced_deferral_loss,
    balanced_recall,
    best_constant,
    chosen_costs,
    common_rows,
    constant_losses,
    deferral_loss,
    expert_recall,
    expert_shares,
    oracle_loss,
    oracle_shares,
    summary,
)
from mild.metrics.target_verdict import TargetVerdict, judge_target
from mild.metrics.verdict import Verdict, count_judged, judge_cost

__all__ = [
    "AccuracyCoverageCurve",
    "DeferralSummary",
    "Interval",
    "ReliabilityCurve",
    "Results",
    "TargetVerdict",
    "Verdict",
    "accuracy_coverage_curve",
    "balanced_deferral_loss",
    "balanced_recall",
    "best_constant",
    "chosen_costs",
    "common_rows",
    "constant_losses",
    "count_judged",
    "deferral_loss",
    "deferral_summary",
    "expected_calibration_error",
    "expert_correctness",
    "expert_recall",
    "expert_shares",
    "grouped_rows",
    "joint_intervals",
    "judge_cost",
    "judge_target",
    "linearised_rows",
    "mean_coverage_curve",
    "oracle_loss",
    "oracle_shares",
    "paired_interval",
    "reliability_curve",
    "split_intervals",
    "summary",
    "two_expert_curve",
]
