"""Many experts with a long tail of shares, few rows: where unequal margins help, and where not."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from mild.core.arrays import FloatArray, IntArray
from mild.core.decisions import argmax_last
from mild.data.datasets import domains
from mild.data.splits import folds
from mild.errors import DegenerateDataWarning
from mild.metrics import (
    Interval,
    balanced_deferral_loss,
    chosen_costs,
    deferral_loss,
    expert_recall,
    paired_interval,
)
from mild.policies import Decoder
from mild.routers.candidates import cross_fitted_bias
from mild.routers.linear import LinearRouter

__all__ = ["METHODS", "TailCase", "TailRow", "describe", "run_case"]

TEST_ROWS = 4000
# Rewards of many experts are nearly equal: what there is to learn is a small part of the objective.
TOLERANCE = 1e-10

#: Label, options of the router, and how its scores are decided; theory margins are from best counts.
METHODS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("TDEF", {"loss": "tdef", "cost_scale": 1.0}, "argmax"),
    ("MILD uniform", {"margins": "uniform"}, "argmax"),
    ("MILD uniform, bias", {"margins": "uniform"}, "bias"),
    ("MILD theory, stationary", {"counts": "best"}, "stationary"),
    ("MILD theory, argmax", {"counts": "best"}, "argmax"),
    ("MILD reward counts", {"counts": "reward"}, "stationary"),
)


@dataclass(frozen=True)
class TailCase:
    """What is drawn again and again, and how strengths are searched on it.

    Attributes
    ----------
    n_experts, n_rows, separation : of ``mild.data.datasets.domains``; as many rows to train on
    draws : repetitions, with random states 0, 1, ...
    alphas, n_folds : strengths, and folds of the cross-validation that chooses among them
    """

    n_experts: int = 20
    n_rows: int = 400
    separation: float = 4.0
    draws: int = 20
    alphas: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    n_folds: int = 5


@dataclass(frozen=True, eq=False)
class TailRow:
    """One method over all draws.

    Attributes
    ----------
    label : of the method
    losses, balanced : deferral loss and balanced deferral loss of each draw, of expected costs
    recall : mean recall of the rarer half of the experts, of each draw
    alphas : strengths found
    minus_tdef : interval of its loss minus TDEF's over the draws; None for TDEF itself
    """

    label: str
    losses: FloatArray
    balanced: FloatArray
    recall: FloatArray
    alphas: FloatArray
    minus_tdef: Interval | None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {
            "label": self.label,
            "losses": self.losses.tolist(),
            "balanced_losses": self.balanced.tolist(),
            "rare_recall": self.recall.tolist(),
            "alphas": self.alphas.tolist(),
            "minus_tdef": None if self.minus_tdef is None else asdict(self.minus_tdef),
        }


def run_case(case: TailCase, confidence: float = 0.95, jobs: int = 1) -> tuple[TailRow, ...]:
    """Every method on every draw; TDEF is first."""
    found = Parallel(n_jobs=jobs)(delayed(_draw)(case, seed) for seed in range(case.draws))
    figures = np.array(found).transpose(1, 2, 0)
    tdef = figures[0, 0]
    return tuple(
        TailRow(
            label,
            losses,
            balanced,
            recall,
            alphas,
            None if place == 0 else paired_interval(losses, tdef, confidence),
        )
        for place, ((label, _, _), (losses, balanced, recall, alphas)) in enumerate(
            zip(METHODS, figures, strict=True)
        )
    )


def _draw(case: TailCase, seed: int) -> list[tuple[float, float, float, float]]:
    """Loss, balanced loss, recall of the rare and strength of every method on one draw."""
    n = case.n_rows
    data = domains(n + TEST_ROWS, case.n_experts, case.separation, seed)
    train, expected = data.take(np.arange(n)), np.asarray(data.expected_costs)[n:]
    X = (data.X - train.X.mean(axis=0)) / train.X.std(axis=0)
    rare = slice((case.n_experts + 1) // 2, None)
    result = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        search = _Search(X[:n], train.costs, case)
        for _, options, rule in METHODS:
            alpha, chosen = search.route(X[n:], options, rule)
            recall = float(np.nanmean(expert_recall(expected, chosen)[rare]))
            balanced = balanced_deferral_loss(expected, chosen)
            result.append((deferral_loss(expected, chosen), balanced, recall, alpha))
    return result


class _Search:
    """Fits of one draw; methods that differ in how they decide share them."""

    def __init__(self, X: FloatArray, costs: FloatArray, case: TailCase) -> None:
        self.X = X
        self.costs = costs
        self.alphas = case.alphas
        self.folds = folds(np.arange(len(X)), case.n_folds)
        self.fitted: dict[Any, list[LinearRouter]] = {}

    def route(self, X: FloatArray, options: dict[str, Any], rule: str) -> tuple[float, IntArray]:
        """Strength of least held-out cost, the larger of two alike, and choices on new rows."""
        held = {alpha: self._held_out(alpha, options, rule) for alpha in self.alphas}
        paid = {alpha: chosen_costs(self.costs, held[alpha][0]).mean() for alpha in held}
        alpha = min(sorted(held, reverse=True), key=lambda one: paid[one])
        router = self._fit(np.arange(len(self.X)), alpha, options)
        if rule == "bias":
            return alpha, argmax_last(router.decision_function(X) + held[alpha][1])
        return alpha, _decide(router, X, rule)

    def _held_out(
        self, alpha: float, options: dict[str, Any], rule: str
    ) -> tuple[IntArray, FloatArray]:
        """Choices for every row without having seen it, and the bias that was found, 0 without one."""
        key = (alpha, *options.items())
        if key not in self.fitted:
            self.fitted[key] = [self._fit(rows, alpha, options) for rows, _ in self.folds]
        parts = list(zip(self.fitted[key], (held for _, held in self.folds), strict=True))
        if rule == "bias":
            scores = np.empty(self.costs.shape)
            for router, rows in parts:
                scores[rows] = router.decision_function(self.X[rows])
            bias, chosen = cross_fitted_bias(scores, self.costs, None, self.folds, 1.0)
            return chosen, bias
        chosen = np.empty(len(self.X), dtype=np.intp)
        for router, rows in parts:
            chosen[rows] = _decide(router, self.X[rows], rule)
        return chosen, np.zeros(self.costs.shape[1])

    def _fit(self, rows: IntArray, alpha: float, options: dict[str, Any]) -> LinearRouter:
        router = LinearRouter(alpha=alpha, tol=TOLERANCE, max_iter=1000, **options)
        return router.fit(self.X[rows], self.costs[rows])


def _decide(router: LinearRouter, X: FloatArray, rule: str) -> IntArray:
    return Decoder(router.margins_, rule, "logistic").choose(router.decision_function(X))


def describe(row: TailRow) -> Sequence[str]:
    """Its figures as cells of a table: loss, balanced loss, recall, difference to TDEF."""
    found = row.minus_tdef
    against = (
        "" if found is None else f"{found.estimate:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
    )
    means = (row.losses.mean(), row.balanced.mean(), row.recall.mean())
    return [row.label, *(f"{mean:.4f}" for mean in means[:2]), f"{means[2]:.3f}", against]
