"""Cascades in tuning: the cheapest one for given weights, and what is said about cascades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.artifact import Router
from mild.artifact.facts import cascade_words
from mild.core.answers import KINDS, Answers
from mild.core.arrays import FloatArray, IntArray, invalid
from mild.core.rounding import OUTCOMES, first_least, tie_ranks
from mild.data import OutcomeTable
from mild.data.splits import random_splits
from mild.errors import counted
from mild.metrics import Verdict, verdict_of_choices
from mild.metrics.operating_points import OperatingPoint
from mild.metrics.outcomes import Outcomes, mean_known
from mild.metrics.routing import FEWEST_GROUPS
from mild.policies import CascadePolicy
from mild.routers.cascade import CascadeCandidate, CascadeRouter
from mild.routers.cost_models import FoldFeatures
from mild.tuning.held_out import HeldOut
from mild.tuning.rows import TuningRows
from mild.tuning.settings import cascade_outcomes
from mild.tuning.tasks import Task

# Rows, experts and calls, at most, by which is said what a cascade would do where none was asked for.
HINT_ROWS = 2_000
HINT_EXPERTS = 8
HINT_CALLS = 3


def checked_answers(table: OutcomeTable) -> Answers:
    """The answers of a table; refused where there are none, or nothing to ask in steps."""
    if len(table.expert_names) < 2:
        raise invalid("cascade", f"needs at least two experts; got {table.expert_names[0]} only.")
    answers = table.answers
    n_answering = 0
    if answers is not None:
        n_answering = int((answers.codes >= 0).any(axis=0).sum())
    if answers is None or n_answering < 2:
        raise invalid(
            "cascade",
            f"needs the answers of at least two experts; got those of {n_answering}. Add columns "
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


def minus_choices(
    cascade_values: FloatArray,
    values: FloatArray,
    chosen: IntArray,
    groups: IntArray,
    counted: str,
    confidence: float,
    seed: int,
) -> Verdict:
    """A cascade's values (n_samples,) minus those of chosen experts, -1 for rows that do not count."""
    other = values[np.arange(len(values)), np.maximum(chosen, 0)]
    both = np.column_stack([cascade_values, np.where(chosen >= 0, other, np.nan)])
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


@dataclass(frozen=True, eq=False)
class CheapestCascade:
    """The cascade of the least cost, and what the cascades without each fold did on its rows.

    Attributes
    ----------
    policy : fitted on all rows
    outcomes : (n_samples, 1), NaN in rows that no fold holds out
    """

    policy: CascadePolicy
    outcomes: Outcomes


def cheapest_cascade(rows: TuningRows, max_calls: int) -> CheapestCascade | None:
    """Fit the cascade of the least cost on a task, and without each fold.

    Experts, order, gate and threshold are found anew without each fold. None where asking one expert is
    cheaper.
    """
    task = rows.task
    policies = rows.each_part(_cascade_of_least_cost, "cascades", max_calls)
    final = policies[0]
    if len(final.order) < 2:
        return None
    unknown = np.full((task.table.rows, 1), np.nan)
    scores = unknown.copy()
    costs = unknown.copy()
    prices = unknown.copy()
    latencies = unknown.copy()
    for fold, policy in zip(rows.folds, policies[1:], strict=True):
        outcomes = cascade_outcomes(task, fold.X, [policy], fold.test)
        costs[fold.test] = outcomes.costs
        scores[fold.test] = outcomes.scores
        prices[fold.test] = outcomes.prices
        if outcomes.latencies is not None:
            latencies[fold.test] = outcomes.latencies
    return CheapestCascade(final, Outcomes(costs, scores, prices, latencies))


def _cascade_of_least_cost(task: Task, part: FoldFeatures, max_calls: int) -> CascadePolicy:
    """The cascade of the least cost on the rows to train on."""
    table = task.table
    train = part.train
    answers = checked_answers(table).take(train)
    errors = 1 - table.scores[train]
    # What asking costs, in wrong answers, as the task says.
    asking = np.maximum(task.costs[train] - errors, 0.0)
    router = CascadeRouter(max_calls=max_calls)
    router.fit(part.X[train], errors, answers=answers, prices=asking)
    return router.at(1.0).with_ranks(task.ranks)


def cascade_summary(
    router: Router, task: Task, held_out: HeldOut, point: OperatingPoint
) -> dict[str, Any]:
    """What is said about a cascade that was taken for a target: its path, where rows end, its seconds."""
    outcomes = held_out.outcomes_at([point.first, point.second])
    experts = held_out.experts.outcomes.take(held_out.known)
    reference = held_out.frontier.best_expert
    seconds = None
    reference_seconds = None
    if outcomes.latencies is not None and experts.latencies is not None:
        mixed = (1 - point.share) * outcomes.latencies[:, 0]
        mixed = mixed + point.share * outcomes.latencies[:, 1]
        seconds = mean_known(mixed)
        reference_seconds = mean_known(experts.latencies[:, reference])
    names = task.table.expert_names
    return describe_cascade(router, task, seconds, reference_seconds, names[reference])


def no_cascade(why: str) -> dict[str, Any]:
    """What is said where cascades were tried and none was taken."""
    return {
        "steps": [],
        "seconds": None,
        "other_seconds": None,
        "sentences": [f"No cascade was taken: {why}."],
    }


