"""One cell of the demo: one scenario and one seed, all methods."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass

from sklearn.kernel_approximation import Nystroem
from threadpoolctl import threadpool_limits

from mild.core.arrays import FloatArray, IntArray
from mild.data.datasets import SETUPS, RoutingData, digits_scenario, regions
from mild.errors import MildWarning
from mild.evaluation.demo.methods import Routing, route_all
from mild.evaluation.demo.settings import DemoSettings

__all__ = ["REGION_CASE", "Cell", "Task", "radial_features", "run_task", "tasks"]

REGION_CASE = "regions"
DIGITS_GAMMA = 0.1
REGION_GAMMA = 25.0


@dataclass(frozen=True)
class Task:
    """What one worker does in one go: both cost types share their experts."""

    setup: str
    experts: str
    seed: int


@dataclass(frozen=True, eq=False)
class Cell:
    """All methods on one scenario, one cost type, one seed.

    Attributes
    ----------
    costs : (n_test, n_experts)
    rows : (n_test,) identity of each test row; a digit keeps its number in every split
    routings : what each method did, by key
    warned : sentences of the warnings that came up
    """

    setup: str
    experts: str
    cost: str
    seed: int
    expert_names: tuple[str, ...]
    costs: FloatArray
    rows: IntArray
    routings: dict[str, Routing]
    warned: tuple[str, ...]


def tasks(settings: DemoSettings) -> list[Task]:
    """All tasks, the long ones (many experts) first so that no worker idles at the end."""
    result = [
        Task(setup, experts, seed)
        for setup in sorted(settings.setups, key=lambda name: -len(SETUPS[name]))
        for experts in settings.experts
        for seed in range(settings.seeds)
    ]
    return result + [Task(REGION_CASE, "by region", seed) for seed in range(settings.seeds)]


def run_task(task: Task, settings: DemoSettings) -> list[Cell]:
    """Run one task in one thread, so that workers side by side do not fight over cores."""
    with threadpool_limits(1):
        if task.setup == REGION_CASE:
            return [_region_cell(task, settings)]
        scenario = digits_scenario(task.setup, task.experts, random_state=task.seed)
        features = radial_features(scenario.train.X, DIGITS_GAMMA)
        cells = []
        for cost in settings.costs:
            priced = scenario.with_cost(cost)
            scale = priced.largest_cost
            cells.append(_cell(task, cost, priced.train, priced.test, features, scale, settings))
        return cells


def radial_features(X: FloatArray, gamma: float, n_components: int = 128) -> Nystroem:
    """Nystroem features of the kernel ``exp(-gamma ||x - z||^2)``.

    With them a linear router draws curved borders. Every method sees the same ones.
    """
    kept = min(n_components, len(X))
    return Nystroem(kernel="rbf", gamma=gamma, n_components=kept, random_state=0).fit(X)


def _region_cell(task: Task, settings: DemoSettings) -> Cell:
    data = regions(settings.region_samples, random_state=task.seed)
    # Every seed draws new points: none of its rows is a row of another seed.
    data = dataclasses.replace(data, rows=data.rows + task.seed * len(data.rows))
    train, test = data.halves(random_state=task.seed)
    features = radial_features(train.X, REGION_GAMMA)
    return _cell(task, "error", train, test, features, 1.0, settings, by_label=True)


def _cell(
    task: Task,
    cost: str,
    train: RoutingData,
    test: RoutingData,
    features: Nystroem,
    cost_scale: float,
    settings: DemoSettings,
    by_label: bool = False,
) -> Cell:
    train = dataclasses.replace(train, X=features.transform(train.X))
    test = dataclasses.replace(test, X=features.transform(test.X))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MildWarning)
        routings = route_all(train, test, settings, cost_scale, by_label)
    return Cell(
        task.setup,
        task.experts,
        cost,
        task.seed,
        test.expert_names,
        test.costs,
        test.rows,
        routings,
        tuple(dict.fromkeys(str(entry.message) for entry in caught)),
    )
