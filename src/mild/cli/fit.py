"""``mild fit``"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, note, print_table, progress_bar, say
from mild.cli.evaluate import print_evaluation
from mild.cli.outcomes import OutcomeSource, loss_line, note_matrices, other_files
from mild.cli.torchrun import first_process_only, leave_writing_to_first, training_together
from mild.errors import OptionError, check_option

if TYPE_CHECKING:
    from mild.data import Matrices
    from mild.tuning.tasks import Task

ROUTERS = {
    "linear": "LinearRouter",
    "regression": "CostRegressionRouter",
    "knn": "KNNRouter",
    "priced": "PricedRouter",
    "constant": "ConstantRouter",
    "cascade": "CascadeRouter",
    "neural": "NeuralRouter",
    "transformer": "TransformerRouter",
}


@dataclass(frozen=True)
class RouterOptions(o.LossOptions):
    """Parameters of the routers."""

    margins: Annotated[
        str | None,
        Option(help="theory, uniform, or one number per expert: 1,2,0.5. Default: theory."),
    ] = None
    alpha: Annotated[float | None, Option(help="L2 strength. Default: the router's own.")] = None
    neighbors: Annotated[int | None, Option(help="Neighbours of a knn router. Default: 20.")] = None
    hidden: Annotated[
        str | None, Option(help="Layer widths of a neural router: 64,32. Default: 64.")
    ] = None
    epochs: Annotated[int | None, Option(help="Maximal number of epochs of a neural router.")] = (
        None
    )
    batch_size: Annotated[
        int | None, Option(help="Rows per step of a neural router, over all processes together.")
    ] = None
    checkpoint: Annotated[
        str | None,
        Option(metavar="PATH", help="Checkpoint file from which a neural router resumes training."),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Parameters of a router; None where the router's default applies."""
        arguments = super().arguments()
        widths = o.number_list("hidden", self.hidden, "layer widths such as 64,32") or []
        arguments["hidden"] = [int(w) if w.is_integer() else w for w in widths] or None
        arguments["margins"] = o.margins_value(self.margins)
        arguments["n_neighbors"] = arguments.pop("neighbors")
        return arguments


@dataclass(frozen=True)
class ShardOptions(o.EngineOptions):
    """Fitting on shards."""

    panel: ClassVar[str] = "Fitting on shards"

    stream: Annotated[
        bool, Option("--stream", help="Read a single file in pieces, as folders and patterns are.")
    ] = False
    jobs: Annotated[
        int | None, Option(min=1, help="Threads, or Ray workers. Default: one per core.")
    ] = None
    scratch: Annotated[
        str | None,
        Option(metavar="PATH", help="Folder for intermediate results. Default: next to --out."),
    ] = None

    def apply_to(self, data: str | None) -> bool:
        """Whether rows are read in passes: asked for, on Ray, or several files of Parquet."""
        if data is None:
            return False
        if self.stream or self.engine == "ray" or "://" in data:
            return True
        path = Path(data)
        several = path.is_dir() or (any(mark in data for mark in "*?[") and not path.exists())
        return several and not other_files(data)


