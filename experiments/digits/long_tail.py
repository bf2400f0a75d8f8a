"""Many experts with a long tail of shares, few rows: where unequal margins help, and where not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from mild import metrics
from mild.core.arrays import FloatArray, IntArray
from mild.core.decisions import argmax_last
from mild.core.rounding import tie_ranks
from mild.data.splits import folds
from mild.datasets import domains
from mild.errors import DegenerateDataWarning
from mild.policies import Decoder
from mild.routers.linear import LinearRouter

TEST_ROWS = 4000
# Rewards of many experts are nearly equal: what there is to learn is a small part of the objective.
TOLERANCE = 1e-10
# Biases that are tried for one expert.
BIAS_GRID = np.linspace(-2, 2, 33)
# The search for a bias goes over all experts at most this often.
BIAS_ROUNDS = 3

#: Label, options of the router, and its decision rule; theory margins are from best counts.
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
    """The data of a case, and how strengths are searched on it."""

    n_experts: int = 20
    n_rows: int = 400  # rows to train on
    separation: float = 4.0  # of the domains
    draws: int = 20  # repetitions, with random states 0, 1, ...
    alphas: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    n_folds: int = 5  # of the cross-validation that chooses the strength


def run_case(case: TailCase, confidence: float = 0.95, jobs: int = 1) -> list[dict[str, Any]]:
    """Every method on every draw, JSON-ready; TDEF is first.

    Losses are of expected costs; ``rare_recall`` is the mean recall of the rarer half of the experts.
    """
    found = Parallel(n_jobs=jobs)(delayed(_draw)(case, seed) for seed in range(case.draws))
    figures = np.array(found).transpose(1, 2, 0)
    names = ("losses", "balanced_losses", "rare_recall", "alphas")
    rows: list[dict[str, Any]] = []
    for (label, _, _), values in zip(METHODS, figures, strict=True):
        gap = None
        if rows:
            gap = asdict(metrics.paired_interval(values[0], figures[0, 0], confidence))
        rows.append(
            {"label": label, **dict(zip(names, values.tolist(), strict=True)), "minus_tdef": gap}
        )
    return rows


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
            recall = float(np.nanmean(metrics.expert_recall(expected, chosen)[rare]))
            balanced = metrics.balanced_deferral_loss(expected, chosen)
            result.append((metrics.deferral_loss(expected, chosen), balanced, recall, alpha))
    return result


class _Search:
    """Fits of one draw; methods that differ in the decision rule share them."""

    def __init__(self, X: FloatArray, costs: FloatArray, case: TailCase) -> None:
        self.X, self.costs, self.alphas = X, costs, case.alphas
        self.folds = folds(np.arange(len(X)), case.n_folds)
        self.fitted: dict[Any, list[tuple[LinearRouter, FloatArray]]] = {}

    def route(self, X: FloatArray, options: dict[str, Any], rule: str) -> tuple[float, IntArray]:
        """Strength of least held-out cost, the larger of two alike, and choices on new rows."""
        held = {alpha: self._held_out(alpha, options, rule) for alpha in self.alphas}
        paid = {alpha: metrics.chosen_costs(self.costs, held[alpha][0]).mean() for alpha in held}
        alpha = min(sorted(held, reverse=True), key=lambda one: paid[one])
        router = self._fit(slice(None), alpha, options)
        scores = router.decision_function(X)
        if rule == "bias":
            return alpha, argmax_last(scores + held[alpha][1])
        return alpha, Decoder(router.margins_, rule, "logistic").choose(scores)

    def _held_out(self, alpha: float, options: dict[str, Any], rule: str) -> tuple[IntArray, Any]:
        """Choices for every row by a router that has not seen it, and the bias that was found."""
        key = (alpha, *options.items())
        if key not in self.fitted:
            routers = [self._fit(rows, alpha, options) for rows, _ in self.folds]
            self.fitted[key] = [
                (router, router.decision_function(self.X[rows]))
                for router, (_, rows) in zip(routers, self.folds, strict=True)
            ]
        scores, chosen = np.empty(self.costs.shape), np.empty(len(self.X), dtype=np.intp)
        for (router, part), (_, rows) in zip(self.fitted[key], self.folds, strict=True):
            scores[rows] = part
            if rule != "bias":
                chosen[rows] = Decoder(router.margins_, rule, "logistic").choose(part)
        if rule == "bias":
            bias, chosen = cross_fitted_bias(scores, self.costs, self.folds)
            return chosen, bias
        return chosen, None

    def _fit(self, rows: Any, alpha: float, options: dict[str, Any]) -> LinearRouter:
        router = LinearRouter(alpha=alpha, tol=TOLERANCE, max_iter=1000, ties="first", **options)
        return router.fit(self.X[rows], self.costs[rows])


def find_bias(scores: FloatArray, costs: FloatArray) -> FloatArray:
    """The bias (p,) per expert with which choosing the largest score costs least; the least of them is 0.

    Minimises ``sum_i costs[i, argmax_k (scores[i, k] + bias[k])]`` over the grid, one expert after the
    other, until a round over all experts changes none. Scores and costs are (n, p).

    >>> find_bias(np.array([[0.0, 0.5], [0.0, 2.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    array([0.625, 0.   ])
    """
    bias: FloatArray = np.zeros(scores.shape[1])
    for _ in range(BIAS_ROUNDS):
        previous_bias = bias.copy()
        for expert in range(bias.size):
            bias[expert] = _best_bias(expert, scores, costs, bias)
        if (bias == previous_bias).all():
            break
    return bias - bias.min()


def _best_bias(expert: int, scores: FloatArray, costs: FloatArray, bias: FloatArray) -> float:
    """The best bias of one expert while those of the others are fixed; of equal ones the nearest to 0.

    In each row the expert has one rival, the best of the other experts. If its bias exceeds the gap between
    their scores, it is chosen in place of the rival, and the cost of the row changes by the difference of
    their costs. So the total change at all points of the grid is a cumulative histogram of the gaps.
    """
    row_index = np.arange(len(scores))
    rival_scores = scores + bias
    rival_scores[:, expert] = -np.inf
    rival = argmax_last(rival_scores)
    gap = (rival_scores[row_index, rival] - scores[:, expert]).round(9)
    change = costs[:, expert] - costs[row_index, rival]

    first_point = np.searchsorted(BIAS_GRID, gap, side="right")
    # The last bin has the rows in which even the largest bias changes nothing.
    total = np.bincount(first_point, change, BIAS_GRID.size + 1)[:-1].cumsum()
    ranks = tie_ranks(total, scale=float(np.abs(change).sum()))
    return float(BIAS_GRID[np.lexsort((np.abs(BIAS_GRID), ranks))[0]])


def cross_fitted_bias(
    scores: FloatArray, costs: FloatArray, folds: list[tuple[IntArray, IntArray]]
) -> tuple[FloatArray, IntArray]:
    """A bias (p,) from all held-out scores (n, p), and choices (n,) with biases from the other folds."""
    chosen = np.empty(len(scores), dtype=np.intp)
    for seen, held_out in folds:
        chosen[held_out] = argmax_last(scores[held_out] + find_bias(scores[seen], costs[seen]))
    return find_bias(scores, costs), chosen


def describe(row: Mapping[str, Any]) -> list[str]:
    """The cells of a row: label, loss, balanced loss, recall, difference to TDEF."""
    gap = row["minus_tdef"]
    return [
        row["label"],
        f"{np.mean(row['losses']):.4f}",
        f"{np.mean(row['balanced_losses']):.4f}",
        f"{np.mean(row['rare_recall']):.3f}",
        "" if gap is None else f"{gap['estimate']:+.4f} [{gap['low']:+.4f}, {gap['high']:+.4f}]",
    ]
