"""Learning to defer in one stage: a classifier and its experts in one scikit-learn estimator."""

from mild.deferral.classifier import DeferralClassifier
from mild.deferral.curves import CoverageCurve

__all__ = ["CoverageCurve", "DeferralClassifier"]
