"""Losses for learning to defer in one stage: K classes and p experts in one head.

In learning to defer a classifier may hand a row over to one of p experts, who give a class, too. Here one
network has a score for each class and each expert, (n_samples, K + p), classes first. The system gives the
class with the largest score, or asks an expert with a larger one. Losses return one value per row. One
paper is one file.

``y`` (n_samples,) are the true classes, m_j is the answer of expert j, ``correct`` (n_samples, p) says
whether m_j = y, and ``asked`` (n_samples, p) whether there is an answer: an expert that was not asked takes
no part in the row, also not in a softmax.

Some losses are for one expert; several are refused with the code ``one_expert_only``. As in ``mild.nn``,
values of scores and labels are not checked, which would synchronise with the device at every step.
"""

from mild.nn.defer.asymmetric_softmax import asymmetric_softmax_loss
from mild.nn.defer.comp_sum import comp_sum_defer_loss
from mild.nn.defer.costs import one_stage_costs
from mild.nn.defer.cross_entropy import cross_entropy_defer_loss
from mild.nn.defer.mild import mild_defer_loss
from mild.nn.defer.mixture_of_experts import mixture_of_experts_loss
from mild.nn.defer.one_versus_all import one_versus_all_loss
from mild.nn.defer.picce import picce_loss
from mild.nn.defer.realizable import realizable_loss
from mild.nn.defer.rl2d import rl2d_loss
from mild.nn.defer.triage import triage_rows

__all__ = [
    "asymmetric_softmax_loss",
    "comp_sum_defer_loss",
    "cross_entropy_defer_loss",
    "mild_defer_loss",
    "mixture_of_experts_loss",
    "one_stage_costs",
    "one_versus_all_loss",
    "picce_loss",
    "realizable_loss",
    "rl2d_loss",
    "triage_rows",
]
