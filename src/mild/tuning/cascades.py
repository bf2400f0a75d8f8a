"""Cascades in tuning: the cheapest one for given weights of dollars and seconds, and sentences on cascades.

A cascade asks experts in steps. After each step a gate reads the answers, and the cascade ends with one of
them or goes on to the next step. It pays for all experts that it asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.artifact import Router
from mild.artifact.facts import cascade_words
from mild.core.answers import KINDS, Answers
from mild.core.arrays import FloatArray, IntArray, invalid
from mild.core.rounding import OUTCOME_TOLERANCE, first_smallest, tie_ranks
from mild.data import Outcomes
from mild.data.splits import Split, random_splits
from mild.errors import count_noun
from mild.metrics import Verdict, judge_cost
from mild.metrics.operating_points import OperatingPoint
from mild.metrics.results import Results, mean_known
from mild.metrics.routing import FEWEST_GROUPS
from mild.policies import CascadePolicy
from mild.routers.cascade import CascadeCandidate, CascadeRouter
from mild.routers.cost_models import FoldFeatures
from mild.tuning.held_out import HeldOut
from mild.tuning.rows import TuningRows
from mild.tuning.settings import cascade_outcomes
from mild.tuning.tasks import Task

# Most rows, experts and calls of the cascade of a hint, which is fitted where no cascade was asked for.
HINT_ROWS = 2_000
HINT_EXPERTS = 8
HINT_CALLS = 3


def checked_answers(table: Outcomes) -> Answers:
    """Return the answers of a table; refuse a table from which no cascade can be learned."""
    if len(table.experts) < 2:
        raise invalid("cascade", f"needs at least two experts; got {table.experts[0]} only.")
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


def verdict_against_choices(
    cascade_values: FloatArray,
    values: FloatArray,
    chosen: IntArray,
    groups: IntArray,
    unit: str,
    confidence: float,
    seed: int,
) -> Verdict:
    """Return the verdict on a cascade's values (n_samples,) against those of chosen experts.

    ``values`` (n_samples, n_experts) are those of the experts; ``chosen`` (n_samples,) is -1 in rows that
    do not count.
    """
    chosen_values = values[np.arange(len(values)), np.maximum(chosen, 0)]
    both = np.column_stack([cascade_values, np.where(chosen >= 0, chosen_values, np.nan)])
    known = ~np.isnan(both).any(axis=1)
    return judge_cost(
        both[known],
        np.zeros(int(known.sum()), np.intp),
        1,
        ["the cascade", "the router"],
        groups=groups[known],
        unit=unit,
        confidence=confidence,
        random_state=seed,
    )


@dataclass(frozen=True, eq=False)
class CheapestCascade:
    """The cascade of the least cost, and what cascades fitted without a fold did on its rows.

    Attributes
    ----------
    policy : fitted on all rows
    outcomes : (n_samples, 1), NaN in rows that no fold holds out
    """

    policy: CascadePolicy
    outcomes: Results


def cheapest_cascade(rows: TuningRows, max_calls: int) -> CheapestCascade | None:
    """Fit the cascade of the least cost on all rows, and judge it by cross-validation.

    Experts, order and threshold are chosen anew without each fold. None where asking one expert is
    cheaper.
    """
    task = rows.task
    policies = rows.each_part(_cascade_of_least_cost, "cascades", max_calls)
    final = policies[0]
    if len(final.order) < 2:
        return None
    unknown = np.full((len(task.table), 1), np.nan)
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
    return CheapestCascade(final, Results(costs, scores, prices, latencies))


def _cascade_of_least_cost(task: Task, part: FoldFeatures, max_calls: int) -> CascadePolicy:
    """Fit the cascade of the least cost on the training rows of a fold."""
    table = task.table
    train = part.train
    answers = checked_answers(table).take(train)
    errors = 1 - table.scores[train]
    # What asking costs, in wrong answers: the terms of the cost besides the error.
    asking_costs = np.maximum(task.costs[train] - errors, 0.0)
    router = CascadeRouter(max_calls=max_calls)
    router.fit(part.X[train], errors, answers=answers, prices=asking_costs)
    return router.at(1.0).with_ranks(task.ranks)


def cascade_summary(
    router: Router, task: Task, held_out: HeldOut, point: OperatingPoint
) -> dict[str, Any]:
    """Describe the cascade that was chosen for a target, as ``describe_cascade`` does.

    Its time to an answer on held-out rows is compared with that of the best expert.
    """
    outcomes = held_out.outcomes_at([point.first, point.second])
    experts = held_out.experts.outcomes.take(held_out.is_known)
    reference = held_out.frontier.best_expert
    seconds = None
    reference_seconds = None
    if outcomes.latencies is not None and experts.latencies is not None:
        mixed = (1 - point.share) * outcomes.latencies[:, 0]
        mixed = mixed + point.share * outcomes.latencies[:, 1]
        seconds = mean_known(mixed)
        reference_seconds = mean_known(experts.latencies[:, reference])
    names = task.table.experts
    return describe_cascade(router, task, seconds, reference_seconds, names[reference])


def no_cascade(why: str) -> dict[str, Any]:
    """Return the facts about cascades where they were tried and none is used."""
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
    reference_seconds: float | None,
    reference_expert: str,
) -> dict[str, Any]:
    """Describe a router's cascades in names, figures and sentences that can be written as JSON.

    Parameters
    ----------
    router : a router that is a cascade, or a mix of two cascades
    task : the rows that it was fitted on
    seconds : mean time to an answer; None if it is not known
    reference_seconds : mean time to an answer if the reference expert is always asked; None if it is not
        known
    reference_expert : name of that expert

    Returns
    -------
    dict
        "steps" has, for each cascade, the names of the experts asked in each step. "seconds" and
        "other_seconds" are the two times. "sentences" say in which order experts are asked, and how long an
        answer takes.
    """
    expert_names = task.table.experts
    steps_of_cascades = []
    sentences = []
    for cascade, share in zip(router.cascades, _shares_of_cascades(router), strict=True):
        step_names = [[expert_names[expert] for expert in step] for step in cascade.steps]
        steps_of_cascades.append(step_names)
        sentences.append(_path_sentence(cascade, share, expert_names))
    if seconds is not None and reference_seconds is not None:
        sentences.append(
            f"An answer takes {seconds:.2f} s on average; always asking {reference_expert} takes "
            f"{reference_seconds:.2f} s."
        )
    return {
        "steps": steps_of_cascades,
        "seconds": seconds,
        "other_seconds": reference_seconds,
        "sentences": sentences,
    }


def _path_sentence(cascade: CascadePolicy, share: float, expert_names: list[str]) -> str:
    """Return a sentence on which experts a cascade asks, and for which share of the queries."""
    path = f"the cascade {cascade_words(cascade, expert_names)}"
    if len(cascade.order) == 1:
        path = f"always {expert_names[cascade.order[0]]}"
    queries = ""
    if share < 1:
        queries = f"{100 * share:.3g} % of the queries: "
    sentence = f"{queries}{path}."
    return sentence[:1].upper() + sentence[1:]


def _shares_of_cascades(router: Router) -> list[float]:
    """Return the share of the queries that each of a router's cascades gets."""
    if router.mix is None:
        return [1.0] * len(router.cascades)
    return [1 - router.mix.share, router.mix.share]


