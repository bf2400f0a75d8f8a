"""Cascades in tuning: fitted without each fold, judged on held-out rows, beside routers without answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from mild.artifact.facts import cascade_words
from mild.core.answers import KINDS, Answers
from mild.core.arrays import BoolArray, FloatArray, IntArray, invalid
from mild.core.rounding import first_least, tie_ranks
from mild.data import OutcomeTable
from mild.data.cascades import cascade_costs, cascade_scores
from mild.data.splits import random_splits
from mild.errors import counted
from mild.metrics import Verdict, verdict_of_choices
from mild.metrics.routing import FEWEST_GROUPS
from mild.metrics.verdict import ROUNDING
from mild.money import amount, decimals
from mild.policies import CascadePolicy
from mild.routers.cascade import CascadeCandidate, CascadeRouter
from mild.tuning.tasks import Task

# Rows, experts and calls, at most, by which is said what a cascade would do where none was asked for.
SAID_ROWS, SAID_EXPERTS, SAID_CALLS = 2_000, 8, 3


@dataclass(frozen=True, eq=False)
class CascadeOutcomes:
    """What cascades at m price weights do with n rows that they were not fitted on."""

    weights: FloatArray  # (m,) ascending
    quality: FloatArray  # (n_samples, m) scores of the given answers, NaN where they are not known
    dollars: FloatArray | None  # (n_samples, m) of all experts that were asked; None without prices
    costs: FloatArray  # (n_samples, m) under the terms of the task
    asked: BoolArray  # (n_samples, m, n_experts) which experts were asked
    # (2, m) quality and dollars by which the cascades of all rows do worse than these, those of the folds
    gaps: FloatArray | None = None

    @classmethod
    def of(cls, router: CascadeRouter, weights: FloatArray, task: Task, X: Any) -> CascadeOutcomes:
        """What the cascades of a fitted router do with the rows of a task."""
        table, prices = task.table, task.table.prices
        assert table.answers is not None
        runs = [router.at(t).run(X, table.answers) for t in weights]
        return cls(
            weights,
            np.column_stack([cascade_scores(table.scores, run) for run in runs]),
            None if prices is None else np.column_stack([run.paid(prices) for run in runs]),
            np.column_stack([cascade_costs(table, task.terms, run) for run in runs]),
            np.stack([run.asked for run in runs], axis=1),
        )

    def take(self, rows: Any, first: int = 0) -> CascadeOutcomes:
        """Some of the rows, and the price weights from the place ``first`` on."""
        return CascadeOutcomes(
            self.weights[first:],
            self.quality[rows, first:],
            None if self.dollars is None else self.dollars[rows, first:],
            self.costs[rows, first:],
            self.asked[rows, first:],
            None if self.gaps is None else self.gaps[:, first:],
        )


@dataclass(frozen=True, eq=False)
class FittedCascades:
    """Cascades of a task at several price weights, and what they do with its rows when held out."""

    router: CascadeRouter  # fitted on all rows
    held: CascadeOutcomes  # NaN in rows that no fold holds out

    def policy_of(self, solution: Any) -> CascadePolicy:
        """The policy at the price weight of a solution; without one at the first."""
        return self.router.at(float(self.held.weights[0]) if solution is None else solution.t)

    def of(self, task: Task, X: Any) -> CascadeOutcomes:
        """What they do with other rows."""
        return CascadeOutcomes.of(self.router, self.held.weights, task, X)


def checked_answers(table: OutcomeTable) -> Answers:
    """The answers of a table; refused where there are none, or nothing to ask in steps."""
    if len(table.expert_names) < 2:
        raise invalid("cascade", f"needs at least two experts; got {table.expert_names[0]} only.")
    answers = table.answers
    given = 0 if answers is None else int((answers.codes >= 0).any(axis=0).sum())
    if answers is None or given < 2:
        raise invalid(
            "cascade",
            f"needs the answers of at least two experts; got those of {given}. Add columns "
            "answer__<expert>, as mild collect writes them, or set another kind of answers "
            "with answer_kind=KIND.",
        )
    if not answers.ever_agree:
        raise invalid(
            "cascade",
            f"needs experts that agree in some rows; compared {KINDS[answers.kind]}, no two answers do. "
            f"Set another kind of answers than {answers.kind} with answer_kind=KIND.",
        )
    return answers


def price_weights(candidates: Sequence[CascadeCandidate]) -> FloatArray:
    """One price weight, ascending, for each cascade that costs least at some.

    >>> found = [CascadeCandidate(((k,),), 0.0, 0.3 - 0.2 * k, 1.0 + k) for k in (0, 1)]
    >>> price_weights(found)
    array([0.1, 0.4])
    """
    costs = tie_ranks([candidate.cost for candidate in candidates])
    paid = tie_ranks([candidate.paid for candidate in candidates])
    at = int(np.lexsort((paid, costs))[0])
    turns = []
    while (cheaper := np.flatnonzero(paid < paid[at])).size:
        slopes = []
        for index in cheaper.tolist():
            more = candidates[index].cost - candidates[at].cost
            slopes.append(more / (candidates[at].paid - candidates[index].paid))
        best = first_least(slopes)  # of equal ones the cheapest, which comes first
        turns.append(slopes[best])
        at = int(cheaper[best])
    if not turns:
        return np.zeros(1)
    middle = [float(np.sqrt(low * high)) for low, high in pairwise(turns)]
    return np.unique([float(f"{t:.4g}") for t in (turns[0] / 2, *middle, 2 * turns[-1])])


def fit_cascades(
    task: Task,
    X: Any,
    prices: FloatArray | None,
    folds: Sequence[tuple[IntArray, IntArray]],
    max_calls: int,
    n_jobs: int | None = None,
) -> FittedCascades | None:
    """Fit cascades on a task, and without each fold, at each price weight that gives another one.

    ``prices`` (n_samples, n_experts) are what is paid for asking; None for one cascade that costs least as
    the task says. Experts, order, gate and threshold are found anew without each fold. None where asking
    one expert is best at every weight.
    """
    traded = prices is not None
    # In wrong answers, if the task says what asking costs.
    paid = np.maximum(task.costs - (1 - task.table.scores), 0.0) if prices is None else prices
    answers = checked_answers(task.table)

    def fit(rows: Any) -> CascadeRouter:
        known = {"answers": answers.take(rows), "prices": paid[rows]}
        errors = 1 - task.table.scores[rows]
        return CascadeRouter(max_calls=max_calls).fit(X[rows], errors, **known)

    def held_out(train: IntArray, test: IntArray) -> CascadeOutcomes:
        part = replace(task, table=task.table.take(test))
        return CascadeOutcomes.of(fit(train), grid, part, X[test])

    router = fit(slice(None))
    grid = price_weights(router.candidates_) if traded else np.ones(1)
    grid = grid[[len(router.at(t).order) > 1 for t in grid]]
    if not grid.size:
        return None
    parts = Parallel(n_jobs=n_jobs)(delayed(held_out)(*fold) for fold in folds)
    fitted = CascadeOutcomes.of(router, grid, task, X)
    quality, costs, dollars = (np.full(fitted.quality.shape, np.nan) for _ in range(3))
    asked = np.zeros(fitted.asked.shape, bool)
    for (_, test), part in zip(folds, parts, strict=True):
        quality[test], costs[test], asked[test] = part.quality, part.costs, part.asked
        if part.dollars is not None:
            dollars[test] = part.dollars
    gaps = None
    if traded:
        less, more = quality - fitted.quality, np.zeros(quality.shape)
        if fitted.dollars is not None:
            more = fitted.dollars - dollars
        known = ~np.isnan(less + more).any(axis=1)
        gaps = np.maximum([part[known].mean(axis=0) for part in (less, more)], 0.0)
    own = None if fitted.dollars is None else dollars
    return FittedCascades(router, CascadeOutcomes(grid, quality, own, costs, asked, gaps))


@dataclass(frozen=True)
class TunedCascade:
    """A cascade that was considered in tuning, and what it does on held-out rows."""

    used: bool  # whether the router is the cascade
    path: str  # what it does, in words
    # ``experts`` asked together, training ``rows`` that end there
    steps: tuple[Mapping[str, Any], ...]
    threshold: float  # least probability of an answer that is accepted
    mean_cost: float | None
    quality: float | None
    dollars_per_1000: float | None
    # ``router``: what would be saved without answers; ``cost``, ``quality``, ``dollars_per_1000``: those of
    # the cascade minus those of that router, each ``estimate``, ``low``, ``high`` and ``confidence``
    without_answers: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        policy: CascadePolicy,
        used: bool,
        task: Task,
        X: Any,
        found: Mapping[str, Verdict],
        router: str,
    ) -> TunedCascade:
        """From what it was fitted on, and the ``differences`` to a router without answers."""
        names = task.table.expert_names
        end = policy.run(X, checked_answers(task.table)).step
        steps = [
            {"experts": [names[k] for k in step], "rows": int((end == number).sum())}
            for number, step in enumerate(policy.steps)
        ]
        money, ends_of = found.get("dollars_per_1000"), ("estimate", "low", "high", "confidence")
        compared: dict[str, Any] = {"router": router, "dollars_per_1000": None}
        compared |= {k: {end: getattr(v, end) for end in ends_of} for k, v in found.items()}
        return cls(
            used,
            cascade_words(policy, names),
            tuple(steps),
            policy.threshold,
            found["cost"].router_cost,
            found["quality"].router_cost,
            None if money is None else money.router_cost,
            compared,
        )

    @property
    def sentences(self) -> list[str]:
        """Its path, and how it differs from the router without answers."""
        rows = [step["rows"] for step in self.steps]
        ends = ", ".join(f"{count:,} end at step {k}" for k, count in enumerate(rows, 1))
        used = "The cascade" if self.used else "A cascade, which is not used,"
        names = {
            "cost": "mean loss",
            "quality": "quality",
            "dollars_per_1000": "dollars per 1,000 queries",
        }
        parts = []
        for key, name in names.items():
            if one := self.without_answers[key]:
                write = amount if key == "dollars_per_1000" else decimals
                middle, low, high = (
                    write(one[end], sign=True) for end in ("estimate", "low", "high")
                )
                level = f"{100 * one['confidence']:g} % interval "
                parts.append(f"{name} {middle} ({level}{low} to {high})")
        return [
            f"{used} {self.path}. Of {counted(sum(rows), 'training row')}, {ends}.",
            f"Compared with the router without answers ({self.without_answers['router']}), on held-out "
            f"rows: {', '.join(parts)}.",
        ]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {**vars(self), "sentences": self.sentences}


def minus_choices(
    own: FloatArray,
    values: FloatArray,
    chosen: IntArray,
    groups: IntArray,
    counted: str,
    confidence: float,
    seed: int,
) -> Verdict:
    """A cascade's values (n_samples,) minus those of chosen experts, -1 for rows that do not count."""
    other = np.where(chosen >= 0, values[np.arange(len(values)), chosen], np.nan)
    both = np.column_stack([own, other])
    known = ~np.isnan(both).any(axis=1)
    return verdict_of_choices(
        both[known],
        np.zeros(int(known.sum()), np.intp),
        1,
        ["the cascade", "the router"],
        groups=groups[known],
        counted=counted,
        confidence=confidence,
        random_state=seed,
    )


