"""``mild fit``"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, print_table, say
from mild.cli.data import options as d
from mild.cli.engine_options import Address, Engine, check_engine
from mild.cli.outcomes import Given, Model, Source, Text
from mild.cli.torchrun import leave_writing_to_first, one_voice, training_together

if TYPE_CHECKING:
    from mild.data import Matrices

__all__ = ["fit"]


@one_voice
def fit(
    out: o.Out,
    data: Source = None,
    router: Annotated[
        str,
        typer.Option(
            help="linear, regression, knn, priced, constant, cascade, neural, transformer."
        ),
    ] = "linear",
    beta: d.Beta = None,
    price_weight: d.PriceWeight = None,
    latency_weight: d.LatencyWeight = None,
    text: Text = None,
    model: Model = None,
    loss: o.Loss = None,
    rewards: o.Rewards = None,
    strength: o.Strength = None,
    surrogate: o.Surrogate = None,
    margins: o.Margins = None,
    counts: o.Counts = None,
    alpha: o.Alpha = None,
    decision: o.Decision = None,
    neighbors: Annotated[
        int | None, typer.Option(help="Neighbours of a knn router. Default: 20.")
    ] = None,
    hidden: Annotated[
        str | None, typer.Option(help="Widths of a neural router's layers: 64,32. Default: 64.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes of a neural router over the rows, at most.")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Rows per step of a neural router, of all processes together."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="File from which a neural router's training goes on."),
    ] = None,
    standardize: o.Standardize = None,
    seed: o.Seed = 0,
    form: d.Form = None,
    query: d.Query = None,
    choices: d.Choices = True,
    experts: d.Experts = None,
    scores: d.Scores = None,
    prices: d.Prices = None,
    latencies: d.Latencies = None,
    vectors: d.Vectors = None,
    features: o.Features = None,
    costs: o.Costs = None,
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Read the file in pieces, as folders and patterns are."),
    ] = False,
    engine: Engine = "local",
    address: Address = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Threads, or workers of Ray, for shards. Default: one per core."),
    ] = None,
    scratch: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Folder for what is kept while shards are fitted. Default: beside --out.",
        ),
    ] = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Fit one router on past queries and who answered them well.

    DATA is a table of outcomes: a row per query, and per expert whether it was right (see mild data --help
    for the shapes). A wrong answer costs 1; asking may cost, too: --beta per expert, --price-weight per
    dollar, --latency-weight per second. A priced router takes new prices later, without fitting again.

    Or it is a table of numbers: feature columns, and a cost column per expert, named cost__<expert>; with
    --features or --costs it is read so in any case. An expert that was never asked has an empty cell.

    A folder, a pattern or an address (data/, "data/*.parquet", s3://...) of Parquet shards is a table of
    outcomes that need not fit into memory: a linear router is fitted in passes over the shards, in this
    process or, with --engine ray, by workers that hold them. The router is the same. Killed or stopped, the
    same command goes on where it was.

    The figures printed are on the training data; use `mild evaluate` on other data to judge the router.

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
    from mild.cli.routers import build_router, standardized
    from mild.cli.shards import fit_streamed, is_streamed
    from mild.data import read_matrices
    from mild.errors import OptionError

    check_engine(engine, address)
    # A transformer is a router that --model names, and no way to read queries.
    said = locals() | {"model": None if router == "transformer" else model}
    given = Given.among(said, data)
    widths = o.number_list("hidden", hidden, "layer widths such as 64,32") or []
    words = {
        "model": model if router == "transformer" else None,
        "loss": loss,
        "rewards": rewards,
        "strength": strength,
        "surrogate": o.surrogate_value(surrogate),
        "margins": o.margins_value(margins),
        "counts": counts,
        "alpha": alpha,
        "decision": decision,
        "n_neighbors": neighbors,
        "hidden": [int(width) if width.is_integer() else width for width in widths] or None,
        "epochs": epochs,
        "batch_size": batch_size,
        "checkpoint": checkpoint,
    }
    if is_streamed(data, stream, engine):
        unfitted = build_router(router, words, seed, standardize=False)
        check_target(out, overwrite)
        if features is not None or costs is not None:
            raise OptionError("--features and --costs are for tables that fit into memory.")
        place = (engine, address, jobs, scratch)
        with training_together(router):
            result = fit_streamed(unfitted, given, standardize, out, overwrite, seed, *place)
        emit(result, as_json, lambda: _show(result))
        return
    if jobs is not None or scratch is not None:
        raise OptionError("--jobs and --scratch are for shards: name a folder, or add --stream.")
    outcomes = given.is_outcomes(features, costs)
    unfitted = build_router(router, words, seed, standardize=False)
    check_target(out, overwrite)
    if outcomes:
        with training_together(router):
            result = _on_outcomes(unfitted, given, standardize, out, overwrite, seed)
    else:
        if router in ("priced", "transformer"):
            learns = "prices" if router == "priced" else "queries"
            raise OptionError(
                f"router {router!r} learns from {learns}: give it a table of outcomes."
            )
        table = read_matrices(data or "", features, costs)
        model = unfitted if standardize is False else standardized(unfitted)
        with training_together(router):
            result = _on_matrices(model, table, out, overwrite, seed)
    emit(result, as_json, lambda: _show(result))


def _on_outcomes(
    unfitted: Any, given: Given, standardize: bool | None, out: str, overwrite: bool, seed: int
) -> dict[str, Any]:
    from mild.artifact import load
    from mild.cli.console import progress_bar
    from mild.cli.description import margins_of
    from mild.cli.routers import standardized
    from mild.errors import OptionError
    from mild.evaluation.tasks import (
        evaluate_choices,
        fit_task,
        fit_texts,
        make_step,
        make_task,
        save_task,
    )
    from mild.evaluation.tasks.task import check_rows
    from mild.routers.constant import ConstantRouter
    from mild.routers.priced import PricedRouter

    task = make_task(given.read(), given.terms())
    check_rows(task)
    settled = task.settled_words
    # A priced router takes other prices later, under which it may matter who is asked.
    if settled is not None and not isinstance(unfitted, PricedRouter):
        note(settled)
        fitted = fit_task(task, ConstantRouter(task.settled), make_step(task))
    elif hasattr(unfitted, "text_features"):
        if given.text is not None or standardize:
            raise OptionError(
                "a transformer router reads the queries itself: leave --text and --standardize."
            )
        with progress_bar("fine-tuning") as progress:
            fitted = fit_texts(task, unfitted.set_params(progress=progress))
    else:
        with progress_bar("reading queries") as progress:
            step = given.step(task, progress)
            # Text features come with a scale; vectors are as they are.
            scaled = step.kind == "vectors" if standardize is None else standardize
            fitted = fit_task(task, standardized(unfitted) if scaled else unfitted, step)
    leave_writing_to_first()
    folder = save_task(fitted, task, out, overwrite)
    saved = load(folder)
    report = evaluate_choices(task, saved.predict(fitted.features), seed=seed).as_dict()
    # Whether it pays is not for the training data to say.
    del report["verdict"]
    return {
        "router": str(folder),
        "kind": saved.metadata["kind"],
        "estimator": saved.metadata["estimator"],
        "n_features": saved.n_features,
        "text": fitted.step.kind,
        "cost": {"words": task.words, **task.terms.as_dict()},
        "margins": margins_of(saved.policy),
        "training": {"rows": task.table.rows, "experts": task.table.expert_names, **report},
    }


def _on_matrices(
    unfitted: Any, table: Matrices, out: str, overwrite: bool, seed: int
) -> dict[str, Any]:
    from mild.artifact import load, save
    from mild.cli.description import feature_line, margins_of
    from mild.cli.judgement import judge

    unfitted.fit(table.X, table.costs)
    leave_writing_to_first()
    folder = save(
        unfitted,
        out,
        expert_names=table.expert_names,
        feature_names=table.feature_names,
        data=(table.X, table.costs),
        overwrite=overwrite,
    )
    saved = load(folder)
    known = table.costs_of(saved.expert_names)
    report = judge(known, saved.predict(table.X), saved.expert_names, 0.95, seed)
    del report["verdict"]
    note(feature_line(table.feature_names, saved.n_features), "features")
    if table.left_out:
        note(f"left out, not numbers: {', '.join(table.left_out)}.")
    return {
        "router": str(folder),
        "kind": saved.metadata["kind"],
        "estimator": saved.metadata["estimator"],
        "n_features": saved.n_features,
        "features": table.feature_names,
        "left_out": table.left_out,
        "margins": margins_of(saved.policy),
        "training": report,
    }


def _show(result: dict[str, Any]) -> None:
    from mild.cli.judgement import print_judgement

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
