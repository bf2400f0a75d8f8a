"""Compare methods on the same splits, and state whether routing pays."""

from __future__ import annotations

import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

from mild import metrics
from mild.artifact.files import check_free
from mild.artifact.frames import as_frame, default_library, html_table
from mild.core.arrays import (
    FloatArray,
    IntArray,
    as_python,
    check_costs,
    check_integer,
    check_jobs,
    invalid,
)
from mild.core.costs import cheapest_of
from mild.core.rounding import first_least
from mild.data import CostTerms, OutcomeTable, read_outcomes
from mild.data.cost_terms import require_scores
from mild.data.splits import Split, folds
from mild.errors import (
    DataFileError,
    InvalidInputError,
    TuningInterruptedWarning,
    check_arguments,
    check_option,
    counted,
)
from mild.evaluation.cascades import cascade_outcomes
from mild.evaluation.document import data_entries, document_header
from mild.evaluation.figures import minority_recall, named_baselines
from mild.features import TextFeatures
from mild.metrics.outcomes import (
    Outcomes,
    baselines,
    is_graded,
    quality_name,
    ranks_in,
)
from mild.metrics.routing import FEWEST_GROUPS
from mild.policies import CascadePolicy, CascadeRun
from mild.report import write_document
from mild.report.document import Document
from mild.tuning.cascades import checked_answers
from mild.tuning.fitting import fit_labels, make_step, table_step
from mild.tuning.searches import FAMILIES, MAX_CALLS, unfitted_search
from mild.tuning.tasks import (
    Progress,
    Task,
    fewer_folds,
    make_task,
    parallel_jobs,
    possible_folds,
    task_splits,
)

ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def _new_memory() -> Any:
    from mild.routers.search import SearchMemory

    return SearchMemory()


@dataclass(frozen=True, eq=False)
class Context:
    """What a method knows before it is fitted."""

    # of the training rows, the same for all methods; anything that scikit-learn takes as ``cv``
    folds: Any
    # largest possible cost, the scale of complement rewards; None to take it from the rows
    largest: float | None
    seed: int = 0  # of what is drawn at random
    jobs: int | None = None  # parallel workers
    groups: Any = None  # (n_rows,) label of the training rows that were drawn together, or None
    answered: tuple[Task, Split] | None = None  # whose answers a cascade reads
    search: Any = field(
        default_factory=lambda: unfitted_search(None)
    )  # RouterCV, for the method "tune"
    ranks: IntArray | None = None  # (n_experts,) which decide ties between experts
    memory: Any = field(default_factory=_new_memory)  # SearchMemory that the methods share


@dataclass(frozen=True)
class Method:
    """One row of a comparison."""

    key: str  # name on the command line and in files
    label: str  # name in tables
    what: str  # how it is trained, in one line
    build: Callable[[Context], Any]  # unfitted router for a context
    needs: str | None = None  # package without which it is left out
    reads: bool = False  # whether it is a cascade, which reads answers and is left out without them


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
        scale_factor = LDAM_SCALE**2 if loss == "ldam" else 1.0
        scale: dict[str, Any] = {"cost_scale": context.largest} if loss == "tdef" else {}
        return RouterCV(
            LinearRouter(loss, **options, **scale),
            alphas=[scale_factor * alpha for alpha in alphas],
            margin_factors=factors,
            margin_strengths=2,  # as ``tune`` does, which takes over what is judged here
            cv=context.folds,
            one_standard_error=False,
            constant_if_better=False,  # the losses themselves are compared
            n_jobs=context.jobs,
            random_state=context.seed,
            memory=context.memory,
        )

    return build


def _family(family: str) -> Callable[[Context], Any]:
    def build(context: Context) -> Any:
        from mild.routers.search import RouterCV

        return RouterCV(
            families=[family],
            cv=context.folds,
            constant_if_better=False,  # single families are compared as they are
            n_jobs=context.jobs,
            random_state=context.seed,
            memory=context.memory,
        )

    return build


