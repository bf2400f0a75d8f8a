"""Every method on every scenario and split, as one JSON-ready document.

A cell is one scenario, one type of cost and one split; a block is all splits of a scenario and cost.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from joblib import Parallel, delayed, parallel_config
from sklearn.model_selection import GridSearchCV, KFold
from threadpoolctl import threadpool_limits

from experiments.digits.figures import (
    REGION_GAMMA,
    Picture,
    draw_line,
    draw_plane,
    radial_features,
)
from experiments.digits.long_tail import TailCase, run_case
from experiments.digits.tables import caption, findings, verdict_of
from experiments.records import processor_name
from mild import datasets, metrics
from mild._version import __version__
from mild.core.arrays import invalid
from mild.core.costs import cheapest
from mild.errors import MildWarning, check_option
from mild.evaluation.comparison import (
    Choices,
    Context,
    Method,
    SplitResult,
    linear_search_builder,
    run_method,
)
from mild.routers.baselines import ConstantRouter
from mild.routers.cost_models import KNNRouter, RidgeRouter

#: Called with how many steps are done, how many there are, and what was just done.
Progress: TypeAlias = Callable[[int, int, str], None]
#: Setup, kind of experts and seed: both types of cost share their experts.
Scenario: TypeAlias = tuple[str, str, int]

SCHEMA = 1
REGION_CASE = "regions"
DIGITS_GAMMA = 0.1
TAIL_ALPHAS = (1e-4, 1e-3, 1e-2)
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
_TUNED = "others rewards; margin ratios and powers of best counts searched"
_UNIFORM = {"loss": "mild", "margins": "uniform"}
#: Key, label and description of every method, in the order of the tables, and its linear router if it
#: is one with a searched strength.
METHODS: tuple[tuple[str, str, str, dict[str, Any] | None], ...] = (
    ("tdef", "TDEF", "complement rewards, all margins 1", {"loss": "tdef"}),
    ("mild_uniform", "MILD uniform", "others rewards, equal margins: both rules agree", _UNIFORM),
    ("mild_theory_argmax", "MILD theory, argmax", f"{_THEORY}; the paper's rule",
     {"loss": "mild", "counts": "best", "decision": "argmax"}),
    ("mild_theory_stationary", "MILD theory, stationary", f"{_THEORY}; our rule",
     {"loss": "mild", "counts": "best", "decision": "stationary"}),
    ("mild_tuned_argmax", "MILD tuned, argmax", f"{_TUNED} for argmax", None),
    ("mild_tuned_stationary", "MILD tuned, stationary", f"{_TUNED} for our rule", None),
    ("mild_contrast", "MILD contrast (ours)", "contrast rewards, equal margins",
     {**_UNIFORM, "rewards": "contrast"}),
    ("ce", "CE", "cross-entropy on the cheapest expert", {"loss": "ce"}),
    ("cwce", "CWCE", "CE, weighted by inverse frequency", {"loss": "cwce"}),
    ("ldam", "LDAM", "label-distribution-aware margins", {"loss": "ldam"}),
    ("ridge", "cost regression", "predicts every cost, takes the least", None),
    ("knn", "kNN", "mean costs of the nearest rows", None),
    ("label", "true label only", "cheapest expert of the row's true class", None),
    ("constant", "best constant", "the expert that is cheapest in training", None),
    ("oracle", "oracle", "cheapest expert of every test row", None),
)  # fmt: skip
_NAMES = {"setups": tuple(datasets.SETUPS), "experts": datasets.EXPERTS, "costs": datasets.COSTS}


@dataclass(frozen=True)
class DigitsSettings:
    """What is run; ``jobs`` changes only the time."""

    setups: tuple[str, ...] = tuple(datasets.SETUPS)  # which of the digits scenarios
    experts: tuple[str, ...] = datasets.EXPERTS
    costs: tuple[str, ...] = datasets.COSTS
    seeds: int = 5  # how many splits, with random states 0, 1, ...
    alphas: tuple[float, ...] = (1e-5, 1e-4, 1e-3)  # L2 strengths searched for every linear method
    # factors of the margins of the tuned MILD
    margin_factors: tuple[float, ...] = (0.5, 0.7, 1.0, 1.4, 2.0)
    neighbours: tuple[int, ...] = (3, 5, 10, 20, 40)  # numbers of neighbours searched for kNN
    folds: int = 3  # folds of the cross-validation on the training half
    region_samples: int = 2000  # points of the region case, half to train and half to test
    tail_draws: int = 5  # repetitions of the case with a long tail of experts
    confidence: float = 0.95  # of the paired intervals
    jobs: int = 2  # worker processes

    def __post_init__(self) -> None:
        for name, known in _NAMES.items():
            if not getattr(self, name):
                raise invalid(name, f"must name at least one of {', '.join(known)}; got none.")
            for value in getattr(self, name):
                check_option(name, value, known)
        for name, least in (("seeds", 1), ("tail_draws", 2), ("jobs", 1)):
            if getattr(self, name) < least:
                raise invalid(name, f"must be at least {least}; got {getattr(self, name)}.")

    def changed(
        self, *, seeds: int | None = None, jobs: int | None = None, **names: Iterable[str] | None
    ) -> DigitsSettings:
        """The settings with other setups, experts, costs, seeds or jobs if given."""
        changes: dict[str, Any] = {"seeds": seeds, "jobs": jobs}
        for name, asked in names.items():
            values = list(asked or ())
            for value in values:
                check_option(name, value, _NAMES[name])
            changes[name] = tuple(value for value in _NAMES[name] if value in values) or None
        return replace(self, **{key: value for key, value in changes.items() if value is not None})

    @classmethod
    def quick(cls) -> DigitsSettings:
        """A run of half a minute: setups I and severe, two seeds, smaller grids."""
        return cls(
            setups=("I", "severe"),
            seeds=2,
            alphas=(1e-5, 1e-4),
            margin_factors=(0.5, 1.0, 2.0),
            neighbours=(5, 20),
            region_samples=1000,
            tail_draws=3,
        )


@dataclass(frozen=True, eq=False)
class Cell:
    """All methods on one scenario, one type of cost, one seed; ``warned`` are messages of warnings."""

    setup: str
    experts: str
    cost: str
    expert_names: tuple[str, ...]
    result: SplitResult
    warned: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class DigitsResults:
    """``document`` has every number, JSON-ready; the pictures are drawn from ``line`` and ``plane``."""

    document: dict[str, Any]
    line: Picture
    plane: Picture


def run_digits(settings: DigitsSettings, progress: Progress | None = None) -> DigitsResults:
    """Run all scenarios and draw the pictures; scenarios run in parallel processes."""
    start = time.perf_counter()
    report = progress or (lambda done, of, text: None)
    todo = scenarios(settings)
    total = len(todo) + 1
    report(0, total, "start")
    cells: list[Cell] = []
    with parallel_config("loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=settings.jobs, return_as="generator")
        jobs = (delayed(run_cells)(scenario, settings) for scenario in todo)
        for done, part in enumerate(pool(jobs), 1):
            cells += part
            setup, experts, seed = todo[done - 1]
            report(done, total, f"{setup}, {experts}, seed {seed}")
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
    found = {
        "blocks": blocks[:-1],
        "region_case": blocks[-1],
        "long_tail": tail,
        "line": line.found,
        "plane": plane.found,
    }
    versions = {"python": platform.python_version(), "mild": __version__}
    versions |= {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "joblib")}
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    versions["matplotlib"] = version("matplotlib") if has_matplotlib else "not installed"
    document = {
        "schema": SCHEMA,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - start, 2),
        "data": {
            "digits": "scikit-learn's digits, 1,797 of 8 x 8 pixels divided by 16; stratified halves",
            "features": "Nystroem features of a radial kernel, 128 components, from the training half",
            "setups": {name: list(datasets.SETUPS[name]) for name in settings.setups},
            "regions": f"{settings.region_samples} points of the unit square per seed, halves",
            "long_tail": "20 Gaussian domains with shares proportional to 1 / k, 400 rows to train on",
        },
        "settings": asdict(settings),
        "seeds": list(range(settings.seeds)),
        "versions": versions,
        "hardware": {
            "machine": platform.machine(),
            "processor": processor_name() or "unknown",
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.release()}",
            "byte_order": sys.byteorder,
        },
        "methods": [
            {"key": key, "label": label, "what": what, "compete": key != "oracle"}
            for key, label, what, _ in METHODS
        ],
        "caption": caption(asdict(settings)),
        "findings": findings(found),
        "warnings": dict(Counter(message for cell in cells for message in cell.warned)),
        **found,
    }
    return DigitsResults(document, line, plane)


def scenarios(settings: DigitsSettings) -> list[Scenario]:
    """All scenarios, the long ones (many experts) first so that no worker idles at the end."""
    digits = [
        (setup, experts, seed)
        for setup in sorted(settings.setups, key=lambda name: -len(datasets.SETUPS[name]))
        for experts in settings.experts
        for seed in range(settings.seeds)
    ]
    return digits + [(REGION_CASE, "by region", seed) for seed in range(settings.seeds)]


def run_cells(scenario: Scenario, settings: DigitsSettings) -> list[Cell]:
    """Run one scenario with every type of cost, in one thread."""
    setup, experts, seed = scenario
    with threadpool_limits(1):
        if setup == REGION_CASE:
            data = datasets.regions(settings.region_samples, random_state=seed)
            # Every seed draws new points: none of its rows is a row of another seed.
            data = dataclasses.replace(data, rows=data.rows + seed * len(data.rows))
            halves, gamma = data.halves(random_state=seed), REGION_GAMMA
            problems = [("error", *halves, 1.0)]
        else:
            gamma = DIGITS_GAMMA
            problems = []
            for cost in settings.costs:
                digits = datasets.digits_scenario(setup, experts, cost, random_state=seed)
                largest = 1.0 + float(digits.train.betas.max())
                problems.append((cost, digits.train, digits.test, largest))
        features = radial_features(problems[0][1].X, gamma)
        cells = []
        for cost, train, test, scale in problems:
            train = dataclasses.replace(train, X=features.transform(train.X))
            test = dataclasses.replace(test, X=features.transform(test.X))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", MildWarning)
                choices = run_methods(train, test, settings, scale, setup == REGION_CASE)
            warned = tuple(dict.fromkeys(str(entry.message) for entry in caught))
            result = SplitResult(test.costs, test.rows, choices)
            cells.append(Cell(setup, experts, cost, test.expert_names, result, warned))
        return cells


def run_methods(
    train: datasets.RoutingData,
    test: datasets.RoutingData,
    settings: DigitsSettings,
    cost_scale: float,
    by_label: bool = False,
) -> dict[str, Choices]:
    """Train every method on ``train`` and let it decide on ``test``, in the order of METHODS.

    All searches use the same folds of the training half.
    """
    result: dict[str, Choices] = {}
    context = Context(KFold(settings.folds, shuffle=True, random_state=0), cost_scale)
    alphas, factors = settings.alphas, settings.margin_factors
    # Ridge sets its penalty against a sum over rows, the other methods against a mean.
    ridge = {"alpha": [len(train.X) * alpha for alpha in alphas]}
    neighbours = {"n_neighbors": list(settings.neighbours)}

    def tuned(decision: str) -> Callable[[Context], Any]:
        # The strength is the one that was best at the theory's margins.
        alpha = result[f"mild_theory_{decision}"].search_params["alpha"]
        return linear_search_builder(
            "mild", [alpha], factors, counts="reward", decision=decision, ties="first"
        )

    builders: dict[str, Callable[[Context], Any]] = {
        "mild_tuned_argmax": lambda context: tuned("argmax")(context),
        "mild_tuned_stationary": lambda context: tuned("stationary")(context),
        "ridge": lambda context: GridSearchCV(RidgeRouter(), ridge, cv=context.folds),
        "knn": lambda context: GridSearchCV(KNNRouter(), neighbours, cv=context.folds),
        "constant": lambda context: ConstantRouter(),
    }
    for key, label, what, linear in METHODS:
        if key == "oracle":
            result[key] = Choices(cheapest(test.costs), {}, 0.0)
        elif key != "label":
            build = linear_search_builder(alphas=alphas, ties="first", **(linear or {}))
            build = builders[key] if linear is None else build
            method = Method(key, label, what, build)
            result[key] = run_method(method, context, train.X, train.costs, test.X)
            result[key].search_params.pop("family", None)
        elif by_label:
            # What knowing the true class is worth: each class to its cheapest expert in training.
            classes = range(int(max(train.labels.max(), test.labels.max())) + 1)
            means = np.array([train.costs[train.labels == y].mean(axis=0) for y in classes])
            result[key] = Choices(cheapest(means)[test.labels], {}, 0.0)
    return result


def gather(cells: Sequence[Cell], confidence: float) -> dict[str, Any]:
    """Combine the cells of all seeds into a block, JSON-ready.

    Test rows of all seeds are pooled; rows that are the same digit in several splits are drawn together,
    so that the interval does not count one digit as several independent ones. The method of least mean
    is marked as best if it beats every method that chose differently anywhere, by the interval and in at
    least four fifths of the splits. Methods with its very choices share the mark.
    """
    first, results = cells[0], [cell.result for cell in cells]
    methods = list(first.result.choices)
    paid = {key: [one.paid(key) for one in results] for key in methods}
    losses = {key: [float(part.mean()) for part in paid[key]] for key in methods}
    units = np.concatenate([one.groups for one in results])

    def interval(key: str, other: str) -> metrics.Interval:
        a, b = np.concatenate(paid[key]), np.concatenate(paid[other])
        return metrics.paired_interval(a, b, confidence, RESAMPLES, groups=units)

    def same(key: str, other: str) -> bool:
        return all(one.same(key, other) for one in results)

    def beats(key: str, other: str) -> bool:
        won = np.mean(np.less(losses[key], losses[other]))
        return bool(won >= SPLITS_WON and interval(key, other).high < 0)

    ranked = sorted(
        (key for key in methods if key != "oracle"),
        key=lambda key: np.concatenate(paid[key]).mean(),
    )
    best = {key for key in ranked if same(ranked[0], key)}
    if not all(beats(ranked[0], key) for key in ranked if key not in best):
        best = set()
    labels = {key: label for key, label, _, _ in METHODS}
    rows = []
    for key in methods:
        own = [one.choices[key] for one in results]
        shares = np.array(
            [metrics.expert_shares(one.chosen, len(first.expert_names)) for one in own]
        )
        gap = None if key == "tdef" else asdict(interval(key, "tdef"))
        rows.append(
            {
                "method": key,
                "label": labels[key],
                "mean": float(np.mean(losses[key])),
                "std": float(np.std(losses[key], ddof=1)) if len(cells) > 1 else None,
                "losses": losses[key],
                "mean_shares": shares.mean(axis=0).tolist(),
                "shares": shares.tolist(),
                "balanced_recall": [
                    metrics.balanced_recall(one.costs, one.choices[key].chosen) for one in results
                ],
                "minus_tdef": gap,
                "verdict_against_tdef": verdict_of(gap),
                "same_choices_as_tdef": same(key, "tdef"),
                "best": key in best,
                "found": [one.search_params for one in own],
                "seconds": [round(one.seconds, 4) for one in own],
            }
        )
    return {
        "setup": first.setup,
        "experts": first.experts,
        "cost": first.cost,
        "expert_names": list(first.expert_names),
        "oracle_shares": np.mean(
            [metrics.oracle_shares(one.costs) for one in results], axis=0
        ).tolist(),
        "rows": rows,
        "comparisons": [
            {"method": key, "minus": other, **asdict(interval(key, other))} for key, other in PAIRS
        ],
    }
