"""``mild tune``"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from mild.cli import options as o
from mild.cli.console import INTERRUPTED, emit, note, number, print_table, progress_bar, say
from mild.cli.outcomes import OutcomeSource, matrix_notes, note_folds, workers
from mild.cli.routers import build_router, standardized
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.core.arrays import FloatArray
    from mild.evaluation.tasks import Task

__all__ = ["tune"]


@dataclass(frozen=True)
class SearchOptions:
    """What the search tries, and how it chooses."""

    panel: ClassVar[str] = "Search"

    alphas: Annotated[
        str | None, typer.Option(help="L2 strengths to try: 0.001,0.01. Default: 1e-4 to 1.")
    ] = None
    margin_factors: Annotated[
        str, typer.Option(help="Factors by which single margins are multiplied.")
    ] = "0.5,1,2"
    paper_grid: Annotated[
        bool,
        typer.Option("--paper-grid", help="Try margins in steps of 1 within 5 of the theory."),
    ] = False
    confidence: Annotated[
        float, typer.Option(help="Confidence level of the interval behind the verdict.")
    ] = 0.95
    one_standard_error: Annotated[
        bool,
        typer.Option(
            help="Without a stack: take the simplest router within one standard error of the best. A stack "
            "is taken unless another candidate clearly beats it."
        ),
    ] = True
    candidates: Annotated[int, typer.Option(help="Number of candidates to list.")] = 10

    def arguments(self) -> dict[str, Any]:
        """Parameters of ``RouterCV``."""
        if self.candidates < 1:
            raise OptionError(
                f"candidates must be at least 1; got {self.candidates}.", parameter="candidates"
            )
        return {
            "alphas": o.number_list("alphas", self.alphas),
            "margin_factors": o.number_list("margin_factors", self.margin_factors),
            "grid": "paper" if self.paper_grid else "ratios",
            "one_standard_error": self.one_standard_error,
            "confidence": self.confidence,
        }


@dataclass(frozen=True)
class Search:
    """An unfitted search: parameters of the linear router and of ``RouterCV``.

    ``standardize`` None scales vectors and numeric columns, and not text features.
    """

    router: Mapping[str, Any]
    params: Mapping[str, Any]
    standardize: bool | None

    def build(self, scaled: bool, **changes: Any) -> Any:
        """The search, behind a scaler if ``standardize`` or, by default, ``scaled`` says so."""
        from mild.routers.search import RouterCV

        params = {**self.params, **changes}
        families = params.pop("families")
        if families not in (None, "all", "auto"):
            families = [name.strip() for name in families.split(",") if name.strip()]
        estimator = build_router("linear", self.router, params["random_state"])
        tuner = RouterCV(estimator, families=families, **params)
        standardize = scaled if self.standardize is None else self.standardize
        return standardized(tuner) if standardize else tuner


@o.takes_options
def tune(
    *,
    out: o.Out,
    data: o.Source = None,
    families: Annotated[
        str | None,
        typer.Option(
            help="linear, regression, knn, mlp, stack, comma-separated, or all. Default: all for a table "
            "of outcomes (mlp up to about 5,000 rows), otherwise linear."
        ),
    ] = None,
    cost: o.CostOptions,
    text: o.TextOptions,
    group: o.Group = None,
    time: o.Time = None,
    cv: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    safe: Annotated[
        bool, typer.Option("--safe", help="Save the best constant if routing does not pay.")
    ] = False,
    seed: o.Seed = 0,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    options: SearchOptions,
    router: o.LossOptions,
    standardize: o.Standardize = None,
    jobs: o.Jobs = None,
    execution: o.EngineOptions,
    reading: o.TableOptions,
    columns: o.MatrixOptions,
) -> None:
    """Search for the best router, and say whether routing pays.

    The search tries strengths and margins of a linear router and other kinds of routers, all by
    cross-validation. Equal queries stay in one fold; so do rows of a --group. With --time each fold is
    judged by routers that were fitted on the past. Ctrl-C ends the search early: the best router so far
    is fitted and saved, and the exit code is 130.

    \b
    Example:
      mild tune outcomes.parquet --out router --price-weight 50
      mild tune outcomes.parquet --out router --group subject --safe
      mild tune log.csv --out router --families all --jobs -1
    """
    from mild.artifact.writing import check_target
    from mild.evaluation.tasks import make_task, possible_folds
    from mild.evaluation.tasks.task import check_rows

    execution.check()
    params = options.arguments()
    source = OutcomeSource(data, reading, cost, text, group, time)
    outcomes = source.is_outcomes(columns)
    check_target(out, overwrite)
    if outcomes:
        task = make_task(source.read(), cost.terms(), group)
        check_rows(task)
        if task.settled_words is not None:
            result = _save_constant(task, out, overwrite)
            note(task.settled_words)
            emit(result, as_json, lambda: say(f"Saved to {result['router']} (constant)."))
            return
        folds = possible_folds(task, cv, time)
        note_folds(cv, folds, task)
        cv = cv if folds < 2 else folds
    params |= {
        "families": families,
        "cv": cv,
        "safe": safe,
        "n_jobs": -1 if jobs is None and execution.engine == "ray" else jobs,
        "random_state": seed,
    }
    search = Search(router.arguments(), params, standardize)
    with execution.running(jobs):
        if outcomes:
            result = _tune_outcomes(search, task, source, out, overwrite)
        else:
            result = _tune_matrices(search, str(data), columns, out, overwrite)
    result["routes_as_constant"] = safe and result["verdict"]["pays"] is not True
    if result["skipped_families"]:
        note_skipped(result["skipped_families"])
    emit(result, as_json, lambda: _show(result, options.candidates, cv))
    if result["interrupted"]:
        note(
            f"the search was stopped; the best router so far is in {result['router']}.",
            "interrupted",
        )
        raise typer.Exit(INTERRUPTED)


def _save_constant(task: Task, out: str, overwrite: bool) -> dict[str, Any]:
    """Save the best constant where no search is needed."""
    from mild.evaluation.tasks import fit_task, make_step, save_task
    from mild.routers.baselines import ConstantRouter

    expert = ConstantRouter(task.settled)
    fitted = fit_task(task, expert, make_step(task))
    return {
        "router": str(save_task(fitted, task, out, overwrite)),
        "text": fitted.step.kind,
        "cost": {"words": task.words, **task.terms.as_dict()},
        "best_family": "constant",
        "best_params": {},
        "candidates": [],
        "interrupted": False,
        "skipped_families": [],
        "verdict": {
            "pays": False,
            "constant": task.table.expert_names[expert.expert_],
            "sentence": task.settled_words,
        },
        "routes_as_constant": True,
    }


def _tune_outcomes(
    search: Search, task: Task, source: OutcomeSource, out: str, overwrite: bool
) -> dict[str, Any]:
    """Search on a table of outcomes, by default as ``mild compare`` does."""
    from mild.evaluation import tasks
    from mild.evaluation.comparison.methods import TUNED

    params = search.params
    folds = tasks.search_folds(task, params["cv"], source.time, params["random_state"])
    with progress_bar("searching") as progress:
        step = source.step(task, progress)
        model = search.build(
            step.kind == "vectors",
            cv=folds,
            clusters=task.bundle,
            families=params["families"] or TUNED,
            n_jobs=workers(params["n_jobs"], task.table.rows),
            progress=progress,
        )
        fitted = tasks.fit_task(task, model, step)
    folder = tasks.save_task(fitted, task, out, overwrite)
    names, unit = task.table.expert_names, "query" if task.group is None else "group"
    return {
        "router": str(folder),
        "text": step.kind,
        "cost": {"words": task.words, **task.terms.as_dict()},
        **_found(fitted.model, names, unit, task.table.prices),
    }


def _tune_matrices(
    search: Search, file: str, columns: o.MatrixOptions, out: str, overwrite: bool
) -> dict[str, Any]:
    """Search on a table of features and costs."""
    from mild.artifact import save
    from mild.data import read_matrices

    table = read_matrices(file, columns.features, columns.costs)
    with progress_bar("searching") as progress:
        model = search.build(True, progress=progress)
        model.fit(table.X, table.costs)
    folder = save(
        model,
        out,
        expert_names=table.expert_names,
        feature_names=table.feature_names,
        data=(table.X, table.costs),
        overwrite=overwrite,
    )
    matrix_notes(table)
    return {
        "router": str(folder),
        "features": table.feature_names,
        "left_out": table.left_out,
        **_found(model, table.expert_names),
    }


def _found(
    model: Any, expert_names: Sequence[str], unit: str = "row", prices: FloatArray | None = None
) -> dict[str, Any]:
    """What the search chose, from which candidates, and its verdict."""
    tuner = model[-1] if hasattr(model, "steps") else model
    verdict = tuner.verdict_
    name = expert_names[verdict.constant_expert]
    statement = verdict.named(name, unit, None if prices is None else _dollars(tuner, prices))
    return {
        **describe_tuning(tuner),
        "verdict": {**statement.as_dict(), "constant": name, "rows": verdict.n_rows},
    }


def describe_tuning(search: Any) -> dict[str, Any]:
    """What a fitted search chose, and from which candidates."""
    return {
        "best_family": search.best_family_,
        "best_params": search.best_params_,
        "interrupted": search.interrupted_,
        "skipped_families": list(search.skipped_families_),
        "dropped_margins": search.dropped_margins_,
        "candidates": [
            {**dict(zip(search.cv_results_, row, strict=True)), "taken": i == search.best_index_}
            for i, row in enumerate(zip(*search.cv_results_.values(), strict=True))
        ],
    }


def _dollars(tuner: Any, prices: FloatArray) -> float | None:
    """Mean price of the router's choices minus that of the constant, where both are known."""
    import numpy as np

    router, constant = tuner.held_out_, tuner.held_out_constants_
    rows, judged = np.arange(len(prices)), (router >= 0) & (constant >= 0)
    difference = (prices[rows, router] - prices[rows, constant])[judged]
    known = difference[~np.isnan(difference)]
    return float(known.mean()) if known.size else None


