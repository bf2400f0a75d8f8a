"""A routing task: a table of outcomes with the costs of its answers, its groups of rows, and its splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray, invalid
from mild.core.costs import cheapest_known
from mild.data import Outcomes
from mild.data.cost_terms import CostTerms, left_out_sentence
from mild.data.splits import Split, folds, random_splits, time_splits
from mild.errors import InvalidInputError
from mild.metrics.results import Results, ranks_in
from mild.tuning.training_rows import query_hashes

#: Called with the number of steps done, of all steps, and what was just done.
Progress = Callable[[int, int, str], None]
#: Random splits of a comparison, by default.
N_SPLITS = 5
#: Folds of a search, by default.
N_FOLDS = 5
# From this many rows on, parallel workers are worth their start-up time.
MANY_ROWS = 800


@dataclass(frozen=True, eq=False)
class Task:
    """A table of outcomes that routers are fitted and evaluated on, with the cost of each answer."""

    table: Outcomes  # queries, experts, scores, prices
    terms: CostTerms  # terms of the cost, experts by their full names
    costs: FloatArray  # (n_samples, n_experts), NaN where an expert was not asked
    formula: str  # the cost, for people
    # (n_samples,) rows of the same number stay together in folds: equal inputs, and those of one group
    groups: IntArray
    group_column: str | None = None  # column that joins rows besides equal queries, or None
    # rows and answers whose loss is unknown, in a sentence; None if there are none
    left_out: str | None = None
    # (n_experts,) ranks by the rows that a router was fitted on; None to rank by these rows
    training_ranks: IntArray | None = None

    @property
    def outcomes(self) -> Results:
        """Costs, scores, prices and latencies of every expert, and what decides ties."""
        table = self.table
        return Results(
            self.costs,
            table.scores if table.given_costs is None else None,
            table.prices,
            table.latencies,
            self.ranks,
        )

    @property
    def ranks(self) -> IntArray:
        """Rank (n_experts,) of each expert, by which ties are decided."""
        if self.training_ranks is not None:
            return self.training_ranks
        return ranks_in(self.table.quality, self.table.prices)

    @property
    def largest(self) -> float | None:
        """Largest possible cost, the scale of complement rewards; None if it is not known.

        It is not known with dollars or seconds, nor where costs are given.
        """
        if self.terms.price_weight or self.terms.latency_weight:
            return None
        if self.table.given_costs is not None:
            return None
        return 1.0 + max((self.terms.beta or {}).values(), default=0.0)

    @property
    def constant_expert(self) -> int | None:
        """Index of the expert that costs least in every row; None if there is no such expert."""
        lowest_costs = np.nanmin(self.costs, axis=1)
        always_cheapest: BoolArray = (self.costs == lowest_costs[:, None]).all(axis=0)
        if not always_cheapest.any():
            return None
        return self.first_of(always_cheapest)

    def first_of(self, experts: BoolArray) -> int:
        """Return the expert of the lowest rank among those of a mask (n_experts,)."""
        equal = np.where(experts, 0.0, np.nan)[None]
        return int(cheapest_known(equal, ranks=self.ranks)[0])

    @property
    def constant_reason(self) -> str | None:
        """Why there is nothing to route, in a sentence; None if there is something."""
        expert = self.constant_expert
        if expert is None:
            return None
        scores = self.table.scores
        name = self.table.experts[expert]
        if scores.shape[1] == 1:
            reason = f"{name} is the only expert"
        elif self.table.given_costs is not None:
            reason = f"in no row does another expert cost less than {name}"
        elif np.all((scores == 1) | np.isnan(scores)):
            reason = "every expert that was asked is right in every row"
        elif np.all((scores == 0) | np.isnan(scores)):
            reason = "every expert that was asked is wrong in every row"
        else:
            reason = f"in no row does another expert cost less than {name}"
        return f"there is nothing to route: {reason}. The router always asks {name}."

    @property
    def unit(self) -> str:
        """What a group is: "query" (equal queries) or "group"."""
        return "query" if self.group_column is None else "group"

    @property
    def cost(self) -> dict[str, Any]:
        """What counts as a cost, in words and numbers, JSON-ready."""
        return {"words": self.formula, **self.terms.as_dict()}


def make_task(
    table: Outcomes,
    terms: CostTerms,
    group_column: str | None = None,
    needs_prices: bool = False,
) -> Task:
    """Make a task from a table: compute its costs, and leave out rows from which nothing can be learned.

    Parameters
    ----------
    table : the table of outcomes
    terms : terms of the cost
    group_column : column whose equal values belong together, in addition to equal queries
    needs_prices : whether rows without any known price are left out, too; rows without any known cost
    always are

    Returns
    -------
    Task
    """
    costs = terms.costs(table)
    left_out = np.isnan(costs).all(axis=1)
    sentences = [terms.left_out_sentence(costs, table.scores)]
    if needs_prices and table.prices is not None:
        has_no_price = np.isnan(table.prices).all(axis=1) & ~left_out
        sentences.append(left_out_sentence(int(has_no_price.sum()), 0, "price"))
        left_out |= has_no_price
    if left_out.all():
        rule = "must have at least one row in which a loss is known; it has none."
        raise InvalidInputError(f"the table {rule} Fill in the prices.", parameter="table")
    if left_out.any():
        # Findings, such as unusual prices, are about all rows of the table, and stay.
        table = replace(table[~left_out], findings=table.findings)
        costs = costs[~left_out]
    return Task(
        table,
        terms.with_full_names(table),
        costs,
        terms.formula(table),
        table.groups(group_column),
        group_column,
        " ".join(filter(None, sentences)) or None,
    )


def check_rows(task: Task) -> None:
    """Refuse a task that is too small to learn from."""
    if len(task.table) < 2:
        rule = "a table to learn from must have at least two rows"
        raise InvalidInputError(f"{rule}; this has {len(task.table)}.", parameter="table")


def check_folds(cv: Any) -> None:
    """Refuse a number of folds below 2."""
    if not isinstance(cv, Integral) or cv < 2:
        raise invalid("cv", f"must be a whole number of folds, at least 2; got {cv!r}.")


def possible_folds(
    task: Task, n_folds: int = N_FOLDS, time: str | None = None, splits: Sequence[Split] = ()
) -> int:
    """``n_folds``, or the number of different queries or groups in a training part if that is smaller.

    More folds than the default are refused if there are fewer different queries.
    """
    n_queries = len(np.unique(task.table.groups()))
    if n_folds > max(N_FOLDS, n_queries):
        rule = f"must be at most the number of different queries, {n_queries:,}"
        raise invalid("cv", f"{rule}; got {n_folds:,} folds.")
    if splits:
        return min(n_folds, *(len(np.unique(task.groups[part.train])) for part in splits))
    return n_folds if time is not None else min(n_folds, len(np.unique(task.groups)))


def fewer_folds(asked: int, possible: int, task: Task) -> str | None:
    """Why there are fewer folds than asked for, in a sentence; None if there are as many, or too few."""
    if not 2 <= possible < asked:
        return None
    reason = f"there are only {task.groups.max() + 1} different queries"
    if task.group_column is not None:
        values = set(task.table.column(task.group_column)) - {None}
        reason = f"{task.group_column} has {len(values)} values"
    return f"{reason}: {possible} folds instead of {asked}."


def content_groups(task: Task) -> IntArray:
    """Groups (n_samples,) numbered by their queries, whatever the order of the rows is.

    Folds and splits are drawn from these numbers: the same rows in another order are divided alike.
    """
    hashes = query_hashes(task.table)
    n_groups = int(task.groups.max()) + 1
    smallest = np.full(n_groups, np.iinfo(hashes.dtype).max, hashes.dtype)
    np.minimum.at(smallest, task.groups, hashes)
    number = np.empty(n_groups, np.intp)
    number[np.argsort(smallest, kind="stable")] = np.arange(n_groups)
    return number[task.groups]


def search_folds(
    task: Task, n_folds: int = N_FOLDS, time: str | None = None, seed: int = 0
) -> list[tuple[IntArray, IntArray]]:
    """Folds for a search: (rows to fit on, rows to evaluate on) each.

    With ``time``, the rows in the order of that column are cut into ``n_folds + 1`` parts; a router that
    is fitted on everything before a part is evaluated on it.
    """
    check_folds(n_folds)
    check_rows(task)
    if time is None:
        rows_of_folds = folds(content_groups(task), n_folds, seed)
    else:
        test_share = n_folds / (n_folds + 1)
        splits = time_splits(task.table.times(time), task.groups, n_folds, test_share)
        rows_of_folds = [(split.train, split.test) for split in splits]
    fewest = min(len(train) for train, _ in rows_of_folds)
    _check_training(task, fewest, "every fold of a search")
    return rows_of_folds


def task_splits(
    task: Task,
    n_splits: int | None = None,
    test_share: float = 0.3,
    time: str | None = None,
    seed: int = 0,
) -> list[Split]:
    """Splits to compare methods on: 5 random ones, or with ``time`` 1 that trains on the past."""
    check_rows(task)
    if n_splits is None:
        n_splits = N_SPLITS if time is None else 1
    if time is None:
        splits = random_splits(content_groups(task), n_splits, test_share, seed)
    else:
        splits = time_splits(task.table.times(time), task.groups, n_splits, test_share)
    fewest = min(len(split.train) for split in splits)
    _check_training(task, fewest, "every split", n_needed=3)
    return splits


def _check_training(task: Task, n_rows: int, where: str, n_needed: int = 2) -> None:
    """Refuse folds or splits that leave too few rows to fit on."""
    if n_rows < n_needed:
        rule = f"a table must leave at least {n_needed} rows to fit on in {where}"
        got = f"this one of {len(task.table)} rows leaves {n_rows}"
        raise InvalidInputError(f"{rule}; {got}. Add rows.", parameter="table")


def parallel_jobs(n_jobs: int | None, rows: int) -> int | None:
    """Number of parallel workers: as given, or by default all cores where there are many rows."""
    return -1 if n_jobs is None and rows >= MANY_ROWS else n_jobs
