"""``mild evaluate``"""

from __future__ import annotations

from typing import Annotated

import typer

from mild.cli import options as o
from mild.cli.console import emit, note

__all__ = ["evaluate"]


def evaluate(
    data: o.Data,
    router: o.RouterFolder,
    confidence: Annotated[float, typer.Option(help="Of the interval behind the verdict.")] = 0.95,
    seed: o.Seed = 0,
    features: o.Features = None,
    costs: o.Costs = None,
    as_json: o.AsJson = False,
) -> None:
    """Judge a saved router on known costs: does it pay?

    The yardstick is the single expert that would have been best on this very data, so it is a hard one.
    Use data that the router was not fitted on.

    \b
    Example:
      mild evaluate new.csv --router router
    """
    from mild.artifact import fingerprint, load
    from mild.cli.judgement import judge, print_judgement
    from mild.tables import read_matrices

    saved = load(router)
    table = read_matrices(data, saved.feature_names if features is None else features, costs)
    known = table.costs_of(saved.expert_names)
    report = judge(known, saved.predict(table.X), saved.expert_names, confidence, seed)
    trained_on = saved.metadata["data"]
    report["same_data_as_fit"] = (
        trained_on is not None and fingerprint(table.X, known) == trained_on["fingerprint"]
    )
    if report["same_data_as_fit"]:
        note("the router was fitted on this very data: the figures are optimistic.", "warning")

    def show() -> None:
        print_judgement(report, f"on {table.rows} rows")
        typer.echo(report["verdict"]["sentence"])

    emit({"router": str(router), "data": str(data), **report}, as_json, show)