def _tune(context: Context) -> Any:
    from sklearn.base import clone

    families = context.search.families
    return clone(context.search).set_params(
        families=FAMILIES if families is None else families,
        cv=context.folds,
        n_jobs=context.jobs,
        progress=None,
        random_state=context.seed,
        memory=context.memory,
    )


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
        _family("regression"),
    ),
    Method("knn", "kNN", "mean costs of the nearest rows", _family("knn")),
    Method("mlp", "MLP", "a small network with MILD's loss", _family("mlp"), needs="torch"),
    Method("tune", "mild tune", "the best of these families and their stack", _tune),
    Method("cascade", "cascade", "asks in steps and reads the answers", _constant, reads=True),
)  # fmt: skip


def chosen_methods(
    names: str | Sequence[str] | None = None,
) -> tuple[tuple[Method, ...], list[str]]:
    """Methods by their keys, in the order of METHODS, and labels of those whose package is missing.

    The best constant is always included: the others are compared with it.
    """
    known = [method.key for method in METHODS]
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    if not isinstance(names, Iterable | None):
        raise invalid("methods", f"must be a list of {', '.join(known)}; got {names!r}.")
    for name in names or ():
        check_option("method", name, known)
    asked = [m for m in METHODS if not names or m.key in names or m.key == "constant"]
    missing = [m for m in asked if m.needs and importlib.util.find_spec(m.needs) is None]
    return tuple(m for m in asked if m not in missing), [m.label for m in missing]


@dataclass(frozen=True, eq=False)
class Choices:
    """What a method did on the test rows of one split."""

    chosen: IntArray  # (n_test,) experts; of a cascade, the column behind those of the experts
    found: dict[str, Any]  # parameters that its search found, JSON-ready
    # time to search, fit and decide, without candidates that an earlier method has judged
    seconds: float
    run: CascadeRun | None = None  # what a cascade did; None for other methods


def run_method(
    method: Method,
    context: Context,
    X_train: Any,
    train_costs: Any,
    X_test: Any,
) -> Choices:
    """Fit a method on training rows and let it choose on test rows."""
    from mild.routers.base import NamedCosts

    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            # An interrupted search keeps its best so far; an interrupted comparison ends.
            warnings.simplefilter("error", TuningInterruptedWarning)
            if method.reads and context.answered is not None:
                return _run_cascade(*context.answered, X_train, X_test)
            router = method.build(context)
            labels = fit_labels(router, context.groups)
            costs = NamedCosts.of(train_costs, (), context.ranks)
            router.fit(X_train, costs, **labels)
    except TuningInterruptedWarning as error:
        raise KeyboardInterrupt from error
    chosen = router.predict(X_test)
    found = as_python(getattr(router, "best_params_", {}))
    if hasattr(router, "best_family_"):
        found = {"family": router.best_family_, **found}
    return Choices(chosen, found, time.perf_counter() - start)


def _run_cascade(task: Task, split: Split, X_train: Any, X_test: Any) -> Choices:
    """Fit a cascade on the training rows, with what asking costs as prices, and run it on the others."""
    from mild.routers.cascade import CascadeRouter

    start, table, answers = time.perf_counter(), task.table, task.table.answers
    assert answers is not None
    (train, test), errors = (split.train, split.test), 1 - table.scores
    # Rounded, or 1.6 - 1 and 0.6 would differ.
    asking = np.round(task.costs - errors, 12)
    router = CascadeRouter(1.0, MAX_CALLS)
    router.fit(X_train, errors[train], answers=answers.take(train), prices=asking[train])
    policy: CascadePolicy = router.policy_
    run = policy.run(X_test, answers.take(test))
    steps = [[table.expert_names[k] for k in step] for step in policy.steps]
    found = {"steps": steps, "threshold": float(policy.threshold)}
    column = np.full(len(test), len(table.expert_names))
    return Choices(column, found, time.perf_counter() - start, run)


@dataclass(frozen=True, eq=False)
class SplitResult:
    """The test rows of one split and what each method chose on them."""

    # (n_test, n_experts), and a column for a cascade; NaN where an expert was not asked
    costs: FloatArray
    groups: IntArray  # (n_test,) rows with the same number, also in other splits, count as one
    choices: Mapping[str, Choices]  # key of a method -> what it did

    def paid(self, key: str) -> FloatArray:
        """Costs (n_test,) of a method's choices, NaN where unknown."""
        return metrics.chosen_costs(self.costs, self.choices[key].chosen)

    def level(self, key: str) -> FloatArray:
        """Rows (n_test,) whose mean is the method's mean cost."""
        return metrics.linearised_rows(self.paid(key)[:, None])[:, 0]

    def same(self, key: str, other: str) -> bool:
        """Whether two methods gave the same answers at the same costs."""
        pair = (self.choices[key], self.choices[other])
        first, second = (one.chosen if one.run is None else one.run.expert for one in pair)
        paid = np.array_equal(self.paid(key), self.paid(other), equal_nan=True)
        return paid and np.array_equal(first, second)