@first_process_only
@o.takes_options
def fit(
    *,
    out: o.Out,
    data: o.Source = None,
    router: Annotated[
        str, Option(help="linear, regression, knn, priced, constant, cascade, neural, transformer.")
    ] = "linear",
    cost: o.CostOptions,
    text: o.TextOptions,
    seed: o.Seed = 0,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    params: RouterOptions,
    balance: o.Balance = None,
    standardize: o.Standardize = None,
    shards: ShardOptions,
    reading: o.TableOptions,
    columns: o.MatrixOptions,
) -> None:
    """Fit one router on past queries and on how well each expert answered them.

    TABLE is a table of outcomes (mild data --help lists the formats), or one of numbers: feature
    columns, and a cost column cost__<expert> per expert, empty where it was not asked. A wrong answer
    costs 1; --beta, --price-weight and --latency-weight add what asking costs. A folder, a pattern or a
    URL of Parquet shards need not fit into memory: a linear router is fitted in passes, here or on Ray,
    and resumes after an interruption. The figures printed are for the training data; judge the router
    by mild evaluate.

    \b
    Example:
      mild fit outcomes.parquet --out router --beta 7B=0.3,1.5B=0.1
      mild fit outcomes.parquet --out router --price-weight 50 --router priced
      torchrun --nproc-per-node 2 -m mild fit outcomes.parquet --out router --router neural
      mild fit "logs/*.parquet" --out router --text vectors --engine ray --address 10.0.0.7:6379
    """
    from mild.artifact import load
    from mild.artifact.folder import check_target
    from mild.evaluation.evaluate import evaluate_choices, evaluate_outcomes
    from mild.metrics.outcomes import Outcomes

    shards.check()
    arguments = params.arguments()
    if router == "transformer":
        # --model then names the transformer, not the text features.
        arguments["model"], text = text.model, o.TextOptions(text.text)
    source = OutcomeSource(data, reading, cost, text, balance=balance)
    streamed = shards.apply_to(data)
    if not streamed and (shards.jobs is not None or shards.scratch is not None):
        raise OptionError("--jobs and --scratch are for shards: name a folder, or add --stream.")
    outcomes = streamed or source.is_outcomes(columns)
    unfitted = build_router(router, arguments, seed)
    check_target(out, overwrite)
    if streamed and balance is not None:
        raise OptionError(parameter="balance", rule="is for tables that fit into memory.")
    if streamed and columns.given:
        raise OptionError("--features and --costs are for tables that fit into memory.")
    if not outcomes and router in ("priced", "transformer"):
        learns = "prices" if router == "priced" else "queries"
        raise OptionError(
            f"router {router!r} learns from {learns}: give it a table of outcomes.",
            parameter="router",
        )
    # Before the processes join: a missing file is an error in each of them.
    table = None if outcomes else source.matrices(columns.features, columns.costs)
    with training_together(router):
        if streamed:
            saved = _fit_shards(unfitted, source, standardize, shards, out, overwrite)
        elif table is None:
            saved = _fit_outcomes(unfitted, source, standardize, out, overwrite)
        else:
            model = standardized(unfitted, standardize is not False).fit(table.X, table.costs)
            leave_writing_to_first()
            facts = {"features": table.feature_names, "left_out": table.left_out}
            saved = Saved(save_matrices(model, table, out, overwrite), table.X, facts)
    loaded = load(saved.folder)
    chosen, names = loaded.predict(saved.features), loaded.expert_names
    if table is None:
        training = evaluate_choices(saved.task, chosen, seed=seed).as_dict()
    else:
        known = Outcomes(table.costs_of(names))
        training = evaluate_outcomes(known, chosen, names, seed=seed).as_dict()
    # Training data cannot say whether routing pays.
    del training["verdict"]
    result = {
        "router": str(saved.folder),
        "kind": loaded.info.kind,
        "estimator": loaded.info.estimator and loaded.info.estimator.as_dict(),
        "n_features": loaded.n_features,
        "margins": loaded.margins,
        **saved.facts,
        "training": training,
    }
    emit(result, as_json, lambda: _show(result))


@dataclass(frozen=True)
class Saved:
    """A router that was fitted and saved: its folder, the features of the training rows, its task."""

    folder: Path
    features: Any
    facts: dict[str, Any]
    task: Any = None  # the Task, if it is a table of outcomes


def build_router(name: str, params: Mapping[str, Any], seed: int) -> Any:
    """An unfitted router; parameters that are None keep the router's own defaults."""
    check_option("router", name, ROUTERS)
    module = "mild.routers.transformer" if name == "transformer" else "mild.routers"
    router_class = getattr(importlib.import_module(module), ROUTERS[name])
    known = inspect.signature(router_class).parameters
    given = {key: value for key, value in params.items() if value is not None}
    options = {key: f"--{key.removeprefix('n_').replace('_', '-')}" for key in params}
    for key in given:
        if key not in known:
            takes = [options[other] for other in params if other in known]
            raise OptionError(
                f"{options[key]} is no option of a {name} router; it takes "
                f"{', '.join(takes) or 'none of these'}.",
                parameter=key,
            )
    if "random_state" in known:
        given["random_state"] = seed
    return router_class(**given)