def differences(
    task: Task, own: CascadeOutcomes, chosen: IntArray, confidence: float, seed: int
) -> dict[str, Verdict]:
    """Cost, quality and dollars per 1,000 queries of the first cascade minus those of chosen experts.

    These are (n_samples,), and -1 in rows that are not held out.
    """
    table = task.table
    pairs = {"cost": (own.costs, task.costs), "quality": (own.quality, table.scores)}
    if own.dollars is not None and table.prices is not None:
        pairs["dollars_per_1000"] = 1000 * own.dollars, 1000 * table.prices
    about = (task.groups, task.counted, confidence, seed)
    return {
        name: minus_choices(first[:, 0], values, chosen, *about)
        for name, (first, values) in pairs.items()
    }


def unused_answers(task: Task, seed: int) -> dict[str, Any] | None:
    """What a cascade would keep and save, on half of some rows; None where it would do neither.

    It is the cheapest that is as good as the best expert on the other half, of a few experts.
    """
    table = task.table
    if not table.has_answers:
        return None
    rows = np.random.default_rng([seed, 3]).permutation(table.rows)[:SAID_ROWS]
    rows = np.sort(rows[~np.isnan(table.scores[rows]).any(axis=1)])
    groups = np.unique(task.groups[rows], return_inverse=True)[1]
    if groups.max(initial=0) < 2 * FEWEST_GROUPS:
        return None
    prices = np.zeros(table.scores.shape) if table.prices is None else table.prices
    price, quality = np.nanmean(prices, axis=0), np.nanmean(table.scores, axis=0)
    parts = np.array_split(np.argsort(tie_ranks(price), kind="stable"), SAID_EXPERTS)
    some = [int(part[first_least(-quality[part])]) for part in parts if part.size]
    paid, scores = prices[rows][:, some], table.scores[rows][:, some]
    names = [table.expert_names[k] for k in some]
    answers = table.take(rows).answers
    if answers is None:
        return None
    answers = answers.of_experts(some)
    if not answers.ever_agree:
        return None
    (halves,) = random_splits(groups, 1, 0.5, seed)
    fit, judged = halves.train, halves.test
    # Counts read no features.
    X, best = np.zeros((len(rows), 1)), first_least(-scores[fit].mean(axis=0))
    router = CascadeRouter(max_calls=min(SAID_CALLS, len(some)), gate="counts")
    router.fit(X[fit], 1 - scores[fit], answers=answers.take(fit), prices=paid[fit])
    least = 1 - scores[fit, best].mean() + ROUNDING
    policy = router.policy_of(next(one for one in router.candidates_ if one.cost <= least))
    run = policy.run(X[judged], answers.take(judged))
    own, other = run.given(scores[judged]).mean(), scores[judged, best].mean()
    money = np.nanmean(run.paid(paid[judged])), np.nanmean(paid[judged, best])
    kept = float(own / other) if other > 0 else 1.0
    saved = float(1 - money[0] / money[1]) if money[1] > 0 else 0.0
    if len(policy.order) < 2 or (kept <= 1 and saved <= 0):
        return None
    path = cascade_words(policy, names)
    dollars = "" if table.prices is None else f", and saves {100 * saved:.0f} % of its dollars"
    sentence = (
        f"Answers are not used. On {counted(len(judged), 'held-out row')}, a cascade keeps "
        f"{100 * kept:.1f} % of the quality of always {names[best]}{dollars}: it {path}. cascade=True "
        "considers cascades, which send a query to several experts."
    )
    return {
        "best_expert": names[best],
        "rows": len(judged),
        "kept": kept,
        "saved": None if table.prices is None else saved,
        "path": path,
        "sentence": sentence,
    }
