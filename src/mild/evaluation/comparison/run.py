"""Fit every method on every split and judge it on rows that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, IntArray, check_costs
from mild.data.splits import Split, folds
from mild.errors import InvalidInputError
from mild.evaluation.comparison.methods import Choices, Context, Method, run_method
from mild.evaluation.comparison.outcome import Comparison, Row
from mild.metrics import (
    Statement,
    balanced_deferral_loss,
    chosen_costs,
    clustered_rows,
    common_rows,
    count_judged,
    expert_recall,
    expert_shares,
    linearised_rows,
    oracle_loss,
    oracle_shares,
    resampled_intervals,
    shuffled_control,
    simultaneous_intervals,
    state,
)

__all__ = ["Inputs", "MatrixInputs", "Progress", "TextInputs", "compare"]

#: Called with fits done, fits in all, and what was just done.
Progress: TypeAlias = Callable[[int, int, str], Any]


class Inputs(Protocol):
    """Rows that can be turned into features, learned from the training rows alone."""

    def __len__(self) -> int:
        """Number of rows."""

    def features(self, train: IntArray, test: IntArray) -> tuple[Any, Any]:
        """Features (n, d) of the training and of the test rows."""


class MatrixInputs:
    """Given features (n_rows, n_features), standardised on the training rows."""

    def __init__(self, X: Any) -> None:
        self.X = np.asarray(X)

    def __len__(self) -> int:
        return len(self.X)

    def features(self, train: IntArray, test: IntArray) -> tuple[Any, Any]:
        """Standardised features of the training and of the test rows."""
        known = self.X[train]
        mean = known.mean(axis=0, dtype=np.float64)
        spread = known.std(axis=0, dtype=np.float64)
        spread[spread == 0] = 1.0
        return tuple(((self.X[i] - mean) / spread).astype(np.float32) for i in (train, test))


class TextInputs:
    """Texts, and a function that makes unfitted text features, which are used as they come."""

    def __init__(self, texts: Sequence[str], make: Callable[[], Any]) -> None:
        self.texts = texts
        self.make = make

    def __len__(self) -> int:
        return len(self.texts)

    def features(self, train: IntArray, test: IntArray) -> tuple[Any, Any]:
        """Features of the training and of the test rows, fitted on the former."""
        known = [self.texts[i] for i in train]
        step = self.make().fit(known)
        return step.transform(known), step.transform([self.texts[i] for i in test])


def compare(
    inputs: Inputs,
    costs: ArrayLike,
    splits: Sequence[Split],
    methods: Sequence[Method],
    *,
    expert_names: Sequence[str],
    bundle: IntArray | None = None,
    unit: str = "query",
    prices: FloatArray | None = None,
    largest: float | None = None,
    n_folds: int = 5,
    confidence: float = 0.95,
    seed: int = 0,
    jobs: int | None = None,
    left_out: Sequence[str] = (),
    progress: Progress | None = None,
) -> Comparison:
    """Compare methods on the same splits of the same rows.

    Every method searches its own strength by cross-validation inside the training rows. Intervals of
    the difference to the best constant hold for all methods at once: over rows for one split, over
    splits with the correction for their overlap otherwise. Rows of one bundle count once. All is judged
    on the rows in which every expert was asked, if there are enough of them (``common_rows``).

    Parameters
    ----------
    inputs : what routers see; features are learned from the training rows of each split
    costs : (n_rows, n_experts), NaN where an expert was never asked
    splits : as ``mild.data.splits`` makes them
    methods : with the best constant first, as ``chosen_methods`` gives them
    expert_names : names of the experts
    bundle : (n_rows,) rows that belong together; None if each is alone
    unit : what a bundle is: "query" (equal queries) or "group"
    prices : (n_rows, n_experts) dollars, to put the difference into money
    largest : largest possible cost, for complement rewards
    progress : called as ``progress(done, total, message)``
    """
    array = check_costs(costs)
    if len(inputs) != len(array):
        raise InvalidInputError(
            f"inputs and costs must have as many rows; got {len(inputs)} and {len(array)}.",
            parameter="inputs",
        )
    if not splits:
        raise InvalidInputError(
            "splits must hold at least one split; got none.", parameter="splits"
        )
    if not methods or methods[0].key != "constant":
        raise InvalidInputError("methods must begin with the best constant.", parameter="methods")
    groups = np.arange(len(array)) if bundle is None else np.asarray(bundle)
    # Of whole splits: a row that can be compared is tested as often as one that cannot.
    ratio = float(np.mean([len(split.test) / len(split.train) for split in splits]))
    splits, not_compared = _comparable_splits(array, splits)
    total = len(splits) * len(methods)
    report = progress or (lambda done, of, text: None)
    report(0, total, "features")
    choices: list[dict[str, Choices]] = []
    for number, split in enumerate(splits):
        X_train, X_test = inputs.features(split.train, split.test)
        context = Context(folds(groups[split.train], n_folds, seed), largest, seed, jobs)
        part: dict[str, Choices] = {}
        for method in methods:
            part[method.key] = run_method(method, context, X_train, array[split.train], X_test)
            report(number * len(methods) + len(part), total, f"split {number + 1}, {method.label}")
        choices.append(part)
    run = _Run(array, splits, ratio, choices, groups, unit, confidence, seed)
    others = [method.key for method in methods[1:]]
    intervals = run.intervals(others) if others else {}
    rows = tuple(run.row(method, prices, intervals.get(method.key)) for method in methods)
    chosen = "tune" if "tune" in others else min(rows[1:] or rows, key=lambda row: row.mean).key
    tests = [array[split.test] for split in splits]
    return Comparison(
        rows=rows,
        chosen=chosen,
        statement=run.statement(rows, chosen, expert_names),
        expert_names=tuple(expert_names),
        oracle=float(np.mean([oracle_loss(test) for test in tests])),
        oracle_shares=np.mean([oracle_shares(test) for test in tests], axis=0),
        n_rows=len(array),
        n_train=float(np.mean([len(split.train) for split in splits])),
        n_test=float(np.mean([len(split.test) for split in splits])),
        n_splits=len(splits),
        confidence=confidence,
        left_out=tuple(left_out),
        dropped=sum(split.dropped for split in splits),
        not_compared=not_compared,
    )


def _comparable_splits(
    costs: FloatArray, splits: Sequence[Split]
) -> tuple[Sequence[Split], str | None]:
    """Splits that test on the rows that can be compared, and what was left out, in a sentence."""
    tested = np.unique(np.concatenate([split.test for split in splits]))
    common = common_rows(costs[tested])
    rows = np.zeros(len(costs), dtype=bool)
    rows[tested] = common.rows
    kept = [replace(split, test=split.test[rows[split.test]]) for split in splits]
    if common.complete and not all(len(split.test) for split in kept):
        return splits, replace(common, complete=False).sentence
    return kept, common.sentence


@dataclass(frozen=True, eq=False)
class _Run:
    """Rows, splits, and what each method chose in each split."""

    costs: FloatArray
    splits: Sequence[Split]
    test_over_train: float
    choices: Sequence[dict[str, Choices]]
    bundle: IntArray
    unit: str
    confidence: float
    seed: int

    def paid(self, key: str) -> list[FloatArray]:
        """Cost (n_test,) of a method's choices in each split, NaN where unknown."""
        return [
            chosen_costs(self.costs[split.test], part[key].chosen)
            for split, part in zip(self.splits, self.choices, strict=True)
        ]

    def counts(self, key: str) -> tuple[int, int]:
        """Distinct rows and bundles, over all splits, behind a method's difference to the constant."""
        known = np.zeros((len(self.costs), 2), dtype=bool)
        for column, name in enumerate((key, "constant")):
            for split, paid in zip(self.splits, self.paid(name), strict=True):
                known[split.test, column] |= ~np.isnan(paid)
        return count_judged(known, self.bundle)

    def intervals(self, keys: Sequence[str]) -> dict[str, tuple[float, float, float]]:
        """Estimate, low and high of each method's mean cost minus the best constant's."""
        constant, others = self.linearised("constant"), [self.linearised(key) for key in keys]
        rows = [
            np.column_stack([other[s] - constant[s] for other in others])
            for s in range(len(self.splits))
        ]
        tested = self.bundle[np.concatenate([split.test for split in self.splits])]
        pooled = clustered_rows(np.concatenate(rows), tested)
        if len(self.splits) == 1:
            # One bundle has no spread; the statement says that it is too few.
            apart = pooled if len(pooled) > 1 else rows[0]
            found = simultaneous_intervals(apart, self.confidence, self.seed)
        else:
            means = np.array([part.mean(axis=0) for part in rows])
            # Splits may agree by chance; the spread over rows is a lower limit of the error.
            floor = np.zeros(len(keys))
            if len(pooled) > 1:
                floor = pooled.std(axis=0, ddof=1) / np.sqrt(len(pooled))
            found = resampled_intervals(means, self.test_over_train, self.confidence, floor)
        return {
            key: (float(found.estimate[j]), float(found.low[j]), float(found.high[j]))
            for j, key in enumerate(keys)
        }

    def linearised(self, key: str) -> list[FloatArray]:
        """Rows (n_test,) of each split whose mean is the method's mean cost."""
        return [linearised_rows(paid[:, None])[:, 0] for paid in self.paid(key)]

    def row(
        self,
        method: Method,
        prices: FloatArray | None,
        difference: tuple[float, float, float] | None,
    ) -> Row:
        own = [part[method.key] for part in self.choices]
        tests = [self.costs[split.test] for split in self.splits]
        judged = list(zip(tests, (one.chosen for one in own), strict=True))
        recall = np.array([expert_recall(test, chosen) for test, chosen in judged])
        known = (~np.isnan(recall)).sum(axis=0)
        price = None
        if prices is not None:
            pairs = zip(self.splits, own, strict=True)
            price = float(np.mean([np.nanmean(prices[s.test, o.chosen]) for s, o in pairs]))
        rows, units = self.counts(method.key)
        p = self.costs.shape[1]
        return Row(
            key=method.key,
            label=method.label,
            what=method.what,
            costs=np.array([part.mean() for part in self.linearised(method.key)]),
            shares=np.mean([expert_shares(one.chosen, p) for one in own], axis=0),
            recall=np.where(known > 0, np.nansum(recall, axis=0) / np.maximum(known, 1), np.nan),
            balanced=balanced_deferral_loss(
                np.concatenate(tests), np.concatenate([one.chosen for one in own])
            ),
            control=float(np.mean([shuffled_control(test, chosen) for test, chosen in judged])),
            price=price,
            difference=difference,
            seconds=float(np.mean([one.seconds for one in own])),
            found=[one.found for one in own],
            rows=rows,
            units=units,
            identical=all(
                np.array_equal(part[method.key].chosen, part["constant"].chosen)
                for part in self.choices
            ),
        )

    def statement(self, rows: Sequence[Row], chosen: str, expert_names: Sequence[str]) -> Statement:
        constant = rows[0]
        row = next(row for row in rows if row.key == chosen)
        n_splits, n_methods = len(self.splits), len(rows) - 1
        dollars = None
        if row.price is not None and constant.price is not None:
            dollars = row.price - constant.price
        return state(
            row.label,
            expert_names[int(np.argmax(constant.shares))],
            row.difference or (0.0, 0.0, 0.0),
            rows=row.rows,
            units=row.units,
            unit=self.unit,
            confidence=self.confidence,
            notes=(
                "one split" if n_splits == 1 else f"{n_splits} splits",
                f"{n_methods} method{'' if n_methods == 1 else 's'} compared",
            ),
            dollars=dollars,
            identical=row.identical,
        )
