"""``mild fit``"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, print_table, progress_bar, say
from mild.cli.evaluate import judge, print_judgement
from mild.cli.outcomes import OutcomeSource, matrix_notes
from mild.cli.routers import build_router, standardized
from mild.cli.show import margins_of
from mild.cli.torchrun import leave_writing_to_first, one_voice, training_together
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.data import Matrices
    from mild.evaluation.tasks import Task

__all__ = ["fit"]


@dataclass(frozen=True)
class RouterOptions(o.LossOptions):
    """Parameters of the routers."""

    margins: Annotated[
        str | None,
        typer.Option(help="theory, uniform, or one number per expert: 1,2,0.5. Default: theory."),
    ] = None
    alpha: Annotated[float | None, typer.Option(help="L2 strength. Default: the router's own.")] = (
        None
    )
    neighbors: Annotated[
        int | None, typer.Option(help="Neighbours of a knn router. Default: 20.")
    ] = None
    hidden: Annotated[
        str | None, typer.Option(help="Layer widths of a neural router: 64,32. Default: 64.")
    ] = None
    epochs: Annotated[
        int | None, typer.Option(help="Maximal number of epochs of a neural router.")
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option(help="Rows per step of a neural router, over all processes together."),
    ] = None
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Checkpoint file from which a neural router resumes training."
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Parameters of a router; None where the router's default applies."""
        words = super().arguments()
        widths = o.number_list("hidden", self.hidden, "layer widths such as 64,32") or []
        words["hidden"] = [int(w) if w.is_integer() else w for w in widths] or None
        words["margins"] = o.margins_value(self.margins)
        words["n_neighbors"] = words.pop("neighbors")
        return words


@dataclass(frozen=True)
class ShardOptions(o.EngineOptions):
    """Fitting on shards."""

    panel: ClassVar[str] = "Fitting on shards"

    stream: Annotated[
        bool,
        typer.Option("--stream", help="Read a single file in pieces, as folders and patterns are."),
    ] = False
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Threads, or Ray workers. Default: one per core."),
    ] = None
    scratch: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Folder for intermediate results. Default: next to --out."
        ),
    ] = None

    def apply_to(self, data: str | None) -> bool:
        """Whether rows are read in passes: asked for, on Ray, or not a plain file.

        Examples
        --------
        >>> ShardOptions().apply_to("log.parquet"), ShardOptions().apply_to("logs/*.parquet")
        (False, True)
        """
        if data is None:
            return False
        if self.stream or self.engine == "ray" or "://" in data:
            return True
        path = Path(data)
        return path.is_dir() or (any(mark in data for mark in "*?[") and not path.exists())


@dataclass(frozen=True)
class Target:
    """Where the router goes, and the seed of the intervals of its training figures."""

    out: str
    overwrite: bool
    seed: int


@one_voice
@o.takes_options
def fit(
    *,
    out: o.Out,
    data: o.Source = None,
    router: Annotated[
        str,
        typer.Option(
            help="linear, regression, knn, priced, constant, cascade, neural, transformer."
        ),
    ] = "linear",
    cost: o.CostOptions,
    text: o.TextOptions,
    seed: o.Seed = 0,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    params: RouterOptions,
    standardize: o.Standardize = None,
    shards: ShardOptions,
    reading: o.TableOptions,
    columns: o.MatrixOptions,
) -> None:
    """Fit one router on past queries and on how well each expert answered them.

    TABLE is a table of outcomes: one row per query, and for each expert whether it was right (mild data
    --help lists the formats). A wrong answer costs 1. Asking may have a cost, too: --beta per expert,
    --price-weight per dollar, --latency-weight per second. A priced router accepts new prices later,
    without a new fit.

    TABLE can also be a table of numbers: feature columns, and a cost column per expert named
    cost__<expert>. With --features or --costs it is always read this way. The cell of an expert that was
    not asked is empty.

    A folder, a pattern or a URL of Parquet shards (data/, "data/*.parquet", s3://...) is a table of
    outcomes that need not fit into memory: a linear router is fitted in passes over the shards, in this
    process or on Ray workers, with the same result. After an interruption the same command resumes.

    The figures printed are for the training data. Use mild evaluate on other data to judge the router.

    \b
    Example:
      mild fit outcomes.parquet --out router --beta 7B=0.3,1.5B=0.1
      mild fit outcomes.parquet --out router --price-weight 50 --router priced
      torchrun --nproc-per-node 2 -m mild fit outcomes.parquet --out router --router neural
      mild fit outcomes.parquet --out router --router transformer --model deberta-v3-xsmall/
      mild fit "logs/*.parquet" --out router --text vectors --engine ray --address 10.0.0.7:6379
      mild fit log.csv --out router --features "f_*" --margins 1,2,0.5 --alpha 0.01
    """
    from mild.artifact.writing import check_target
    from mild.data import read_matrices

    shards.check()
    arguments = params.arguments()
    if router == "transformer":
        # --model then names the transformer, not the text features.
        arguments["model"], text = text.model, o.TextOptions(text.text)
    source = OutcomeSource(data, reading, cost, text)
    target = Target(out, overwrite, seed)
    streamed = shards.apply_to(data)
    if not streamed and (shards.jobs is not None or shards.scratch is not None):
        raise OptionError("--jobs and --scratch are for shards: name a folder, or add --stream.")
    outcomes = streamed or source.is_outcomes(columns)
    unfitted = build_router(router, arguments, seed)
    check_target(out, overwrite)
    if streamed and columns.given:
        raise OptionError("--features and --costs are for tables that fit into memory.")
    if not outcomes and router in ("priced", "transformer"):
        learns = "prices" if router == "priced" else "queries"
        raise OptionError(
            f"router {router!r} learns from {learns}: give it a table of outcomes.",
            parameter="router",
        )
    table = None
    if not outcomes:
        # Before the processes join: a missing file is an error in each of them.
        table = read_matrices(str(data), columns.features, columns.costs)
    with training_together(router):
        if streamed:
            result = _fit_shards(unfitted, source, standardize, target, shards)
        elif table is None:
            result = _fit_outcomes(unfitted, source, standardize, target)
        else:
            model = unfitted if standardize is False else standardized(unfitted)
            result = _fit_matrices(model, table, target)
    emit(result, as_json, lambda: _show(result))


