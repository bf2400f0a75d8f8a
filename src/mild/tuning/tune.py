"""``mild.tune``: search for the best router, and say whether routing pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mild.artifact.targets import Target
from mild.core.arrays import invalid
from mild.data import Outcomes, read_outcomes
from mild.data.cost_terms import CostTerms, require_scores
from mild.defaults import TARGET_PROBABILITY
from mild.errors import InvalidInputError, check_arguments
from mild.features import TextFeatures
from mild.tuning.cascades import checked_answers
from mild.tuning.lowest_cost import constant_result, tune_for_cost
from mild.tuning.request import TuneRequest
from mild.tuning.result import TuneResult
from mild.tuning.searches import most_calls, search_for_tune, unused_with_target
from mild.tuning.settings import check_prices
from mild.tuning.target_tuning import tune_for_target
from mild.tuning.tasks import Progress, check_rows, make_task

if TYPE_CHECKING:
    from mild.routers import RouterCV

__all__ = ["TuneResult", "tune"]

#: Share of the best expert's quality that is kept where dollars are known and no goal is given.
KEPT_WITHOUT_GOAL = 0.95
#: With a target and fewer groups of rows than FEW_GROUPS, so many folds: routers that are fitted on a fifth
#: less would be judged as worse than the one that is saved.
FOLDS_OF_FEW, FEW_GROUPS = 10, 500


@check_arguments
def tune(
    data: Any,
    *,
    keep_quality: float | None = None,
    max_quality_loss: float | None = None,
    max_dollars: float | None = None,
    target_probability: float = TARGET_PROBABILITY,
    guarantee: float | None = None,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
    cascade: bool | int = False,
    text: str | TextFeatures | None = None,
    groups: str | None = None,
    time: str | None = None,
    search: RouterCV | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> TuneResult:
    """Search for the best router, and say whether routing pays.

    Linear routers of several strengths and margins, and other kinds of routers, are compared by
    cross-validation. Equal queries stay in one fold. The cost of an answer is ``error + beta +
    price_weight * dollars + latency_weight * seconds``; with a target, the trade-off between error and
    dollars is searched instead. Without a goal, 95 % of the best expert's quality is kept if dollars are
    known; if they are not, the mean error is the least.

    Parameters
    ----------
    data : Outcomes, or whatever ``mild.read_outcomes`` takes
    keep_quality : lowest quality to accept, as a share of the best expert's, such as 0.95
    max_quality_loss : largest loss of quality compared with the best expert, such as 0.01
    max_dollars : budget in dollars per 1,000 queries, for which the quality is to be as high as possible
    target_probability : probability with which these targets are to be met on the same number of new rows,
        an estimate: the setting must meet them with a margin on the held-out rows. At 0.5 they are met on
        average. It needs a target, and cannot be combined with ``guarantee``
    guarantee : probability with which ``max_quality_loss`` holds, such as 0.9. Half of the rows are kept
        for its calibration
    beta, price_weight, latency_weight : terms of the cost, as in ``mild.fit``
    cascade : whether to try cascades, too, which ask several experts and read their answers (columns
        ``answer__<expert>``): False, True (at most 4 calls about one query), or the largest
        number of calls, at least 2. The router is a cascade if it is better on held-out rows than one
        that asks a single expert
    text : text features, as in ``mild.fit``
    groups : column whose equal values stay in one fold, such as a subject or a customer
    time : column of times; each fold is judged by routers that were fitted on the past
    search : RouterCV that says what is tried and how it is judged, such as
        ``RouterCV(LinearRouter(loss="tdef"), families="linear", cv=10)``. Without ``families`` it tries all
        but the network; with a target no families are searched, and ``notes`` of the result name settings
        that have no effect. Without ``n_jobs`` it uses all cores if the table has 800 rows or more.
        ``cv`` is a number of folds; ``random_state`` and ``progress`` are those of ``tune``. None for
        ``RouterCV()``
    random_state : seed of the random numbers
    progress : callable(done, total, message) or None

    Returns
    -------
    TuneResult

    Examples
    --------
    >>> import mild
    >>> from mild.datasets import load_outcomes
    >>> train, test = load_outcomes().split(random_state=0)
    >>> found = mild.tune(
    ...     train,
    ...     price_weight=50,
    ...     search=mild.RouterCV(families="linear", alphas=[0.01], cv=3),
    ... )
    >>> found.verdict.pays
    True
    >>> found.router  # doctest: +ELLIPSIS
    Router(...)
    """
    target = Target(
        keep_quality,
        max_quality_loss,
        max_dollars,
        guarantee,
        target_probability,
    )
    terms = CostTerms(beta, price_weight, latency_weight)
    unfitted_search = search_for_tune(search, random_state, progress)
    has_target = bool(target.limits_by_name)
    _check_one_goal(target, terms)
    table = read_outcomes(data)
    _check_experts(table)
    goal = None
    if not has_target and not terms.stated and _has_dollars(table):
        target = replace(target, keep_quality=KEPT_WITHOUT_GOAL)
        has_target = True
        goal = f"No goal was given: keep_quality={KEPT_WITHOUT_GOAL} is taken."
    max_calls = most_calls(cascade)
    _check_table(table, target, max_calls)
    task = make_task(table, terms, groups, needs_prices=has_target)
    check_rows(task)
    may_choose_folds = has_target and time is None and (search is None or search.cv is None)
    if may_choose_folds and FOLDS_OF_FEW <= len(np.unique(task.groups)) < FEW_GROUPS:
        unfitted_search.set_params(cv=FOLDS_OF_FEW)
    request = TuneRequest(
        task, target, unfitted_search, max_calls, text, time, random_state, progress
    )
    if task.left_out is not None:
        request.notes.append(task.left_out)
    if has_target:
        unused_settings = unused_with_target(search)
        if unused_settings:
            request.notes.append(_unused_words(unused_settings))
        return replace(tune_for_target(request), goal=goal)
    if task.constant_expert is not None:
        return constant_result(request)
    return tune_for_cost(request)


def _has_dollars(table: Outcomes) -> bool:
    """Whether score and price of every expert are known in some rows, and there are dollars to save."""
    if table.given_costs is not None or table.prices is None:
        return False
    prices = table.prices[~np.isnan(table.prices + table.scores).any(axis=1)]
    return len(prices) > 1 and bool(np.ptp(prices.mean(axis=0)) > 0)


def _check_experts(table: Outcomes) -> None:
    """Refuse a table in which there is nothing to choose from."""
    if len(table.experts) < 2:
        raise InvalidInputError(
            f"a table to tune on must have at least two experts; got {table.experts[0]} alone.",
            parameter="data",
            code="one_expert",
        )
    if table.given_costs is None and not np.nansum(table.scores) > 0:
        raise InvalidInputError(
            "a table to tune on must have a right answer; all of its scores are 0. Check the column of the "
            "scores.",
            parameter="data",
            code="no_right_answer",
        )


def _check_one_goal(target: Target, terms: CostTerms) -> None:
    """Refuse a target together with terms of the cost, each of which chooses a setting."""
    _check_probability(target)
    if not target.limits_by_name:
        return
    for name, value in terms.as_dict().items():
        if value is not None:
            raise invalid(
                name,
                f"must not be given together with a target; got {target.words} as well. A target is met "
                "by errors and dollars alone: give the target, or the terms of the cost.",
            )


def _check_probability(target: Target) -> None:
    """Refuse a probability of meeting a target without a target, or together with a guarantee."""
    probability = target.target_probability
    if probability == TARGET_PROBABILITY:
        return
    if target.guarantee is not None:
        raise invalid(
            "target_probability",
            "must not be given together with guarantee, which is a probability itself; got "
            f"{probability:g} and guarantee {target.guarantee:g}. Give one of them.",
        )
    if not target.limits_by_name:
        raise invalid(
            "target_probability",
            f"must be given together with a target; got {probability:g} and no target. Give keep_quality, "
            "max_quality_loss or max_dollars, too.",
        )


def _unused_words(names: Sequence[str]) -> str:
    """Return a sentence about the settings of a search that a target does not use."""
    return (
        f"Settings of the search that are not used with a target: {', '.join(names)}. A target is met by "
        "single experts, trade-offs between error and dollars, cascades and candidates of the search."
    )


def _check_table(table: Outcomes, target: Target, max_calls: int) -> None:
    """Refuse a table without the scores, prices or answers that are needed."""
    for name in target.limits_by_name:
        require_scores(table, name)
    if max_calls:
        require_scores(table, "cascade")
        checked_answers(table)
    if target.limits_by_name:
        target.check(table.prices is not None)
        check_prices(table)
