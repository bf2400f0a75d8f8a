"""Compare methods of routing on the same splits, and state whether routing pays: ``mild.compare``."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from joblib import delayed, effective_n_jobs

from mild import metrics
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
from mild.core.costs import cheapest_known
from mild.core.rounding import first_smallest
from mild.data import CostTerms, Outcomes, read_outcomes
from mild.data.cost_terms import require_scores
from mild.data.splits import Split, folds
from mild.errors import (
    InvalidInputError,
    TuningInterruptedWarning,
    check_arguments,
    check_option,
    count_noun,
)
from mild.evaluation.cascades import cascade_outcomes
from mild.evaluation.figures import minority_recall, named_baselines
from mild.features import TextFeatures
from mild.metrics.results import (
    Results,
    baselines,
    is_graded,
    quality_name,
    ranks_in,
)
from mild.metrics.routing import FEWEST_GROUPS, shuffled_control
from mild.policies import CascadePolicy, CascadeRun
from mild.routers.parallel import parallel_results
from mild.tuning.cascades import checked_answers
from mild.tuning.fitting import fit_labels, make_text_features, table_text_features
from mild.tuning.searches import FAMILIES, MAX_CALLS
from mild.tuning.tasks import (
    N_FOLDS,
    Progress,
    Task,
    fewer_folds,
    make_task,
    parallel_jobs,
    possible_folds,
    task_splits,
)

ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
# Of the intervals, which hold for all methods at once.
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class AnsweredSplit:
    """A split of a task whose table holds the experts' answers, which a cascade reads."""

    task: Task
    split: Split


@dataclass(frozen=True, eq=False)
class Context:
    """What a method knows of a split before it is fitted."""

    # of the training rows, the same for all methods; anything that scikit-learn takes as ``cv``
    folds: Any
    # the scale of complement rewards; None to take it from the rows
    largest_cost: float | None
    seed: int = 0  # of what is drawn at random
    jobs: int | None = None  # parallel workers
    groups: Any = None  # (n_rows,) label of the training rows that were drawn together, or None
    answered: AnsweredSplit | None = None  # whose answers a cascade reads; None if there are none
    ranks: IntArray | None = None  # (n_experts,) which decide ties between experts


@dataclass(frozen=True)
class Method:
    """One row of a comparison."""

    key: str  # name on the command line and in files
    label: str  # name in tables
    description: str  # how it is trained, in one line
    build: Callable[[Context], Any]  # unfitted router for a context
    needs: str | None = None  # package without which it is left out
    # whether it is a cascade, which reads answers and is left out without them
    reads_answers: bool = False
    is_own: bool = False  # whether it is the user's


def linear_search_builder(
    loss: str = "mild",
    alphas: Sequence[float] = ALPHAS,
    factors: Sequence[float] = (1.0,),
    **options: Any,
) -> Callable[[Context], Any]:
    """Return a function that builds an unfitted cross-validated search over linear routers.

    Parameters
    ----------
    loss : loss of the router
    alphas : penalty strengths to try
    factors : factors to try on the margins
    **options : further parameters of ``LinearRouter``

    Returns
    -------
    callable
        Takes the ``Context`` of a split and returns an unfitted ``RouterCV``.
    """
    # Unlike a function in this one, it can be sent to a worker by any back end of joblib.
    return partial(_linear_search, loss, alphas, factors, options)


def _linear_search(
    loss: str,
    alphas: Sequence[float],
    factors: Sequence[float],
    options: Mapping[str, Any],
    context: Context,
) -> Any:
    """Return an unfitted search over linear routers, for a split."""
    from mild.routers.linear import LinearRouter
    from mild.routers.objective import LDAM_SCALE
    from mild.routers.search import RouterCV

    router = LinearRouter(loss, **options)
    strengths = list(alphas)
    if loss == "tdef":
        router.set_params(cost_scale=context.largest_cost)
    if loss == "ldam":
        # LDAM multiplies its scores by its scale: this is the same penalty on what its loss sees.
        strengths = [LDAM_SCALE**2 * alpha for alpha in alphas]
    return RouterCV(
        router,
        alphas=strengths,
        margin_factors=factors,
        # Other margins are tried at two penalty strengths only, as in ``tune``.
        margin_strengths=2,
        cv=context.folds,
        one_standard_error=False,
        constant_if_better=False,  # the losses themselves are compared
        n_jobs=context.jobs,
        random_state=context.seed,
    )


def _family_search(family: str, context: Context) -> Any:
    """Return an unfitted search over one family of routers, for a split."""
    from mild.routers.search import RouterCV

    return RouterCV(
        families=[family],
        cv=context.folds,
        constant_if_better=False,  # single families are compared as they are
        n_jobs=context.jobs,
        random_state=context.seed,
    )


def _tune(context: Context) -> Any:
    """Return the unfitted search that ``mild.tune`` makes, for a split."""
    from mild.routers.search import RouterCV

    return RouterCV(
        families=FAMILIES, cv=context.folds, n_jobs=context.jobs, random_state=context.seed
    )


def _constant(context: Context) -> Any:
    from mild.routers.baselines import ConstantRouter

    return ConstantRouter()


