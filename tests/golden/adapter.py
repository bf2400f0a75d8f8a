"""How the API of the day is called. Only this file imports mild; the others speak as mild 1.0 does."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pyarrow as pa

import mild
from mild import metrics
from mild.artifact.sources import as_router
from mild.core.answers import Answers

MODULES = {
    "core": ["core.costs", "core.margins", "core.losses", "core.decisions"],
    "answers": ["core.answers", "core.choice_parsing", "core.number_parsing"],
    "metrics": ["metrics", "metrics.risk_control"],
    "evaluation": ["evaluation.off_policy"],
}
PARAMETERS = {"body": "module"}


def call(path, *values, **settings):
    """What a function returns, or the object that a class makes, by a path such as "core.decide"."""
    folder, _, name = path.rpartition(".")
    modules = [import_module(f"mild.{module}") for module in MODULES.get(folder, [folder])]
    found = [getattr(module, name, None) for module in modules]
    settings = {PARAMETERS.get(key, key): value for key, value in settings.items()}
    return next(filter(None, found))(*values, **settings)


def limits(interval):
    """Estimate, low and high of an interval or a verdict: a row for each of its differences."""
    return np.column_stack([interval.estimate, interval.low, interval.high])


def judge_cost(costs, reference_costs, groups=None):
    """The verdict on costs beside those of the reference."""
    both = np.column_stack([costs, reference_costs])
    chosen = np.zeros(len(both), int)
    return metrics.judge_cost(both, chosen, 1, ["router", "reference"], groups=groups)


def judge_target(rows, chosen, reference, **target):
    """The share of the reference's quality that choices keep, and whether the target is met."""
    scores = 1 - rows.errors
    verdict = metrics.judge_target(
        scores, rows.prices, chosen, reference, rows.experts, target, groups=rows.topics
    )
    return verdict.quality_kept, verdict.met


def cascade(rows, answer_kind, **settings):
    """A cascade, fitted on rows with answers."""
    router = mild.CascadeRouter(**settings)
    answers = Answers.of(rows.answers, answer_kind)
    return router.fit(rows.inputs, rows.errors, answers=answers, prices=rows.prices)


def next_step(router, answers):
    """Experts that a cascade asks after these answers; or whose it accepts, and its probability."""
    step = router.policy_.next(None, answers)
    return (step.experts, None, None) if hasattr(step, "experts") else ((), *step)


def outcomes(rows):
    """The table of these rows."""
    queries, vectors = [""] * len(rows.inputs), rows.inputs.astype(np.float32)
    known = (1 - rows.errors, rows.prices, rows.latencies, pa.table(rows.columns), vectors)
    return mild.Outcomes(queries, list(rows.experts), *known)


def column(table, name):
    return table.column(name)


def fit(table, router, **settings):
    """The router that ``mild.fit`` makes, or that of an estimator which is fitted already."""
    if hasattr(router, "fit"):
        return replace(as_router(router), experts=table.experts)
    return mild.fit(table, router, **settings)


def evaluate(router, table, groups=None, **terms):
    """The verdict on a router, and means: costs, quality, dollars per 1,000 queries."""
    judged = mild.evaluate(router, table, groups=groups, **terms)
    lines = {line["key"]: line for line in judged.figures.baselines}
    return judged.verdict, {
        "cost": lines["router"]["loss"],
        "quality": lines["router"]["accuracy"],
        "dollars": lines["router"]["dollars_per_1000"],
        "cost of each expert": judged.figures.constant_losses,
        "cost of the oracle": lines["perfect"]["loss"],
    }
