"""Search for the best router, and say whether routing pays."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mild.artifact import Router
from mild.artifact.frames import as_frame, default_library, html_table
from mild.artifact.targets import Target
from mild.core.arrays import (
    FloatArray,
    as_python,
    check_integer,
    check_share,
    invalid,
)
from mild.data import OutcomeTable, read_outcomes
from mild.data.cost_terms import CostTerms, require_scores
from mild.data.describing import describe_prices, has_unused_prices
from mild.defaults import TARGET_PROBABILITY
from mild.errors import TuningInterruptedWarning, check_arguments
from mild.features import TextFeatures
from mild.metrics import Verdict, target_of_choices, verdict_of_choices
from mild.metrics.curves import TradeoffCurve, prices_unused
from mild.metrics.outcomes import all_priced, mean_known
from mild.metrics.verdict import ROUNDING
from mild.money import amount
from mild.tuning.cascades import (
    FittedCascades,
    TunedCascade,
    checked_answers,
    differences,
    fit_cascades,
    unused_answers,
)
from mild.tuning.fit import fit_constant
from mild.tuning.fitting import (
    fit_task,
    is_scaled,
    make_router,
    router_of,
    settle_ties,
    standardized,
    table_features,
    table_step,
)
from mild.tuning.targets import (
    PricedFit,
    Solution,
    check_prices,
    measure,
    traded_prices,
    with_price_heads,
)
from mild.tuning.tasks import (
    Progress,
    Task,
    check_folds,
    check_rows,
    fewer_folds,
    make_task,
    parallel_jobs,
    possible_folds,
    search_folds,
    task_splits,
)

#: What is searched by default: all families, the network on small tables only.
FAMILIES = "auto"
# Candidates that a notebook shows.
SHOWN = 10
# Why a candidate was taken, where it has not the lowest mean cost.
CHOICES = {
    "stack": "* is the stack: no other candidate is better by more than its interval.",
    "one standard error": "* is the simplest candidate within one standard error of the best.",
}


@check_arguments
def tune(
    data: Any,
    *,
    keep_quality: float | None = None,
    max_quality_loss: float | None = None,
    max_dollars: float | None = None,
    target_probability: float = TARGET_PROBABILITY,
    guarantee: float | None = None,
    calibration_share: float = 0.5,
    cascade: bool = False,
    max_calls: int = 4,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
    text: str | TextFeatures | None = None,
    groups: str | None = None,
    time: str | None = None,
    families: str | Sequence[str] | None = None,
    alphas: Sequence[float] | None = None,
    margin_factors: Sequence[float] = (0.5, 1.0, 2.0),
    grid: str = "ratios",
    cv: int = 5,
    safe: bool = False,
    one_standard_error: bool = True,
    constant_if_better: bool = True,
    standardize: bool | None = None,
    confidence: float = 0.95,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    **params: Any,
) -> TuneResult:
    """Search for the best router, and say whether routing pays.

    Strengths and margins of a linear router and other kinds of routers are compared by cross-validation.
    Equal queries stay in one fold. The cost of an answer is ``error + beta + price_weight * dollars +
    latency_weight * seconds``; with a target, the trade-off between error and dollars is searched instead.
    Ctrl-C ends the search with a ``TuningInterruptedWarning``, and the best router so far is kept.

    Parameters
    ----------
    data : OutcomeTable, or whatever ``mild.read_outcomes`` takes
    keep_quality : least quality to reach, as a share of the best expert's: 0.95
    max_quality_loss : largest loss of quality against the best expert: 0.01
    max_dollars : most dollars per 1,000 queries, at the highest quality
    target_probability : probability with which these targets are to be met on the same number of new rows,
        an estimate. At 0.5 they are expected to be met; for more certainty the setting meets them on the
        held-out rows by a margin
    guarantee : probability with which ``max_quality_loss`` holds, by calibration rows: 0.9
    calibration_share : share of the rows that a guarantee keeps for calibration
    cascade : also try cascades, which ask several experts and read their answers (columns
        ``answer__<expert>``); the router is a cascade if it is better on held-out rows than one that asks
        a single expert
    max_calls : experts that a cascade asks about one query at most
    beta, price_weight, latency_weight : terms of the cost, as in ``mild.fit``
    text : text features, as in ``mild.fit``
    groups : column whose equal values stay in one fold, such as a subject or a customer
    time : column of times; each fold is judged by routers that were fitted on the past
    families : "linear", "regression", "knn", "clusters", "mlp", "stack", several of them, or "all"; by
        default all but the network
    alphas, margin_factors, grid, one_standard_error, constant_if_better, safe, confidence : as in
        ``RouterCV``
    cv : number of folds
    standardize : whether features are scaled to mean 0 and standard deviation 1; None for all but texts
    random_state : seed of the random numbers
    n_jobs : parallel workers, -1 for all cores; None for all cores if the table has 800 rows or more
    progress : callable(done, total, message) or None
    **params : parameters of the linear router, such as ``loss="tdef"``

    Returns
    -------
    TuneResult

    Examples
    --------
    >>> import mild
    >>> from mild.data.datasets import load_outcomes
    >>> train, test = load_outcomes().split(random_state=0)
    >>> found = mild.tune(train, price_weight=50, families="linear", alphas=[0.01], cv=3)
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
    check_folds(cv)
    check_integer("max_calls", max_calls, 2)
    params = {
        "estimator": make_router("linear", params, random_state, tune),
        "alphas": alphas,
        "margin_factors": margin_factors,
        "grid": grid,
        "one_standard_error": one_standard_error,
        "constant_if_better": constant_if_better,
        "safe": safe,
        "confidence": confidence,
        "random_state": random_state,
        "progress": progress,
    }
    table = data if isinstance(data, OutcomeTable) else read_outcomes(data, part="train")
    terms = CostTerms(beta, price_weight, latency_weight)
    check_target_alone(target, terms)
    for name in target.wanted:
        require_scores(table, name)
    if cascade:
        require_scores(table, "cascade")
        checked_answers(table)
    if target.wanted:
        target.check(table.prices is not None)
        assert table.prices is not None
        check_prices(table.expert_names, table.prices)
    whole = task = make_task(table, terms, groups, priced=bool(target.wanted))
    table = task.table
    check_rows(task)
    notes = [] if task.left_out is None else [task.left_out]
    calibration = None
    if target.wanted:
        if target.guarantee is not None:
            task, calibration = _calibration_split(whole, calibration_share, time, random_state)
            notes.append(
                f"{task.table.rows:,} rows to fit on, {calibration.table.rows:,} rows kept for calibration."
            )
    elif task.constant_expert is not None:
        return _constant_result(task, notes, random_state)
    possible = possible_folds(task, cv, time)
    notes.extend(filter(None, [fewer_folds(cv, possible, task)]))
    folds = search_folds(task, cv if possible < 2 else possible, time, random_state)
    step = table_step(task.table, text, progress)
    n_jobs = parallel_jobs(n_jobs, table.rows)
    search = _search(families or FAMILIES, {**params, "cv": folds, "n_jobs": n_jobs})
    settle_ties(search)
    fitted = fit_task(task, standardized(search, is_scaled(standardize, step)), step)
    wanted = target if target.wanted else None
    cascades = hint = None
    stopped = search.interrupted_
    if cascade and not stopped:
        try:
            paid = None if wanted is None else traded_prices(task)
            cascades = fit_cascades(task, fitted.features, paid, folds, max_calls, n_jobs)
        except KeyboardInterrupt:
            stopped = True
            rule = "the search was stopped before a cascade was found; the best router is kept."
            warnings.warn(rule, TuningInterruptedWarning, stacklevel=2)
    elif not stopped:
        hint = unused_answers(task, random_state)
    priced = with_price_heads(
        fitted, task, folds, wanted, calibration, n_jobs, confidence, random_state, cascades
    )
    fitted, solution = priced.fitted, priced.solution
    judged = task if calibration is None else calibration
    if solution is None:
        verdict = _verdict(search, table.expert_names, task)
    else:
        verdict = _target_verdict(solution, priced, judged, confidence, random_state)
    tuned = None
    if cascades is not None:
        about = (task, fitted.features, judged, verdict, safe, confidence, random_state)
        tuned, verdict = _judge_cascade(cascades, search, priced, *about)
    uses_cascade = tuned is not None and tuned.used
    if cascade and not uses_cascade:
        better = "is better on held-out rows than the router without answers"
        if wanted:
            better = "meets the target by its margins for less than the router without answers"
        notes.append(f"no cascade {better}.")
    if calibration is not None:
        fitted = replace(fitted, features=table_features(table, step))
    router = router_of(fitted, whole, {**priced.notes, "verdict": verdict.as_dict()})
    if cascades is not None and uses_cascade:
        policy = replace(cascades.policy_of(solution), direct=router.policy)
        # The calibration and the usual shares are those of the router without answers.
        router = replace(
            router, policy=policy, calibration=None, info=replace(router.info, shares=None)
        )
    return _result(
        search,
        router,
        verdict,
        notes,
        target=solution,
        prices_unused=None if wanted else _prices_unused(task, priced.notes.get("tradeoffs")),
        cost=task.cost,
        text=None if step is None else step.kind,
        n_folds=len(folds),
        library=table.library,
        cascade=tuned,
        answers_unused=hint,
        interrupted=stopped,
        **({"routes_as_constant": False} if uses_cascade else {}),
    )