def _fit_outcomes(
    unfitted: Any, source: OutcomeSource, standardize: bool | None, target: Target
) -> dict[str, Any]:
    from mild.evaluation.tasks import fit_task, fit_texts, make_step, make_task, save_task
    from mild.evaluation.tasks.task import check_rows
    from mild.routers.baselines import ConstantRouter
    from mild.routers.cost_models import PricedRouter

    task = make_task(source.read(), source.cost.terms())
    check_rows(task)
    settled = task.settled_words
    # Under other prices, which a priced router accepts later, another expert may be best.
    if settled is not None and not isinstance(unfitted, PricedRouter):
        note(settled)
        fitted = fit_task(task, ConstantRouter(task.settled), make_step(task))
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
            fitted = fit_task(task, standardized(unfitted) if scaled else unfitted, step)
    leave_writing_to_first()
    folder = save_task(fitted, task, target.out, target.overwrite)
    return _described(folder, task, fitted, target.seed)


def _fit_matrices(unfitted: Any, table: Matrices, target: Target) -> dict[str, Any]:
    from mild.artifact import load, save

    unfitted.fit(table.X, table.costs)
    leave_writing_to_first()
    folder = save(
        unfitted,
        target.out,
        expert_names=table.expert_names,
        feature_names=table.feature_names,
        data=(table.X, table.costs),
        overwrite=target.overwrite,
    )
    saved = load(folder)
    known = table.costs_of(saved.expert_names)
    report = judge(known, saved.predict(table.X), saved.expert_names, seed=target.seed)
    # Training data cannot say whether routing pays.
    del report["verdict"]
    matrix_notes(table)
    return {
        **_saved_facts(folder, saved),
        "features": table.feature_names,
        "left_out": table.left_out,
        "training": report,
    }


def _fit_shards(
    unfitted: Any,
    source: OutcomeSource,
    standardize: bool | None,
    target: Target,
    shards: ShardOptions,
) -> dict[str, Any]:
    from mild.artifact.writing import check_target
    from mild.data.outcomes import ReadOptions
    from mild.distributed.ray_connection import check_ray
    from mild.distributed.shards.dataset import open_dataset
    from mild.distributed.shards.fitting import fit_shards, save_shards
    from mild.distributed.shards.solving import check_router
    from mild.distributed.shards.work_folder import described, work_folder
    from mild.distributed.shards.workers import local_workers, ray_workers

    check_router(unfitted)
    # Before anything is written.
    if shards.engine == "ray":
        check_ray(shards.address)
    dataset = open_dataset(source.file or "", ReadOptions(**source.reading.arguments()))
    terms, text = source.cost.terms(), source.text
    folder = check_target(target.out, target.overwrite)
    facts = described(dataset, terms, unfitted, text.text, text.model, standardize)
    with work_folder(folder, shards.scratch, facts) as work, progress_bar("fitting") as progress:

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
        folder = save_shards(fitted, target.out, target.overwrite)
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
    return {
        **_described(folder, fitted.task, fitted, target.seed),
        "rows": fitted.rows,
        "shards": len(dataset.files),
        "engine": shards.engine,
        "evaluations": fitted.evaluations,
        "remembered": fitted.remembered,
    }


def _saved_facts(folder: Path, saved: Any) -> dict[str, Any]:
    return {
        "router": str(folder),
        "kind": saved.metadata["kind"],
        "estimator": saved.metadata["estimator"],
        "n_features": saved.n_features,
        "margins": margins_of(saved.policy),
    }


def _described(folder: Path, task: Task, fitted: Any, seed: int) -> dict[str, Any]:
    """A saved router, and its figures on the training data."""
    from mild.artifact import load
    from mild.evaluation.tasks import evaluate_choices

    saved = load(folder)
    report = evaluate_choices(task, saved.predict(fitted.features), seed=seed).as_dict()
    # Training data cannot say whether routing pays.
    del report["verdict"]
    return {
        **_saved_facts(folder, saved),
        "text": fitted.step.kind,
        "cost": {"words": task.words, **task.terms.as_dict()},
        "training": {"rows": task.table.rows, "experts": task.table.expert_names, **report},
    }


def _show(result: dict[str, Any]) -> None:
    training = result["training"]
    if "cost" in result:
        say(f"cost = {result['cost']['words']}; text features: {result['text']}")
    rows = training["summary"]["n_known"]
    where = f"{rows:,} of the {result['rows']:,}" if "rows" in result else f"the {rows:,}"
    one = result.get("rows", rows) == 1
    print_judgement(training, f"on {where} training row{'' if one else 's'} (optimistic)")
    if result["margins"] is not None:
        pairs = zip(training["experts"], result["margins"], strict=True)
        print_table("margins", ["expert", "margin"], [[n, f"{m:.4g}"] for n, m in pairs])
    say(f"Saved to {result['router']}.")