@dataclass(frozen=True, eq=False)
class _HintRows:
    """Rows and experts on which a cascade is tried for a hint.

    Attributes
    ----------
    expert_names : names of the experts
    scores, prices : (n_rows, n_experts) arrays; prices are zero if the table has none
    answers : answers of these experts in these rows
    halves : rows to fit the cascade on (``train``) and to judge it on (``test``)
    """

    expert_names: list[str]
    scores: FloatArray
    prices: FloatArray
    answers: Answers
    halves: Split


def cascade_hint(task: Task, seed: int, least_share: float = 1.0) -> dict[str, Any] | None:
    """Return a hint where no cascade was asked for: what quality one would keep, and what it would save.

    Some rows are drawn and divided into halves. On one half, the cheapest cascade is fitted that keeps
    ``least_share`` of the best expert's quality; it is judged on the other half.

    Parameters
    ----------
    task : the rows and experts; only some are used if there are many
    seed : seed of the draw of the rows and of the halves
    least_share : quality to keep, as a share of the best expert's

    Returns
    -------
    dict or None
        Figures and a sentence. None if no cascade keeps this share on the other half, or if it neither
        improves quality nor saves dollars; also if there are too few rows or answers.
    """
    rows = _hint_rows(task, seed)
    if rows is None:
        return None
    train = rows.halves.train
    test = rows.halves.test
    best_expert = first_smallest(-rows.scores[train].mean(axis=0))
    policy = _cheapest_cascade_that_keeps(rows, best_expert, least_share)
    # A cascade of one step is a single expert.
    if policy is None or len(policy.order) < 2:
        return None
    run = policy.run(np.zeros((len(test), 1)), rows.answers.take(test))
    cascade_prices = run.total_prices(rows.prices[test])
    kept = _ratio(
        run.answer_scores(rows.scores[test]).mean(), rows.scores[test, best_expert].mean()
    )
    saved = 1 - _ratio(np.nanmean(cascade_prices), np.nanmean(rows.prices[test, best_expert]))
    if kept < least_share or (kept <= 1 and saved <= 0):
        return None
    path = cascade_words(policy, rows.expert_names)
    best_name = rows.expert_names[best_expert]
    return _hint(path, best_name, len(test), kept, saved, task.table)


