"""``mild reproduce extreme``"""

from __future__ import annotations

from typing import Annotated

import typer

from mild.cli.options import AsJson
from mild.cli.reproduce.models import ModelSettings, run_models
from mild.cli.reproduce.settings import as_options, takes_settings

__all__ = ["extreme"]


@takes_settings
def extreme(
    *,
    settings: ModelSettings,
    share: Annotated[
        float,
        typer.Option(help="Share of the queries on which the first expert is to be cheapest."),
    ] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Extreme imbalance: prices skewed until the largest model is best on 95 % of the queries.

    The paper does not print its skewed costs. Here a price is per word, and that of the smaller models is
    raised by the least amount with which the first expert is the cheapest on that share of the queries.

    \b
    Example:
      mild reproduce extreme outcomes.parquet
      mild reproduce extreme outcomes.parquet --share 0.9 --seeds 10
    """
    from mild.reproduce.llm.costs import Skew

    with as_options("share"):
        skew = Skew(share)
    run_models("extreme", settings, as_json, skew=skew)