def note_skipped(families: Sequence[str]) -> None:
    """Print which families were not tried, why, and how to try them."""
    names = ", ".join(families)
    if importlib.util.find_spec("torch") is None:
        note(f"left out, torch is not installed: {names}.")
    else:
        note(f"left out, it takes long on a table of this size: {names}; --families all tries it.")


def _show(result: Mapping[str, Any], candidates: int, cv: int) -> None:
    """Print the best candidates, the verdict, and where the router is."""
    if "cost" in result:
        say(f"cost = {result['cost']['words']}; text features: {result['text']}")
    ranked = sorted(result["candidates"], key=lambda entry: entry["mean_cost"])
    # The candidate that is taken is always listed.
    listed = [entry for place, entry in enumerate(ranked) if place < candidates or entry["taken"]]
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "family": lambda entry: entry["family"],
        "mean cost": lambda entry: f"{'* ' * entry['taken']}{number(entry['mean_cost'])}",
        "± se": lambda entry: number(entry["standard_error"]),
        "minus constant": lambda entry: number(entry["difference"]),
        "parameters": lambda entry: ", ".join(
            f"{key} {_short(value)}" for key, value in entry["params"].items()
        ),
    }
    if len({entry["family"] for entry in ranked}) == 1:
        del columns["family"]
    print_table(
        f"best {min(candidates, len(ranked))} of {len(ranked)} candidates, {cv} folds; * is taken",
        list(columns),
        [[cell(entry) for cell in columns.values()] for entry in listed],
        left=("parameters",),
    )
    verdict = result["verdict"]
    if verdict["left_out"] is not None:
        note(verdict["left_out"])
    say(verdict["sentence"])
    constant = verdict["constant"]
    kept = f"always {constant}" if result["routes_as_constant"] else result["best_family"]
    say(f"Saved to {result['router']} ({kept}).")


def _short(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_short(entry) for entry in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