def _judge_cascade(
    cascades: FittedCascades,
    search: Any,
    priced: PricedFit,
    task: Task,
    X: Any,
    judged: Task,
    verdict: Verdict,
    safe: bool,
    confidence: float,
    seed: int,
) -> tuple[TunedCascade | None, Verdict]:
    """The cascade that was found, and the verdict on what is saved: the cascade, if it is used.

    ``task`` and ``X`` are what it was fitted on, and ``judged`` are the rows that it is judged on.
    """
    solution, direct, held = priced.solution, priced.direct, priced.held
    constants, used = search.held_out_constants_, True
    if solution is None or direct is None or held is None:
        own, chosen, name = cascades.held, search.held_out_, f"{search.best_family_} router"
        if search.decides_as_constant_:
            chosen, name = constants, f"always {verdict.constant}"
    elif solution.cascade and held.cascades is not None:
        place = int(np.flatnonzero(held.cascades.weights == solution.t)[0])
        own, name = held.cascades.take(slice(None), place), direct.setting
        chosen = np.where(held.known, held.chosen_by(direct, task.table.expert_names), -1)
    else:
        return None, verdict
    found = differences(judged, own, chosen, confidence, seed)
    if solution is None:
        # Chosen from two, the cascade and the best candidate, which share the probability of an error.
        best = differences(judged, own, constants, (1 + confidence) / 2, seed)
        loss, money = found["cost"], best.get("dollars_per_1000")
        judgement = replace(
            best["cost"],
            confidence=confidence,
            n_candidates=2,
            notes=("2 candidates",),
            router="the cascade",
            constant=verdict.constant,
            constant_expert=verdict.constant_expert,
            dollars_per_1000=None if money is None else money.estimate,
        )
        used = loss.high < 0 and bool(judgement.pays) if safe else loss.estimate < -ROUNDING
        verdict = judgement if used else verdict
    policy = cascades.policy_of(solution)
    return TunedCascade.of(policy, used, task, X, found, name), verdict


