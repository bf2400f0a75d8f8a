"""The verbs of ``mild data``, put together."""

from __future__ import annotations

import typer

from mild.cli.console import reported
from mild.cli.data.convert import convert
from mild.cli.data.describe import describe

__all__ = ["build_data"]


def build_data() -> typer.Typer:
    """The group, as a value."""
    group = typer.Typer(
        name="data",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    group.callback()(_data)
    for verb in (describe, convert):
        group.command(verb.__name__)(reported(verb))
    return group


def _data() -> None:
    """Tables of outcomes: queries, experts, who was right, what it cost.

    \b
    mild data describe log.parquet            what is in it, and is there anything to gain?
    mild data convert log.jsonl wide.parquet  the same in the wide shape

    \b
    Tables are .parquet, .csv, .jsonl or .ndjson files in one of these shapes:
      wide         correct__<model> (0, 1) or score__<model> ([0, 1]), cost__<model> in dollars,
                   latency_ms__<model>
      routerbench  <model> holds the score, <model>|total_cost the dollars
      routellm     a prompt, and a true-or-false column per model
      llmrouter    a row per query and model: query, model_name, performance, perhaps cost
      plain        columns that you name with --scores, --prices and --latencies
    """