METHODS = (
    Method("constant", "best constant", "the expert that is cheapest in training", _constant),
    Method("ce", "CE", "cross-entropy on the cheapest expert", linear_search_builder("ce")),
    Method("cwce", "CWCE", "CE, weighted by inverse frequency", linear_search_builder("cwce")),
    Method("ldam", "LDAM", "label-distribution-aware margins", linear_search_builder("ldam")),
    Method("tdef", "TDEF", "complement rewards, all margins 1", linear_search_builder("tdef")),
    Method("mild", "MILD theory", "others rewards, theory margins, stationary", linear_search_builder()),
    Method(
        "mild_tuned", "MILD tuned", "others rewards, margin ratios searched",
        linear_search_builder(factors=(0.5, 1.0, 2.0)),
    ),
    Method(
        "ridge", "cost regression", "predicts every cost, takes the least",
        partial(_family_search, "ridge"),
    ),
    Method("knn", "kNN", "mean costs of the nearest rows", partial(_family_search, "knn")),
    Method(
        "neural", "MLP", "a small network with MILD's loss",
        partial(_family_search, "neural"), needs="torch",
    ),
    Method("tune", "mild tune", "the best of these families and their stack", _tune),
    Method(
        "cascade", "cascade", "asks in steps and reads the answers", _constant,
        reads_answers=True,
    ),
)  # fmt: skip


def chosen_methods(
    names: str | Sequence[str | tuple[str, Any]] | None = None,
) -> tuple[tuple[Method, ...], list[str]]:
    """Return the methods with these keys, in the order of METHODS, and then the user's own.

    The best constant is always among them, because the others are compared with it.

    Parameters
    ----------
    names : keys of methods, as a list or separated by commas, or ``("mine", estimator)``; None for all
        methods of mild

    Returns
    -------
    methods : those that can be run
    missing_labels : labels of those whose package is not installed
    """
    known_keys = [method.key for method in METHODS]
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    if not isinstance(names, Iterable | None):
        raise invalid(
            "methods",
            f"must be a list of {', '.join(known_keys)}, or of (name, estimator); got {names!r}.",
        )
    requested = []
    own: list[Method] = []
    for name in names or known_keys:
        if isinstance(name, tuple):
            own.append(_own_method(name, [*known_keys, *(method.key for method in own)]))
        else:
            check_option("methods", name, known_keys)
            if name in requested:
                raise invalid("methods", f"must be different; got {name!r} twice.")
            requested.append(name)
    available = []
    missing_labels = []
    for method in METHODS:
        if method.key not in requested and method.key != "constant":
            continue
        if method.needs is None or importlib.util.find_spec(method.needs) is not None:
            available.append(method)
        else:
            missing_labels.append(method.label)
    return (*available, *own), missing_labels


def _own_method(given: tuple[Any, ...], taken_names: Sequence[str]) -> Method:
    """Return a user's own method, ``("mine", estimator)``."""
    match given:
        case (str(name), estimator) if hasattr(estimator, "fit") and hasattr(estimator, "predict"):
            pass
        case _:
            raise invalid(
                "methods",
                "must name own methods as (name, estimator), where the estimator has fit(X, costs) and "
                f"predict(X); got {given!r:.200}.",
            )
    if name in taken_names:
        raise invalid(
            "methods", f"must have different names; got {name!r} twice. Choose another name."
        )
    return Method(name, name, type(estimator).__name__, partial(_copy, estimator), is_own=True)


def _copy(estimator: Any, context: Context) -> Any:
    """Return an unfitted copy."""
    from sklearn.base import clone

    return clone(estimator, safe=False)


@dataclass(frozen=True, eq=False)
class Choices:
    """What a method did on the test rows of one split."""

    chosen: IntArray  # (n_test,) experts; for a cascade, the column after those of the experts
    search_params: dict[str, Any]  # parameters that its search found, JSON-ready
    # time to search, fit and decide
    seconds: float
    run: CascadeRun | None = None  # what a cascade did; None for other methods

    @property
    def answering(self) -> IntArray:
        """Expert (n_test,) whose answer is given."""
        if self.run is None:
            return self.chosen
        return self.run.expert


def run_method(
    method: Method,
    context: Context,
    X_train: Any,
    train_costs: Any,
    X_test: Any,
) -> Choices:
    """Fit a method on training rows, and let it choose an expert for each test row."""
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            # An interrupted search keeps its best so far; an interrupted comparison ends.
            warnings.simplefilter("error", TuningInterruptedWarning)
            if method.reads_answers and context.answered is not None:
                return _run_cascade(context.answered, X_train, X_test)
            router = _fitted_router(method, context, X_train, train_costs)
    except TuningInterruptedWarning as error:
        raise KeyboardInterrupt from error
    chosen = router.predict(X_test)
    if method.is_own:
        chosen = _checked_choices(method, chosen, len(X_test), train_costs.shape[1])
    return Choices(chosen, _found_parameters(router), time.perf_counter() - start)


def _fitted_router(method: Method, context: Context, X_train: Any, train_costs: Any) -> Any:
    from mild.routers.base import NamedCosts

    router = method.build(context)
    if method.is_own:
        router.fit(X_train, train_costs)
        return router
    labels = fit_labels(router, context.groups)
    costs = NamedCosts.of(train_costs, (), context.ranks)
    router.fit(X_train, costs, **labels)
    return router