class SplitInputs:
    """Rows that become features by a step that is fitted only on the training rows."""

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
        return np.asarray(step.transform(known)), np.asarray(step.transform(new))


def matrix_inputs(X: Any) -> SplitInputs:
    """Given features (n_rows, n_features), standardised on the training rows."""
    from sklearn.preprocessing import StandardScaler

    return SplitInputs(np.asarray(X, dtype=np.float32), StandardScaler)


@dataclass(frozen=True, eq=False)
class ComparedRows:
    """Rows that methods are compared on."""

    inputs: SplitInputs
    outcomes: Outcomes
    expert_names: Sequence[str]
    groups: IntArray | None = None  # (n_rows,) rows of one group count once; None: every row counts
    counted: str = "query"  # what a group is: "query" (equal queries) or "group"
    largest: float | None = None  # largest possible cost, for complement rewards
    task: Task | None = None  # whose answers a cascade reads; None if there are none

    def ranks(self, split: Split) -> IntArray:
        """Ranks (n_experts,) of the experts by the training rows of a split."""
        known = self.outcomes.take(split.train)
        return ranks_in(known.quality, known.prices)

    def tested(self, split: Split, choices: Mapping[str, Choices]) -> Outcomes:
        """The test rows of a split, whose ties the training rows decide; with those of a cascade."""
        task = self.task
        taken = replace(self.outcomes.take(split.test), ranks=self.ranks(split))
        run = choices["cascade"].run if "cascade" in choices else None
        if run is None or task is None:
            return taken
        return cascade_outcomes(taken, task.table.take(split.test), task.terms, run)

    def readable(self, splits: Sequence[Split]) -> bool:
        """Whether a cascade can learn from the answers of every split."""
        if self.task is None or self.task.table.given_costs is not None:
            return False
        answers = self.task.table.answers
        if answers is None or not answers.ever_agree:
            return False
        return all((answers.codes[split.train] >= 0).any() for split in splits)


