"""Tuning for the lowest mean cost: a search over families of routers, and a cascade beside its winner.

The cost of an answer is ``error + beta + price_weight * dollars + latency_weight * seconds``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.artifact import Router
from mild.artifact.sources import as_router
from mild.core.arrays import FloatArray, IntArray
from mild.core.rounding import OUTCOME_TOLERANCE
from mild.data.describing import describe_prices, has_unused_prices
from mild.errors import InvalidInputError, TuningInterruptedWarning
from mild.features import TextFeatures
from mild.metrics import Verdict
from mild.metrics.curves import prices_unused
from mild.metrics.operating_points import Frontier
from mild.metrics.results import all_priced, mean_known
from mild.metrics.routing import expert_shares
from mild.money import amount
from mild.policies import TradeoffPolicy
from mild.tuning.cascades import (
    CheapestCascade,
    cascade_hint,
    cheapest_cascade,
    describe_cascade,
    no_cascade,
    verdict_against_choices,
)
from mild.tuning.fit import fit_constant
from mild.tuning.fitting import (
    Fitted,
    changed_shares,
    fit_arguments,
    fit_features,
    is_scaled,
    make_saved_router,
    settle_ties,
    standardized,
    with_novelty,
)
from mild.tuning.held_out import cross_fit
from mild.tuning.request import TuneRequest
from mild.tuning.result import TuneResult
from mild.tuning.rows import TuningRows, tuning_rows
from mild.tuning.settings import TradeOffs, fit_price_heads
from mild.tuning.target_tuning import tuned_policy, with_separate_means
from mild.tuning.tasks import Task

#: (rows to fit on, rows to evaluate on) of each fold.
Folds = Sequence[tuple[IntArray, IntArray]]


def tune_for_cost(request: TuneRequest) -> TuneResult:
    """Return the router of the lowest mean cost on held-out rows, and the verdict on it.

    ``RouterCV`` searches over families of routers. Where the table has texts or vectors, a cascade takes
    the place of the winner if it costs less. Where every expert has prices, too, the router also
    gets separate heads for error and price, by which it decides when it is later set to other prices.
    """
    task = request.task
    search = request.search
    text_features = request.text_features(task)
    folds = request.folds(task)
    model = _search_model(request, text_features, folds)
    features = fit_features(task, text_features)
    costs, arguments = fit_arguments(task, model)
    try:
        with warnings.catch_warnings():
            # An interrupted RouterCV keeps its best so far; nothing comes of an interrupted tune.
            warnings.simplefilter("error", TuningInterruptedWarning)
            model.fit(features, costs, **arguments)
    except TuningInterruptedWarning as error:
        raise KeyboardInterrupt from error
    fitted = with_novelty(task, model, text_features, features)
    # The model has fitted the search itself, not a copy: its attributes hold the results.
    verdict = _search_verdict(search, task)
    facts: dict[str, Any] = {}
    cascade = None
    frontier = None
    if text_features is not None:
        rows = tuning_rows(
            task, fitted.features, text_features, folds, request.n_jobs, request.stage(1)
        )
        cascade = _compare_cascade(request, rows, verdict)
        if can_trade(task, folds):
            fitted, frontier = _with_heads(fitted, rows)
            facts["price_head"] = "dollars"
    if frontier is not None:
        facts["frontier"] = frontier.as_dict(task.table.experts)
    if cascade is not None:
        verdict = cascade.verdict
    facts["verdict"] = verdict.as_dict()
    router = make_saved_router(fitted, task, facts)
    if cascade is not None:
        router = cascade.router(router, rows)
    elif not search.decides_as_constant_:
        # Choices in held-out rows; -1 marks rows that no fold holds out.
        chosen = search.held_out_[search.held_out_ >= 0]
        changed_note = changed_shares(router, expert_shares(chosen, len(router.experts)))
        if changed_note is not None:
            request.notes.append(changed_note)
    return _result(request, router, verdict, cascade, frontier)


def _search_model(request: TuneRequest, text_features: TextFeatures | None, folds: Folds) -> Any:
    """Return the unfitted search of a request, behind a scaler unless its features come from texts."""
    search = request.search
    search.set_params(cv=folds, n_jobs=request.n_jobs, progress=request.stage(0))
    settle_ties(search)
    return standardized(search, is_scaled(None, text_features))


def constant_result(request: TuneRequest) -> TuneResult:
    """Return the result for a table in which one expert costs least in every row.

    There is nothing to search: the router always asks this expert, and the verdict states the reason.
    """
    task = request.task
    fitted = fit_constant(task)
    reason = task.constant_reason
    expert = task.constant_expert
    assert expert is not None
    assert reason is not None
    expert_name = task.table.experts[expert]
    verdict = Verdict(
        estimate=0.0,
        low=0.0,
        high=0.0,
        constant=expert_name,
        n_rows=len(task.table),
        n_groups=len(task.table),
        identical=True,
        fixed_sentence=reason,
    )
    features_kind = None
    if fitted.router.text is not None:
        features_kind = fitted.router.text.kind
    return TuneResult(
        router=fitted.router,
        verdict=verdict,
        family="constant",
        params={},
        rows=(),
        routes_as_constant=True,
        prices_unused=_prices_unused(task, None),
        answers_unused=cascade_hint(task, request.random_state),
        cost=task.cost,
        text=features_kind,
        notes=(*request.notes, reason),
        library=task.table.library,
    )


def can_trade(task: Task, folds: Folds) -> bool:
    """Whether heads for error and price can be learned, on all rows and without each fold.

    This needs a score and a price of every expert in the training rows of every fold.
    """
    if task.table.prices is None:
        return False
    for known in (~np.isnan(task.table.scores), ~np.isnan(task.table.prices)):
        for train, _ in folds:
            if not known[train].any(axis=0).all():
                return False
    return True


def _with_heads(fitted: Fitted, rows: TuningRows) -> tuple[Fitted, Frontier | None]:
    """Add separate heads for error and price to a fitted router, by which it can be set to other prices.

    Returns
    -------
    fitted : the router, which decides as before
    frontier : quality and dollars to expect of its trade-offs; None if too few rows are fully known
    """
    heads = fit_price_heads(rows)
    try:
        held_out = cross_fit([TradeOffs(heads)], rows, rows.scaling is None)
    except InvalidInputError:
        # No two queries have the scores and prices of all experts.
        held_out = None
    router = as_router(fitted.model)
    frontier = None
    policy = TradeoffPolicy(router.policy, rows.unscaled(heads.router.policy_))
    if held_out is not None:
        frontier = held_out.frontier
        policy = tuned_policy(rows, heads, held_out).decided_by(router.policy)
    novelty = with_separate_means(fitted.novelty, rows.task)
    model = replace(router, policy=policy)
    return replace(fitted, model=model, novelty=novelty), frontier


def _search_verdict(search: Any, task: Task) -> Verdict:
    """Return the verdict of a search, with the name of the expert that it compares with, and dollars."""
    verdict: Verdict = search.verdict_
    constant = task.table.experts[verdict.constant_expert or 0]
    if search.decides_as_constant_:
        verdict = replace(verdict, router="the best candidate")
    return verdict.named(constant, task.unit, _dollars_more(search, task.table.prices))


def _dollars_more(search: Any, prices: FloatArray | None) -> float | None:
    """Return the mean dollars of the held-out choices minus those of the best single expert.

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
    """A cascade that is used because it costs less than the winner of the search.

    Attributes
    ----------
    cascade : the cascade, and what it did on held-out rows
    verdict : the cascade against the best single expert
    without_answers : the cascade against the winner of the search, which decides without answers
    """

    cascade: CheapestCascade
    verdict: Verdict
    without_answers: Verdict

    def router(self, router: Router, rows: TuningRows) -> Router:
        """Return the cascade as a router, from the router that the search found.

        The cascade keeps the policy of that router, by which it decides without answers.
        """
        policy: Any = rows.unscaled(self.cascade.policy)
        # The usual shares are those of the router without answers.
        info = replace(router.info, shares=None)
        cascade = replace(policy, direct=router.policy)
        return replace(router, policy=cascade, info=info)