def _checked_choices(method: Method, chosen: Any, n_rows: int, n_experts: int) -> IntArray:
    """Return the choices (n_rows,) of a user's method; refuse what are no indices of experts."""
    indices = np.asarray(chosen)
    if (
        indices.shape != (n_rows,)
        or indices.dtype.kind not in "iu"
        or not ((indices >= 0) & (indices < n_experts)).all()
    ):
        raise invalid(
            "methods",
            f"must choose an expert, 0 to {n_experts - 1}, for each of {n_rows} rows; predict of "
            f"{method.key!r} gave {indices.dtype} of shape {indices.shape}.",
        )
    return indices.astype(np.intp)


def _found_parameters(router: Any) -> dict[str, Any]:
    """Return the parameters that the search of a router found, JSON-ready; none if it did not search."""
    parameters: dict[str, Any] = as_python(getattr(router, "best_params_", {}))
    if hasattr(router, "best_family_"):
        return {"family": router.best_family_, **parameters}
    return parameters


def _run_cascade(answered: AnsweredSplit, X_train: Any, X_test: Any) -> Choices:
    """Fit a cascade on the training rows of a split, and run it on the test rows.

    Its prices are what asking costs in wrong answers: the terms of the cost besides the error.
    """
    from mild.routers.cascade import CascadeRouter

    start = time.perf_counter()
    train = answered.split.train
    test = answered.split.test
    table = answered.task.table
    answers = table.answers
    assert answers is not None
    errors = 1 - table.scores
    # Rounded, or 1.6 - 1 and 0.6 would differ.
    asking_costs = np.round(answered.task.costs - errors, 12)
    router = CascadeRouter(1.0, MAX_CALLS)
    router.fit(X_train, errors[train], answers=answers.take(train), prices=asking_costs[train])
    policy: CascadePolicy = router.policy_
    run = policy.run(X_test, answers.take(test))
    steps = [[table.experts[expert] for expert in step] for step in policy.steps]
    parameters = {"steps": steps, "threshold": float(policy.threshold)}
    cascade_column = np.full(len(test), len(table.experts))
    return Choices(cascade_column, parameters, time.perf_counter() - start, run)


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

    def cost_rows(self, key: str) -> FloatArray:
        """Costs (n_test,) of a method, scaled so that their plain mean is its mean over the known ones."""
        return metrics.linearised_rows(self.paid(key)[:, None])[:, 0]

    def same(self, key: str, other: str) -> bool:
        """Whether two methods gave the same answers at the same costs."""
        if not np.array_equal(self.paid(key), self.paid(other), equal_nan=True):
            return False
        return np.array_equal(self.choices[key].answering, self.choices[other].answering)


class SplitInputs:
    """Rows that are turned into features by a step that is fitted on the training rows only."""

    def __init__(self, rows: Any, make: Callable[[], Any]) -> None:
        self.rows = rows  # texts, or an array (n_rows, n_features)
        self.make = make  # returns an unfitted step with fit and transform

    def __len__(self) -> int:
        return len(self.rows)

    def features(self, train: IntArray, test: IntArray) -> tuple[Any, Any]:
        """Features (n, d) of the training and of the test rows."""
        train_rows = self._take(train)
        test_rows = self._take(test)
        step = self.make().fit(train_rows)
        return np.asarray(step.transform(train_rows)), np.asarray(step.transform(test_rows))

    def _take(self, numbers: IntArray) -> Any:
        if isinstance(self.rows, np.ndarray):
            return self.rows[numbers]
        return [self.rows[number] for number in numbers]


def matrix_inputs(X: Any) -> SplitInputs:
    """Return features (n_rows, n_features) that are standardised on the training rows of a split."""
    from sklearn.preprocessing import StandardScaler

    return SplitInputs(np.asarray(X, dtype=np.float32), StandardScaler)


@dataclass(frozen=True, eq=False)
class ComparedRows:
    """Rows that methods are compared on."""

    inputs: SplitInputs
    outcomes: Results
    expert_names: Sequence[str]
    groups: IntArray | None = None  # (n_rows,) rows of one group count once; None: every row counts
    unit: str = "query"  # what a group is: "query" (equal queries) or "group"
    largest_cost: float | None = None  # the scale of complement rewards
    task: Task | None = None  # whose answers a cascade reads; None if there are none

    @property
    def group_of_row(self) -> IntArray:
        """Group (n_rows,) of each row; a group of its own where none are given."""
        if self.groups is None:
            return np.arange(len(self.outcomes.costs))
        return np.asarray(self.groups)

    def ranks(self, split: Split) -> IntArray:
        """Ranks (n_experts,) of the experts by the training rows of a split."""
        train_outcomes = self.outcomes.take(split.train)
        return ranks_in(train_outcomes.quality, train_outcomes.prices)

    def test_outcomes(self, split: Split, choices: Mapping[str, Choices]) -> Results:
        """Return the outcomes of the test rows, with a column for a cascade if one was run.

        The ranks that decide ties are those of the training rows.
        """
        outcomes = replace(self.outcomes.take(split.test), ranks=self.ranks(split))
        cascade = choices.get("cascade")
        if self.task is None or cascade is None or cascade.run is None:
            return outcomes
        test_table = self.task.table[split.test]
        return cascade_outcomes(outcomes, test_table, self.task.terms, cascade.run)

    def has_readable_answers(self, splits: Sequence[Split]) -> bool:
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
    """Return the rows of a task to compare on, and the kind of their text features, or None."""
    table = task.table
    step = table_text_features(table, text)
    kind = None
    if step is not None:
        kind = step.kind
    if kind in (None, "vectors"):
        inputs = matrix_inputs(table.vectors)
    else:
        inputs = SplitInputs(table.queries, partial(make_text_features, table, text))
    rows = ComparedRows(
        inputs,
        task.outcomes,
        table.experts,
        groups=task.groups,
        unit=task.unit,
        largest_cost=task.largest,
        task=task,
    )
    return rows, kind


