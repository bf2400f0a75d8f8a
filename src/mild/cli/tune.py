"""``mild tune``"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer import Option

from mild.cli import options as o
from mild.cli.console import INTERRUPTED, emit, fixed, note, print_table, progress_bar, say
from mild.cli.fit import build_router, fit_constant, save_matrices, standardized
from mild.cli.outcomes import OutcomeSource, loss_line, note_folds
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.core.arrays import FloatArray
    from mild.tuning.targets import Target
    from mild.tuning.tasks import Task


@dataclass(frozen=True)
class SearchOptions:
    """What the search tries, and how it chooses."""

    panel: ClassVar[str] = "Search"

    alphas: Annotated[str | None, Option(help="L2 strengths: 0.001,0.01. Default: 1e-4 to 1.")] = (
        None
    )
    margin_factors: Annotated[str, Option(help="Factors of single margins.")] = "0.5,1,2"
    paper_grid: Annotated[
        bool, Option("--paper-grid", help="Try margins in steps of 1 within 5 of the theory.")
    ] = False
    confidence: o.Confidence = 0.95
    one_standard_error: Annotated[
        bool, Option(help="Without a stack: the simplest router within one standard error.")
    ] = True
    constant_if_better: Annotated[
        bool, Option(help="Decide as the best constant unless the winner's mean cost is lower.")
    ] = True
    candidates: Annotated[int, Option(help="Number of candidates to list.")] = 10

    def arguments(self) -> dict[str, Any]:
        """Parameters of ``RouterCV``."""
        if self.candidates < 1:
            rule = f"must be at least 1; got {self.candidates}."
            raise OptionError(parameter="candidates", rule=rule)
        return {
            "alphas": o.number_list("alphas", self.alphas),
            "margin_factors": o.number_list("margin_factors", self.margin_factors),
            "grid": "paper" if self.paper_grid else "ratios",
            "one_standard_error": self.one_standard_error,
            "constant_if_better": self.constant_if_better,
            "confidence": self.confidence,
        }


@dataclass(frozen=True)
class TargetOptions:
    """What the router should reach, in place of a weight of dollars."""

    panel: ClassVar[str] = "Targets"

    keep_quality: Annotated[
        float | None, Option(help="Least quality, as a share of the best expert's: 0.95.")
    ] = None
    max_quality_loss: Annotated[
        float | None, Option(help="Largest loss of quality against the best expert: 0.01.")
    ] = None
    max_dollars: Annotated[
        float | None, Option(help="Most dollars per 1,000 queries, at the best quality: 2.")
    ] = None
    strong_share: Annotated[
        float | None, Option(help="Largest share of queries for the better of two experts: 0.3.")
    ] = None
    save_dollars: Annotated[
        float | None, Option(help="Least share of the best expert's dollars to save: 0.4.")
    ] = None
    guarantee: Annotated[
        float | None,
        Option(help="Probability with which --max-quality-loss holds, by calibration rows: 0.9."),
    ] = None
    calibration_share: Annotated[
        float, Option(help="Share of the rows that --guarantee keeps for calibration.")
    ] = 0.5

    def target(self) -> Target | None:
        """The target; None without one."""
        from mild.tuning.targets import Target

        given = {name: value for name, value in vars(self).items() if name != "calibration_share"}
        target = Target(**given)
        return target if target.wanted else None


@o.takes_options
def tune(
    *,
    out: o.Out,
    data: o.Source = None,
    families: Annotated[
        str | None,
        Option(
            help="linear,regression,knn,groups,mlp,stack, or all. Default: all but mlp for a table of "
            "outcomes, otherwise linear."
        ),
    ] = None,
    cost: o.CostOptions,
    text: o.TextOptions,
    group: o.Group = None,
    time: o.Time = None,
    cv: Annotated[int, Option(help="Folds of the cross-validation.")] = 5,
    safe: Annotated[
        bool, Option("--safe", help="Save the best constant if routing does not pay.")
    ] = False,
    seed: o.Seed = 0,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    aims: TargetOptions,
    options: SearchOptions,
    router: o.LossOptions,
    topic: o.Topic = None,
    balance: o.Balance = None,
    standardize: o.Standardize = None,
    jobs: o.Jobs = None,
    execution: o.EngineOptions,
    reading: o.TableOptions,
    columns: o.MatrixOptions,
) -> None:
    """Search for the best router, and say whether routing pays.

    Strengths and margins of a linear router and other kinds of routers are compared by
    cross-validation. Equal queries, and rows of a --group, stay in one fold; with --time each fold is
    judged by routers fitted on the past. With --balance, fits and figures are means over the values of a
    column, such as a data set or a subject, however many rows each has. After Ctrl-C the best router so
    far is saved, and the exit code is 130.

    \b
    Example:
      mild tune outcomes.parquet --out router --price-weight 50
      mild tune outcomes.parquet --out router --group subject --safe
      mild tune outcomes.parquet --out router --keep-quality 0.95
      mild tune outcomes.parquet --out router --max-quality-loss 0.02 --guarantee 0.9
    """
    from mild.artifact.folder import check_target
    from mild.evaluation.comparison import TUNED
    from mild.routers import RouterCV
    from mild.tuning import tasks
    from mild.tuning.targets import check_prices, keep_apart

    execution.check()
    params = options.arguments() | {"safe": safe, "random_state": seed}
    target = aims.target()
    if target is not None and balance is not None:
        rule = "is for searches without a target, which is solved for the mean over rows; leave one out."
        raise OptionError(parameter="balance", rule=rule)
    source = OutcomeSource(data, reading, cost, text, group, time, topic, balance)
    outcomes = source.is_outcomes(columns)
    check_target(out, overwrite)

    def search(scaled: bool, families: str | None, **more: Any) -> Any:
        """The unfitted search, behind a scaler if --standardize or, by default, ``scaled`` says so."""
        linear = build_router("linear", router.arguments(), seed)
        names: Any = families
        if families not in (None, "all", "auto"):
            names = [name.strip() for name in str(families).split(",") if name.strip()]
        tuner = RouterCV(linear, families=names, **params, **more)
        return standardized(tuner, scaled if standardize is None else standardize)

    result: dict[str, Any]
    if outcomes:
        whole = task = source.task()
        tasks.check_rows(task)
        calibration = None
        if target is not None:
            target.check(len(task.table.expert_names), task.table.prices is not None)
            if task.table.prices is not None:
                check_prices(task.table.expert_names, task.table.prices)
            if target.guarantee is not None:
                task, calibration = _calibration_split(whole, aims.calibration_share, time, seed)
        if task.settled is not None and target is None:
            fitted = fit_constant(task)
            result = {
                "router": str(tasks.save_task(fitted, task, out, overwrite)),
                "text": fitted.step.kind,
                "cost": task.cost,
                "balance": balance,
                **_constant_result(task),
            }
            emit(result, as_json, lambda: say(f"Saved to {result['router']} (constant)."))
            return
        possible = tasks.possible_folds(task, cv, time)
        note_folds(cv, possible, task)
        cv = cv if possible < 2 else possible
        folds = tasks.search_folds(task, cv, time, seed)
        topic, labels = tasks.topics(task.table, topic)
        with execution.running(jobs), progress_bar("searching") as progress:
            step = source.step(task, progress)
            model = search(
                step.kind == "vectors",
                families or TUNED,
                cv=folds,
                clusters=task.bundle,
                groups=labels,
                n_jobs=execution.workers(jobs, task.table.rows),
                progress=progress,
            )
            fitted = tasks.fit_task(task, model, step)
            tuned = describe_tuning(
                fitted.model,
                task.table.expert_names,
                task.unit,
                task.table.prices,
                task.weight,
            )
            aimed = keep_apart(
                fitted,
                task,
                folds,
                target,
                calibration,
                execution.workers(jobs, task.table.rows),
                options.confidence,
                seed,
            )
        fitted = aimed.fitted
        if calibration is not None:
            features = step.transform(tasks.contents(whole, step))
            fitted = replace(fitted, features=features)
        result = {
            "router": str(tasks.save_task(fitted, whole, out, overwrite, aimed.notes)),
            "text": step.kind,
            "cost": task.cost,
            "topic": topic,
            "balance": balance,
            **tuned,
            "target": None if aimed.solution is None else aimed.solution.as_dict(),
        }
    else:
        if target is not None:
            name = next(iter(target.wanted))
            rule = "is for tables of outcomes with prices; this is a table of features and costs."
            raise OptionError(parameter=name, rule=rule)
        table = source.matrices(columns.features, columns.costs)
        with execution.running(jobs), progress_bar("searching") as progress:
            model = search(True, families, cv=cv, n_jobs=execution.workers(jobs), progress=progress)
            model.fit(table.X, table.costs)
        result = {
            "router": str(save_matrices(model, table, out, overwrite)),
            "features": table.feature_names,
            "left_out": table.left_out,
            **describe_tuning(model, table.expert_names),
        }
    if result["skipped_families"]:
        note_skipped(result["skipped_families"])
    emit(result, as_json, lambda: _show(result, options.candidates, cv, safe))
    if result["interrupted"]:
        note(
            f"the search was stopped; the best router so far is in {result['router']}.",
            "interrupted",
        )
        raise typer.Exit(INTERRUPTED)


def _calibration_split(task: Task, share: float, time: str | None, seed: int) -> tuple[Task, Task]:
    """The rows to fit on and the calibration rows of a task, queries and groups whole."""
    from mild.tuning.tasks import make_task, task_splits

    if not 0 < share < 1:
        rule = f"must lie between 0 and 1; got {share:g}."
        raise OptionError(parameter="calibration_share", rule=rule)
    (split,) = task_splits(task, 1, share, time, seed)
    parts = (task.table.take(rows) for rows in (split.train, split.test))
    fitting, calibration = (make_task(part, task.terms, task.group) for part in parts)
    note(f"{fitting.table.rows:,} rows to fit on, {calibration.table.rows:,} kept for calibration.")
    return fitting, calibration


def _constant_result(task: Any) -> dict[str, Any]:
    """The result where one expert costs least in every row, so that no search is needed."""
    constant = task.table.expert_names[task.settled]
    return {
        "best_family": "constant",
        "best_params": {},
        "candidates": [],
        "interrupted": False,
        "skipped_families": [],
        "verdict": {"pays": False, "constant": constant, "sentence": task.settled_words},
        "routes_as_constant": True,
    }


def describe_tuning(
    model: Any,
    expert_names: Sequence[str],
    unit: str = "row",
    prices: FloatArray | None = None,
    weight: FloatArray | None = None,
) -> dict[str, Any]:
    """What a fitted search chose, from which candidates, and its verdict."""
    search = model[-1] if hasattr(model, "steps") else model
    verdict, results = search.verdict_, search.cv_results_
    constant = expert_names[verdict.constant_expert]
    statement = verdict.named(constant, unit, _dollars(search, prices, weight))
    return {
        "best_family": search.best_family_,
        "best_params": search.best_params_,
        "interrupted": search.interrupted_,
        "skipped_families": list(search.skipped_families_),
        "dropped_margins": search.dropped_margins_,
        "choice": search.choice_,
        "routes_as_constant": search.decides_as_constant_,
        "candidates": [
            {**dict(zip(results, row, strict=True)), "taken": i == search.best_index_}
            for i, row in enumerate(zip(*results.values(), strict=True))
        ],
        "verdict": {**statement.as_dict(), "constant": constant, "rows": verdict.n_rows},
    }


def _dollars(
    search: Any, prices: FloatArray | None, weight: FloatArray | None = None
) -> float | None:
    """Mean price of the router's choices minus that of the constant, where both are known.

    None where an expert that the router chooses has no price at all.
    """
    import numpy as np

    from mild.metrics.outcomes import all_priced, mean_known

    if prices is None:
        return None
    router, constant = search.held_out_, search.held_out_constants_
    rows, judged = np.arange(len(prices)), (router >= 0) & (constant >= 0)
    difference = (prices[rows, router] - prices[rows, constant])[judged]
    if not all_priced(difference, router[judged]):
        return None
    return mean_known(difference, None if weight is None else weight[judged])


def note_skipped(families: Sequence[str]) -> None:
    """Print which families were not tried, and why."""
    note(f"left out, torch is not installed: {', '.join(families)}.")


# Why a candidate was taken, where it has not the lowest mean cost.
CHOICES = {
    "stack": "* is the stack: no other candidate is better by more than its interval.",
    "one standard error": "* is the simplest candidate within one standard error of the best.",
}


def _show(result: Mapping[str, Any], candidates: int, cv: int, safe: bool) -> None:
    """Print the best candidates, the verdict, and where the router is."""
    if "cost" in result:
        topic = result.get("topic")
        known = "" if topic is None else f"; topics: {topic}"
        say(f"{loss_line(result)}{known}")
    ranked = sorted(result["candidates"], key=lambda entry: entry["mean_cost"])
    # The candidate that is taken is always listed.
    listed = [entry for place, entry in enumerate(ranked) if place < candidates or entry["taken"]]
    columns = {
        "family": [entry["family"] for entry in listed],
        "mean loss": [f"{'* ' * entry['taken']}{fixed(entry['mean_cost'])}" for entry in listed],
        "± se": [fixed(entry["standard_error"]) for entry in listed],
        "minus constant": [fixed(entry["difference"]) for entry in listed],
        "parameters": [
            ", ".join(f"{key} {_short(value)}" for key, value in entry["params"].items())
            for entry in listed
        ],
    }
    if len({entry["family"] for entry in ranked}) == 1:
        del columns["family"]
    title = (
        f"best {min(candidates, len(ranked))} of {len(ranked)} candidates, {cv} folds; * is taken"
    )
    print_table(title, columns, left=("parameters",))
    if result["choice"] in CHOICES:
        say(CHOICES[result["choice"]])
    verdict, target = result["verdict"], result.get("target")
    if verdict["left_out"] is not None:
        note(verdict["left_out"])
    say(verdict["sentence"])
    kept = result["best_family"]
    if target is not None:
        (say if target["met"] else note)(target["sentence"])
        kept = f"always {target['expert']}" if target["t"] is None else f"t = {target['t']:g}"
    elif result["routes_as_constant"]:
        kept = f"always {verdict['constant']}"
        why = "its gain is not certain, and --safe is given"
        if verdict["estimate"] >= 0:
            why = "its mean cost on held-out rows is not lower"
            why += "" if safe else "; --no-constant-if-better keeps it"
        say(f"* is not used ({why}): the router decides as {kept}.")
    say(f"Saved to {result['router']} ({kept}).")


def _short(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_short(entry) for entry in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
