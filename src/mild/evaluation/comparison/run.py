"""Fit every method on every split and judge it on rows that it has not seen."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, IntArray, check_costs
from mild.data.splits import Split, folds
from mild.errors import InvalidInputError, TuningInterruptedWarning
from mild.evaluation.comparison.inputs import Inputs
from mild.evaluation.comparison.methods import Context, Method, plain
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

__all__ = ["Progress", "compare"]

#: Called with fits done, fits in all, and what was just done.
Progress: TypeAlias = Callable[[int, int, str], Any]


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
            f"inputs and costs must have as many rows; got {len(inputs)} and {len(array)}."
        )
    if not splits:
        raise InvalidInputError("splits must hold at least one split; got none.")
    if not methods or methods[0].key != "constant":
        raise InvalidInputError("methods must begin with the best constant.")
    groups = np.arange(len(array)) if bundle is None else np.asarray(bundle)
    # Of whole splits: a row that can be compared is tested as often as one that cannot.
    ratio = float(np.mean([len(split.test) / len(split.train) for split in splits]))
    splits, not_compared = _compared(array, splits)
    total = len(splits) * len(methods)
    report = progress or (lambda done, of, text: None)
    report(0, total, "features")
    parts: list[dict[str, dict[str, Any]]] = []
    for number, split in enumerate(splits):
        X_train, X_test = inputs.features(split.train, split.test)
        context = Context(folds(groups[split.train], n_folds, seed), largest, seed, jobs)
        part: dict[str, dict[str, Any]] = {}
        for method in methods:
            part[method.key] = _judge(
                method, context, X_train, array[split.train], X_test, array[split.test]
            )
            report(number * len(methods) + len(part), total, f"split {number + 1}, {method.label}")
        parts.append(part)
    drawn = _Drawn(array, splits, ratio, parts, groups, unit, confidence, seed)
    return replace(
        _gather(drawn, methods, tuple(expert_names), prices, left_out), not_compared=not_compared
    )


def _compared(costs: FloatArray, splits: Sequence[Split]) -> tuple[Sequence[Split], str | None]:
    """Splits that test on the rows that can be compared, and what was left out, in a sentence."""
    tested = np.unique(np.concatenate([split.test for split in splits]))
    common = common_rows(costs[tested])
    rows = np.zeros(len(costs), dtype=bool)
    rows[tested] = common.rows
    held = [replace(split, test=split.test[rows[split.test]]) for split in splits]
    if common.complete and not all(len(split.test) for split in held):
        return splits, replace(common, complete=False).sentence
    return held, common.sentence


@dataclass(frozen=True, eq=False)
class _Drawn:
    """What was judged: rows, splits, what each method did there, and what its interval counts."""

    costs: FloatArray
    splits: Sequence[Split]
    test_over_train: float
    parts: Sequence[dict[str, dict[str, Any]]]
    bundle: IntArray
    unit: str
    confidence: float
    seed: int

    def judged(self, key: str) -> tuple[int, int]:
        """Distinct rows and bundles, over all splits, behind a method's difference to the constant."""
        known = np.zeros((len(self.costs), 2), dtype=bool)
        for split, part in zip(self.splits, self.parts, strict=True):
            for column, name in enumerate((key, "constant")):
                known[split.test, column] |= part[name]["known"]
        return count_judged(known, self.bundle)

    def differences(self, keys: Sequence[str]) -> list[FloatArray]:
        """Rows (n_test, methods) of each split: method minus constant."""
        return [
            np.column_stack([part[key]["rows"] - part["constant"]["rows"] for key in keys])
            for part in self.parts
        ]


def _judge(
    method: Method,
    context: Context,
    X_train: Any,
    train_costs: FloatArray,
    X_test: Any,
    test_costs: FloatArray,
) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            # A search that is stopped keeps its best; whoever stops a comparison wants it to end.
            warnings.simplefilter("error", TuningInterruptedWarning)
            router = method.build(context).fit(X_train, train_costs)
    except TuningInterruptedWarning as error:
        raise KeyboardInterrupt from error
    chosen = router.predict(X_test)
    paid = chosen_costs(test_costs, chosen)
    found = {name: plain(value) for name, value in getattr(router, "best_params_", {}).items()}
    if hasattr(router, "best_family_"):
        found = {"family": router.best_family_, **found}
    return {
        "chosen": chosen,
        "rows": linearised_rows(paid[:, None])[:, 0],
        "known": ~np.isnan(paid),
        "seconds": time.perf_counter() - start,
        "found": found,
    }