def _hint_rows(task: Task, seed: int) -> _HintRows | None:
    """Draw the rows and choose the experts of a hint; None where there are too few rows or answers."""
    if not task.table.has_answers:
        return None
    drawn = np.random.default_rng([seed, 3]).permutation(len(task.table))[:HINT_ROWS]
    has_scores = ~np.isnan(task.table.scores[drawn]).any(axis=1)
    rows = np.sort(drawn[has_scores])
    if len(np.unique(task.groups[rows])) <= 2 * FEWEST_GROUPS:
        return None
    table = task.table[rows]
    if table.answers is None:
        return None
    experts = best_expert_per_price_level(table, HINT_EXPERTS)
    answers = table.answers.of_experts(experts)
    if not answers.ever_agree:
        return None
    _, groups = np.unique(task.groups[rows], return_inverse=True)
    (halves,) = random_splits(groups, 1, 0.5, seed)
    return _HintRows(
        expert_names=[table.experts[expert] for expert in experts],
        scores=table.scores[:, experts],
        prices=_prices_or_zeros(table)[:, experts],
        answers=answers,
        halves=halves,
    )


def _cheapest_cascade_that_keeps(
    rows: _HintRows, best_expert: int, least_share: float
) -> CascadePolicy | None:
    """Fit the cheapest cascade that keeps a share of the best expert's quality; None if none does."""
    train = rows.halves.train
    scores = rows.scores[train]
    router = CascadeRouter(max_calls=min(HINT_CALLS, len(rows.expert_names)))
    # Counts of agreement read no features.
    no_features = np.zeros((len(train), 1))
    answers = rows.answers.take(train)
    router.fit(no_features, 1 - scores, answers=answers, prices=rows.prices[train])
    most_errors = 1 - least_share * scores[:, best_expert].mean() + OUTCOME_TOLERANCE
    candidate = _first_within(router.candidates_, most_errors)
    if candidate is None:
        return None
    return router.policy_of(candidate)


def _first_within(
    candidates: Sequence[CascadeCandidate], most_errors: float
) -> CascadeCandidate | None:
    """Return the first cascade, of some sorted by price, with at most this mean error, or None."""
    for candidate in candidates:
        if candidate.cost <= most_errors:
            return candidate
    return None


def best_expert_per_price_level(table: Outcomes, n_levels: int) -> list[int]:
    """Return the index of the best of the cheapest experts, of the next cheapest, and so on."""
    mean_prices = np.nanmean(_prices_or_zeros(table), axis=0)
    mean_scores = np.nanmean(table.scores, axis=0)
    by_price = np.argsort(tie_ranks(mean_prices), kind="stable")
    experts = [
        int(level[first_smallest(-mean_scores[level])])
        for level in np.array_split(by_price, n_levels)
        if level.size
    ]
    return experts


def _prices_or_zeros(table: Outcomes) -> FloatArray:
    """Return the prices (n_rows, n_experts) of a table; zeros where it has none."""
    if table.prices is None:
        return np.zeros(table.scores.shape)
    return table.prices


def _ratio(value: Any, other: Any) -> float:
    """Return a value as a share of another one; 1 where that is 0."""
    if other <= 0:
        return 1.0
    return float(value / other)


def _hint(
    path: str, best: str, n_rows: int, kept: float, saved: float, table: Outcomes
) -> dict[str, Any]:
    """Return the figures of a hint, and its sentence."""
    dollars = ""
    known_saving = None
    if table.prices is not None:
        dollars = f", and saves {100 * saved:.0f} % of its dollars"
        known_saving = saved
    sentence = (
        f"Answers are not used. On {count_noun(n_rows, 'held-out row')}, a cascade keeps "
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
