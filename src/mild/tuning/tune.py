"""Search for the best router, and say whether routing pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.artifact import Router
from mild.artifact.frames import as_frame, default_library, html_table
from mild.artifact.targets import Target
from mild.core.arrays import FloatArray, as_python, check_share, invalid
from mild.data import Matrices, OutcomeTable, read_outcomes
from mild.data.cost_terms import CostTerms
from mild.features import TextFeatures
from mild.metrics import Verdict
from mild.metrics.outcomes import all_priced, mean_known
from mild.tuning.fit import fit_constant, matrix_router
from mild.tuning.fitting import contents, fit_task, make_router, make_step, router_of, standardized
from mild.tuning.targets import Solution, check_prices, with_price_heads
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
    topics,
)

#: What is searched by default in a table of outcomes: all families, the network on small tables only.
FAMILIES = "auto"
# Candidates that a notebook shows.
SHOWN = 10
# Why a candidate was taken, where it has not the lowest mean cost.
CHOICES = {
    "stack": "* is the stack: no other candidate is better by more than its interval.",
    "one standard error": "* is the simplest candidate within one standard error of the best.",
}


def tune(
    data: Any,
    *,
    keep_quality: float | None = None,
    max_quality_loss: float | None = None,
    max_dollars: float | None = None,
    strong_share: float | None = None,
    save_dollars: float | None = None,
    target_probability: float = 0.8,
    guarantee: float | None = None,
    calibration_share: float = 0.5,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
    text: str | TextFeatures | None = None,
    groups: str | None = None,
    time: str | None = None,
    topic: str | None = None,
    balance: str | None = None,
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
    data : OutcomeTable, or whatever ``mild.read_outcomes`` takes; or ``mild.data.Matrices``
    keep_quality : least quality to reach, as a share of the best expert's
    max_quality_loss : largest loss of quality against the best expert
    max_dollars : most dollars per 1,000 queries
    strong_share : largest share of queries for the better of two experts
    save_dollars : least share of the best expert's dollars to save
    target_probability : probability with which these targets are to be met on as many new rows: the setting
        meets them on the held-out rows by a margin. It is an estimate; at least 0.5
    guarantee : probability with which ``max_quality_loss`` holds, by calibration rows
    calibration_share : share of the rows that a guarantee keeps for calibration
    beta, price_weight, latency_weight : terms of the cost, as in ``mild.fit``
    text : text features, as in ``mild.fit``
    groups : column whose equal values stay in one fold, such as a subject or a customer
    time : column of times; each fold is judged by routers that were fitted on the past
    topic : column of subjects, tasks or sources that the router learns to recognise; by default a column
        of such a name, "none" for no column
    balance : column whose values count alike, however many rows each has
    families : "linear", "regression", "knn", "groups", "mlp", "stack", several of them, or "all"; by
        default all but the network for a table of outcomes, and linear otherwise
    alphas, margin_factors, grid, one_standard_error, constant_if_better, safe, confidence : as in
        ``RouterCV``
    cv : number of folds
    standardize : whether features are scaled to mean 0 and standard deviation 1; None for all but texts
    random_state : seed
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
        strong_share,
        save_dollars,
        guarantee,
        target_probability,
    )
    check_folds(cv)
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
    if isinstance(data, Matrices):
        if target.wanted:
            name = next(iter(target.wanted))
            rule = "is for tables of outcomes with prices; this is a table of features and costs."
            raise invalid(name, rule)
        params |= {"cv": cv, "n_jobs": n_jobs}
        search = _search(families, params)
        model = standardized(search, standardize is not False).fit(data.X, data.costs)
        verdict = _verdict(search, data.expert_names)
        return _result(search, matrix_router(model, data), verdict, n_folds=cv)
    if target.wanted and balance is not None:
        rule = "must not be given with a target, which is solved for the mean over rows; leave one out."
        raise invalid("balance", rule)
    table = data if isinstance(data, OutcomeTable) else read_outcomes(data, part="train")
    whole = task = make_task(table, CostTerms(beta, price_weight, latency_weight), groups, balance)
    check_rows(task)
    notes: list[str] = []
    calibration = None
    if target.wanted:
        target.check(len(table.expert_names), table.prices is not None)
        if table.prices is not None:
            check_prices(table.expert_names, table.prices)
        if target.guarantee is not None:
            task, calibration = _calibration_split(whole, calibration_share, time, random_state)
            notes.append(
                f"{task.table.rows:,} rows to fit on, {calibration.table.rows:,} rows kept for calibration."
            )
    elif task.constant_expert is not None:
        return _constant_result(task)
    possible = possible_folds(task, cv, time)
    notes.extend(filter(None, [fewer_folds(cv, possible, task)]))
    folds = search_folds(task, cv if possible < 2 else possible, time, random_state)
    topic, labels = topics(task.table, topic)
    step = make_step(task.table, text, progress)
    n_jobs = parallel_jobs(n_jobs, table.rows)
    search = _search(families or FAMILIES, {**params, "cv": folds, "n_jobs": n_jobs})
    scale = step.kind == "vectors" if standardize is None else standardize
    fitted = fit_task(task, standardized(search, scale), step, labels)
    verdict = _verdict(search, table.expert_names, task)
    wanted = target if target.wanted else None
    priced = with_price_heads(
        fitted, task, folds, wanted, calibration, n_jobs, confidence, random_state
    )
    fitted = priced.fitted
    if calibration is not None:
        fitted = replace(fitted, features=step.vectorize(contents(table, step)))
    return _result(
        search,
        router_of(fitted, whole, {**priced.notes, "verdict": verdict.as_dict()}),
        verdict,
        notes,
        target=priced.solution,
        cost=task.cost,
        text=step.kind,
        topic=topic,
        balance=task.balance,
        n_folds=len(folds),
        library=table.library,
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
    fitting, calibration = (
        make_task(task.table.take(rows), task.terms, task.group_column)
        for rows in (split.train, split.test)
    )
    return fitting, calibration


@dataclass(frozen=True, eq=False, repr=False)
class TuneResult:
    """What a search found: the router, the verdict, and the candidates.

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

    router: Router  # decides as the verdict or the target says; ``router.save(folder)`` writes it
    verdict: Verdict  # whether routing pays, on held-out rows
    family: str  # kind of the router that was found
    params: Mapping[str, Any]  # its parameters
    rows: tuple[Mapping[str, Any], ...]  # candidates: family, params, mean_cost, ..., taken
    choice: str | None = None  # why it was taken: "lowest mean cost", "one standard error", "stack"
    routes_as_constant: bool = False  # whether the router always asks the best single expert
    target: Solution | None = None  # the setting that meets the target; None without a target
    cost: Mapping[str, Any] | None = None  # terms of the cost; None for a table of numbers
    text: str | None = None  # kind of the text features
    topic: str | None = None  # column of topics
    balance: str | None = None  # column whose values count alike
    n_folds: int = 0
    skipped_families: tuple[str, ...] = ()  # families whose package is missing
    dropped_margins: int = 0
    interrupted: bool = False  # whether Ctrl-C ended the search early
    notes: tuple[str, ...] = ()  # what to know about the rows that were used
    library: str | None = None  # of the frames that are returned

    @property
    def candidates(self) -> Any:
        """The candidates as a frame, best first."""
        return self.to_frame()

    def to_frame(self) -> Any:
        """One row per candidate, best first."""
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
        """What the router is: a family, a trade-off, or always one expert."""
        if self.target is not None:
            expert, t = self.target.expert, self.target.t
            return f"always {expert}" if t is None else f"t = {t:g}"
        return f"always {self.verdict.constant}" if self.routes_as_constant else self.family

    @property
    def sentences(self) -> list[str]:
        """The verdict and the target in words."""
        found = [self.verdict.sentence]
        if self.target is not None:
            found.append(self.target.sentence)
        elif self.routes_as_constant and self.rows:
            why = "its gain is not certain, and safe=True"
            if self.verdict.estimate >= 0:
                why = "its mean cost on held-out rows is not lower; constant_if_better=False, or "
                why += "--no-constant-if-better, keeps it"
            found.append(f"* is not used ({why}): the router decides as {self.decides_as}.")
        return found

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields; None where a number is not finite."""
        about = {} if self.cost is None else {"text": self.text, "cost": self.cost}
        if self.cost is not None:
            about |= {"topic": self.topic, "balance": self.balance}
        found = {
            **about,
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
        }
        return as_python(found, finite=True)

    def __repr__(self) -> str:
        return f"TuneResult({self.decides_as})\n" + "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        shown = ("family", "mean_cost", "standard_error", "difference", "taken")
        best = [{name: entry[name] for name in shown} for entry in self.ranked[:SHOWN]]
        title = f"Best of {len(self.rows)} candidates, {self.n_folds} folds"
        return html_table(title, best, self.sentences)


def _constant_result(task: Task) -> TuneResult:
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
        cost=task.cost,
        text=fitted.router.text.kind if fitted.router.text else None,
        balance=task.balance,
        notes=(fitted.note or "",),
        library=task.table.library,
    )


def _verdict(search: Any, expert_names: Sequence[str], task: Task | None = None) -> Verdict:
    """The verdict of a fitted search, with the name of the constant and, of a task, with dollars."""
    verdict: Verdict = search.verdict_
    constant = expert_names[verdict.constant_expert or 0]
    if task is None:
        return verdict.named(constant)
    return verdict.named(constant, task.counted, _dollars(search, task.table.prices, task.weight))


def _result(
    search: Any, router: Router, verdict: Verdict, notes: Sequence[str] = (), **about: Any
) -> TuneResult:
    """What a fitted search chose, and from which candidates; ``about`` are more fields of the result."""
    results, skipped = search.cv_results_, tuple(search.skipped_families_)
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
        routes_as_constant=search.decides_as_constant_,
        skipped_families=skipped,
        dropped_margins=search.dropped_margins_,
        interrupted=search.interrupted_,
        notes=tuple(notes),
        **about,
    )


def _dollars(
    search: Any, prices: FloatArray | None, weight: FloatArray | None = None
) -> float | None:
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
    return mean_known(difference, None if weight is None else weight[judged])
