"""``mild fit``"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, note, print_table, progress_bar, say
from mild.cli.evaluate import print_evaluation
from mild.cli.outcomes import OutcomeSource, loss_line
from mild.errors import OptionError


@dataclass(frozen=True)
class RouterOptions(o.LossOptions):
    """Parameters of a linear router; those of other routers are set in Python."""

    margins: Annotated[
        str | None,
        Option(help="theory, uniform, or one number per expert: 1,2,0.5. Default: theory."),
    ] = None
    alpha: Annotated[float | None, Option(help="L2 strength. Default: the router's own.")] = None

    def arguments(self) -> dict[str, Any]:
        """Parameters of a router; None where the router's default applies."""
        return {**super().arguments(), "margins": o.margins_value(self.margins)}


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
        from mild.data.tables import is_parquet_folder

        return is_parquet_folder(data)


@o.takes_options
def fit(
    *,
    out: o.Out,
    data: o.Source = None,
    router: Annotated[
        str, Option(help="linear, regression, knn, priced, constant, neural.")
    ] = "linear",
    cost: o.CostOptions,
    text: o.TextOptions,
    seed: o.Seed = 0,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    params: RouterOptions,
    shards: ShardOptions,
    reading: o.TableOptions,
) -> None:
    """Fit one router on past queries and on how well each expert answered them.

    TABLE is a table of outcomes (mild data --help lists the formats), or one of numbers: feature
    columns, and the cost of each expert in cost__<expert>, empty where it was not asked. A wrong answer
    costs 1; --beta, --price-weight and --latency-weight add what asking costs. A folder, a pattern or a
    URL of Parquet shards need not fit into memory: a linear router is fitted in passes, here or on Ray,
    and resumes after an interruption. The figures printed are for the training data; judge the router
    with mild evaluate.

    \b
    Example:
      mild fit outcomes.parquet --out router --beta 7B=0.3,1.5B=0.1
      mild fit outcomes.parquet --out router --price-weight 50 --router priced
      mild fit "logs/*.parquet" --out router --text vectors --engine ray --address 10.0.0.7:6379
    """
    from mild.artifact.folder import check_target
    from mild.evaluation.evaluate import evaluate_fit
    from mild.tuning.fit import fit_data
    from mild.tuning.fitting import make_router

    shards.check()
    arguments = params.arguments()
    source = OutcomeSource(data, reading, cost)
    streamed = shards.apply_to(data)
    if not streamed and (shards.jobs is not None or shards.scratch is not None):
        raise OptionError("--jobs and --scratch are for shards: name a folder, or add --stream.")
    unfitted, features = make_router(router, arguments, seed), text.features()
    check_target(out, overwrite)
    if streamed:
        from mild.distributed.shards.fitting import fit_dataset

        with progress_bar("fitting") as progress:
            found = fit_dataset(
                data or "",
                out,
                unfitted,
                cost.terms(),
                reading=vars(reading),
                text=text.text,
                model=text.model,
                engine=shards.engine,
                address=shards.address,
                n_jobs=shards.jobs,
                scratch=shards.scratch,
                overwrite=overwrite,
                progress=progress,
            )
        for sentence in found.notes:
            note(sentence)
        fitted, folder = found.fitted, found.folder
        facts = {"engine": shards.engine, **found.as_dict()}
    else:
        table = source.read()
        with progress_bar("fitting") as progress:
            fitted = fit_data(table, unfitted, cost.terms(), features, progress=progress)
        folder, facts = fitted.router.save(out, overwrite=overwrite), {}
    for sentence in fitted.notes:
        note(sentence)
    training = evaluate_fit(fitted, random_state=seed).as_dict()
    # Training data cannot say whether routing pays.
    del training["verdict"]
    result = {"router": str(folder), **fitted.as_dict(), **facts, "training": training}
    emit(result, as_json, lambda: _show(result))


def _show(result: dict[str, Any]) -> None:
    training = result["training"]
    say(loss_line(result))
    rows = training["summary"]["n_known"]
    where = f"{rows:,} of the {result['rows']:,}" if "rows" in result else f"the {rows:,}"
    one = result.get("rows", rows) == 1
    print_evaluation(training, f"on {where} training row{'' if one else 's'} (optimistic)")
    if result["margins"] is not None:
        margins = [f"{margin:.4g}" for margin in result["margins"]]
        print_table("margins", {"expert": training["experts"], "margin": margins})
    say(f"Saved to {result['router']}.")
