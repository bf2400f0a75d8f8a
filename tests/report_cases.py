"""Small routers and tables whose reports can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mild.artifact import Router, RouterInfo
from mild.data import CostTerms, Outcomes, read_outcomes
from mild.evaluation.document import JudgedRows
from mild.evaluation.evaluate import Evaluation
from mild.evaluation.sections import RoutedRows
from mild.metrics.results import Results
from mild.policies import LinearCostPolicy, PricedPolicy
from mild.tuning.tasks import Task

NAMES = ["little", "middle", "strong"]
PRICES = (0.001, 0.004, 0.02)


def cost_router(names=NAMES, info=None):
    """A router whose features are the costs it expects, so that its choices are what we like."""
    p = len(names)
    return Router(LinearCostPolicy(np.eye(p), np.zeros(p)), names, info=info or RouterInfo())


def priced_router(names=NAMES, prices=PRICES, weight=0.0):
    """A router with heads: features are the errors it expects, prices do not depend on them."""
    p = len(names)
    zero = np.zeros((p, p))
    policy = PricedPolicy(
        np.eye(p), np.zeros(p), zero, np.zeros(p), np.array(prices), weight, "ridge"
    )
    return Router(policy, names)


def make_table(scores, names=NAMES, prices=PRICES, **columns):
    """A table of outcomes; scores None means never asked."""
    n = len(scores)
    content = {"prompt": columns.pop("prompt", [f"question number {i}" for i in range(n)])}
    for k, name in enumerate(names):
        content[f"score__{name}"] = [None if row[k] is None else float(row[k]) for row in scores]
        if prices is not None:
            content[f"cost__{name}"] = [prices[k]] * n
    return read_outcomes(pa.table(content | columns), form="wide")


def routed_rows(names, costs, chosen, probabilities=None, table=None):
    """Rows with these choices."""
    shares = None if probabilities is None else np.asarray(probabilities, float)
    outcomes, queries = Results(np.asarray(costs, float)), None
    if table is not None:
        outcomes = Results(outcomes.costs, table.scores, table.prices, table.latencies)
        queries = table.queries if table.has_queries else None
    return RoutedRows(list(names), outcomes, np.asarray(chosen), shares, queries)


def expect(chosen, p=3):
    """Features that make ``cost_router`` choose these experts, surer in later rows."""
    X = np.full((len(chosen), p), 0.5)
    X[np.arange(len(chosen)), chosen] = 0.4 - 0.2 * np.arange(len(chosen)) / len(chosen)
    return X


def larger_case(n=400, seed=0, noise=0.3, gain=True):
    """Experts that are each good in a part of the input space; features tell which, or nothing."""
    rng = np.random.default_rng(seed)
    place = rng.integers(0, 3, n)
    right = rng.random((n, 3)) < 0.35
    right[np.arange(n), place] = rng.random(n) < 0.95
    scores = right.astype(float)
    source = np.array(["algebra", "law", "poetry"])[place]
    table = make_table(scores.tolist(), source=source.tolist())
    signal = np.eye(3)[place] if gain else rng.random((n, 3))
    X = np.clip(0.65 - 0.6 * signal + noise * rng.normal(size=(n, 3)), 0, 1)
    return table, table.costs(), X


def document_of(router, table, costs, X, *, groups=None, terms=None, **more):
    """The document of a router that is judged by these rows, or by given costs if there is no table."""
    costs, X = np.asarray(costs, float), np.asarray(X)
    terms = terms or CostTerms()
    if table is None:
        table = Outcomes.from_arrays(X, costs, experts=router.experts)
    groups = table.groups() if groups is None else np.asarray(groups)
    task = Task(table, terms, costs, terms.formula(table), groups)
    judged = JudgedRows(router, costs, X, router.predict(X), task)
    return Evaluation(judged.figures(0.95, 0), judged).document(**more)
