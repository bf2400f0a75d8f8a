"""``mild reproduce noise``"""

from __future__ import annotations

from typing import Annotated

import typer

from mild.cli.options import AsJson
from mild.cli.reproduce.models import ModelSettings, run_models
from mild.cli.reproduce.settings import as_options, takes_settings

__all__ = ["noise"]


@takes_settings
def noise(
    *,
    settings: ModelSettings,
    noise: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="additive: max(0, c + s z); relative: max(0, c (1 + s z)); z standard normal.",
        ),
    ] = "additive",
    noise_std: Annotated[float, typer.Option(help="The s of the noise.")] = 0.2,
    as_json: AsJson = False,
) -> None:
    """Noise on the training costs, 20 % as in the paper, and the same without it.

    The paper does not say what 20 % Gaussian variations of the cost matrix are. Here they are drawn once
    per split, row and expert, and touch the training costs alone: routers are judged by clean ones.

    \b
    Example:
      mild reproduce noise outcomes.parquet
      mild reproduce noise outcomes.parquet --noise relative --method tdef --method mild
    """
    from mild.reproduce.llm.costs import Noise

    with as_options("noise", "noise_std"):
        noisy = Noise(noise, noise_std)
    run_models("noise", settings, as_json, noise=noisy)
