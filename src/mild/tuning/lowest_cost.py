"""Tuning for the lowest cost: the search over families, and a cascade beside its winner."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.artifact import Router
from mild.artifact.sources import source_of
from mild.core.arrays import FloatArray, IntArray
from mild.core.rounding import OUTCOMES
from mild.data.describing import describe_prices, has_unused_prices
from mild.errors import InvalidInputError, TuningInterruptedWarning
from mild.metrics import Verdict
from mild.metrics.curves import prices_unused
from mild.metrics.operating_points import Frontier
from mild.metrics.outcomes import all_priced, mean_known
from mild.metrics.routing import expert_shares
from mild.money import amount
from mild.policies import TradeoffPolicy
from mild.tuning.cascades import (
    CheapestCascade,
    cheapest_cascade,
    describe_cascade,
    minus_choices,
    no_cascade,
    unused_answers,
)
from mild.tuning.fit import fit_constant
from mild.tuning.fitting import (
    Fitted,
    changed_shares,
    fit_arguments,
    fit_features,
    fitted_model,
    is_scaled,
    router_of,
    settle_ties,
    standardized,
)
from mild.tuning.held_out import cross_fit
from mild.tuning.request import TuneRequest
from mild.tuning.result import TuneResult
from mild.tuning.rows import TuningRows, tuning_rows
from mild.tuning.settings import TradeOffs, fit_price_heads
from mild.tuning.target_tuning import tuned_policy, with_separate_means
from mild.tuning.tasks import Task

Folds = Sequence[tuple[IntArray, IntArray]]


def tune_for_cost(request: TuneRequest) -> TuneResult:
    """The candidate of the lowest mean cost on held-out rows, or a cascade that costs less."""
    task = request.task
    search = request.search
    step = request.text_step(task)
    folds = request.folds(task)
    search.set_params(cv=folds, n_jobs=request.n_jobs, progress=request.stage(0))
    settle_ties(search)
    model = standardized(search, is_scaled(None, step))
    features = fit_features(task, step)
    costs, arguments = fit_arguments(task, model)
    model.fit(features, costs, **arguments)
    fitted = fitted_model(task, model, step, features)
    verdict = _search_verdict(search, task)
    notes: dict[str, Any] = {}
    cascade = None
    frontier = None
    if step is not None:
        rows = tuning_rows(task, fitted.features, step, folds, request.n_jobs, request.stage(1))
        cascade = _compare_cascade(request, rows, verdict)
        if can_trade(task, folds):
            fitted, frontier = _with_heads(fitted, rows)
            notes["price_head"] = "dollars"
    if frontier is not None:
        notes["frontier"] = frontier.as_dict(task.table.expert_names)
    if cascade is not None:
        verdict = cascade.verdict
    notes["verdict"] = verdict.as_dict()
    router = router_of(fitted, task, notes)
    if cascade is not None:
        router = cascade.router(router, rows)
    elif not search.decides_as_constant_:
        chosen = search.held_out_[search.held_out_ >= 0]
        changed = changed_shares(router, expert_shares(chosen, len(router.expert_names)))
        if changed is not None:
            request.notes.append(changed)
    return _result(request, router, verdict, cascade, frontier)


def constant_result(request: TuneRequest) -> TuneResult:
    """The result where one expert costs least in every row, so that no search is needed."""
    task = request.task
    fitted = fit_constant(task)
    constant = task.table.expert_names[task.constant_expert or 0]
    verdict = Verdict(
        estimate=0.0,
        low=0.0,
        high=0.0,
        constant=constant,
        n_rows=task.table.rows,
        n_groups=task.table.rows,
        identical=True,
        told=fitted.note,
    )
    text = None
    if fitted.router.text is not None:
        text = fitted.router.text.kind
    return TuneResult(
        router=fitted.router,
        verdict=verdict,
        family="constant",
        params={},
        rows=(),
        routes_as_constant=True,
        prices_unused=_prices_unused(task, None),
        answers_unused=unused_answers(task, request.random_state),
        cost=task.cost,
        text=text,
        notes=(*request.notes, fitted.note or ""),
        library=task.table.library,
    )


def can_trade(task: Task, folds: Folds) -> bool:
    """Whether a task has prices, and heads for error and price can be learned without each fold."""
    if task.table.prices is None:
        return False
    for known in (~np.isnan(task.table.scores), ~np.isnan(task.table.prices)):
        for train, _ in folds:
            if not known[train].any(axis=0).all():
                return False
    return True


def _with_heads(fitted: Fitted, rows: TuningRows) -> tuple[Fitted, Frontier | None]:
    """The fitted router with separate heads for error and price, and what these can do.

    It decides as before, and under other prices by the heads.
    """
    heads = fit_price_heads(rows)
    try:
        held_out = cross_fit([TradeOffs(heads)], rows, rows.scaling is None)
    except InvalidInputError:
        # No two queries are fully known.
        held_out = None
    source = source_of(fitted.model)
    frontier = None
    policies = TradeoffPolicy(source.policy, rows.unscaled(heads.router.policy_))
    if held_out is not None:
        frontier = held_out.frontier
        policies = tuned_policy(rows, heads, held_out).decided_by(source.policy)
    novelty = with_separate_means(fitted.novelty, rows.task)
    model = replace(source, policy=policies)
    return replace(fitted, model=model, novelty=novelty), frontier


def _search_verdict(search: Any, task: Task) -> Verdict:
    """The verdict of a search, with the name of the constant."""
    verdict: Verdict = search.verdict_
    constant = task.table.expert_names[verdict.constant_expert or 0]
    if search.decides_as_constant_:
        verdict = replace(verdict, router="the best candidate")
    return verdict.named(constant, task.counted, _dollars_more(search, task.table.prices))


def _dollars_more(search: Any, prices: FloatArray | None) -> float | None:
    """Mean price of the router's choices minus that of the constant, where both are known.

    None where an expert that the router chooses has no price at all.
    """
    if prices is None:
        return None
    chosen = search.held_out_
    constant = search.held_out_constants_
    rows = np.flatnonzero((chosen >= 0) & (constant >= 0))
    difference = prices[rows, chosen[rows]] - prices[rows, constant[rows]]
    if not all_priced(difference, chosen[rows]):
        return None
    return mean_known(difference)


@dataclass(frozen=True, eq=False)
class UsedCascade:
    """A cascade that costs less than the winner of the search, and the verdict on it."""

    cascade: CheapestCascade
    verdict: Verdict
    without_answers: Verdict  # against the winner of the search

    def router(self, router: Router, rows: TuningRows) -> Router:
        """The cascade, beside the router that decides without answers."""
        policy: Any = rows.unscaled(self.cascade.policy)
        # The calibration and the usual shares are those of the router without answers.
        info = replace(router.info, shares=None)
        cascade = replace(policy, direct=router.policy)
        return replace(router, policy=cascade, calibration=None, info=info)


def _compare_cascade(
    request: TuneRequest, rows: TuningRows, verdict: Verdict
) -> UsedCascade | None:
    """The cascade of the least cost, if it costs less on held-out rows than the winner of the search."""
    search = request.search
    if not request.max_calls or search.interrupted_:
        return None
    try:
        cascade = cheapest_cascade(rows, request.max_calls)
    except KeyboardInterrupt:
        search.interrupted_ = True
        rule = "the search was stopped before a cascade was found; the best router is kept."
        warnings.warn(rule, TuningInterruptedWarning, stacklevel=4)
        return None
    if cascade is None:
        return None
    return _if_better(request, cascade, verdict)


def _if_better(
    request: TuneRequest, cascade: CheapestCascade, verdict: Verdict
) -> UsedCascade | None:
    """The cascade, if it is better than the winner of the search; with ``safe`` by its interval."""
    search = request.search
    task = request.task
    constants = search.held_out_constants_
    winner = search.held_out_
    if search.decides_as_constant_:
        winner = constants
    against_winner = _cascade_verdict(request, cascade, winner, search.confidence)
    # Chosen from two, the cascade and the best candidate, which share the probability of an error.
    shared = (1 + search.confidence) / 2
    against_constant = _cascade_verdict(request, cascade, constants, shared)
    dollars = None
    if task.table.prices is not None and cascade.outcomes.prices is not None:
        more = cascade.outcomes.prices[:, 0] - _of_chosen(task.table.prices, constants)
        dollars = mean_known(more)
    against_constant = replace(
        against_constant,
        confidence=search.confidence,
        n_candidates=2,
        notes=("2 candidates",),
        router="the cascade",
        constant_expert=verdict.constant_expert,
    ).named(verdict.constant, task.counted, dollars)
    is_better = against_winner.estimate < -OUTCOMES
    if search.safe:
        is_better = against_winner.high < 0 and bool(against_constant.pays)
    if not is_better:
        return None
    return UsedCascade(cascade, against_constant, against_winner)


def _cascade_verdict(
    request: TuneRequest, cascade: CheapestCascade, chosen: IntArray, confidence: float
) -> Verdict:
    """The cost of a cascade against that of chosen experts (n_samples,), -1 for rows that do not count."""
    task = request.task
    return minus_choices(
        cascade.outcomes.costs[:, 0],
        task.costs,
        chosen,
        task.groups,
        task.counted,
        confidence,
        request.random_state,
    )


def _of_chosen(values: FloatArray, chosen: IntArray) -> FloatArray:
    """Values (n_samples,) of chosen experts; NaN for -1."""
    chosen_values = values[np.arange(len(values)), np.maximum(chosen, 0)]
    return np.where(chosen >= 0, chosen_values, np.nan)


def _prices_unused(task: Task, frontier: Frontier | None) -> dict[str, Any] | None:
    """What dollars could be saved where the table has prices and the loss leaves them out.

    This is the cheapest point whose quality is at least that of the best expert; None where the loss counts
    dollars, or the table has none.
    """
    if not has_unused_prices(task.table, task.terms):
        return None
    figures: dict[str, Any] = {
        "best_expert": None,
        "best_dollars_per_1000": None,
        "dollars_per_1000": None,
        "saved": None,
    }
    words = describe_prices(task.table)
    if frontier is not None:
        reference = frontier.reference
        best = task.table.expert_names[frontier.best_expert]
        good = frontier.quality >= reference.quality - OUTCOMES
        dollars = float(frontier.dollars[good].min(initial=reference.dollars))
        saved = 0.0
        if reference.dollars > 0:
            saved = 1 - dollars / reference.dollars
        figures = {
            "best_expert": best,
            "best_dollars_per_1000": reference.dollars,
            "dollars_per_1000": dollars,
            "saved": saved,
        }
        words = f"No trade-off has the quality of always {best} on held-out rows for fewer dollars."
        if saved > OUTCOMES:
            words = (
                f"On held-out rows, a trade-off has the quality of always {best} for ${amount(dollars)} "
                f"per 1,000 queries in place of ${amount(reference.dollars)} ({100 * saved:.0f} % less)."
            )
    return {**figures, "sentence": prices_unused(words)}


def _result(
    request: TuneRequest,
    router: Router,
    verdict: Verdict,
    cascade: UsedCascade | None,
    frontier: Frontier | None,
) -> TuneResult:
    """What ``tune`` returns."""
    search = request.search
    task = request.task
    skipped = tuple(search.skipped_families_)
    if skipped:
        request.notes.append(f"left out because torch is not installed: {', '.join(skipped)}.")
    unused = None
    if not request.max_calls and not search.interrupted_:
        unused = unused_answers(task, request.random_state)
    text = None
    if router.text is not None:
        text = router.text.kind
    return TuneResult(
        router=router,
        verdict=verdict,
        family=search.best_family_,
        params=search.best_params_,
        rows=tuple(_candidate_rows(search)),
        choice=search.choice_,
        routes_as_constant=search.decides_as_constant_ and cascade is None,
        prices_unused=_prices_unused(task, frontier),
        cascade=_cascade_facts(request, cascade, router, verdict),
        answers_unused=unused,
        cost=task.cost,
        text=text,
        n_folds=len(search.cv),
        skipped_families=skipped,
        dropped_margins=search.dropped_margins_,
        interrupted=search.interrupted_,
        notes=tuple(request.notes),
        library=task.table.library,
    )


def _cascade_facts(
    request: TuneRequest, cascade: UsedCascade | None, router: Router, verdict: Verdict
) -> dict[str, Any] | None:
    """What is said about the cascade that is used, or that none is; None if none was asked for."""
    task = request.task
    if not request.max_calls or request.search.interrupted_:
        return None
    if cascade is None:
        return no_cascade("none is better on held-out rows than the router without answers")
    seconds = None
    other_seconds = None
    latencies = cascade.cascade.outcomes.latencies
    if task.table.latencies is not None and latencies is not None:
        seconds = mean_known(latencies)
        other_seconds = mean_known(task.table.latencies[:, verdict.constant_expert or 0])
    facts = describe_cascade(router, task, seconds, other_seconds, verdict.constant)
    difference = cascade.without_answers
    facts["sentences"].append(
        f"Compared with the router without answers, on held-out rows: mean loss {difference.estimate:+.4f} "
        f"({100 * difference.confidence:g} % interval {difference.low:+.4f} to {difference.high:+.4f})."
    )
    return facts


def _candidate_rows(search: Any) -> list[dict[str, Any]]:
    """The candidates of a search, as rows."""
    results = search.cv_results_
    rows = []
    for index, values in enumerate(zip(*results.values(), strict=True)):
        row = dict(zip(results, values, strict=True))
        rows.append({**row, "taken": index == search.best_index_})
    return rows