def _compare_cascade(
    request: TuneRequest, rows: TuningRows, verdict: Verdict
) -> UsedCascade | None:
    """Return the cheapest cascade if it is better than the winner of the search, otherwise None.

    None, too, if no cascade was asked for.
    """
    if not request.max_calls:
        return None
    cascade = cheapest_cascade(rows, request.max_calls)
    if cascade is None:
        return None
    return _used_cascade(request, cascade, verdict)


def _used_cascade(
    request: TuneRequest, cascade: CheapestCascade, verdict: Verdict
) -> UsedCascade | None:
    """Return a cascade with its verdicts if it is better than the winner of the search, otherwise None.

    It is better if its mean cost on held-out rows is lower. With ``safe=True`` the intervals of its
    differences to the winner, and to the best single expert, must also be below zero.

    Parameters
    ----------
    request : what ``mild.tune`` was asked for, after its search
    cascade : the cheapest cascade, with what it did on held-out rows
    verdict : the verdict on the winner of the search
    """
    search = request.search
    constants = search.held_out_constants_
    winner = search.held_out_
    if search.decides_as_constant_:
        winner = constants
    against_winner = _cascade_verdict(request, cascade, winner, search.confidence)
    # The cascade was chosen from two, itself and the winner, which share the probability of an error.
    shared_confidence = (1 + search.confidence) / 2
    against_constant = replace(
        _cascade_verdict(request, cascade, constants, shared_confidence),
        confidence=search.confidence,
        n_candidates=2,
        notes=("2 candidates",),
        router="the cascade",
        constant_expert=verdict.constant_expert,
    )
    extra_dollars = _extra_dollars(request.task, cascade, constants)
    against_constant = against_constant.named(verdict.constant, request.task.unit, extra_dollars)
    is_better = against_winner.estimate < -OUTCOME_TOLERANCE
    if search.safe:
        is_better = against_winner.high < 0 and bool(against_constant.pays)
    if not is_better:
        return None
    return UsedCascade(cascade, against_constant, against_winner)


