"""``mild plan``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, say
from mild.cli.outcomes import OutcomeSource
from mild.errors import counted
from mild.money import amount


@o.takes_options
def plan(
    *,
    table: Annotated[str, Argument(help="Table of outcomes so far.", metavar="TABLE")],
    experts: Annotated[
        Path, Option("--experts", help="TOML file of mild collect that names the experts.")
    ],
    spend: Annotated[float, Option(help="Dollars to spend, expected.")],
    queries: Annotated[
        Path | None, Option(help="File with more queries, such as the questions of mild collect.")
    ] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="File for mild collect --plan: .csv, .parquet, .jsonl."),
    ] = None,
    cost: o.CostOptions,
    text: o.TextOptions,
    seed: o.Seed = 0,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    reading: o.ReadOptions,
) -> None:
    """Plan which queries to send to which experts next, for a sum of dollars.

    Missing outcomes of TABLE and queries of --queries can be bought. Where estimates of the experts' errors
    leave open which expert is best for a query, those in question are asked about it, cheap ones sooner.

    \b
    Example:
      mild plan outcomes.parquet --experts experts.toml --queries questions.jsonl --spend 5 -o plan.csv
      mild collect questions.jsonl experts.toml --plan plan.csv --out outcomes.parquet
    """
    from mild.collect import plan as make_plan
    from mild.data import check_output

    if out is not None:
        check_output(out, overwrite)
    outcomes = OutcomeSource(table, reading).read(findings=False)
    found = make_plan(
        outcomes,
        experts,
        spend,
        queries=queries,
        text=text.features(),
        random_state=seed,
        **cost.arguments(),
    )
    result: dict[str, Any] = found.as_dict()
    if out is not None:
        result["out"] = str(found.write(out, overwrite))

    def show() -> None:
        for name, one in result["experts"].items():
            say(f"{name}: {counted(one['calls'], 'call')}, ${amount(one['dollars'])}")
        say(found.sentence)
        if out is not None:
            say(f"Written to {result['out']}.")

    emit(result, as_json, show)