def task_rows(
    task: Task, text: str | TextFeatures | None = None
) -> tuple[ComparedRows, str | None]:
    """Rows of a task, and the kind of their text features, if any."""
    table = task.table
    step = table_step(table, text)
    kind = None if step is None else step.kind
    inputs = SplitInputs(table.queries, lambda: make_step(table, text))
    if kind in (None, "vectors"):
        inputs = matrix_inputs(table.vectors)
    known = (table.expert_names, task.groups, task.counted, task.largest)
    return ComparedRows(inputs, task.outcomes, *known, task=task), kind


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
    n_groups: int  # distinct queries or groups among them
    identical: bool  # whether it made the best constant's choices throughout
    # (n_experts,) share of the rows in which a cascade asks each expert; None for other methods
    asked: FloatArray | None = None

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
        return self.n_groups < FEWEST_GROUPS

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
            "asked": None if self.asked is None else self.asked.tolist(),
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
            "units": self.n_groups,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """All methods on the same splits.

    Attributes
    ----------
    rows : the best constant first, the others in the order of METHODS
    chosen : key of the method that the verdict is about
    verdict : whether routing pays
    expert_names : names of the experts
    best_first : the same, the highest mean score first, as tables list them
    oracle : mean cost of the cheapest expert of every test row
    oracle_shares : (n_experts,) how often each expert is the cheapest; ties as in
        ``Outcomes.oracle``
    baselines : ``baselines`` of the chosen method, means over splits
    n_rows : rows in all
    n_train : training rows per split, on average
    n_test : test rows per split, on average
    n_splits : number of splits
    confidence : confidence of the intervals, which hold for all methods at once
    left_out : methods whose package is missing
    dropped : test rows left out because their text is in the training rows
    not_compared : which test rows were left out because an expert was not asked, in a sentence; or
        None
    interrupted : whether Ctrl-C ended it before the last split
    settings : cost, text, group, time
    table : the rows that were compared
    notes : what to know about the rows that were used

    Examples
    --------
    >>> import mild
    >>> from mild.data.datasets import load_outcomes
    >>> found = mild.compare(load_outcomes(), methods=["tdef"], n_splits=2)
    >>> found.to_frame()["method"].tolist()
    ['constant', 'tdef']
    >>> found.row("tdef").verdict
    'better'
    """

    rows: tuple[Row, ...]
    chosen: str
    verdict: metrics.Verdict
    expert_names: tuple[str, ...]
    best_first: tuple[str, ...]
    oracle: float
    oracle_shares: FloatArray
    baselines: list[dict[str, Any]]
    n_rows: int
    n_train: float
    n_test: float
    n_splits: int
    confidence: float
    left_out: tuple[str, ...] = ()
    dropped: int = 0
    not_compared: str | None = None
    interrupted: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    table: OutcomeTable | None = None
    notes: tuple[str, ...] = ()

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

    def minority_recall(self, row: Row) -> float:
        """Mean recall of the experts that are rarely the cheapest."""
        return minority_recall(row.recall, self.oracle_shares)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {
            **self.settings,
            "statement": self.verdict.as_dict(),
            "chosen": self.chosen,
            "experts": list(self.expert_names),
            "best_first": list(self.best_first),
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
            "notes": list(self.notes),
            "methods": self.methods,
        }

    @property
    def methods(self) -> list[dict[str, Any]]:
        """Figures of each method, JSON-ready."""
        return [{**row.as_dict(), "headroom_captured": self.captured(row)} for row in self.rows]

    @property
    def choices(self) -> list[dict[str, Any]]:
        """Name, loss, accuracy, dollars and seconds of each method, then of what they are compared with."""
        methods = [
            {
                "name": row.label,
                "loss": row.mean,
                "accuracy": row.accuracy,
                "dollars_per_1000": None if row.price is None else 1000 * row.price,
                "seconds": row.latency,
            }
            for row in self.rows
        ]
        others = [row for row in self.baselines if row["key"] != "router"]
        mix = f"the mix of {self.row(self.chosen).label} at random"
        return methods + named_baselines(others, mix)

    @property
    def quality_name(self) -> str:
        """What the mean of the scores is called: "accuracy", or "mean score" of graded answers."""
        return quality_name(self.table is not None and is_graded(self.table.scores))

    def to_frame(self) -> Any:
        """One row per method."""
        library = None if self.table is None else self.table.library
        return as_frame(self.methods, library or default_library())

    def __repr__(self) -> str:
        return f"Comparison({counted(len(self.rows), 'method')})\n{self.verdict.sentence}"

    def _repr_html_(self) -> str:
        shown = ("label", "mean_cost", "accuracy", "price", "verdict", "headroom_captured")
        named = {"accuracy": self.quality_name}
        lines = [{named.get(name, name): one[name] for name in shown} for one in self.methods]
        title = f"{self.n_rows:,} rows, {counted(self.n_splits, 'split')}"
        return html_table(title, lines, [self.verdict.sentence])

    def document(self, title: str = "Comparison of routers") -> Document:
        """The content of a report on the comparison, JSON-ready."""
        names, content = list(self.expert_names), self.as_dict()
        cost = self.settings.get("cost") or {}
        row, constant = self.row(self.chosen), self.row("constant")
        chosen = next(one for one in content["methods"] if one["method"] == self.chosen)
        splits = counted(self.n_splits, "split")
        settings = {"text features": self.settings.get("text") or "none"}
        settings |= {name: self.settings.get(name) or "none" for name in ("group", "time")}
        return document_header("comparison", title, names, cost) | {
            "rows": self.n_rows,
            "quality_name": self.quality_name,
            "left_out": self.not_compared,
            "verdict": self.verdict.as_dict(),
            "figures": {
                "loss": row.mean,
                "constant_loss": constant.mean,
                "constant_expert": self.verdict.constant_expert,
                "oracle_loss": self.oracle,
                "headroom": self.headroom,
                "headroom_captured": self.captured(row),
                "shuffled_control": row.control,
                "shares": chosen["shares"],
                "oracle_shares": content["oracle_shares"],
                "recall": chosen["recall"],
                "baselines": self.baselines,
                "means": {
                    name: {
                        "dollars": None if one.price is None else 1000 * one.price,
                        "quality": one.accuracy,
                    }
                    for name, one in (("router", row), ("constant", constant))
                },
            },
            "comparison": content,
            "data": data_entries(
                names,
                self.table,
                self.n_rows,
                "not taken" if self.table is None else self.table.fingerprint(),
                cost.get("words"),
                f"{splits}, {self.n_train:,.0f} rows to train on and {self.n_test:,.0f} to test on",
            ),
            "settings": [
                ["confidence", f"{self.confidence * 100:g} %"],
                *([key, str(value)] for key, value in settings.items()),
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the document to a .json file, for ``mild report``."""
        return write_document(self.document(), check_results(path))


def check_results(path: str | os.PathLike[str]) -> Path:
    """Refuse a file to which a comparison cannot be saved."""
    if not isinstance(path, (str, os.PathLike)):
        raise invalid("path", f"must be the name of a .json file; got {path!r}.")
    target = Path(path)
    if target.suffix.lower() != ".json":
        raise DataFileError(f"{target}: results must end in .json; got {target.suffix!r}.")
    return check_free(target, overwrite=True)


@check_arguments
def compare(
    data: Any,
    *,
    methods: str | Sequence[str] | None = None,
    n_splits: int | None = None,
    test_size: float = 0.3,
    groups: str | None = None,
    time: str | None = None,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
    text: str | TextFeatures | None = None,
    search: Any = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare all methods on the same splits: does routing pay?

    Each method is fitted on the training rows of a split, where it chooses its own strength by
    cross-validation, and judged on the test rows. Equal queries are never on both sides. Intervals of the
    difference to the best constant hold for all methods at once: over rows for one split, over splits with
    a correction for their overlap otherwise. Ctrl-C ends the comparison with the splits that are finished,
    if there are any.

    Parameters
    ----------
    data : OutcomeTable, or whatever ``mild.read_outcomes`` takes
    methods : methods to compare, one or several of ce, cwce, ldam, tdef, mild, mild_tuned, regression, knn,
        mlp, tune and cascade; None for all. A cascade needs a table with answers (columns
        ``answer__<expert>``), asks at most 4 experts about a query, and counts what it pays for each
    n_splits : number of splits; None for 5, or 1 with ``time``
    test_size : share of the rows in each test set
    groups : column whose equal values are on one side of a split
    time : column of times; the past is learned and the future judged
    beta, price_weight, latency_weight : terms of the cost, as in ``mild.fit``
    text : text features, as in ``mild.fit``
    search : RouterCV with which the method "tune" searches. In its ``cv`` folds every other method chooses
        its strength, too, and its ``confidence`` is that of the intervals. Without ``families`` it tries
        those of ``mild.tune``; ``random_state``, ``n_jobs`` and ``progress`` are those of the comparison.
        None for ``RouterCV()``
    random_state : seed of the random numbers
    n_jobs : parallel workers, -1 for all cores; None for all cores if there are 800 rows or more
    progress : callable(done, total, message) or None

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import mild
    >>> from mild.data.datasets import load_outcomes
    >>> found = mild.compare(load_outcomes(), price_weight=50, methods=["ce", "mild"], n_splits=2)
    >>> [row.label for row in found.rows]
    ['best constant', 'CE', 'MILD theory']
    """
    search = unfitted_search(search)
    check_integer("random_state", random_state, 0)
    check_jobs(n_jobs)
    chosen, left_out = chosen_methods(methods)
    table = data if isinstance(data, OutcomeTable) else read_outcomes(data, part="train")
    task = make_task(table, CostTerms(beta, price_weight, latency_weight), groups)
    table = task.table
    splits = task_splits(task, n_splits, test_size, time, random_state)
    n_folds = possible_folds(task, search.cv, splits=splits)
    rows, kind = task_rows(task, text)
    if methods and any(method.reads for method in chosen):
        require_scores(table, "methods")
        checked_answers(table)
    notes = tuple(filter(None, [task.left_out, fewer_folds(search.cv, n_folds, task)]))
    search.set_params(cv=n_folds)
    settings = {"cost": task.cost, "text": kind, "group": groups, "time": time}
    found = compare_methods(
        rows,
        splits,
        chosen,
        search=search,
        seed=random_state,
        jobs=parallel_jobs(n_jobs, table.rows),
        progress=progress,
    )
    return replace(found, left_out=tuple(left_out), settings=settings, table=table, notes=notes)


def compare_methods(
    rows: ComparedRows,
    splits: Sequence[Split],
    methods: Sequence[Method],
    *,
    search: Any = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare methods, the best constant first, on the same splits of the same rows; see ``compare``.

    Rows are compared in which every expert was asked, if there are enough of them (``common_rows``).
    """
    inputs = rows.inputs
    if search is None:
        search = unfitted_search(None)
    confidence = search.confidence
    array = check_costs(rows.outcomes.costs)
    if len(inputs) != len(array):
        rule = f"must have as many rows as costs; got {len(inputs)} and {len(array)}."
        raise invalid("data", rule)
    if not splits:
        raise invalid("splits", "must hold at least one split; got none.")
    if not methods or methods[0].key != "constant":
        raise invalid("methods", "must begin with the best constant.")
    groups = np.arange(len(array)) if rows.groups is None else np.asarray(rows.groups)
    # Of whole splits: a row that can be compared is tested as often as one that cannot.
    ratio = float(np.mean([len(split.test) / len(split.train) for split in splits]))
    splits, not_compared = _comparable_splits(array, splits)
    reads = rows.readable(splits)
    methods = [method for method in methods if reads or not method.reads]
    report = progress or (lambda done, of, text: None)
    report(0, len(splits) * len(methods), "features")
    contexts = []
    for split in splits:
        inner = folds(groups[split.train], search.cv, seed)
        if min(len(fitted) for fitted, _ in inner) < 2:
            raise InvalidInputError(
                "every fold of the cross-validation must leave at least two rows to fit on; with "
                f"{len(array)} rows, one leaves fewer. Collect more rows.",
                parameter="table",
            )
        drawn = groups[split.train]
        answered = (rows.task, split) if reads and rows.task is not None else None
        about = (drawn, answered, search, rows.ranks(split))
        contexts.append(Context(inner, rows.largest, seed, jobs, *about))
    results: list[SplitResult] = []
    tested: list[Outcomes] = []
    interrupted = False
    try:
        for choices in _run_splits(inputs, array, splits, methods, contexts, report):
            split = splits[len(results)]
            known = rows.tested(split, choices)
            results.append(SplitResult(known.costs, groups[split.test], choices))
            tested.append(known)
    except KeyboardInterrupt:
        if not results:
            raise
        interrupted = True
    splits = splits[: len(results)]
    perfect = [one.oracle() for one in tested]
    others = [method.key for method in methods[1:]]
    intervals = _intervals(results, others, ratio, confidence, seed) if others else {}
    lines = [
        _row(method, results, splits, groups, tested, perfect, intervals.get(method.key))
        for method in methods
    ]
    chosen = "tune"
    if "tune" not in others:
        learned = lines[1:] or lines
        chosen = learned[first_least([row.mean for row in learned])].key
    return Comparison(
        rows=tuple(lines),
        chosen=chosen,
        verdict=_verdict(lines, chosen, rows, len(splits), confidence),
        expert_names=tuple(rows.expert_names),
        best_first=tuple(rows.expert_names[k] for k in rows.outcomes.best_first()),
        oracle=float(np.mean([metrics.oracle_loss(one.experts.costs) for one in tested])),
        oracle_shares=np.mean(
            [metrics.expert_shares(best, array.shape[1]) for best in perfect],
            axis=0,
        ),
        baselines=_mean_baselines(
            tested, [one.choices[chosen].chosen for one in results], rows.expert_names
        ),
        n_rows=len(array),
        n_train=float(np.mean([len(split.train) for split in splits])),
        n_test=float(np.mean([len(split.test) for split in splits])),
        n_splits=len(splits),
        confidence=confidence,
        dropped=sum(split.dropped for split in splits),
        not_compared=not_compared,
        interrupted=interrupted,
    )


def _run_splits(
    inputs: SplitInputs,
    costs: FloatArray,
    splits: Sequence[Split],
    methods: Sequence[Method],
    contexts: Sequence[Context],
    report: Progress,
) -> Iterator[dict[str, Choices]]:
    """What every method chooses in one split after the other.

    With several workers and splits, workers take whole splits: one search keeps two of them busy for
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
    inputs: SplitInputs,
    costs: FloatArray,
    split: Split,
    methods: Sequence[Method],
    context: Context,
    done: Callable[[int, Method], None] = lambda count, method: None,
) -> dict[str, Choices]:
    X_train, X_test = inputs.features(split.train, split.test)
    choices: dict[str, Choices] = {}
    for method in methods:
        train_costs = costs[split.train]
        choices[method.key] = run_method(method, context, X_train, train_costs, X_test)
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
    groups = [one.groups for one in results]
    found = metrics.difference_intervals(rows, groups, confidence, seed, test_over_train)
    return {key: found.row(j) for j, key in enumerate(keys)}


def _row(
    method: Method,
    results: Sequence[SplitResult],
    splits: Sequence[Split],
    groups: IntArray,
    outcomes: Sequence[Outcomes],
    perfect: Sequence[IntArray],
    difference: tuple[float, float, float] | None,
) -> Row:
    key = method.key
    own = [one.choices[key] for one in results]
    judged = [(known, one.chosen) for known, one in zip(outcomes, own, strict=True)]
    # The experts, and whose answers are given.
    pairs = [(known.experts.costs, known.answering(chosen)) for known, chosen in judged]
    recall = np.array(
        [metrics.expert_recall(*pair, best=best) for pair, best in zip(pairs, perfect, strict=True)]
    )
    figures = [known.means(chosen) for known, chosen in judged]
    asked = [one.run.asked.mean(axis=0) for one in own if one.run is not None]

    def mean(name: str) -> float | None:
        values = [figure[name] for figure in figures]
        return None if None in values else float(np.mean(values))  # type: ignore[arg-type]

    known = (~np.isnan(recall)).sum(axis=0)
    tested = np.concatenate([one.costs for one in results])
    chosen = np.concatenate([one.chosen for one in own])
    # Distinct rows and groups, over all splits, behind the difference to the constant.
    paid = np.zeros((len(groups), 2), dtype=bool)
    for split, result in zip(splits, results, strict=True):
        for column, name in enumerate((key, "constant")):
            paid[split.test, column] |= ~np.isnan(result.paid(name))
    n_rows, n_groups = metrics.count_judged(paid, groups)
    dollars = mean("dollars_per_1000")
    return Row(
        key=key,
        label=method.label,
        what=method.what,
        costs=np.array([one.level(key).mean() for one in results]),
        shares=np.mean(
            [metrics.expert_shares(given, costs.shape[1]) for costs, given in pairs],
            axis=0,
        ),
        recall=np.where(known > 0, np.nansum(recall, axis=0) / np.maximum(known, 1), np.nan),
        balanced=metrics.balanced_deferral_loss(tested, chosen, best=np.concatenate(perfect)),
        control=float(np.mean([metrics.shuffled_control(*pair) for pair in pairs])),
        price=None if dollars is None else dollars / 1000,
        accuracy=mean("accuracy"),
        latency=mean("seconds"),
        difference=difference,
        seconds=float(np.mean([one.seconds for one in own])),
        found=[one.found for one in own],
        rows=n_rows,
        n_groups=n_groups,
        identical=all(one.same(key, "constant") for one in results),
        asked=np.mean(asked, axis=0) if asked else None,
    )


def _verdict(
    rows: Sequence[Row], chosen: str, compared: ComparedRows, n_splits: int, confidence: float
) -> metrics.Verdict:
    constant, n_methods = rows[0], len(rows) - 1
    row = next(row for row in rows if row.key == chosen)
    dollars = None
    if row.price is not None and constant.price is not None:
        dollars = row.price - constant.price
    estimate, low, high = row.difference or (0.0, 0.0, 0.0)
    # Of several that are the best constant equally often, the first one.
    expert = int(cheapest_of(-constant.shares[None])[0])
    return metrics.Verdict(
        estimate=estimate,
        low=low,
        high=high,
        confidence=confidence,
        router=row.label,
        constant=compared.expert_names[expert],
        constant_expert=expert,
        router_cost=row.mean,
        constant_cost=constant.mean,
        n_candidates=n_methods,
        n_rows=row.rows,
        n_groups=row.n_groups,
        counted=compared.counted,
        n_splits=n_splits,
        identical=row.identical,
        dollars_per_1000=None if dollars is None else 1000 * dollars,
        notes=(
            "one split" if n_splits == 1 else f"{n_splits} splits",
            f"{counted(n_methods, 'method')} compared",
        ),
    )