def _extra_dollars(task: Task, cascade: CheapestCascade, constants: IntArray) -> float | None:
    """Return the mean dollars of a cascade minus those of always asking one expert, per query.

    ``constants`` (n_samples,) is the best single expert, or -1 in rows that no fold holds out. None
    where no row has both prices.
    """
    cascade_prices = cascade.outcomes.prices
    if task.table.prices is None or cascade_prices is None:
        return None
    return mean_known(cascade_prices[:, 0] - _of_chosen(task.table.prices, constants))


def _cascade_verdict(
    request: TuneRequest, cascade: CheapestCascade, chosen: IntArray, confidence: float
) -> Verdict:
    """Return the verdict on the cost of a cascade against that of chosen experts.

    ``chosen`` (n_samples,) is -1 in rows that do not count.
    """
    task = request.task
    return verdict_against_choices(
        cascade.outcomes.costs[:, 0],
        task.costs,
        chosen,
        task.groups,
        task.unit,
        confidence,
        request.random_state,
    )


def _of_chosen(values: FloatArray, chosen: IntArray) -> FloatArray:
    """Return the values (n_samples,) of the experts ``chosen``; NaN where that is -1."""
    chosen_values = values[np.arange(len(values)), np.maximum(chosen, 0)]
    return np.where(chosen >= 0, chosen_values, np.nan)


