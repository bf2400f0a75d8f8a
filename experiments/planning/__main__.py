"""``python -m experiments.planning``: which queries to send to which experts next, for a sum of dollars.

\b
python -m experiments.planning plan outcomes.parquet --experts experts.toml \\
    --queries questions.jsonl --spend 5 --out plan.csv
python -m experiments.planning collect questions.jsonl experts.toml --plan plan.csv --out outcomes.parquet
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from experiments.console import main
from experiments.planning import collect_planned, make_plan
from mild.data import check_output
from mild.errors import count_noun
from mild.money import amount

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def plan(
    table: Annotated[Path, Argument(help="Table of outcomes so far.")],
    experts: Annotated[Path, Option(help="TOML file of mild collect that names the experts.")],
    spend: Annotated[float, Option(help="Dollars to spend, expected.")],
    queries: Annotated[
        Path | None, Option(help="File with more queries, such as the questions of mild collect.")
    ] = None,
    out: Annotated[Path | None, Option(help="File of the plan: .csv, .parquet, .jsonl.")] = None,
    price_weight: Annotated[
        float | None, Option(help="Cost of one dollar, in wrong answers.")
    ] = None,
    latency_weight: Annotated[
        float | None, Option(help="Cost of one second, in wrong answers.")
    ] = None,
    seed: Annotated[int, Option(help="Seed.")] = 0,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the file of the plan.")] = False,
) -> None:
    """Plan which outcomes to buy: missing ones of TABLE, and those of --queries."""
    if out is not None:
        check_output(out, overwrite)
    planned = make_plan(
        table,
        experts,
        spend,
        queries=queries,
        price_weight=price_weight,
        latency_weight=latency_weight,
        random_state=seed,
    )
    for name, figures in planned.as_dict()["experts"].items():
        typer.echo(f"{name}: {count_noun(figures['calls'], 'call')}, ${amount(figures['dollars'])}")
    typer.echo(planned.sentence)
    if out is not None:
        typer.echo(f"Written to {planned.write(out, overwrite)}.")


@app.command()
def collect(
    questions: Annotated[Path, Argument(help="Questions with answers, as for mild collect.")],
    experts: Annotated[Path, Argument(help="TOML file that names the experts.")],
    plan: Annotated[Path, Option(help="File that the command plan has written.")],
    out: Annotated[Path, Option(help="Table to write: .parquet, .csv or .jsonl.")],
    ledger: Annotated[
        Path | None, Option(help="File of the ledger. Default: OUT.ledger.sqlite.")
    ] = None,
) -> None:
    """Ask only the calls of a plan, and write a table of all outcomes that the ledger has."""
    collected = collect_planned(plan, questions, experts, out, ledger=ledger)
    typer.echo(f"Written to {collected.path}; answers in {collected.ledger}.")


if __name__ == "__main__":
    main(app)
