"""Plots for learning to defer: accuracy over coverage, and the calibration of P(expert is right).

A classifier answers some rows itself and defers the others to an expert. Its coverage is the share of the
rows that it answers itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import invalid
from mild.evaluation.displays import Display
from mild.metrics import (
    AccuracyCoverageCurve,
    ReliabilityCurve,
    accuracy_coverage_curve,
    expert_correctness,
    mean_coverage_curve,
    reliability_curve,
)


class CoverageCurveDisplay(Display):
    """Accuracy of the system over the share of rows that the classifier keeps, with its interval.

    Parameters
    ----------
    curve : AccuracyCoverageCurve
    coverage : coverage at which the system works, which is marked; None for no mark
    name : name of the curve in the legend, or None
    """

    def __init__(
        self, curve: AccuracyCoverageCurve, coverage: float | None = None, name: str | None = None
    ) -> None:
        self.curve = curve
        self.coverage = coverage
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        experts: ArrayLike,
        name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Plot accuracy over coverage of a fitted ``DeferralClassifier``, with an interval over the rows.

        Parameters
        ----------
        estimator : fitted DeferralClassifier
        X : (n_samples, n_features) array
        y : (n_samples,) labels
        experts : (n_samples, n_experts) answers of the experts; a missing one counts as wrong
        name : name in the legend; None for the estimator's loss
        ax : axes of matplotlib; None for new ones

        Returns
        -------
        CoverageCurveDisplay
        """
        if name is None:
            name = estimator.loss
        classifier_is_right = np.asarray(estimator.predict(X)) == np.asarray(y)
        experts_are_right = expert_correctness(y, experts)
        # The expert that would be asked if the row were deferred.
        best_expert = estimator.policy_.values(np.asarray(X)).experts.argmax(axis=1)
        best_is_right = experts_are_right[np.arange(len(experts_are_right)), best_expert]
        is_kept = estimator.defer(X) == -1
        return cls.from_predictions(
            classifier_is_right,
            best_is_right,
            estimator.deferral_margin(X),
            coverage=float(is_kept.mean()),
            name=name,
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls,
        classifier_is_right: ArrayLike,
        expert_is_right: ArrayLike,
        deferral_margin: ArrayLike,
        *,
        coverage: float | None = None,
        name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Plot the curve of what a system did; the parameters are those of ``accuracy_coverage_curve``.

        Parameters
        ----------
        classifier_is_right : (n_samples,) array of zeros and ones
        expert_is_right : (n_samples,) array of zeros and ones, of the expert that would be asked
        deferral_margin : (n_samples,) array, larger where deferring is more worthwhile
        coverage : coverage that is marked, or None
        name : name in the legend, or None
        ax : axes of matplotlib; None for new ones

        Returns
        -------
        CoverageCurveDisplay
        """
        curve = accuracy_coverage_curve(classifier_is_right, expert_is_right, deferral_margin)
        return cls(curve, coverage, name).plot(ax)

    @classmethod
    def from_seeds(
        cls, curves: Sequence[AccuracyCoverageCurve], *, name: str | None = None, ax: Any = None
    ) -> Self:
        """Plot the mean of the curves of several seeds, with an interval over the seeds.

        Parameters
        ----------
        curves : curves of at least two seeds
        name : name in the legend, or None
        ax : axes of matplotlib; None for new ones

        Returns
        -------
        CoverageCurveDisplay
        """
        return cls(mean_coverage_curve(curves), name=name).plot(ax)

    def _draw(self, ax: Any) -> None:
        curve = self.curve
        (line,) = ax.plot(curve.coverage, curve.accuracy, label=self.name)
        color = line.get_color()
        ax.fill_between(curve.coverage, curve.low, curve.high, color=color, alpha=0.2, linewidth=0)
        if self.coverage is not None:
            ax.plot(self.coverage, curve.at(self.coverage), "o", color=color)
        ax.set_xlabel("coverage: share of rows that the classifier keeps")
        ax.set_ylabel("accuracy of the system")
        if self.name is not None:
            ax.legend()


class ReliabilityDisplay(Display):
    """How often an expert is right against the probability that was predicted.

    Parameters
    ----------
    curve : ReliabilityCurve
    name : name of the curve in the legend, or None
    """

    def __init__(self, curve: ReliabilityCurve, name: str | None = None) -> None:
        self.curve = curve
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        experts: ArrayLike,
        expert: int = 0,
        n_bins: int = 10,
        ax: Any = None,
    ) -> Self:
        """Plot the calibration of P(expert is right) of a fitted ``DeferralClassifier``.

        Parameters
        ----------
        estimator : fitted DeferralClassifier whose loss estimates this probability
        X : (n_samples, n_features) array
        y : (n_samples,) labels
        experts : (n_samples, n_experts) answers of the experts; those of ``expert`` must be complete
        expert : index of the expert
        n_bins : number of bins of equal mass
        ax : axes of matplotlib; None for new ones

        Returns
        -------
        ReliabilityDisplay
        """
        experts_are_right = expert_correctness(y, experts)
        n_experts = experts_are_right.shape[1]
        if not 0 <= expert < n_experts:
            raise invalid("expert", f"must lie in [0, {n_experts}); got {expert!r}.")
        is_right = experts_are_right[:, expert]
        probability = estimator.expert_proba(X)[:, expert]
        return cls.from_predictions(
            is_right, probability, n_bins=n_bins, name=estimator.loss, ax=ax
        )

    @classmethod
    def from_predictions(
        cls,
        is_right: ArrayLike,
        probability: ArrayLike,
        *,
        n_bins: int = 10,
        name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Plot what ``reliability_curve`` gives.

        Parameters
        ----------
        is_right : (n_samples,) array of zeros and ones
        probability : (n_samples,) array of estimates
        n_bins : number of bins of equal mass
        name : name in the legend, or None
        ax : axes of matplotlib; None for new ones

        Returns
        -------
        ReliabilityDisplay
        """
        return cls(reliability_curve(is_right, probability, n_bins), name).plot(ax)

    def _draw(self, ax: Any) -> None:
        ax.plot([0, 1], [0, 1], color="grey", linestyle=":")
        ax.plot(self.curve.predicted, self.curve.observed, marker="o", label=self.name)
        ax.set_xlabel("predicted probability that the expert is right")
        ax.set_ylabel("share of rows in which it is right")
        if self.name is not None:
            ax.legend()
