"""``mild fit``"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import best_experts_first, emit, note, print_table, progress_bar, say
from mild.cli.evaluate import print_evaluation
from mild.cli.outcomes import OutcomeSource, loss_line
from mild.errors import OptionError


@dataclass(frozen=True)
class RouterOptions(o.LossOptions):
    """Parameters of a linear router; those of other routers are set in Python."""

    margins: Annotated[
        str | None, Option(help="theory, uniform, or one number per expert: 1,2,0.5.")
    ] = None
    alpha: Annotated[float | None, Option()] = None

    def arguments(self) -> dict[str, Any]:
        """Parameters of a router; None where the router's default applies."""
        return {**super().arguments(), "margins": o.margins_value(self.margins)}


@o.takes_options("mild.tuning.fit:fit")
def fit(
    *,
    out: o.Out,
    data: o.Source = None,
    router: Annotated[str | None, Option()] = None,
    cost: o.CostOptions,
    text: o.TextOptions,
    seed: o.Seed = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    params: RouterOptions,
    execution: o.EngineOptions,
    reading: o.TableOptions,
) -> None:
    """Fit one router on past queries and on how well each expert answered them.

    TABLE is a table of outcomes (mild data --help lists the formats), or one of numbers: feature
    columns, and the cost of each expert in cost__<expert>, empty where it was not asked. A wrong answer
    costs 1; --beta, --price-weight and --latency-weight add what asking costs. The table must fit into
    memory, unless a linear router is fitted with --engine ray: then the queries or vectors of Parquet files
    are spread over the processors of a Ray cluster. The figures printed are for the training data; judge
    the router with mild evaluate.

    \b
    Example:
      mild fit outcomes.parquet --out router --beta 7B=0.3,1.5B=0.1
      mild fit outcomes.parquet --out router --price-weight 50 --router priced
      mild fit s3://bucket/logs --out router --engine ray --address 10.0.0.7:6379
    """
    from mild.artifact.folder import check_target
    from mild.evaluation.evaluate import evaluate_fit
    from mild.tuning.fit import fit as fit_router
    from mild.tuning.fit import fit_data
    from mild.tuning.fitting import make_router

    execution.check()
    arguments = params.arguments()
    source = OutcomeSource(data, reading, cost)
    chosen = o.filled(fit_router, router=router, random_state=seed)
    unfitted = make_router(chosen["router"], arguments, chosen["random_state"])
    features = text.features()
    check_target(out, overwrite)
    facts: dict[str, Any] = {}
    if execution.engine == "ray":
        from mild.distributed.fitting import fit_dataset

        if data is None:
            raise OptionError(
                "--engine ray is for Parquet files: name a file, a folder or an address."
            )
        with progress_bar("fitting") as progress:
            fitted = fit_dataset(
                data,
                unfitted,
                cost.terms(),
                reading=vars(reading),
                text=features,
                address=execution.address,
                progress=progress,
            )
        if fitted.router.info.data is not None:
            facts["rows"] = fitted.router.info.data.rows
    else:
        table = source.read()
        with progress_bar("fitting") as progress:
            fitted = fit_data(table, unfitted, cost.terms(), features, progress=progress)
    folder = fitted.router.save(out, overwrite=overwrite)
    for sentence in fitted.notes:
        note(sentence)
    training = evaluate_fit(fitted, random_state=chosen["random_state"]).as_dict()
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
        columns = {"expert": training["experts"], "margin": margins}
        print_table("margins", best_experts_first(columns, training["best_first"]))
    say(f"Saved to {result['router']}.")
