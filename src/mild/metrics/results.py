"""Known outcomes of every expert, and the figures of choices among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.costs import (
    ROUNDING,
    best_first,
    cheapest_known,
    expert_ranks,
    mean_known_costs,
    rounded,
)
from mild.metrics.routing import best_constant, expert_shares

Array = TypeVar("Array", FloatArray, IntArray, BoolArray)

#: Figures of choices by name; None for those that are not known.
Figures: TypeAlias = dict[str, float | None]

#: Names of these figures.
FIGURES = ("loss", "accuracy", "dollars_per_1000", "seconds")

#: How ``Results.oracle`` decides between experts of equal loss, for people.
TIES = "ties go to the lower price, then to the higher mean score, then to the first name"


@dataclass(frozen=True, eq=False)
class Results:
    """Known outcomes of every expert, each (n_samples, n_experts), NaN where an expert was not asked."""

    costs: FloatArray  # the loss: what is minimised
    scores: FloatArray | None = None  # 1 for a right answer
    prices: FloatArray | None = None  # dollars
    latencies: FloatArray | None = None  # seconds
    ranks: IntArray | None = None  # (n_experts,) which decide ties; None where indices do
    # (n_samples,) expert whose answer is given, where the last column is a cascade and no expert
    answering_expert: IntArray | None = None
    asked: BoolArray | None = None  # (n_samples, n_experts) which experts that cascade asks

    @property
    def experts(self) -> Results:
        """The outcomes without the column of a cascade."""
        if self.answering_expert is None:
            return self
        return replace(self._indexed(np.s_[:, :-1]), answering_expert=None, asked=None)

    def answering(self, chosen: IntArray) -> IntArray:
        """Return the expert (n_samples,) whose answer is given: the chosen one, or that of a cascade."""
        if self.answering_expert is None:
            return chosen
        cascade = self.costs.shape[1] - 1
        return np.where(chosen == cascade, self.answering_expert, chosen)

    def take(self, rows: Any) -> Results:
        """Return the outcomes of some of the rows."""
        answering_expert = _index_known(self.answering_expert, rows)
        asked = _index_known(self.asked, rows)
        return replace(self._indexed(rows), answering_expert=answering_expert, asked=asked)

    def _indexed(self, index: Any) -> Results:
        """Return the outcomes with costs, scores, prices and latencies indexed by ``index``."""
        return replace(
            self,
            costs=self.costs[index],
            scores=_index_known(self.scores, index),
            prices=_index_known(self.prices, index),
            latencies=_index_known(self.latencies, index),
        )

    def columns(self, indices: Sequence[int]) -> Results:
        """Return the outcomes of some of the columns, in this order."""
        return self._indexed((slice(None), list(indices)))

    def oracle(self) -> IntArray:
        """Return the expert (n_samples,) of least loss in every row.

        Ties go to the lower price in that row, then to the lower rank.
        """
        experts = self.experts
        return experts.least(experts.costs, experts.prices)

    def best_constant(self) -> int:
        """Return the expert of least mean loss; ties go to the lower rank."""
        return best_constant(self.experts.costs, ranks=self.ranks).expert

    def best_first(self) -> list[int]:
        """Return the experts by mean score, the best one first; without scores by mean loss."""
        experts = self.experts
        return best_first(ranks_in(experts.quality, experts.prices))

    @property
    def quality(self) -> FloatArray:
        """Scores (n_samples, n_experts), or minus the costs if there are none; higher is better."""
        if self.scores is None:
            return -self.costs
        return self.scores

    def least(self, values: FloatArray, prices: FloatArray | None = None) -> IntArray:
        """Return the expert (n,) of the least value per row (n, n_experts); ties go by price, then rank."""
        return cheapest_known(values, prices=prices, ranks=self.ranks, tolerance=ROUNDING)

    def means(self, chosen: IntArray) -> Figures:
        """Return mean loss, accuracy, dollars per 1,000 inputs and seconds of choices (n_samples,).

        Dollars and seconds are None where an expert that is chosen has none that are known: the mean of
        the others would not be that of these choices.
        """
        rows = np.arange(len(chosen))
        figures: Figures = dict.fromkeys(FIGURES)
        for name, values in self._known_values().items():
            chosen_values = values[rows, chosen]
            needs_all_experts = name in ("dollars_per_1000", "seconds")
            if needs_all_experts and not all_priced(chosen_values, chosen):
                continue
            figures[name] = mean_known(chosen_values)
        return figures

    def mixture(self, shares: FloatArray) -> Figures:
        """Return the figures of ``means``, expected if experts are drawn with these shares (n_experts,)."""
        drawn = shares > 0
        figures: Figures = dict.fromkeys(FIGURES)
        for name, values in self._known_values().items():
            expert_means = [mean_known(column) for column in values.T[drawn]]
            if None not in expert_means:
                figures[name] = float(shares[drawn] @ np.array(expert_means, dtype=np.float64))
        return figures

    def _known_values(self) -> dict[str, FloatArray]:
        """Return values (n_samples, n_experts) by the name of the figure that is their mean."""
        values = {"loss": self.costs}
        if self.scores is not None:
            values["accuracy"] = self.scores
        if self.prices is not None:
            values["dollars_per_1000"] = 1000 * self.prices
        if self.latencies is not None:
            values["seconds"] = self.latencies
        return values


def _index_known(values: Array | None, index: Any) -> Array | None:
    """Return rows or columns of an array, None if there is no array."""
    if values is None:
        return None
    indexed: Array = values[index]
    return indexed


def side_by_side(blocks: Sequence[Results]) -> Results:
    """Return outcomes with the columns of several outcomes of the same rows, one after the other."""

    def joined(name: str) -> FloatArray | None:
        """Return an array of all blocks; None if a block does not have it."""
        columns = [getattr(block, name) for block in blocks]
        if any(column is None for column in columns):
            return None
        return np.column_stack(columns)

    costs = np.column_stack([block.costs for block in blocks])
    return Results(costs, joined("scores"), joined("prices"), joined("latencies"))


def is_graded(scores: FloatArray | None) -> bool:
    """Return whether a known score is neither 0 nor 1, such as a grade of 0.5.

    >>> is_graded(np.array([[1.0, 0.0], [np.nan, 1.0]])), is_graded(np.array([[0.7, 0.0]]))
    (False, True)
    """
    return scores is not None and bool(((scores > 0) & (scores < 1)).any())


def quality_name(graded: bool) -> str:
    """Return what a mean of scores is called: an accuracy only if all answers are right or wrong.

    >>> quality_name(is_graded(np.array([[1.0, 0.0]])))
    'accuracy'
    """
    return "mean score" if graded else "accuracy"


def ranks_in(scores: FloatArray, prices: FloatArray | None) -> IntArray:
    """Return the rank (n_experts,) of each expert by its outcomes (n_samples, n_experts).

    The ranks are those of ``expert_ranks``: 0 for the highest mean score.

    >>> ranks_in(np.array([[0.0, 1.0, 1.0]]), np.array([[1.0, 3.0, 2.0]]))
    array([2, 1, 0])
    """
    mean_prices = None
    if prices is not None:
        mean_prices = mean_known_costs(prices)
    return expert_ranks(mean_known_costs(scores), mean_prices)


def mean_scores(scores: FloatArray) -> FloatArray:
    """Return the mean score (n_experts,) of each expert, NaN if it was never asked.

    Means are rounded so that equal ones tie.
    """
    return rounded(mean_known_costs(scores))


def mean_known(values: FloatArray) -> float | None:
    """Return the mean of the values that are not NaN, None if all are."""
    known = ~np.isnan(values)
    if not known.any():
        return None
    return float(values[known].mean())


def all_priced(chosen_prices: FloatArray, chosen: IntArray) -> bool:
    """Return whether every chosen expert has a known price in at least one row for which it is chosen.

    Prices may also be times. NaN is an unknown one.

    >>> all_priced(np.array([0.1, np.nan, np.nan]), np.array([0, 0, 1]))
    False
    """
    is_priced = ~np.isnan(chosen_prices)
    return np.setdiff1d(chosen, chosen[is_priced]).size == 0


def baselines(
    outcomes: Results, chosen: IntArray, expert_names: Sequence[str], fitted: int | None = None
) -> list[dict[str, Any]]:
    """Return the figures of a router's choices (n_samples,) and of what they are compared with.

    Each entry has a "key", the name of the "expert" that is always asked or None, and the figures of
    ``Results.means``. The keys are:

    - "router": the choices;
    - "best_single": always the expert that is best on these rows;
    - "fit_constant": always the expert ``fitted``, which was best when the router was fitted;
    - "same_mix": the experts at random, with the shares that the choices have. A cascade counts for the
      expert whose answer it gives;
    - "perfect": the best expert of each row.
    """
    n_samples = len(chosen)
    best = outcomes.best_constant()
    always_best = outcomes.means(np.full(n_samples, best))
    rows: list[dict[str, Any]] = [
        {"key": "router", "expert": None, **outcomes.means(chosen)},
        {"key": "best_single", "expert": expert_names[best], **always_best},
    ]
    if fitted is not None:
        always_fitted = outcomes.means(np.full(n_samples, fitted))
        rows.append({"key": "fit_constant", "expert": expert_names[fitted], **always_fitted})
    experts = outcomes.experts
    shares = expert_shares(outcomes.answering(chosen), experts.costs.shape[1])
    rows.append({"key": "same_mix", "expert": None, **experts.mixture(shares)})
    rows.append({"key": "perfect", "expert": None, **outcomes.means(outcomes.oracle())})
    return rows
