"""``mild import-litellm``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument


def import_litellm(
    config: Annotated[Path, Argument(help="LiteLLM's config.yaml.", metavar="CONFIG")],
) -> None:
    """Make a mild.toml of LiteLLM's config.yaml, and print it.

    Each entry of model_list becomes an expert: address, model, prices and limits. Comments name what could
    not be carried over. Keys are not written: api_key_env names the variables that hold them.

    \b
    Example:
      mild import-litellm config.yaml > mild.toml
    """
    from mild_gateway.litellm_config import import_litellm as imported_settings

    typer.echo(imported_settings(config), nl=False)