class Difference(NamedTuple):
    """A mean cost minus another, with the ends of its interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Row:
    """One method over all splits. A cost is a loss: wrong answers plus the weighted other terms."""

    key: str  # of the method
    label: str
    description: str
    costs: FloatArray  # (n_splits,) mean cost on the test rows
    # (n_experts,) means over splits; recall is NaN where an expert is never cheapest
    shares: FloatArray
    recall: FloatArray
    balanced: float  # balanced deferral loss on the test rows of all splits
    shuffled_loss: float  # mean cost of the same shares assigned at random
    price: float | None  # mean price of an input, or None without prices
    accuracy: float | None  # mean score, or None without scores
    latency: float | None  # mean seconds of an answer, or None without latencies
    # its mean cost minus the best constant's; None for itself
    difference: Difference | None
    seconds: float  # mean time to fit and decide
    search_params: list[dict[str, Any]]  # parameters that its search found, per split
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
    def dollars_per_1000(self) -> float | None:
        """Mean dollars of 1,000 inputs, or None without prices."""
        if self.price is None:
            return None
        return 1000 * self.price

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
        if self.difference.high < 0:
            return "better"
        if self.difference.low > 0:
            return "worse"
        return "level"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        fields = {
            "method": self.key,
            "label": self.label,
            "what": self.description,
            "mean_cost": self.mean,
            "costs": self.costs,
            "shares": self.shares,
            "asked": self.asked,
            "recall": as_python(self.recall, finite=True),
            "balanced_cost": self.balanced,
            "shuffled_control": self.shuffled_loss,
            "price": self.price,
            "accuracy": self.accuracy,
            "latency": self.latency,
            "minus_constant": self.difference,
            "verdict": self.verdict,
            "seconds": self.seconds,
            "found": self.search_params,
            "rows": self.rows,
            "units": self.n_groups,
        }
        return as_python(fields)


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
        ``Results.oracle``
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
    >>> from mild.datasets import load_outcomes
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
    table: Outcomes | None = None
    notes: tuple[str, ...] = ()

    def row(self, key: str) -> Row:
        """The row of a method."""
        return next(row for row in self.rows if row.key == key)

    @property
    def headroom(self) -> float:
        """How much less perfect routing would cost than the best constant."""
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
                "dollars_per_1000": row.dollars_per_1000,
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
        library = None
        if self.table is not None:
            library = self.table.library
        return as_frame(self.methods, library or default_library())

    def __repr__(self) -> str:
        return f"Comparison({count_noun(len(self.rows), 'method')})\n{self.verdict.sentence}"

    def _repr_html_(self) -> str:
        lines = [
            {
                "label": method["label"],
                "mean_cost": method["mean_cost"],
                self.quality_name: method["accuracy"],
                "price": method["price"],
                "verdict": method["verdict"],
                "headroom_captured": method["headroom_captured"],
            }
            for method in self.methods
        ]
        title = f"{self.n_rows:,} rows, {count_noun(self.n_splits, 'split')}"
        return html_table(title, lines, [self.verdict.sentence])


@check_arguments
def compare(
    data: Any,
    *,
    methods: str | Sequence[str | tuple[str, Any]] | None = None,
    n_splits: int | None = None,
    test_size: float = 0.3,
    groups: str | None = None,
    time: str | None = None,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
    text: str | TextFeatures | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare all methods on the same splits: does routing pay?

    Each method is fitted on the training rows of a split, where it chooses its hyperparameters by
    cross-validation, and judged on the test rows. Equal queries are never on both sides. Intervals of the
    difference from the best constant hold for all methods at once. With one split they are taken over
    its test rows; with several, over the splits, corrected for their overlap. Ctrl-C ends the comparison
    with the splits that are finished, if there are any.

    Parameters
    ----------
    data : Outcomes, or whatever ``mild.read_outcomes`` takes
    methods : methods to compare, one or several of ce, cwce, ldam, tdef, mild, mild_tuned, ridge, knn,
        neural, tune and cascade; None for all. A cascade needs a table with answers (columns
        ``answer__<expert>``), asks at most 4 experts about a query, and counts what it pays for each. A
        method of one's own is ``("mine", estimator)`` with ``fit(X, costs)``, where a cost is NaN if its
        expert was not asked, and ``predict(X)``, which gives indices of experts
    n_splits : number of splits; None for 5, or 1 with ``time``
    test_size : share of the rows in each test set
    groups : column whose equal values are on one side of a split
    time : column of times; methods are fitted on the past and judged on the future
    beta, price_weight, latency_weight : terms of the cost, as in ``mild.fit``
    text : text features, as in ``mild.fit``
    random_state : seed of the random numbers
    n_jobs : parallel workers, -1 for all cores; None for all cores if there are 800 rows or more
    progress : callable(done, total, message) or None

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import mild
    >>> from mild.datasets import load_outcomes
    >>> found = mild.compare(load_outcomes(), price_weight=50, methods=["ce", "mild"], n_splits=2)
    >>> [row.label for row in found.rows]
    ['best constant', 'CE', 'MILD theory']
    """
    check_integer("random_state", random_state, 0)
    check_jobs(n_jobs)
    available_methods, left_out = chosen_methods(methods)
    task = make_task(read_outcomes(data), CostTerms(beta, price_weight, latency_weight), groups)
    splits = task_splits(task, n_splits, test_size, time, random_state)
    n_folds = possible_folds(task, splits=splits)
    rows, text_kind = task_rows(task, text)
    if methods and any(method.reads_answers for method in available_methods):
        require_scores(task.table, "methods")
        checked_answers(task.table)
    notes = filter(None, [task.left_out, fewer_folds(N_FOLDS, n_folds, task)])
    comparison = compare_methods(
        rows,
        splits,
        available_methods,
        n_folds=n_folds,
        seed=random_state,
        jobs=parallel_jobs(n_jobs, len(task.table)),
        progress=progress,
    )
    return replace(
        comparison,
        left_out=tuple(left_out),
        settings={"cost": task.cost, "text": text_kind, "group": groups, "time": time},
        table=task.table,
        notes=tuple(notes),
    )