def _prices_unused(task: Task, frontier: Frontier | None) -> dict[str, Any] | None:
    """Return what dollars could be saved where the table has prices and the loss leaves them out.

    Parameters
    ----------
    task : the rows and their costs
    frontier : what trade-offs between error and price keep and cost; None if they were not fitted

    Returns
    -------
    dict or None
        Figures, None without a frontier, and a sentence. None where the loss counts dollars, or the table
        has no prices.
    """
    if not has_unused_prices(task.table, task.terms):
        return None
    if frontier is None:
        return {
            "best_expert": None,
            "best_dollars_per_1000": None,
            "dollars_per_1000": None,
            "saved": None,
            "sentence": prices_unused(describe_prices(task.table)),
        }
    # The cheapest point whose quality is at least that of the best expert.
    reference = frontier.reference
    is_as_good = frontier.quality >= reference.quality - OUTCOME_TOLERANCE
    dollars = float(frontier.dollars[is_as_good].min(initial=reference.dollars))
    saved = 0.0
    if reference.dollars > 0:
        saved = 1 - dollars / reference.dollars
    best_expert = task.table.experts[frontier.best_expert]
    return {
        "best_expert": best_expert,
        "best_dollars_per_1000": reference.dollars,
        "dollars_per_1000": dollars,
        "saved": saved,
        "sentence": prices_unused(_saving_words(best_expert, reference.dollars, dollars, saved)),
    }


def _saving_words(best_expert: str, reference_dollars: float, dollars: float, saved: float) -> str:
    """Return a sentence on what a trade-off costs that keeps the quality of the best expert."""
    if saved <= OUTCOME_TOLERANCE:
        return f"No trade-off has the quality of always {best_expert} on held-out rows for fewer dollars."
    return (
        f"On held-out rows, a trade-off has the quality of always {best_expert} for ${amount(dollars)} "
        f"per 1,000 queries in place of ${amount(reference_dollars)} ({100 * saved:.0f} % less)."
    )


def _result(
    request: TuneRequest,
    router: Router,
    verdict: Verdict,
    cascade: UsedCascade | None,
    frontier: Frontier | None,
) -> TuneResult:
    """Return the result of ``mild.tune``, from the router, its verdict and the attributes of the search."""
    search = request.search
    task = request.task
    skipped_families = tuple(search.skipped_families_)
    if skipped_families:
        names = ", ".join(skipped_families)
        request.notes.append(f"left out because torch is not installed: {names}.")
    # A hint at what a cascade would do, where none was tried.
    answers_unused = None
    if not request.max_calls:
        answers_unused = cascade_hint(task, request.random_state)
    features_kind = None
    if router.text is not None:
        features_kind = router.text.kind
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
        answers_unused=answers_unused,
        cost=task.cost,
        text=features_kind,
        n_folds=len(search.cv),
        skipped_families=skipped_families,
        dropped_margins=search.dropped_margins_,
        notes=tuple(request.notes),
        library=task.table.library,
    )


def _cascade_facts(
    request: TuneRequest, cascade: UsedCascade | None, router: Router, verdict: Verdict
) -> dict[str, Any] | None:
    """Return facts and sentences about the cascade that is used, or why none is.

    None if no cascade was asked for.
    """
    task = request.task
    if not request.max_calls:
        return None
    if cascade is None:
        return no_cascade("none is better on held-out rows than the router without answers")
    seconds = None
    constant_seconds = None
    latencies = cascade.cascade.outcomes.latencies
    if task.table.latencies is not None and latencies is not None:
        seconds = mean_known(latencies)
        constant_seconds = mean_known(task.table.latencies[:, verdict.constant_expert or 0])
    facts = describe_cascade(router, task, seconds, constant_seconds, verdict.constant)
    difference = cascade.without_answers
    facts["sentences"].append(
        f"Compared with the router without answers, on held-out rows: mean loss {difference.estimate:+.4f} "
        f"({100 * difference.confidence:g} % interval {difference.low:+.4f} to {difference.high:+.4f})."
    )
    return facts


def _candidate_rows(search: Any) -> list[dict[str, Any]]:
    """Return a row for each candidate of a search: family, params, mean_cost, ..., taken."""
    results = search.cv_results_
    rows = []
    for index, values in enumerate(zip(*results.values(), strict=True)):
        row = dict(zip(results, values, strict=True))
        rows.append({**row, "taken": index == search.best_index_})
    return rows