def describe_cascade(
    router: Router,
    task: Task,
    seconds: float | None,
    other_seconds: float | None,
    other: str,
) -> dict[str, Any]:
    """The path of a router's cascades, where training rows end, and how long an answer takes."""
    names = task.table.expert_names
    sentences = []
    steps = []
    for cascade, share in zip(router.cascades, _shares_of_cascades(router), strict=True):
        path = f"the cascade {cascade_words(cascade, names)}"
        if len(cascade.order) == 1:
            path = f"always {names[cascade.order[0]]}"
        start = ""
        if share < 1:
            start = f"{100 * share:.3g} % of the queries: "
        sentence = f"{start}{path}."
        sentences.append(sentence[:1].upper() + sentence[1:])
        steps.append([[names[k] for k in step] for step in cascade.steps])
    if seconds is not None and other_seconds is not None:
        sentences.append(
            f"An answer takes {seconds:.2f} s on average; always {other} takes {other_seconds:.2f} s."
        )
    return {
        "steps": steps,
        "seconds": seconds,
        "other_seconds": other_seconds,
        "sentences": sentences,
    }


def _shares_of_cascades(router: Router) -> list[float]:
    """Share of the queries that each of a router's cascades gets."""
    if router.mix is None:
        return [1.0] * len(router.cascades)
    return [1 - router.mix.share, router.mix.share]


def unused_answers(task: Task, seed: int, least_share: float = 1.0) -> dict[str, Any] | None:
    """What a cascade would keep and save, on half of some rows; None where it would do neither.

    It is the cheapest that keeps ``least_share`` of the best expert's quality on the other half, of a few
    experts; None if it does not do so on the judged half.
    """
    rows = _rows_for_hint(task, seed)
    if rows is None:
        return None
    table = task.table.take(rows)
    experts = best_expert_per_price_level(table, HINT_EXPERTS)
    answers = table.answers
    if answers is None:
        return None
    answers = answers.of_experts(experts)
    if not answers.ever_agree:
        return None
    names = [table.expert_names[k] for k in experts]
    scores = table.scores[:, experts]
    prices = _prices_or_zeros(table)[:, experts]
    groups = np.unique(task.groups[rows], return_inverse=True)[1]
    (halves,) = random_splits(groups, 1, 0.5, seed)
    best = first_least(-scores[halves.train].mean(axis=0))
    # Counts of agreement read no features.
    X = np.zeros((len(rows), 1))
    router = CascadeRouter(max_calls=min(HINT_CALLS, len(experts)), gate="counts")
    train = halves.train
    router.fit(X[train], 1 - scores[train], answers=answers.take(train), prices=prices[train])
    most_errors = 1 - least_share * scores[train, best].mean() + OUTCOMES
    candidate = _cheapest_of_cost(router.candidates_, most_errors)
    if candidate is None:
        return None
    policy = router.policy_of(candidate)
    test = halves.test
    run = policy.run(X[test], answers.take(test))
    kept = _ratio(run.given(scores[test]).mean(), scores[test, best].mean())
    paid = _ratio(np.nanmean(run.paid(prices[test])), np.nanmean(prices[test, best]))
    saved = 1 - paid
    if len(policy.order) < 2 or kept < least_share or (kept <= 1 and saved <= 0):
        return None
    return _hint(cascade_words(policy, names), names[best], len(test), kept, saved, table)


def _cheapest_of_cost(
    candidates: Sequence[CascadeCandidate], most_errors: float
) -> CascadeCandidate | None:
    """The first of some cascades, sorted by price, with at most this mean cost; None if there is none."""
    for candidate in candidates:
        if candidate.cost <= most_errors:
            return candidate
    return None


def _rows_for_hint(task: Task, seed: int) -> Any:
    """Some rows with all scores known, ascending; None where answers or rows are too few."""
    table = task.table
    if not table.has_answers:
        return None
    rows = np.random.default_rng([seed, 3]).permutation(table.rows)[:HINT_ROWS]
    rows = np.sort(rows[~np.isnan(table.scores[rows]).any(axis=1)])
    if len(np.unique(task.groups[rows])) <= 2 * FEWEST_GROUPS:
        return None
    return rows


def best_expert_per_price_level(table: OutcomeTable, n_levels: int) -> list[int]:
    """Indices of the best expert among the cheapest, the next cheapest, ... experts."""
    mean_prices = np.nanmean(_prices_or_zeros(table), axis=0)
    mean_scores = np.nanmean(table.scores, axis=0)
    by_price = np.argsort(tie_ranks(mean_prices), kind="stable")
    experts = []
    for level in np.array_split(by_price, n_levels):
        if level.size:
            experts.append(int(level[first_least(-mean_scores[level])]))
    return experts


def _prices_or_zeros(table: OutcomeTable) -> FloatArray:
    """Prices of a table; zeros where it has none."""
    if table.prices is None:
        return np.zeros(table.scores.shape)
    return table.prices


def _ratio(value: Any, other: Any) -> float:
    """A share of another value; 1 where that is 0."""
    if other <= 0:
        return 1.0
    return float(value / other)


def _hint(
    path: str, best: str, n_rows: int, kept: float, saved: float, table: OutcomeTable
) -> dict[str, Any]:
    """What a cascade would do, with a sentence."""
    dollars = ""
    known_saving = None
    if table.prices is not None:
        dollars = f", and saves {100 * saved:.0f} % of its dollars"
        known_saving = saved
    sentence = (
        f"Answers are not used. On {counted(n_rows, 'held-out row')}, a cascade keeps "
        f"{100 * kept:.1f} % of the quality of always {best}{dollars}: it {path}. cascade=True considers "
        "cascades, which send a query to several experts."
    )
    return {
        "best_expert": best,
        "rows": n_rows,
        "kept": kept,
        "saved": known_saving,
        "path": path,
        "sentence": sentence,
    }
