"""Compare methods on the same splits, and state whether routing pays."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike

from mild import metrics
from mild.core.arrays import FloatArray, IntArray, as_python, check_costs, invalid
from mild.data.splits import Split, folds
from mild.errors import InvalidInputError, TuningInterruptedWarning, check_option, counted
from mild.metrics.outcomes import Outcomes, Stratified, baselines
from mild.metrics.routing import FEWEST_UNITS
from mild.metrics.rows import merged_strata
from mild.tuning.tasks import Task, balanced_fit, make_step

ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
#: What ``mild tune`` searches by default: all families, the network on small tables alone.
TUNED = "auto"

#: Called with fits done, fits in all, and what was just done.
Progress: TypeAlias = Callable[[int, int, str], Any]


@dataclass(frozen=True, eq=False)
class Context:
    """What a method knows before it is fitted."""

    # of the training rows, the same for all methods; anything that scikit-learn takes as ``cv``
    folds: Any
    # largest possible cost, the scale of complement rewards; None to take it from the rows
    largest: float | None
    seed: int = 0  # of what is drawn at random
    jobs: int | None = None  # parallel workers
    strata: Any = None  # (n_rows,) label of the group of each training row, if groups count alike
    topics: Any = None  # (n_rows,) label of the subject of each training row, or None
    # what searches on these rows have found about candidates, so that others need not judge them again
    judged: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """One row of a comparison."""

    key: str  # name on the command line and in files
    label: str  # name in tables
    what: str  # how it is trained, in one line
    build: Callable[[Context], Any]  # unfitted router for a context
    needs: str | None = None  # package without which it is left out


def linear_search(
    loss: str = "mild",
    alphas: Sequence[float] = ALPHAS,
    factors: Sequence[float] = (1.0,),
    **options: Any,
) -> Callable[[Context], Any]:
    """Build a search over the strength, and over factors of the margins, of a linear router."""

    def build(context: Context) -> Any:
        from mild.routers.linear import LinearRouter
        from mild.routers.objective import LDAM_SCALE
        from mild.routers.search import RouterCV

        # LDAM multiplies its scores by its scale: this is the same penalty on what its loss sees.
        unit = LDAM_SCALE**2 if loss == "ldam" else 1.0
        scale: dict[str, Any] = {"cost_scale": context.largest} if loss == "tdef" else {}
        search = RouterCV(
            LinearRouter(loss, **options, **scale),
            alphas=[unit * alpha for alpha in alphas],
            margin_factors=factors,
            cv=context.folds,
            one_standard_error=False,
            constant_if_better=False,  # the losses themselves are compared
            n_jobs=context.jobs,
            random_state=context.seed,
        )
        search._judged = context.judged
        return search

    return build


def _families(families: Any) -> Callable[[Context], Any]:
    def build(context: Context) -> Any:
        from mild.routers.search import RouterCV

        search = RouterCV(
            families=families,
            groups=context.topics,
            cv=context.folds,
            constant_if_better=families == TUNED,  # single families are compared as they are
            n_jobs=context.jobs,
            random_state=context.seed,
        )
        search._judged = context.judged
        return search

    return build


def _constant(context: Context) -> Any:
    from mild.routers.baselines import ConstantRouter

    return ConstantRouter()


METHODS = (
    Method("constant", "best constant", "the expert that is cheapest in training", _constant),
    Method("ce", "CE", "cross-entropy on the cheapest expert", linear_search("ce")),
    Method("cwce", "CWCE", "CE, weighted by inverse frequency", linear_search("cwce")),
    Method("ldam", "LDAM", "label-distribution-aware margins", linear_search("ldam")),
    Method("tdef", "TDEF", "complement rewards, all margins 1", linear_search("tdef")),
    Method("mild", "MILD theory", "others rewards, theory margins, stationary", linear_search()),
    Method(
        "mild_tuned", "MILD tuned", "others rewards, margin ratios searched",
        linear_search(factors=(0.5, 1.0, 2.0)),
    ),
    Method(
        "regression", "cost regression", "predicts every cost, takes the least",
        _families(["regression"]),
    ),
    Method("knn", "kNN", "mean costs of the nearest rows", _families(["knn"])),
    Method("mlp", "MLP", "a small network with MILD's loss", _families(["mlp"]), needs="torch"),
    Method("tune", "mild tune", "the best of these families and their stack", _families(TUNED)),
)  # fmt: skip


def chosen_methods(names: Sequence[str] | None = None) -> tuple[tuple[Method, ...], list[str]]:
    """Methods by their keys, in the order of METHODS, and labels of those whose package is missing.

    The best constant is always included: the others are compared with it.
    """
    known = [method.key for method in METHODS]
    for name in names or ():
        check_option("method", name, known)
    asked = [m for m in METHODS if not names or m.key in names or m.key == "constant"]
    missing = [m for m in asked if m.needs and importlib.util.find_spec(m.needs) is None]
    return tuple(m for m in asked if m not in missing), [m.label for m in missing]


@dataclass(frozen=True, eq=False)
class Choices:
    """What a method did on the test rows of one split."""

    chosen: IntArray  # (n_test,) experts
    found: dict[str, Any]  # parameters that its search found, JSON-ready
    # time to search, fit and decide, without candidates that an earlier method has judged
    seconds: float


def run_method(
    method: Method, context: Context, X_train: Any, train_costs: Any, X_test: Any
) -> Choices:
    """Fit a method on training rows and let it choose on test rows."""
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            # An interrupted search keeps its best so far; an interrupted comparison ends.
            warnings.simplefilter("error", TuningInterruptedWarning)
            router = method.build(context)
            router.fit(X_train, train_costs, **balanced_fit(router, context.strata))
    except TuningInterruptedWarning as error:
        raise KeyboardInterrupt from error
    chosen = router.predict(X_test)
    found = as_python(getattr(router, "best_params_", {}))
    if hasattr(router, "best_family_"):
        found = {"family": router.best_family_, **found}
    return Choices(chosen, found, time.perf_counter() - start)


@dataclass(frozen=True, eq=False)
class SplitResult(Stratified):
    """The test rows of one split and what each method chose on them."""

    costs: FloatArray  # (n_test, n_experts), NaN where an expert was not asked
    units: IntArray  # (n_test,) rows with the same number, also in other splits, count as one
    choices: Mapping[str, Choices]  # key of a method -> what it did
    strata: IntArray | None = None  # (n_test,) labels of groups that count alike

    def paid(self, key: str) -> FloatArray:
        """Costs (n_test,) of a method's choices, NaN where unknown."""
        return metrics.chosen_costs(self.costs, self.choices[key].chosen)

    def level(self, key: str) -> FloatArray:
        """Rows (n_test,) whose mean is the method's mean cost."""
        strata = None if self.strata is None else merged_strata(self.strata, self.units)
        return metrics.linearised_rows(self.paid(key)[:, None], self.weight, strata)[:, 0]

    def same(self, key: str, other: str) -> bool:
        """Whether two methods made the same choices."""
        return np.array_equal(self.choices[key].chosen, self.choices[other].chosen)


