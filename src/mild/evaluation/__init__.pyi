"""What another router would have cost on a log, and plots of systems that defer; each name once."""

from mild.evaluation.coverage_display import CoverageCurveDisplay as CoverageCurveDisplay
from mild.evaluation.coverage_display import ReliabilityDisplay as ReliabilityDisplay
from mild.evaluation.off_policy import LoggedAnswers as LoggedAnswers
from mild.evaluation.off_policy import OffPolicyEstimate as OffPolicyEstimate
from mild.evaluation.off_policy import doubly_robust as doubly_robust
from mild.evaluation.off_policy import inverse_propensity as inverse_propensity
from mild.evaluation.off_policy import self_normalised as self_normalised