def check_target_alone(target: Target, terms: CostTerms) -> None:
    """Refuse a target together with terms of the cost: with a target, the search finds their weight.

    Raises
    ------
    InvalidInputError
    """
    for name, value in terms.as_dict().items():
        if target.wanted and value is not None:
            raise invalid(
                name,
                f"must not be given together with a target; got {target.words} as well. A target is met "
                "by errors and dollars alone: give the target, or the terms of the cost.",
            )


def _search(families: str | Sequence[str] | None, params: Mapping[str, Any]) -> Any:
    """The unfitted search over families, which may be given as text with commas."""
    from mild.routers import RouterCV

    names: Any = families
    if isinstance(families, str) and families not in ("all", "auto"):
        names = [name.strip() for name in families.split(",") if name.strip()]
    return RouterCV(families=names, **params)


def _calibration_split(task: Task, share: float, time: str | None, seed: int) -> tuple[Task, Task]:
    """The rows to fit on and the calibration rows of a task, queries and groups whole."""
    check_share("calibration_share", share)
    (split,) = task_splits(task, 1, share, time, seed)
    table = task.table
    if table.has_answers and table.kind_detected:
        # Scores of calibration rows must not tell how answers are compared.
        known = replace(table.take(split.train), answer_kind=None)
        table = replace(table, answer_kind=known.kind_of_answers())
    fitting, calibration = (
        make_task(table.take(rows), task.terms, task.group_column)
        for rows in (split.train, split.test)
    )
    return fitting, calibration


