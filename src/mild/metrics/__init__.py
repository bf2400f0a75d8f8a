"""How good a routing is: losses, shares, frontiers and the intervals that say what is decided.

Two tie rules, on purpose: a router's choice goes to the highest index, the oracle's to the lowest.
"""

from mild.metrics.common import CommonRows, common_constant, common_rows
from mild.metrics.linearised import clustered_rows, linearised_rows
from mild.metrics.loss import (
    BestConstant,
    balanced_deferral_loss,
    best_constant,
    chosen_costs,
    constant_losses,
    deferral_loss,
    headroom,
    oracle_loss,
    shuffled_control,
)
from mild.metrics.paired import Interval, paired_interval
from mild.metrics.price_frontier import FrontierPoint, frontier, pareto
from mild.metrics.resampled import resampled_intervals
from mild.metrics.routing_summary import RoutingSummary, summary
from mild.metrics.shares import (
    balanced_recall,
    expert_recall,
    expert_shares,
    oracle_shares,
    share_entropy,
    worst_recall,
)
from mild.metrics.simultaneous import SimultaneousIntervals, simultaneous_intervals
from mild.metrics.statement import Statement, count_judged, state, state_choices
from mild.metrics.two_experts import TwoExpertCurve, two_expert_curve

__all__ = [
    "BestConstant",
    "CommonRows",
    "FrontierPoint",
    "Interval",
    "RoutingSummary",
    "SimultaneousIntervals",
    "Statement",
    "TwoExpertCurve",
    "balanced_deferral_loss",
    "balanced_recall",
    "best_constant",
    "chosen_costs",
    "clustered_rows",
    "common_constant",
    "common_rows",
    "constant_losses",
    "count_judged",
    "deferral_loss",
    "expert_recall",
    "expert_shares",
    "frontier",
    "headroom",
    "linearised_rows",
    "oracle_loss",
    "oracle_shares",
    "paired_interval",
    "pareto",
    "resampled_intervals",
    "share_entropy",
    "shuffled_control",
    "simultaneous_intervals",
    "state",
    "state_choices",
    "summary",
    "two_expert_curve",
    "worst_recall",
]