def _gather(
    drawn: _Drawn,
    methods: Sequence[Method],
    expert_names: tuple[str, ...],
    prices: FloatArray | None,
    left_out: Sequence[str],
) -> Comparison:
    others = [method.key for method in methods[1:]]
    intervals = _intervals(drawn, others) if others else {}
    rows = tuple(_row(method, drawn, prices, intervals.get(method.key)) for method in methods)
    chosen = "tune" if "tune" in others else min(rows[1:] or rows, key=lambda row: row.mean).key
    costs, splits = drawn.costs, drawn.splits
    tests = [costs[split.test] for split in splits]
    return Comparison(
        rows,
        chosen,
        _statement(rows, chosen, drawn, expert_names),
        expert_names,
        float(np.mean([oracle_loss(test) for test in tests])),
        np.mean([oracle_shares(test) for test in tests], axis=0),
        len(costs),
        float(np.mean([len(split.train) for split in splits])),
        float(np.mean([len(split.test) for split in splits])),
        len(splits),
        drawn.confidence,
        tuple(left_out),
        sum(split.dropped for split in splits),
    )


def _intervals(drawn: _Drawn, keys: Sequence[str]) -> dict[str, tuple[float, float, float]]:
    splits, rows = drawn.splits, drawn.differences(keys)
    tested = drawn.bundle[np.concatenate([split.test for split in splits])]
    pooled = clustered_rows(np.concatenate(rows), tested)
    if len(splits) == 1:
        # One bundle has no spread; the statement says that it is too few.
        apart = pooled if len(pooled) > 1 else rows[0]
        found = simultaneous_intervals(apart, drawn.confidence, drawn.seed)
    else:
        means = np.array([part.mean(axis=0) for part in rows])
        # Splits may agree by chance; the rows themselves say how much that means.
        floor = np.zeros(len(keys))
        if len(pooled) > 1:
            floor = pooled.std(axis=0, ddof=1) / np.sqrt(len(pooled))
        found = resampled_intervals(means, drawn.test_over_train, drawn.confidence, floor)
    return {
        key: (float(found.estimate[j]), float(found.low[j]), float(found.high[j]))
        for j, key in enumerate(keys)
    }


def _row(
    method: Method,
    drawn: _Drawn,
    prices: FloatArray | None,
    difference: tuple[float, float, float] | None,
) -> Row:
    splits = drawn.splits
    own = [part[method.key] for part in drawn.parts]
    tests = [drawn.costs[split.test] for split in splits]
    p = drawn.costs.shape[1]
    recall = np.array([expert_recall(t, o["chosen"]) for t, o in zip(tests, own, strict=True)])
    known = (~np.isnan(recall)).sum(axis=0)
    price = None
    if prices is not None:
        paid = [
            np.nanmean(prices[split.test, one["chosen"]])
            for split, one in zip(splits, own, strict=True)
        ]
        price = float(np.mean(paid))
    rows, units = drawn.judged(method.key)
    return Row(
        method.key,
        method.label,
        method.what,
        np.array([one["rows"].mean() for one in own]),
        np.mean([expert_shares(one["chosen"], p) for one in own], axis=0),
        np.where(known > 0, np.nansum(recall, axis=0) / np.maximum(known, 1), np.nan),
        balanced_deferral_loss(
            np.concatenate(tests), np.concatenate([one["chosen"] for one in own])
        ),
        float(np.mean([shuffled_control(t, o["chosen"]) for t, o in zip(tests, own, strict=True)])),
        price,
        difference,
        float(np.mean([one["seconds"] for one in own])),
        [one["found"] for one in own],
        rows,
        units,
        all(
            np.array_equal(part[method.key]["chosen"], part["constant"]["chosen"])
            for part in drawn.parts
        ),
    )


def _statement(
    rows: Sequence[Row], chosen: str, drawn: _Drawn, expert_names: tuple[str, ...]
) -> Statement:
    constant = rows[0]
    row = next(row for row in rows if row.key == chosen)
    n_splits, n_methods = len(drawn.splits), len(rows) - 1
    dollars = None
    if row.price is not None and constant.price is not None:
        dollars = row.price - constant.price
    return state(
        row.label,
        expert_names[int(np.argmax(constant.shares))],
        row.difference or (0.0, 0.0, 0.0),
        rows=row.rows,
        units=row.units,
        unit=drawn.unit,
        confidence=drawn.confidence,
        notes=(
            "one split" if n_splits == 1 else f"{n_splits} splits",
            f"{n_methods} method{'' if n_methods == 1 else 's'} compared",
        ),
        dollars=dollars,
        identical=row.identical,
    )