@dataclass(frozen=True, eq=False, repr=False)
class TuneResult:
    """What a search found: the router, the verdict on it, and the candidates.

    With a target, the router decides by separate heads for error and price, and the verdict is on these;
    the candidates are what would be taken without a target. Without a target, the verdict is on the
    candidate that was taken. Where ``routes_as_constant``, the router always asks one expert instead.

    Attributes
    ----------
    router : decides as the verdict or the target says; ``router.save(folder)`` writes it
    verdict : whether the router does what was asked for, on held-out rows
    family : kind of the router that was found
    params : its parameters
    rows : candidates: family, params, mean_cost, ..., taken
    choice : why it was taken: "lowest mean cost", "one standard error", "stack"
    routes_as_constant : whether the router always asks one expert
    target : the setting that meets the target; None without a target
    prices_unused : prices that the loss leaves out: what they could save, and a sentence; None
        where there are none
    cascade : the cascade that was considered; None if there is none
    answers_unused : what a cascade would keep and save, and a sentence; None with ``cascade``, or
        without answers
    cost : terms of the cost
    text : kind of the text features; None for a table of numbers
    n_folds : number of folds
    skipped_families : families whose package is missing
    dropped_margins : margin vectors that were left out
    interrupted : whether Ctrl-C ended the search early
    notes : what to know about the rows that were used
    library : library of the frames that are returned

    Examples
    --------
    >>> import mild
    >>> from mild.data.datasets import load_outcomes
    >>> found = mild.tune(load_outcomes(), families="linear", alphas=[0.01], cv=3)
    >>> found.decides_as, found.verdict.constant
    ('linear', 'rules')
    >>> found.candidates.columns[:3].tolist()
    ['family', 'params', 'mean_cost']
    """

    router: Router
    verdict: Verdict
    family: str
    params: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    choice: str | None = None
    routes_as_constant: bool = False
    target: Solution | None = None
    prices_unused: Mapping[str, Any] | None = None
    cascade: TunedCascade | None = None
    answers_unused: Mapping[str, Any] | None = None
    cost: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    n_folds: int = 0
    skipped_families: tuple[str, ...] = ()
    dropped_margins: int = 0
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    library: str | None = None

    @property
    def candidates(self) -> Any:
        """The candidates as a frame, best first."""
        return self.to_frame()

    def to_frame(self) -> Any:
        """One row per candidate, best first.

        Returns
        -------
        pandas, polars or pyarrow frame

        Examples
        --------
        >>> found.to_frame().num_rows
        6
        """
        return as_frame(self.ranked, self.library or default_library())

    @property
    def ranked(self) -> list[Mapping[str, Any]]:
        """The candidates, best first."""
        return sorted(self.rows, key=lambda entry: entry["mean_cost"])

    @property
    def why_taken(self) -> str | None:
        """Why a candidate was taken that has not the lowest mean cost, in a sentence."""
        return CHOICES.get(self.choice or "")

    @property
    def decides_as(self) -> str:
        """What the router is: a family, a trade-off, a cascade, or always one expert."""
        if self.cascade is not None and self.cascade.used:
            return (
                "a cascade" if self.target is None else f"a cascade for {self.target.target.words}"
            )
        if self.target is None:
            return f"always {self.verdict.constant}" if self.routes_as_constant else self.family
        expert = self.target.expert
        return f"always {expert}" if expert else f"a trade-off for {self.target.target.words}"

    @property
    def sentences(self) -> list[str]:
        """The verdict and the target in words, what is saved, and what in the table is not used."""
        found = [self.verdict.sentence]
        if self.target is not None:
            found.append(self.target.promise)
        elif self.routes_as_constant and self.rows:
            why = "its gain is not certain, and safe=True"
            if self.verdict.estimate >= 0:
                why = "its mean cost on held-out rows is not lower; constant_if_better=False "
                why += "keeps it"
            found.append(f"* is not used ({why}): the router decides as {self.decides_as}.")
        if self.cascade is not None:
            found += self.cascade.sentences
        unused = (self.prices_unused, self.answers_unused)
        return [*found, *(one["sentence"] for one in unused if one is not None)]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields; None where a number is not finite.

        Returns
        -------
        dict

        Examples
        --------
        >>> found.as_dict()["best_family"]
        'regression'
        """
        found = {
            "text": self.text,
            "cost": self.cost,
            "best_family": self.family,
            "best_params": self.params,
            "interrupted": self.interrupted,
            "skipped_families": list(self.skipped_families),
            "dropped_margins": self.dropped_margins,
            "choice": self.choice,
            "routes_as_constant": self.routes_as_constant,
            "candidates": list(self.rows),
            "verdict": self.verdict.as_dict(),
            "target": None if self.target is None else self.target.as_dict(),
            "prices_unused": self.prices_unused,
            "cascade": None if self.cascade is None else self.cascade.as_dict(),
            "answers_unused": self.answers_unused,
            "notes": list(self.notes),
        }
        return as_python(found, finite=True)

    def __repr__(self) -> str:
        return f"TuneResult({self.decides_as})\n" + "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        shown = ("family", "params", "mean_cost", "standard_error", "difference", "taken")
        best = [{name: entry[name] for name in shown} for entry in self.ranked[:SHOWN]]
        title = f"Best of {len(self.rows)} candidates, {self.n_folds} folds"
        return html_table(title, best, self.sentences)


def _constant_result(task: Task, notes: Sequence[str], seed: int) -> TuneResult:
    """The result where one expert costs least in every row, so that no search is needed."""
    fitted = fit_constant(task)
    constant = task.table.expert_names[task.constant_expert or 0]
    return TuneResult(
        router=fitted.router,
        verdict=Verdict(
            estimate=0.0,
            low=0.0,
            high=0.0,
            constant=constant,
            n_rows=task.table.rows,
            n_groups=task.table.rows,
            identical=True,
            told=fitted.note,
        ),
        family="constant",
        params={},
        rows=(),
        routes_as_constant=True,
        prices_unused=_prices_unused(task, None),
        answers_unused=unused_answers(task, seed),
        cost=task.cost,
        text=fitted.router.text.kind if fitted.router.text else None,
        notes=(*notes, fitted.note or ""),
        library=task.table.library,
    )


def _verdict(search: Any, expert_names: Sequence[str], task: Task) -> Verdict:
    """The verdict of a search, with the name of the constant."""
    verdict: Verdict = search.verdict_
    constant = expert_names[verdict.constant_expert or 0]
    if search.decides_as_constant_:
        verdict = replace(verdict, router="the best candidate")
    return verdict.named(constant, task.counted, _dollars(search, task.table.prices))


def _target_verdict(
    solution: Solution, priced: PricedFit, task: Task, confidence: float, seed: int
) -> Verdict:
    """The verdict on the setting of a solution, on the held-out (or calibration) rows it was found on.

    As in the solution, a group counts once, and the intervals hold for all settings that were tried; with
    a guarantee, the other settings were ruled out in sequence, and the interval is that of one setting.
    """
    assert priced.held is not None
    names = task.table.expert_names
    held, costs = priced.held.comparable(), task.costs[priced.held.known]
    reference = names.index(solution.best_expert)
    chosen = held.chosen_by(solution, names)[:, None]
    if held.cascades is not None:
        costs = np.column_stack([costs, held.cascades.costs])
    certified = solution.target.guarantee is not None
    settings = chosen if certified else np.column_stack([chosen, measure(held).chosen])
    _, group, sizes = np.unique(held.groups, return_inverse=True, return_counts=True)
    target = target_of_choices(
        held.all_quality,
        held.all_dollars,
        settings,
        reference,
        names,
        solution.target.wanted,
        guarantee=solution.target.guarantee,
        certified=solution.certified,
        groups=held.groups,
        sample_weight=1 / sizes[group],
        confidence=confidence,
        random_state=seed,
        judged_on="calibration rows" if certified else "held-out rows",
        asks_reference=held.asked(reference),
    )
    expert = task.outcomes.take(priced.held.known).best_constant()
    paid = held.all_dollars
    rows = np.arange(len(costs))
    dollars = float((paid[rows, chosen[:, 0]] - paid[:, expert]).mean())
    verdict = verdict_of_choices(
        costs,
        chosen[:, 0],
        expert,
        names,
        groups=held.groups,
        counted=task.counted,
        confidence=confidence,
        random_state=seed,
        dollars=dollars,
    )
    known = int((~np.isnan(priced.held.errors).any(axis=1)).sum())
    left = None
    if known > len(costs):
        left = f"{known - len(costs):,} of {known:,} rows are left out because not every score and price "
        left += "is known."
    name = "the cascade" if solution.cascade else verdict.router
    return replace(verdict, router=name, target=target, left_out=left)


def _prices_unused(task: Task, record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What dollars could be saved where the table has prices and the loss leaves them out.

    This is the cheapest setting of the held-out trade-offs whose quality is at least that of the best
    expert; None where the loss counts dollars, or the table has none.
    """
    if not has_unused_prices(task.table, task.terms):
        return None
    names = task.table.expert_names
    figures: dict[str, Any] = dict.fromkeys(("best_expert", "best_dollars_per_1000"))
    figures |= dict.fromkeys(("dollars_per_1000", "saved"))
    about = describe_prices(task.table)
    curve = None if record is None else TradeoffCurve.from_dict(record, names)
    if curve is not None:
        best = names[curve.best]
        place = curve.cheapest_at(float(curve.quality[curve.best_index]))
        other = float(curve.dollars[curve.best_index])
        own = other if place is None else float(curve.dollars[place])
        saved = 1 - own / other if other > 0 else 0.0
        figures = dict(zip(figures, (best, other, own, saved), strict=True))
        about = f"No trade-off has the quality of always {best} on held-out rows for fewer dollars."
        if saved > 0:
            about = (
                f"On held-out rows, a trade-off has the quality of always {best} for ${amount(own)} per "
                f"1,000 queries in place of ${amount(other)} ({100 * saved:.0f} % less)."
            )
    return {**figures, "sentence": prices_unused(about)}