class Inputs:
    """Rows that become features by a step that is fitted on the training rows alone."""

    def __init__(self, rows: Any, make: Callable[[], Any]) -> None:
        self.rows = rows  # texts, or an array (n_rows, n_features)
        self.make = make  # returns an unfitted step with fit and transform

    def __len__(self) -> int:
        return len(self.rows)

    def features(self, train: IntArray, test: IntArray) -> tuple[Any, Any]:
        """Features (n, d) of the training and of the test rows."""
        matrix = isinstance(self.rows, np.ndarray)
        known, new = (self.rows[i] if matrix else [self.rows[k] for k in i] for i in (train, test))
        step = self.make().fit(known)
        return step.transform(known), step.transform(new)


def matrix_inputs(X: Any) -> Inputs:
    """Given features (n_rows, n_features), standardised on the training rows."""
    from sklearn.preprocessing import StandardScaler

    return Inputs(np.asarray(X, dtype=np.float32), StandardScaler)


def comparison_inputs(
    task: Task, text: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[Inputs, str]:
    """Rows for ``compare``, and the kind of their features."""
    step = make_step(task, text, options)
    if step.kind == "vectors":
        return matrix_inputs(task.table.vectors), step.kind
    return Inputs(task.table.queries, lambda: make_step(task, text, options)), step.kind


@dataclass(frozen=True, eq=False)
class Row:
    """One method over all splits. A cost is a loss: wrong answers plus the weighted other terms."""

    key: str  # of the method
    label: str
    what: str
    costs: FloatArray  # (n_splits,) mean cost on the test rows
    # (n_experts,) means over splits; recall is NaN where an expert is never cheapest
    shares: FloatArray
    recall: FloatArray
    balanced: float  # balanced deferral loss on the test rows of all splits
    control: float  # mean cost of the same shares assigned at random
    price: float | None  # mean price of an input, or None without prices
    accuracy: float | None  # mean score, or None without scores
    latency: float | None  # mean seconds of an answer, or None without latencies
    # (estimate, low, high) of its mean cost minus the best constant's; None for itself
    difference: tuple[float, float, float] | None
    seconds: float  # mean time to fit and decide
    found: list[dict[str, Any]]  # parameters that its search found, per split
    rows: int  # rows compared over all splits
    units: int  # distinct queries or groups among them
    identical: bool  # whether it made the best constant's choices throughout

    @property
    def mean(self) -> float:
        """Mean cost over splits."""
        return float(self.costs.mean())

    @property
    def worst_recall(self) -> float:
        """Least recall of an expert that is cheapest somewhere."""
        return float(np.nanmin(self.recall))

    @property
    def too_few(self) -> bool:
        """Whether there are too few rows for a verdict."""
        return self.units < FEWEST_UNITS

    @property
    def verdict(self) -> str:
        """Against the best constant: "better", "worse", or "level" if neither is clear."""
        if self.difference is None:
            return ""
        if self.too_few:
            return "level"
        _, low, high = self.difference
        return "better" if high < 0 else "worse" if low > 0 else "level"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {
            "method": self.key,
            "label": self.label,
            "what": self.what,
            "mean_cost": self.mean,
            "costs": self.costs.tolist(),
            "shares": self.shares.tolist(),
            "recall": [None if np.isnan(value) else float(value) for value in self.recall],
            "balanced_cost": self.balanced,
            "worst_recall": self.worst_recall,
            "shuffled_control": self.control,
            "price": self.price,
            "accuracy": self.accuracy,
            "latency": self.latency,
            "minus_constant": None if self.difference is None else list(self.difference),
            "verdict": self.verdict,
            "seconds": self.seconds,
            "found": self.found,
            "rows": self.rows,
            "units": self.units,
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """All methods on the same splits."""

    rows: tuple[Row, ...]  # the best constant first, the others in the order of METHODS
    chosen: str  # key of the method that the statement is about
    statement: metrics.Statement  # whether routing pays
    expert_names: tuple[str, ...]  # names of the experts
    oracle: float  # mean cost of the cheapest expert of every test row
    # (n_experts,) how often each expert is the cheapest; ties go to the lower price, if known, then to the
    # higher accuracy, then to the lowest index
    oracle_shares: FloatArray
    baselines: list[dict[str, Any]]  # ``baselines`` of the chosen method, means over splits
    n_rows: int  # rows in all
    n_train: float  # rows per split, on average
    n_test: float
    n_splits: int
    confidence: float  # of the intervals, which hold for all methods at once
    left_out: tuple[str, ...] = ()  # methods whose package is missing
    dropped: int = 0  # test rows left out because their text is in the training rows
    # which test rows were left out because an expert was not asked, in a sentence; or None
    not_compared: str | None = None
    interrupted: bool = False  # whether Ctrl-C ended it before the last split

    def row(self, key: str) -> Row:
        """The row of a method."""
        return next(row for row in self.rows if row.key == key)

    @property
    def headroom(self) -> float:
        """What perfect routing would save over the best constant."""
        return self.row("constant").mean - self.oracle

    def captured(self, row: Row) -> float | None:
        """Share of the headroom that a method captures; None if there is no headroom."""
        if self.headroom <= 1e-12 * max(1.0, abs(self.row("constant").mean)):
            return None
        return (self.row("constant").mean - row.mean) / self.headroom

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {
            "statement": self.statement.as_dict(),
            "chosen": self.chosen,
            "experts": list(self.expert_names),
            "oracle": self.oracle,
            "oracle_shares": self.oracle_shares.tolist(),
            "baselines": self.baselines,
            "headroom": self.headroom,
            "rows": self.n_rows,
            "rows_to_train_on": self.n_train,
            "rows_to_test_on": self.n_test,
            "splits": self.n_splits,
            "confidence": self.confidence,
            "left_out": list(self.left_out),
            "dropped": self.dropped,
            "not_compared": self.not_compared,
            "interrupted": self.interrupted,
            "methods": [
                {**row.as_dict(), "headroom_captured": self.captured(row)} for row in self.rows
            ],
        }


def compare(
    inputs: Inputs,
    costs: ArrayLike,
    splits: Sequence[Split],
    methods: Sequence[Method],
    *,
    expert_names: Sequence[str],
    bundle: IntArray | None = None,
    unit: str = "query",
    topics: Sequence[str] | None = None,
    strata: IntArray | None = None,
    prices: FloatArray | None = None,
    scores: FloatArray | None = None,
    latencies: FloatArray | None = None,
    largest: float | None = None,
    n_folds: int = 5,
    confidence: float = 0.95,
    seed: int = 0,
    jobs: int | None = None,
    left_out: Sequence[str] = (),
    progress: Progress | None = None,
) -> Comparison:
    """Compare methods, the best constant first, on the same splits of the same rows.

    Every method searches its own strength by cross-validation inside the training rows. Intervals of
    the difference to the best constant hold for all methods at once: over rows for one split, over
    splits with a correction for their overlap otherwise. Rows of one ``bundle``, a "query" or a "group"
    by ``unit``, count once. Rows are compared in which every expert was asked, if there are enough of
    them (``common_rows``). ``topics`` (n_rows,) are subjects, tasks or sources, which a router may learn to
    recognise. With ``strata`` (n_rows,), labels of groups, every mean is over groups instead of rows, in
    training and in judging. ``prices`` in dollars, ``scores`` and ``latencies`` in seconds, each (n_rows,
    n_experts), add dollars, accuracy and time. ``largest`` is the largest possible cost, for complement
    rewards. Ctrl-C ends the comparison with the splits that are finished, if there are any.
    """
    array = check_costs(costs)
    if len(inputs) != len(array):
        rule = f"must have as many rows as costs; got {len(inputs)} and {len(array)}."
        raise invalid("inputs", rule)
    if not splits:
        raise invalid("splits", "must hold at least one split; got none.")
    if not methods or methods[0].key != "constant":
        raise invalid("methods", "must begin with the best constant.")
    units = np.arange(len(array)) if bundle is None else np.asarray(bundle)
    # Of whole splits: a row that can be compared is tested as often as one that cannot.
    ratio = float(np.mean([len(split.test) / len(split.train) for split in splits]))
    splits, not_compared = _comparable_splits(array, splits)
    report = progress or (lambda done, of, text: None)
    report(0, len(splits) * len(methods), "features")
    contexts = []
    for split in splits:
        inner = folds(units[split.train], n_folds, seed)
        if min(len(fitted) for fitted, _ in inner) < 2:
            raise InvalidInputError(
                f"there are too few rows to compare methods on: with {len(array)}, a fold of the "
                f"cross-validation leaves one to fit on, and two are needed. Collect more rows.",
                parameter="table",
            )
        subjects = None if topics is None else np.asarray(topics)[split.train]
        parts = None if strata is None else strata[split.train]
        contexts.append(Context(inner, largest, seed, jobs, parts, subjects))
    results: list[SplitResult] = []
    interrupted = False
    try:
        for choices in _run_splits(inputs, array, splits, methods, contexts, report):
            test = splits[len(results)].test
            tested_strata = None if strata is None else strata[test]
            results.append(SplitResult(array[test], units[test], choices, tested_strata))
    except KeyboardInterrupt:
        if not results:
            raise
        interrupted = True
    splits = splits[: len(results)]
    outcomes = Outcomes(array, scores, prices, latencies, strata)
    tested = [outcomes.take(split.test) for split in splits]
    perfect = [one.oracle() for one in tested]
    others = [method.key for method in methods[1:]]
    intervals = _intervals(results, others, ratio, confidence, seed) if others else {}
    rows = [
        _row(method, results, splits, units, tested, perfect, intervals.get(method.key))
        for method in methods
    ]
    chosen = "tune" if "tune" in others else min(rows[1:] or rows, key=lambda row: row.mean).key
    return Comparison(
        rows=tuple(rows),
        chosen=chosen,
        statement=_statement(rows, chosen, expert_names, len(splits), unit, confidence),
        expert_names=tuple(expert_names),
        oracle=float(np.mean([metrics.oracle_loss(one.costs, one.weight) for one in results])),
        oracle_shares=np.mean(
            [
                metrics.expert_shares(best, array.shape[1], one.weight)
                for best, one in zip(perfect, results, strict=True)
            ],
            axis=0,
        ),
        baselines=_mean_baselines(
            tested, [one.choices[chosen].chosen for one in results], expert_names
        ),
        n_rows=len(array),
        n_train=float(np.mean([len(split.train) for split in splits])),
        n_test=float(np.mean([len(split.test) for split in splits])),
        n_splits=len(splits),
        confidence=confidence,
        left_out=tuple(left_out),
        dropped=sum(split.dropped for split in splits),
        not_compared=not_compared,
        interrupted=interrupted,
    )


def _run_splits(
    inputs: Inputs,
    costs: FloatArray,
    splits: Sequence[Split],
    methods: Sequence[Method],
    contexts: Sequence[Context],
    report: Progress,
) -> Iterator[dict[str, Choices]]:
    """What every method chooses in one split after the other.

    With several workers and splits, workers take whole splits: a search alone keeps two of them busy for
    four fifths of the time. Methods that need another package share no candidates with the others and are
    taken by themselves.
    """
    total = len(splits) * len(methods)
    if len(splits) == 1 or effective_n_jobs(contexts[0].jobs) == 1:
        for number, (split, context) in enumerate(zip(splits, contexts, strict=True)):

            def done(count: int, method: Method, before: int = number) -> None:
                text = f"split {before + 1}, {method.label}"
                report(before * len(methods) + count, total, text)

            yield _run_split(inputs, costs, split, methods, context, done)
        return
    parts = [
        [method for method in methods if method.needs == needs]
        for needs in dict.fromkeys(method.needs for method in methods)
    ]
    stream = Parallel(n_jobs=contexts[0].jobs, return_as="generator")(
        delayed(_in_worker)(inputs, costs, split, part, replace(context, jobs=None))
        for split, context in zip(splits, contexts, strict=True)
        for part in parts
    )
    try:
        for number in range(len(splits)):
            choices: dict[str, Choices] = {}
            for part, (chosen, warned) in zip(parts, stream, strict=False):
                choices |= chosen
                for warning in warned:
                    warnings.warn(warning, stacklevel=4)
                text = f"split {number + 1}, {part[-1].label}"
                report(number * len(methods) + len(choices), total, text)
            yield choices
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of tasks that are given up
            stream.close()


def _in_worker(*arguments: Any) -> tuple[dict[str, Choices], list[Warning | str]]:
    """``_run_split`` and its warnings, which the console of another process knows nothing of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choices = _run_split(*arguments)
    return choices, [warning.message for warning in caught]


def _run_split(
    inputs: Inputs,
    costs: FloatArray,
    split: Split,
    methods: Sequence[Method],
    context: Context,
    done: Callable[[int, Method], None] = lambda count, method: None,
) -> dict[str, Choices]:
    X_train, X_test = inputs.features(split.train, split.test)
    choices: dict[str, Choices] = {}
    for method in methods:
        choices[method.key] = run_method(method, context, X_train, costs[split.train], X_test)
        done(len(choices), method)
    return choices


def _mean_baselines(
    tested: Sequence[Outcomes], chosen: Sequence[IntArray], expert_names: Sequence[str]
) -> list[dict[str, Any]]:
    """Means over splits of ``baselines``; the expert is named where it is the same in all."""
    parts = [baselines(*pair, expert_names) for pair in zip(tested, chosen, strict=True)]
    found = []
    for rows in zip(*parts, strict=True):
        experts = {row["expert"] for row in rows}
        line = {"key": rows[0]["key"], "expert": experts.pop() if len(experts) == 1 else None}
        for name in ("loss", "accuracy", "dollars_per_1000", "seconds"):
            values = [row[name] for row in rows]
            line[name] = None if None in values else float(np.mean(values))
        found.append(line)
    return found


def _comparable_splits(
    costs: FloatArray, splits: Sequence[Split]
) -> tuple[Sequence[Split], str | None]:
    """Splits that test on the rows that can be compared, and a sentence about the others."""
    tested = np.unique(np.concatenate([split.test for split in splits]))
    common = metrics.common_rows(costs[tested])
    rows = np.zeros(len(costs), dtype=bool)
    rows[tested] = common.rows
    kept = [replace(split, test=split.test[rows[split.test]]) for split in splits]
    if common.complete and not all(len(split.test) for split in kept):
        return splits, replace(common, complete=False).sentence
    return kept, common.sentence


def _intervals(
    results: Sequence[SplitResult],
    keys: Sequence[str],
    test_over_train: float,
    confidence: float,
    seed: int,
) -> dict[str, tuple[float, float, float]]:
    """Estimate, low and high of each method's mean cost minus the best constant's."""
    rows = [
        np.column_stack([one.level(key) - one.level("constant") for key in keys]) for one in results
    ]
    units = np.concatenate([one.units for one in results])
    pooled = metrics.clustered_rows(np.concatenate(rows), units)
    if len(results) == 1:
        # One unit has no variance; the statement says that it is too few.
        found = metrics.simultaneous_intervals(
            pooled if len(pooled) > 1 else rows[0], confidence, seed
        )
    else:
        means = np.array([part.mean(axis=0) for part in rows])
        # Splits may agree by chance; the deviation over rows is a lower limit of the error.
        floor = np.zeros(len(keys))
        if len(pooled) > 1:
            floor = pooled.std(axis=0, ddof=1) / np.sqrt(len(pooled))
        found = metrics.resampled_intervals(means, test_over_train, confidence, floor)
    return {
        key: (float(found.estimate[j]), float(found.low[j]), float(found.high[j]))
        for j, key in enumerate(keys)
    }


def _row(
    method: Method,
    results: Sequence[SplitResult],
    splits: Sequence[Split],
    units: IntArray,
    outcomes: Sequence[Outcomes],
    perfect: Sequence[IntArray],
    difference: tuple[float, float, float] | None,
) -> Row:
    key, p = method.key, results[0].costs.shape[1]
    own = [one.choices[key] for one in results]
    pairs = [(one.costs, one.choices[key].chosen) for one in results]
    weights = [one.weight for one in results]
    recall = np.array(
        [
            metrics.expert_recall(*pair, weight, best)
            for pair, weight, best in zip(pairs, weights, perfect, strict=True)
        ]
    )
    figures = [one.means(choices.chosen) for one, choices in zip(outcomes, own, strict=True)]

    def mean(name: str) -> float | None:
        values = [figure[name] for figure in figures]
        return None if None in values else float(np.mean(values))  # type: ignore[arg-type]

    known = (~np.isnan(recall)).sum(axis=0)
    tested, chosen = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    # Distinct rows and units, over all splits, behind the difference to the constant.
    paid = np.zeros((len(units), 2), dtype=bool)
    for split, result in zip(splits, results, strict=True):
        for column, name in enumerate((key, "constant")):
            paid[split.test, column] |= ~np.isnan(result.paid(name))
    n_rows, n_units = metrics.count_judged(paid, units)
    dollars = mean("dollars_per_1000")
    return Row(
        key=key,
        label=method.label,
        what=method.what,
        costs=np.array([one.level(key).mean() for one in results]),
        shares=np.mean(
            [
                metrics.expert_shares(one.chosen, p, weight)
                for one, weight in zip(own, weights, strict=True)
            ],
            axis=0,
        ),
        recall=np.where(known > 0, np.nansum(recall, axis=0) / np.maximum(known, 1), np.nan),
        balanced=metrics.balanced_deferral_loss(tested, chosen),
        control=float(
            np.mean(
                [
                    metrics.shuffled_control(*pair, weight)
                    for pair, weight in zip(pairs, weights, strict=True)
                ]
            )
        ),
        price=None if dollars is None else dollars / 1000,
        accuracy=mean("accuracy"),
        latency=mean("seconds"),
        difference=difference,
        seconds=float(np.mean([one.seconds for one in own])),
        found=[one.found for one in own],
        rows=n_rows,
        units=n_units,
        identical=all(one.same(key, "constant") for one in results),
    )


def _statement(
    rows: Sequence[Row],
    chosen: str,
    expert_names: Sequence[str],
    n_splits: int,
    unit: str,
    confidence: float,
) -> metrics.Statement:
    constant, n_methods = rows[0], len(rows) - 1
    row = next(row for row in rows if row.key == chosen)
    dollars = None
    if row.price is not None and constant.price is not None:
        dollars = row.price - constant.price
    return metrics.state(
        row.label,
        expert_names[int(np.argmax(constant.shares))],
        row.difference or (0.0, 0.0, 0.0),
        rows=row.rows,
        units=row.units,
        unit=unit,
        confidence=confidence,
        notes=(
            "one split" if n_splits == 1 else f"{n_splits} splits",
            f"{counted(n_methods, 'method')} compared",
        ),
        dollars=dollars,
        identical=row.identical,
        splits=n_splits,
    )