def compare_methods(
    rows: ComparedRows,
    splits: Sequence[Split],
    methods: Sequence[Method],
    *,
    n_folds: int = N_FOLDS,
    seed: int = 0,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare methods on the same splits of the same rows; see ``compare``.

    Where some experts were not asked in some rows, only rows in which all were asked are compared, if
    there are enough of them (``common_rows``).

    Parameters
    ----------
    rows : the rows to compare on
    splits : training and test rows of each split
    methods : methods to compare; the first one must be the best constant
    n_folds : folds of the training rows, in which every method chooses its parameters
    seed : seed of the random numbers
    jobs : parallel workers
    progress : callable(done, total, message) or None

    Returns
    -------
    Comparison
    """
    costs = check_costs(rows.outcomes.costs)
    _check_compared(rows, splits, methods)
    # The correction for the overlap of splits needs this ratio. It is taken before rows that cannot be
    # compared are removed from the test sets, because these do not change how much the splits overlap.
    test_over_train = float(np.mean([len(split.test) / len(split.train) for split in splits]))
    splits, not_compared = _comparable_splits(costs, splits)
    reads_answers = rows.has_readable_answers(splits)
    if not reads_answers:
        methods = [method for method in methods if not method.reads_answers]
    steps = ProgressSteps(progress or _no_progress, len(methods), len(splits))
    steps.begin()
    runs = []
    for split in splits:
        context = _split_context(rows, split, n_folds, seed, jobs, reads_answers)
        runs.append(SplitRun(rows.inputs, costs, split, context))
    finished = _finish_splits(rows, runs, methods, steps)
    differences = _differences(finished, methods, test_over_train, seed)
    lines = [_summarise_method(method, finished, rows, differences) for method in methods]
    return _comparison(rows, lines, finished, not_compared)


def _comparison(
    rows: ComparedRows,
    lines: Sequence[Row],
    finished: FinishedSplits,
    not_compared: str | None,
) -> Comparison:
    """Return the comparison: the lines of all methods, the verdict, and what they are compared with."""
    verdict_row = _row_of_verdict(lines)
    return Comparison(
        rows=tuple(lines),
        chosen=verdict_row.key,
        verdict=_verdict(lines, verdict_row, rows, len(finished)),
        expert_names=tuple(rows.expert_names),
        best_first=tuple(rows.expert_names[expert] for expert in rows.outcomes.best_first()),
        oracle=float(finished.mean(lambda split: split.oracle_loss)),
        oracle_shares=finished.mean(lambda split: split.oracle_shares),
        baselines=_mean_baselines(finished, verdict_row.key, rows.expert_names),
        n_rows=len(rows.outcomes.costs),
        n_train=float(finished.mean(lambda split: len(split.train))),
        n_test=float(finished.mean(lambda split: len(split.test))),
        n_splits=len(finished),
        confidence=CONFIDENCE,
        dropped=sum(split.dropped for split in finished),
        not_compared=not_compared,
        interrupted=finished.interrupted,
    )


def _check_compared(rows: ComparedRows, splits: Sequence[Split], methods: Sequence[Method]) -> None:
    """Refuse rows, splits and methods that cannot be compared."""
    n_inputs = len(rows.inputs)
    n_costs = len(rows.outcomes.costs)
    if n_inputs != n_costs:
        raise invalid("data", f"must have as many rows as costs; got {n_inputs} and {n_costs}.")
    if not splits:
        raise invalid("splits", "must hold at least one split; got none.")
    if not methods or methods[0].key != "constant":
        raise invalid("methods", "must begin with the best constant.")


def _comparable_splits(
    costs: FloatArray, splits: Sequence[Split]
) -> tuple[Sequence[Split], str | None]:
    """Return the splits without test rows that cannot be compared, and a sentence about these."""
    tested = np.unique(np.concatenate([split.test for split in splits]))
    common = metrics.common_rows(costs[tested])
    comparable = np.zeros(len(costs), dtype=bool)
    comparable[tested] = common.rows
    comparable_splits = [
        replace(split, test=split.test[comparable[split.test]]) for split in splits
    ]
    if common.complete and not all(len(split.test) for split in comparable_splits):
        return splits, replace(common, complete=False).sentence
    return comparable_splits, common.sentence


def _split_context(
    rows: ComparedRows,
    split: Split,
    n_folds: int,
    seed: int,
    jobs: int | None,
    reads_answers: bool,
) -> Context:
    """Return what all methods share in a split: the folds of its training rows, the seed.

    The folds are drawn once, so that every method chooses its parameters on the same ones.
    """
    train_groups = rows.group_of_row[split.train]
    train_folds = folds(train_groups, n_folds, seed)
    smallest_fit = min(len(fit_rows) for fit_rows, _ in train_folds)
    if smallest_fit < 2:
        raise InvalidInputError(
            "every fold of the cross-validation must leave at least two rows to fit on; with "
            f"{len(rows.inputs)} rows, one leaves fewer. Collect more rows.",
            parameter="data",
        )
    answered = None
    if reads_answers and rows.task is not None:
        answered = AnsweredSplit(rows.task, split)
    return Context(
        folds=train_folds,
        largest_cost=rows.largest_cost,
        seed=seed,
        jobs=jobs,
        groups=train_groups,
        answered=answered,
        ranks=rows.ranks(split),
    )


def _no_progress(done: int, total: int, message: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class ProgressSteps:
    """Reports each method of each split as one step."""

    report: Progress
    n_methods: int
    n_splits: int

    def begin(self) -> None:
        """Report that features are being made."""
        self.report(0, self.n_splits * self.n_methods, "features")

    def finished(self, split_number: int, n_finished: int, method: Method) -> None:
        """Report that a method is the ``n_finished``-th that has finished in a split."""
        n_done = split_number * self.n_methods + n_finished
        message = f"split {split_number + 1}, {method.label}"
        self.report(n_done, self.n_splits * self.n_methods, message)


@dataclass(frozen=True, eq=False)
class SplitRun:
    """One split of the rows, on which methods are run."""

    inputs: SplitInputs
    costs: FloatArray  # (n_rows, n_experts) of all rows
    split: Split
    context: Context

    def choices(
        self,
        methods: Sequence[Method],
        finished: Callable[[int, Method], None] | None = None,
    ) -> dict[str, Choices]:
        """Return what each method chooses; ``finished`` is called with the number done and the last one."""
        X_train, X_test = self.inputs.features(self.split.train, self.split.test)
        choices: dict[str, Choices] = {}
        for method in methods:
            train_costs = self.costs[self.split.train]
            choices[method.key] = run_method(method, self.context, X_train, train_costs, X_test)
            if finished is not None:
                finished(len(choices), method)
        return choices


@dataclass(frozen=True, eq=False)
class FinishedSplit:
    """A split on which every method has been run, and the known outcomes of its test rows."""

    train: IntArray
    test: IntArray
    dropped: int  # rows that are in neither, because their text is in the training rows
    outcomes: Results  # of the test rows; with a column for a cascade, if there is one
    result: SplitResult

    @cached_property
    def oracle(self) -> IntArray:
        """Perfect choice (n_test,)."""
        return self.outcomes.oracle()

    @property
    def oracle_loss(self) -> float:
        """Mean cost of perfect choice."""
        return metrics.oracle_loss(self.outcomes.experts.costs)

    @property
    def oracle_shares(self) -> FloatArray:
        """How often (n_experts,) each expert is the perfect choice."""
        return metrics.expert_shares(self.oracle, self.outcomes.experts.costs.shape[1])

    def chosen(self, key: str) -> IntArray:
        """Choices (n_test,) of a method."""
        return self.result.choices[key].chosen

    def answering(self, key: str) -> IntArray:
        """Expert (n_test,) whose answer a method gives."""
        return self.outcomes.answering(self.chosen(key))

    def means(self, key: str) -> dict[str, float | None]:
        """Mean loss, accuracy, dollars and seconds of a method."""
        return self.outcomes.means(self.chosen(key))

    def shares(self, key: str) -> FloatArray:
        """How often (n_experts,) a method gives the answer of each expert."""
        return metrics.expert_shares(self.answering(key), self.outcomes.experts.costs.shape[1])

    def recall(self, key: str) -> FloatArray:
        """Recall (n_experts,) of each expert where it is the perfect choice; NaN if it never is."""
        costs = self.outcomes.experts.costs
        return metrics.expert_recall(costs, self.answering(key), best=self.oracle)

    def shuffled_control(self, key: str) -> float:
        """Mean cost of a method's shares assigned at random."""
        return shuffled_control(self.outcomes.experts.costs, self.answering(key))

    def minus_constant(self, key: str) -> FloatArray:
        """Rows (n_test,) whose mean is the method's mean cost minus that of the best constant."""
        return self.result.cost_rows(key) - self.result.cost_rows("constant")


@dataclass(frozen=True, eq=False)
class FinishedSplits:
    """The splits that have finished, one or more."""

    splits: list[FinishedSplit]
    interrupted: bool  # whether Ctrl-C ended the comparison before the last split

    def __len__(self) -> int:
        return len(self.splits)

    def __iter__(self) -> Iterator[FinishedSplit]:
        return iter(self.splits)

    def stacked(self, figure: Callable[[FinishedSplit], Any]) -> FloatArray:
        """A figure of each split, (n_splits, ...)."""
        return np.array([figure(split) for split in self.splits])

    def mean(self, figure: Callable[[FinishedSplit], Any]) -> Any:
        """Mean over splits of a figure, which is a number or an array."""
        return self.stacked(figure).mean(axis=0)

    def joined(self, values: Callable[[FinishedSplit], FloatArray | IntArray]) -> Any:
        """Values of the test rows of all splits."""
        return np.concatenate([values(split) for split in self.splits])


def _finish_splits(
    rows: ComparedRows,
    runs: Sequence[SplitRun],
    methods: Sequence[Method],
    steps: ProgressSteps,
) -> FinishedSplits:
    """Run every method on every split; Ctrl-C ends it with the splits that have finished.

    With several workers and splits, workers take whole splits: one search keeps two of them busy for
    four fifths of the time.
    """
    if len(runs) == 1 or effective_n_jobs(runs[0].context.jobs) == 1:
        stream = _choices_one_by_one(runs, methods, steps)
    else:
        stream = _choices_of_workers(runs, methods, steps)
    finished: list[FinishedSplit] = []
    try:
        for choices in stream:
            split = runs[len(finished)].split
            outcomes = rows.test_outcomes(split, choices)
            result = SplitResult(outcomes.costs, rows.group_of_row[split.test], choices)
            finished.append(FinishedSplit(split.train, split.test, split.dropped, outcomes, result))
    except KeyboardInterrupt:
        if not finished:
            raise
        return FinishedSplits(finished, interrupted=True)
    return FinishedSplits(finished, interrupted=False)


def _choices_one_by_one(
    runs: Sequence[SplitRun], methods: Sequence[Method], steps: ProgressSteps
) -> Iterator[dict[str, Choices]]:
    """Yield, for one split after the other, what each method chooses."""
    for number, run in enumerate(runs):
        yield run.choices(methods, partial(steps.finished, number))


def _choices_of_workers(
    runs: Sequence[SplitRun], methods: Sequence[Method], steps: ProgressSteps
) -> Iterator[dict[str, Choices]]:
    """Yield the same from parallel workers, each of which takes a whole split.

    Methods that need another package share no candidates with the others and are taken by themselves.
    """
    batches = _methods_by_package(methods)
    jobs: list[Any] = []
    for run in runs:
        worker_run = replace(run, context=replace(run.context, jobs=None))
        jobs.extend(delayed(_choices_in_worker)(worker_run, batch) for batch in batches)
    stream = parallel_results(jobs, runs[0].context.jobs)
    try:
        for number in range(len(runs)):
            choices: dict[str, Choices] = {}
            for batch in batches:
                batch_choices, caught = next(stream)
                choices |= batch_choices
                for warning in caught:
                    warnings.warn(warning, stacklevel=5)
                steps.finished(number, len(choices), batch[-1])
            yield choices
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of tasks that are given up
            stream.close()


def _methods_by_package(methods: Sequence[Method]) -> list[list[Method]]:
    """Return the methods in batches that need the same package, or none."""
    batches: dict[str | None, list[Method]] = {}
    for method in methods:
        batches.setdefault(method.needs, []).append(method)
    return list(batches.values())


def _choices_in_worker(
    run: SplitRun, methods: Sequence[Method]
) -> tuple[dict[str, Choices], list[Warning | str]]:
    """Return choices, and warnings, which would be lost in another process."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choices = run.choices(methods)
    return choices, [warning.message for warning in caught]


def _differences(
    finished: FinishedSplits,
    methods: Sequence[Method],
    test_over_train: float,
    seed: int,
) -> dict[str, Difference]:
    """Return each method's mean cost minus the best constant's, with simultaneous intervals, by key."""
    keys = [method.key for method in methods[1:]]
    if not keys:
        return {}
    differences = []
    groups = []
    for split in finished:
        differences.append(np.column_stack([split.minus_constant(key) for key in keys]))
        groups.append(split.result.groups)
    intervals = metrics.split_intervals(differences, groups, CONFIDENCE, seed, test_over_train)
    difference_of = {}
    for number, key in enumerate(keys):
        difference_of[key] = Difference(*intervals.row(number))
    return difference_of


def _summarise_method(
    method: Method,
    finished: FinishedSplits,
    compared_rows: ComparedRows,
    differences: Mapping[str, Difference],
) -> Row:
    """Summarise a method over all splits, with its difference from the best constant."""
    key = method.key
    choices = []
    split_means = []
    for split in finished:
        choices.append(split.result.choices[key])
        split_means.append(split.means(key))
    price = _mean_if_known(split_means, "dollars_per_1000")
    if price is not None:
        # Per input, like all fields of a row.
        price /= 1000
    n_rows, n_groups = _count_compared(finished, key, compared_rows)
    return Row(
        key=key,
        label=method.label,
        description=method.description,
        costs=finished.stacked(lambda split: split.result.cost_rows(key).mean()),
        shares=finished.mean(lambda split: split.shares(key)),
        recall=_mean_known_recall(finished.stacked(lambda split: split.recall(key))),
        balanced=_balanced_loss(finished, key),
        shuffled_loss=float(finished.mean(lambda split: split.shuffled_control(key))),
        price=price,
        accuracy=_mean_if_known(split_means, "accuracy"),
        latency=_mean_if_known(split_means, "seconds"),
        difference=differences.get(key),
        seconds=float(finished.mean(lambda split: split.result.choices[key].seconds)),
        search_params=[choice.search_params for choice in choices],
        rows=n_rows,
        n_groups=n_groups,
        identical=all(split.result.same(key, "constant") for split in finished),
        asked=_mean_asked(choices),
    )


def _mean_if_known(figures: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the mean of a figure over splits; None if it is unknown in one of them."""
    values = [figure[name] for figure in figures]
    if None in values:
        return None
    return float(np.mean(values))


def _mean_known_recall(recall: FloatArray) -> FloatArray:
    """Return the mean recall (n_experts,) over the splits in which it is known; NaN if there are none."""
    n_known = (~np.isnan(recall)).sum(axis=0)
    means: FloatArray = np.nansum(recall, axis=0) / np.maximum(n_known, 1)
    return np.where(n_known > 0, means, np.nan)


def _balanced_loss(finished: FinishedSplits, key: str) -> float:
    """Return the balanced deferral loss of a method on the test rows of all splits."""
    costs = finished.joined(lambda split: split.result.costs)
    chosen = finished.joined(lambda split: split.chosen(key))
    perfect = finished.joined(lambda split: split.oracle)
    return metrics.balanced_deferral_loss(costs, chosen, best=perfect)


def _count_compared(finished: FinishedSplits, key: str, rows: ComparedRows) -> tuple[int, int]:
    """Count the distinct rows and groups from which a method's difference to the constant is estimated."""
    groups = rows.group_of_row
    is_known = np.zeros((len(groups), 2), dtype=bool)
    for split in finished:
        is_known[split.test, 0] |= ~np.isnan(split.result.paid(key))
        is_known[split.test, 1] |= ~np.isnan(split.result.paid("constant"))
    return metrics.count_judged(is_known, groups)


def _mean_asked(choices: Sequence[Choices]) -> FloatArray | None:
    """Return how often (n_experts,) a cascade asks each expert; None for other methods."""
    shares = [choice.run.asked.mean(axis=0) for choice in choices if choice.run is not None]
    if not shares:
        return None
    return np.mean(shares, axis=0)


def _row_of_verdict(rows: Sequence[Row]) -> Row:
    """Return the row that the verdict is about: "tune" if it was run, or the one of least mean cost."""
    for row in rows[1:]:
        if row.key == "tune":
            return row
    learned = rows[1:] or rows
    return learned[first_smallest([row.mean for row in learned])]


def _mean_baselines(
    finished: FinishedSplits, key: str, expert_names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the means of ``baselines`` over splits; an expert is named if it is the same in all."""
    baselines_of_splits = [
        baselines(split.outcomes, split.chosen(key), expert_names) for split in finished
    ]
    lines = []
    for baseline in zip(*baselines_of_splits, strict=True):
        experts = {line["expert"] for line in baseline}
        expert = None
        if len(experts) == 1:
            expert = experts.pop()
        lines.append(
            {
                "key": baseline[0]["key"],
                "expert": expert,
                "loss": _mean_if_known(baseline, "loss"),
                "accuracy": _mean_if_known(baseline, "accuracy"),
                "dollars_per_1000": _mean_if_known(baseline, "dollars_per_1000"),
                "seconds": _mean_if_known(baseline, "seconds"),
            }
        )
    return lines


def _verdict(
    rows: Sequence[Row], chosen: Row, compared: ComparedRows, n_splits: int
) -> metrics.Verdict:
    """Return the verdict on whether a method has a lower loss than the best constant.

    Parameters
    ----------
    rows : figures of all methods, the best constant first
    chosen : figures of the method that the verdict is about
    compared : the rows on which the methods were compared
    n_splits : number of splits
    """
    constant = rows[0]
    n_methods = len(rows) - 1
    splits = "one split"
    if n_splits > 1:
        splits = f"{n_splits} splits"
    dollars_per_1000 = None
    if chosen.price is not None and constant.price is not None:
        dollars_per_1000 = 1000 * (chosen.price - constant.price)
    difference = chosen.difference or Difference(0.0, 0.0, 0.0)
    # The expert that is the best constant in most splits; the first one, if several are.
    expert = int(cheapest_known(-constant.shares[None])[0])
    return metrics.Verdict(
        estimate=difference.estimate,
        low=difference.low,
        high=difference.high,
        confidence=CONFIDENCE,
        router=chosen.label,
        constant=compared.expert_names[expert],
        constant_expert=expert,
        router_cost=chosen.mean,
        constant_cost=constant.mean,
        n_candidates=n_methods,
        n_rows=chosen.rows,
        n_groups=chosen.n_groups,
        unit=compared.unit,
        n_splits=n_splits,
        identical=chosen.identical,
        dollars_per_1000=dollars_per_1000,
        notes=(splits, f"{count_noun(n_methods, 'method')} compared"),
    )