def _result(
    search: Any,
    router: Router,
    verdict: Verdict,
    notes: Sequence[str] = (),
    target: Solution | None = None,
    **about: Any,
) -> TuneResult:
    """What a search chose, and from which candidates.

    ``about`` are more fields of the result.
    """
    skipped = tuple(search.skipped_families_)
    constant = search.decides_as_constant_ if target is None else target.t is None
    results = search.cv_results_
    if skipped:
        notes = [*notes, f"left out because torch is not installed: {', '.join(skipped)}."]
    return TuneResult(
        router=router,
        verdict=verdict,
        family=search.best_family_,
        params=search.best_params_,
        rows=tuple(
            {**dict(zip(results, row, strict=True)), "taken": i == search.best_index_}
            for i, row in enumerate(zip(*results.values(), strict=True))
        ),
        choice=search.choice_,
        target=target,
        skipped_families=skipped,
        dropped_margins=search.dropped_margins_,
        notes=tuple(notes),
        **{"routes_as_constant": constant, "interrupted": search.interrupted_, **about},
    )


def _dollars(search: Any, prices: FloatArray | None) -> float | None:
    """Mean price of the router's choices minus that of the constant, where both are known.

    None where an expert that the router chooses has no price at all.
    """
    if prices is None:
        return None
    router, constant = search.held_out_, search.held_out_constants_
    rows, judged = np.arange(len(prices)), (router >= 0) & (constant >= 0)
    difference = (prices[rows, router] - prices[rows, constant])[judged]
    if not all_priced(difference, router[judged]):
        return None
    return mean_known(difference)
