"""The demo: every method on every scenario and seed, gathered into blocks of the tables.

A cell is one scenario, one cost type and one seed; a block is all seeds of one scenario and cost type.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from joblib import Parallel, delayed, parallel_config
from sklearn.model_selection import GridSearchCV, KFold
from threadpoolctl import threadpool_limits

from mild.core.arrays import FloatArray, IntArray
from mild.core.costs import cheapest
from mild.data.datasets import COSTS, EXPERTS, SETUPS, RoutingData, digits_scenario, regions
from mild.errors import InvalidInputError, MildWarning, check_option
from mild.evaluation.comparison.methods import Choices, Context, Method, run_method
from mild.evaluation.demo.long_tail import TailCase, TailRow, run_case
from mild.evaluation.demo.pictures import (
    REGION_GAMMA,
    Picture,
    draw_line,
    draw_plane,
    radial_features,
)
from mild.metrics import (
    Interval,
    balanced_recall,
    chosen_costs,
    deferral_loss,
    expert_shares,
    oracle_shares,
    paired_interval,
)
from mild.routers.baselines import ConstantRouter
from mild.routers.cost_models import CostRegressionRouter, KNNRouter
from mild.routers.linear import LinearRouter
from mild.routers.objective import LDAM_SCALE
from mild.routers.search import RouterCV

__all__ = [
    "METHODS",
    "REFERENCE",
    "Block",
    "Cell",
    "DemoResults",
    "DemoSettings",
    "Row",
    "gather",
    "run_cells",
    "run_demo",
    "run_methods",
    "scenarios",
    "verdict_of",
]

#: Called with how many steps are done, how many there are, and what was just done.
Progress: TypeAlias = Callable[[int, int, str], None]
#: Setup, kind of experts and seed: both cost types share their experts.
Scenario: TypeAlias = tuple[str, str, int]

REGION_CASE = "regions"
DIGITS_GAMMA = 0.1
TAIL_ALPHAS = (1e-4, 1e-3, 1e-2)
REFERENCE = "tdef"
RESAMPLES = 2000
# The interval is about these splits only; a marked method must also win most of them one by one.
SPLITS_WON = 0.8
#: Pairs of methods that the findings compare, besides every method against TDEF.
PAIRS = (
    ("mild_tuned_stationary", "mild_uniform"),
    ("mild_theory_argmax", "mild_theory_stationary"),
    ("mild_theory_argmax", "constant"),
    ("mild_tuned_argmax", "mild_tuned_stationary"),
    ("mild_tuned_stationary", "constant"),
    ("mild_tuned_stationary", "knn"),
)
_THEORY = "others rewards, theory margins from best counts"
_TUNED = "others rewards; margin ratios, powers of best counts and a bias searched"
#: Key, label and description of every method, in the order of the tables.
METHODS = (
    ("tdef", "TDEF", "complement rewards, all margins 1"),
    ("mild_uniform", "MILD uniform", "others rewards, equal margins: both rules agree"),
    ("mild_theory_argmax", "MILD theory, argmax", f"{_THEORY}; the paper's rule"),
    ("mild_theory_stationary", "MILD theory, stationary", f"{_THEORY}; our rule"),
    ("mild_tuned_argmax", "MILD tuned, argmax", f"{_TUNED} for argmax"),
    ("mild_tuned_stationary", "MILD tuned, stationary", f"{_TUNED} for our rule"),
    ("mild_contrast", "MILD contrast (ours)", "contrast rewards, equal margins"),
    ("ce", "CE", "cross-entropy on the cheapest expert"),
    ("cwce", "CWCE", "CE, weighted by inverse frequency"),
    ("ldam", "LDAM", "label-distribution-aware margins"),
    ("regression", "cost regression", "predicts every cost, takes the least"),
    ("knn", "kNN", "mean costs of the nearest rows"),
    ("label", "true label only", "cheapest expert of the row's true class"),
    ("constant", "best constant", "the expert that is cheapest in training"),
    ("oracle", "oracle", "cheapest expert of every test row"),
)


@dataclass(frozen=True)
class DemoSettings:
    """What the demo runs; ``jobs`` changes only the time.

    Attributes
    ----------
    setups, experts, costs : which of the digits scenarios
    seeds : how many splits, with random states 0, 1, ...
    alphas : L2 strengths searched for every linear method
    margin_factors : factors on the margins of the tuned MILD: all combinations of the ratios to the
        first where they are at most 81, else one margin at a time
    neighbours : numbers of neighbours searched for kNN
    folds : folds of the cross-validation on the training half
    region_samples : points of the region case, half to train and half to test
    tail_draws : repetitions of the case with a long tail of experts
    confidence : of the paired intervals
    jobs : worker processes
    """

    setups: tuple[str, ...] = tuple(SETUPS)
    experts: tuple[str, ...] = EXPERTS
    costs: tuple[str, ...] = COSTS
    seeds: int = 5
    alphas: tuple[float, ...] = (1e-5, 1e-4, 1e-3)
    margin_factors: tuple[float, ...] = (0.5, 0.7, 1.0, 1.4, 2.0)
    neighbours: tuple[int, ...] = (3, 5, 10, 20, 40)
    folds: int = 3
    region_samples: int = 2000
    tail_draws: int = 10
    confidence: float = 0.95
    jobs: int = 2

    def __post_init__(self) -> None:
        for name, known in _NAMES.items():
            if not getattr(self, name):
                raise InvalidInputError(
                    f"{name} must name at least one of {', '.join(known)}; got none.",
                    parameter=name,
                )
            for value in getattr(self, name):
                check_option(name, value, known)
        for name, least in (("seeds", 1), ("tail_draws", 2), ("jobs", 1)):
            if getattr(self, name) < least:
                raise InvalidInputError(
                    f"{name} must be at least {least}; got {getattr(self, name)}.", parameter=name
                )

    def changed(
        self, *, seeds: int | None = None, jobs: int | None = None, **names: Iterable[str] | None
    ) -> DemoSettings:
        """The settings with other setups, experts, costs, seeds or jobs where given.

        Names come in their usual order, once each.

        Examples
        --------
        >>> DemoSettings().changed(setups=["severe", "I"], seeds=3).setups
        ('I', 'severe')
        """
        changes: dict[str, Any] = {"seeds": seeds, "jobs": jobs}
        for name, asked in names.items():
            values = list(asked or ())
            for value in values:
                check_option(name, value, _NAMES[name])
            changes[name] = tuple(value for value in _NAMES[name] if value in values) or None
        return replace(self, **{key: value for key, value in changes.items() if value is not None})

    @classmethod
    def quick(cls) -> DemoSettings:
        """A run of seconds: setups I and severe, two seeds, smaller grids."""
        return cls(
            setups=("I", "severe"),
            seeds=2,
            alphas=(1e-5, 1e-4),
            margin_factors=(0.5, 1.0, 2.0),
            neighbours=(5, 20),
            region_samples=1000,
            tail_draws=3,
        )


_NAMES = {"setups": tuple(SETUPS), "experts": EXPERTS, "costs": COSTS}


@dataclass(frozen=True, eq=False)
class Cell:
    """All methods on one scenario, one cost type, one seed.

    Attributes
    ----------
    costs : (n_test, n_experts)
    rows : (n_test,) identity of each test row; a digit keeps its number in every split
    choices : what each method chose, by key
    warned : sentences of the warnings that came up
    """

    setup: str
    experts: str
    cost: str
    seed: int
    expert_names: tuple[str, ...]
    costs: FloatArray
    rows: IntArray
    choices: dict[str, Choices]
    warned: tuple[str, ...]

    def loss(self, key: str) -> float:
        """Deferral loss of a method."""
        return deferral_loss(self.costs, self.choices[key].chosen)


@dataclass(frozen=True, eq=False)
class Row:
    """One method in one block.

    Attributes
    ----------
    key, label : of the method
    losses : deferral loss of each seed
    shares : (n_seeds, n_experts) share of the test rows sent to each expert
    recall : balanced recall of the cheapest expert, of each seed
    against_tdef : interval of this method's cost minus TDEF's, None for TDEF itself
    same_as_tdef : whether it made the very choices that TDEF made
    best : whether it has the least mean and beats every other method but the oracle, by the interval
        and in four fifths of the splits
    found : what the search settled on, of each seed
    seconds : of each seed
    """

    key: str
    label: str
    losses: tuple[float, ...]
    shares: FloatArray
    recall: tuple[float, ...]
    against_tdef: Interval | None
    same_as_tdef: bool
    best: bool
    found: tuple[dict[str, Any], ...]
    seconds: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean deferral loss over seeds."""
        return float(np.mean(self.losses))

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds (divided by n - 1); None for one seed."""
        return float(np.std(self.losses, ddof=1)) if len(self.losses) > 1 else None

    @property
    def verdict(self) -> str:
        """Against TDEF: "better", "worse" or "level"; "level" for TDEF itself."""
        return "level" if self.against_tdef is None else verdict_of(self.against_tdef)


@dataclass(frozen=True, eq=False)
class Block:
    """One scenario under one cost type: all methods, all seeds.

    Attributes
    ----------
    setup, experts, cost : which scenario
    expert_names : one per expert
    oracle_shares : (n_experts,) share of the test rows on which each expert is cheapest
    rows : one per method
    pairs : interval of the first method's cost minus the second's, for PAIRS
    """

    setup: str
    experts: str
    cost: str
    expert_names: tuple[str, ...]
    oracle_shares: FloatArray
    rows: tuple[Row, ...]
    pairs: dict[tuple[str, str], Interval]

    def row(self, key: str) -> Row:
        """Row of a method."""
        return next(row for row in self.rows if row.key == key)

    @property
    def leader(self) -> Row:
        """Method of least mean loss, the oracle aside."""
        return min((row for row in self.rows if row.key != "oracle"), key=lambda row: row.mean)


@dataclass(frozen=True, eq=False)
class DemoResults:
    """Everything that the demo found.

    Attributes
    ----------
    settings : what was run
    blocks : the digits, one block per setup, kind of experts and cost type
    region_block : the case in which experts specialise by region
    tail : the case with a long tail of experts, one row per method
    line, plane : the pictures
    warned : warnings that came up in training, each once, with the number of cells they came up in
    seconds : wall time
    finished : when, in universal time
    """

    settings: DemoSettings
    blocks: tuple[Block, ...]
    region_block: Block
    tail: tuple[TailRow, ...]
    line: Picture
    plane: Picture
    warned: dict[str, int]
    seconds: float
    finished: str


def run_demo(settings: DemoSettings, progress: Progress | None = None) -> DemoResults:
    """Run every cell in ``settings.jobs`` processes and gather what they found.

    The numbers do not depend on ``jobs``. ``progress`` is called after every step.
    """
    start = time.perf_counter()
    report = progress or (lambda done, total, text: None)
    todo = scenarios(settings)
    total = len(todo) + 1
    cells: list[Cell] = []
    report(0, total, "starting workers")
    with parallel_config(backend="loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=settings.jobs, return_as="generator")
        jobs = (delayed(run_cells)(scenario, settings) for scenario in todo)
        for done, part in enumerate(pool(jobs), 1):
            cells += part
            report(done, total, f"{part[0].setup}, {part[0].experts}, seed {part[0].seed}")
        order = [
            (setup, experts, cost)
            for experts in settings.experts
            for setup in settings.setups
            for cost in settings.costs
        ]
        order.append((REGION_CASE, "by region", "error"))
        blocks = Parallel(n_jobs=settings.jobs)(
            delayed(gather)(
                [cell for cell in cells if (cell.setup, cell.experts, cell.cost) == key],
                settings.confidence,
            )
            for key in order
        )
        case = TailCase(draws=settings.tail_draws, alphas=TAIL_ALPHAS, n_folds=settings.folds)
        tail = run_case(case, settings.confidence, settings.jobs)
    line, plane = draw_line(), draw_plane()
    report(total, total, "intervals, long tail and pictures")
    return DemoResults(
        settings,
        tuple(blocks[:-1]),
        blocks[-1],
        tail,
        line,
        plane,
        dict(Counter(sentence for cell in cells for sentence in cell.warned)),
        time.perf_counter() - start,
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def scenarios(settings: DemoSettings) -> list[Scenario]:
    """All scenarios, the long ones (many experts) first so that no worker idles at the end."""
    digits = [
        (setup, experts, seed)
        for setup in sorted(settings.setups, key=lambda name: -len(SETUPS[name]))
        for experts in settings.experts
        for seed in range(settings.seeds)
    ]
    return digits + [(REGION_CASE, "by region", seed) for seed in range(settings.seeds)]


def run_cells(scenario: Scenario, settings: DemoSettings) -> list[Cell]:
    """Run one scenario under every cost type, in one thread."""
    setup, experts, seed = scenario
    with threadpool_limits(1):
        if setup == REGION_CASE:
            data = regions(settings.region_samples, random_state=seed)
            # Every seed draws new points: none of its rows is a row of another seed.
            data = dataclasses.replace(data, rows=data.rows + seed * len(data.rows))
            halves, gamma = data.halves(random_state=seed), REGION_GAMMA
            problems = [("error", *halves, 1.0)]
        else:
            digits, gamma = digits_scenario(setup, experts, random_state=seed), DIGITS_GAMMA
            priced = [(cost, digits.with_cost(cost)) for cost in settings.costs]
            problems = [(cost, one.train, one.test, one.largest_cost) for cost, one in priced]
        features = radial_features(problems[0][1].X, gamma)
        cells = []
        for cost, train, test, scale in problems:
            train = dataclasses.replace(train, X=features.transform(train.X))
            test = dataclasses.replace(test, X=features.transform(test.X))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", MildWarning)
                choices = run_methods(train, test, settings, scale, setup == REGION_CASE)
            warned = tuple(dict.fromkeys(str(entry.message) for entry in caught))
            names = test.expert_names
            cells.append(
                Cell(setup, experts, cost, seed, names, test.costs, test.rows, choices, warned)
            )
        return cells


def run_methods(
    train: RoutingData,
    test: RoutingData,
    settings: DemoSettings,
    cost_scale: float,
    by_label: bool = False,
) -> dict[str, Choices]:
    """Train every method on ``train`` and let it decide on ``test``, in the order of METHODS."""
    result: dict[str, Choices] = {}
    context = Context((), cost_scale, 0, None)
    builders = _builders(settings, cost_scale, len(train.X), result)
    for key, label, what in METHODS:
        if key == "oracle":
            result[key] = Choices(cheapest(test.costs), {}, 0.0)
        elif key != "label":
            method = Method(key, label, what, builders[key])
            done = run_method(method, context, train.X, train.costs, test.X)
            done.found.pop("family", None)
            result[key] = done
        elif by_label:
            # What knowing the true class is worth: each class to its cheapest expert in training.
            classes = range(int(max(train.labels.max(), test.labels.max())) + 1)
            means = np.array([train.costs[train.labels == y].mean(axis=0) for y in classes])
            result[key] = Choices(cheapest(means)[test.labels], {}, 0.0)
    return result


def _builders(
    settings: DemoSettings, cost_scale: float, n_samples: int, done: dict[str, Choices]
) -> dict[str, Callable[[Context], Any]]:
    """Every trained method; all searches see the same folds of the training half.

    ``done`` holds the methods that have been fitted before.
    """
    folds = KFold(settings.folds, shuffle=True, random_state=0)
    search = partial(RouterCV, cv=folds, one_standard_error=False)

    def linear(loss: str, **options: Any) -> RouterCV:
        # LDAM multiplies its scores by its scale: this is the same penalty on what its loss sees.
        unit = LDAM_SCALE**2 if loss == "ldam" else 1.0
        alphas = [unit * alpha for alpha in settings.alphas]
        return search(LinearRouter(loss, **options), alphas=alphas, margin_factors=(1.0,))

    def tuned(decision: str) -> RouterCV:
        # The strength is the one that was best at the theory's margins.
        alpha = done[f"mild_theory_{decision}"].found["alpha"]
        router = LinearRouter("mild", counts="reward", decision=decision)
        return search(router, alphas=[alpha], margin_factors=settings.margin_factors)

    def grid(router: Any, **values: Any) -> GridSearchCV:
        return GridSearchCV(router, values, cv=folds)

    # Ridge sets its penalty against a sum over rows, the other methods against a mean.
    ridge_alphas = [n_samples * alpha for alpha in settings.alphas]
    return {
        "tdef": lambda _: linear("tdef", cost_scale=cost_scale),
        "mild_uniform": lambda _: linear("mild", margins="uniform"),
        "mild_theory_argmax": lambda _: linear("mild", counts="best", decision="argmax"),
        "mild_theory_stationary": lambda _: linear("mild", counts="best", decision="stationary"),
        "mild_tuned_argmax": lambda _: tuned("argmax"),
        "mild_tuned_stationary": lambda _: tuned("stationary"),
        "mild_contrast": lambda _: linear("mild", rewards="contrast", margins="uniform"),
        "ce": lambda _: linear("ce"),
        "cwce": lambda _: linear("cwce"),
        "ldam": lambda _: linear("ldam"),
        "regression": lambda _: grid(CostRegressionRouter(), alpha=ridge_alphas),
        "knn": lambda _: grid(KNNRouter(), n_neighbors=list(settings.neighbours)),
        "constant": lambda _: ConstantRouter(),
    }


def gather(cells: Sequence[Cell], confidence: float) -> Block:
    """Gather the cells of all seeds into one block.

    Test rows of all seeds are pooled; rows that are the same digit in several splits are drawn
    together, so that the interval does not count one digit as several independent ones.
    """
    first = cells[0]
    pooled = {
        key: np.concatenate([chosen_costs(cell.costs, cell.choices[key].chosen) for cell in cells])
        for key in first.choices
    }
    clusters = np.concatenate([cell.rows for cell in cells])

    def interval(key: str, other: str) -> Interval:
        return paired_interval(pooled[key], pooled[other], confidence, RESAMPLES, clusters=clusters)

    def same(key: str, other: str) -> bool:
        return all(
            np.array_equal(cell.choices[key].chosen, cell.choices[other].chosen) for cell in cells
        )

    # The method of least mean is marked if it beats every method that chose differently anywhere:
    # by the interval, and in at least four fifths of the splits. Methods with the same choices as the
    # leader share the mark.
    ranked = sorted((key for key in pooled if key != "oracle"), key=lambda k: pooled[k].mean())
    leader = ranked[0]
    marked = {key for key in ranked if same(leader, key)}
    rivals = [key for key in ranked if key not in marked]
    for key in rivals:
        won = np.mean([cell.loss(leader) < cell.loss(key) for cell in cells])
        if won < SPLITS_WON or interval(leader, key).high >= 0:
            marked = set()
            break
    labels = {key: label for key, label, _ in METHODS}
    rows = []
    for key in first.choices:
        own = [cell.choices[key] for cell in cells]
        rows.append(
            Row(
                key=key,
                label=labels[key],
                losses=tuple(cell.loss(key) for cell in cells),
                shares=np.array([expert_shares(o.chosen, len(first.expert_names)) for o in own]),
                recall=tuple(
                    balanced_recall(cell.costs, cell.choices[key].chosen) for cell in cells
                ),
                against_tdef=None if key == REFERENCE else interval(key, REFERENCE),
                same_as_tdef=same(key, REFERENCE),
                best=key in marked,
                found=tuple(one.found for one in own),
                seconds=tuple(one.seconds for one in own),
            )
        )
    return Block(
        first.setup,
        first.experts,
        first.cost,
        first.expert_names,
        np.mean([oracle_shares(cell.costs) for cell in cells], axis=0),
        tuple(rows),
        {pair: interval(*pair) for pair in PAIRS},
    )


def verdict_of(interval: Interval) -> str:
    """ "better" or "worse" (costs: less is better) where the interval excludes 0, else "level"."""
    if not interval.decided:
        return "level"
    return "better" if interval.high < 0 else "worse"
