"""``mild fit``"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import (
    best_experts_first,
    emit,
    note,
    print_sentence,
    print_table,
    progress_bar,
)
from mild.cli.evaluate import print_evaluation
from mild.cli.outcomes import OutcomeSource, loss_line
from mild.errors import count_noun


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
    random_state: o.RandomState = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    params: RouterOptions,
    reading: o.TableOptions,
) -> None:
    """Fit one router on past queries and on how well each expert answered them.

    TABLE is a table of outcomes (mild convert --help lists the formats). A wrong answer costs 1; --beta,
    --price-weight and --latency-weight add what asking costs. The figures printed are for the training
    data; judge the router with mild evaluate.

    \b
    Example:
      mild fit outcomes.parquet --out router --beta 7B=0.3,1.5B=0.1
      mild fit outcomes.parquet --out router --price-weight 50 --router priced
    """
    from mild.artifact.folder import check_target
    from mild.evaluation.evaluate import evaluate_fit
    from mild.tuning.fit import fit as fit_router
    from mild.tuning.fit import fit_data
    from mild.tuning.fitting import make_router

    parameters = params.arguments()
    source = OutcomeSource(data, reading, cost)
    settings = o.filled(fit_router, router=router, random_state=random_state)
    unfitted = make_router(settings["router"], parameters, settings["random_state"])
    features = text.features()
    check_target(out, overwrite)
    table = source.read()
    with progress_bar("fitting") as progress:
        fitted = fit_data(table, unfitted, cost.terms(), features, progress=progress)
    folder = fitted.router.save(out, overwrite=overwrite)
    for sentence in fitted.notes:
        note(sentence)
    training = evaluate_fit(fitted, random_state=settings["random_state"]).as_dict()
    # Training data cannot say whether routing pays.
    del training["verdict"]
    result = {"router": str(folder), **fitted.as_dict(), "training": training}
    emit(result, as_json, lambda: _show(result))


def _show(result: Mapping[str, Any]) -> None:
    """Print the figures for the training rows, and where the router is."""
    training = result["training"]
    print_sentence(loss_line(result))
    rows = count_noun(training["summary"]["n_known"], "training row")
    print_evaluation(training, f"on the {rows} (optimistic)")
    if result["margins"] is not None:
        margins = [f"{margin:.4g}" for margin in result["margins"]]
        columns = {"expert": training["experts"], "margin": margins}
        print_table("margins", best_experts_first(columns, training["best_first"]))
    print_sentence(f"Saved to {result['router']}.")