def standardized(router: Any, scale: bool = True) -> Any:
    """The router behind a scaler if ``scale``; a constant router needs none."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not scale or type(router).__name__ == "ConstantRouter":
        return router
    return make_pipeline(StandardScaler(), router)


def fit_constant(task: Task) -> Any:
    """The constant of a task in which one expert costs least in every row; print why."""
    from mild.routers import ConstantRouter
    from mild.tuning.tasks import fit_task, make_step

    note(task.settled_words or "")
    return fit_task(task, ConstantRouter(task.settled), make_step(task))


def save_matrices(model: Any, table: Matrices, out: str, overwrite: bool) -> Path:
    """Save a router that was fitted on a table of features and costs; print which columns it has."""
    from mild.artifact import save

    folder = save(
        model,
        out,
        expert_names=table.expert_names,
        feature_names=table.feature_names,
        data=(table.X, table.costs),
        overwrite=overwrite,
    )
    note_matrices(table)
    return folder


def _fit_outcomes(
    unfitted: Any, source: OutcomeSource, standardize: bool | None, out: str, overwrite: bool
) -> Saved:
    from mild.tuning.tasks import check_rows, fit_task, fit_texts, save_task

    task = source.task()
    check_rows(task)
    # Under other prices, which a priced router accepts later, another expert may be best.
    if task.settled is not None and type(unfitted).__name__ != "PricedRouter":
        fitted = fit_constant(task)
    elif hasattr(unfitted, "text_features"):
        if source.text.text is not None or standardize:
            raise OptionError(
                "a transformer router reads the queries itself: leave out --text and --standardize."
            )
        with progress_bar("fine-tuning") as progress:
            fitted = fit_texts(task, unfitted.set_params(progress=progress))
    else:
        with progress_bar("reading queries") as progress:
            step = source.step(task, progress)
            scaled = step.kind == "vectors" if standardize is None else standardize
            fitted = fit_task(task, standardized(unfitted, scaled), step)
    leave_writing_to_first()
    facts = {"text": fitted.step.kind, "cost": task.cost, "balance": task.balance}
    return Saved(save_task(fitted, task, out, overwrite), fitted.features, facts, task)


def _fit_shards(
    unfitted: Any,
    source: OutcomeSource,
    standardize: bool | None,
    shards: ShardOptions,
    out: str,
    overwrite: bool,
) -> Saved:
    from mild.artifact.folder import check_target
    from mild.data.formats.base import ReadOptions
    from mild.distributed.ray_connection import check_ray
    from mild.distributed.shards.dataset import open_dataset
    from mild.distributed.shards.fitting import (
        check_router,
        described,
        fit_shards,
        save_shards,
        work_folder,
    )
    from mild.distributed.shards.workers import local_workers, ray_workers

    check_router(unfitted)
    # Before anything is written.
    if shards.engine == "ray":
        check_ray(shards.address)
    dataset = open_dataset(source.file or "", ReadOptions(**vars(source.reading)))
    terms, text = source.cost.terms(), source.text
    folder = check_target(out, overwrite)
    settings = described(dataset, terms, unfitted, text.text, text.model, standardize)
    with work_folder(folder, shards.scratch, settings) as work, progress_bar("fitting") as progress:

        def make_workers(held: Any) -> Any:
            if shards.engine == "ray":
                return ray_workers(held, terms, shards.address, shards.jobs)
            return local_workers(held, terms, work.features, shards.jobs)

        try:
            fitted = fit_shards(
                dataset,
                terms,
                unfitted,
                make_workers,
                text=text.text,
                text_options=text.arguments(),
                standardize=standardize,
                folder=work.evaluations,
                progress=progress,
            )
        except KeyboardInterrupt:
            note(f"intermediate results are in {work.path}: the same command resumes from them.")
            raise
        folder = save_shards(fitted, out, overwrite)
    note(fitted.dataset.explanation(fitted.rows))
    left = [name for name in dataset.expert_names if name not in fitted.dataset.expert_names]
    if left:
        note(f"left out, never asked: {', '.join(left)}.")
    for finding in fitted.findings:
        note(finding.sentence)
    if fitted.settled is not None:
        note(fitted.settled)
    if fitted.remembered:
        were = "was" if fitted.remembered == 1 else "were"
        note(f"{fitted.remembered} of {fitted.evaluations} evaluations {were} there already.")
    facts = {
        "text": fitted.step.kind,
        "cost": fitted.task.cost,
        "rows": fitted.rows,
        "shards": len(dataset.files),
        "engine": shards.engine,
        "evaluations": fitted.evaluations,
        "remembered": fitted.remembered,
    }
    return Saved(folder, fitted.features, facts, fitted.task)


def _show(result: dict[str, Any]) -> None:
    training = result["training"]
    if "cost" in result:
        say(loss_line(result))
    rows = training["summary"]["n_known"]
    where = f"{rows:,} of the {result['rows']:,}" if "rows" in result else f"the {rows:,}"
    one = result.get("rows", rows) == 1
    print_evaluation(training, f"on {where} training row{'' if one else 's'} (optimistic)")
    if result["margins"] is not None:
        margins = [f"{margin:.4g}" for margin in result["margins"]]
        print_table("margins", {"expert": training["experts"], "margin": margins})
    say(f"Saved to {result['router']}.")
