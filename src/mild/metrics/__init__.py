"""Metrics of a routing: losses, shares, frontiers, intervals of differences, and the verdict.

Ties: a router's choice goes to the highest index, the oracle's to the lowest.
"""

from mild.metrics.curves import frontier, two_expert_curve
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
    difference_intervals,
    grouped_rows,
    linearised_rows,
    paired_interval,
    resampled_intervals,
    simultaneous_intervals,
)
from mild.metrics.routing import (
    balanced_deferral_loss,
    balanced_recall,
    best_constant,
    chosen_costs,
    common_constant,
    common_rows,
    constant_losses,
    deferral_loss,
    expert_recall,
    expert_shares,
    oracle_loss,
    oracle_shares,
    share_entropy,
    shuffled_control,
    summary,
    worst_recall,
)
from mild.metrics.sequential import MeanTest
from mild.metrics.target_verdict import TargetVerdict, target_of_choices
from mild.metrics.verdict import Verdict, count_judged, verdict_of_choices

__all__ = [
    "AccuracyCoverageCurve",
    "DeferralSummary",
    "Interval",
    "MeanTest",
    "ReliabilityCurve",
    "TargetVerdict",
    "Verdict",
    "accuracy_coverage_curve",
    "balanced_deferral_loss",
    "balanced_recall",
    "best_constant",
    "chosen_costs",
    "common_constant",
    "common_rows",
    "constant_losses",
    "count_judged",
    "deferral_loss",
    "deferral_summary",
    "difference_intervals",
    "expected_calibration_error",
    "expert_correctness",
    "expert_recall",
    "expert_shares",
    "frontier",
    "grouped_rows",
    "linearised_rows",
    "mean_coverage_curve",
    "oracle_loss",
    "oracle_shares",
    "paired_interval",
    "reliability_curve",
    "resampled_intervals",
    "share_entropy",
    "shuffled_control",
    "simultaneous_intervals",
    "summary",
    "target_of_choices",
    "two_expert_curve",
    "verdict_of_choices",
    "worst_recall",
]
