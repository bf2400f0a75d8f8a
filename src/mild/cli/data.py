"""``mild data``"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, number, percent, print_table, reported, say

__all__ = ["build_data"]

#: Header, key of the figure, and how it is written.
Column: TypeAlias = tuple[str, str, Callable[[Any], str]]

Table = Annotated[
    str,
    typer.Argument(help="Table of outcomes: .parquet, .csv, .jsonl or .ndjson.", metavar="FILE"),
]


def build_data(**settings: Any) -> typer.Typer:
    """The group of commands, with the settings of the application."""
    group = typer.Typer(name="data", **settings)
    group.callback()(_data)
    for command in (describe, convert):
        group.command(command.__name__, cls=o.PanelCommand)(reported(command))
    return group


def _data() -> None:
    """Describe and convert tables of outcomes: queries, experts, which expert was right, prices.

    \b
    mild data describe log.parquet            contents, and what routing could gain
    mild data convert log.jsonl wide.parquet  the same table in the wide format

    \b
    Tables are .parquet, .csv, .jsonl or .ndjson files in one of these formats:
      wide         correct__<model> (0, 1) or score__<model> ([0, 1]), cost__<model> in dollars,
                   latency_ms__<model>
      routerbench  <model> holds the score, <model>|total_cost the dollars
      routellm     a prompt, and a true-or-false column per model
      llmrouter    a row per query and model: query, model_name, performance, perhaps cost
      plain        columns that you name with --scores, --prices and --latencies
    """


@o.takes_options
def describe(
    *,
    file: Table,
    cost: o.CostOptions,
    as_json: o.AsJson = False,
    reading: o.TableOptions,
) -> None:
    """Describe a table of outcomes, and what routing could gain.

    For each expert: accuracy, price, latency, how often it is the cheapest right one, and the only right
    one. For the table: the best constant, the oracle, their difference, and unusual data. The cost is an
    error, plus --beta of the expert, plus dollars and seconds times their weights.

    \b
    Example:
      mild data describe log.parquet
      mild data describe log.parquet --experts 0.5B,1.5B,7B --beta 7B=1.0,1.5B=0.6,0.5B=0.1
      mild data describe log.csv --price-weight 50 --latency-weight 0.01
      mild data describe log.csv --query task --scores "acc_*" --prices "usd_*"
    """
    from mild.data import (
        cost_formula,
        describe_outcomes,
        expert_betas,
        outcome_costs,
        read_outcomes,
    )

    table = read_outcomes(file, **reading.arguments())
    betas = cost.betas()
    weights = {"price_weight": cost.price_weight, "latency_weight": cost.latency_weight}
    costs = outcome_costs(table, beta=betas, **weights)
    report = {
        "file": file,
        "fingerprint": table.fingerprint(),
        "cost": {
            "words": cost_formula(table, beta=betas, **weights),
            "beta": dict(zip(table.expert_names, expert_betas(table, betas), strict=True)),
            **weights,
        },
        **describe_outcomes(table, costs),
    }
    emit(report, as_json, lambda: _show(report))


@o.takes_options
def convert(
    *,
    file: Table,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="File to write: .parquet, .csv or .jsonl.")
    ],
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    reading: o.TableOptions,
) -> None:
    """Write a table of outcomes in the wide format.

    The query becomes column prompt, vectors become embedding. The other columns follow, then
    correct__<model> (or score__<model> for scores between 0 and 1), cost__<model> in dollars and
    latency_ms__<model>.

    \b
    Example:
      mild data convert routerbench.parquet wide.parquet
      mild data convert answers.jsonl wide.csv --experts "gpt-4,mixtral"
    """
    from mild.data import check_output, read_outcomes, write_outcomes

    check_output(out, overwrite)
    table = read_outcomes(file, **reading.arguments())
    written = write_outcomes(table, out, overwrite)
    report = {
        "file": file,
        "out": str(written),
        "rows": table.rows,
        "experts": table.expert_names,
        "form": table.form,
        "explanation": table.explanation,
        "findings": [finding.as_dict() for finding in table.findings],
        "fingerprint": table.fingerprint(),
    }
    for finding in table.findings:
        note(finding.sentence)

    def show() -> None:
        say(f"{file}: {table.explanation}")
        say(f"Written to {written}.")

    emit(report, as_json, show)


def _show(report: Mapping[str, Any]) -> None:
    """Print the tables and sentences of ``mild data describe``."""
    from mild.data.data_quality import counted
    from mild.metrics.money import amount

    say(f"{report['file']}: {report['explanation']}")
    say(f"cost = {report['cost']['words']}")
    experts = report["experts"]
    quality = "mean score" if report["soft_scores"] else "accuracy"
    columns: list[Column] = [
        (quality, "accuracy", lambda value: number(value, 3)),
        ("mean cost", "mean_cost", number),
        ("oracle's share", "oracle_share", percent),
        ("only right", "only_right", percent),
    ]
    if any(expert["asked"] < report["rows"] for expert in experts):
        columns.insert(0, ("asked", "asked", lambda value: f"{value:,}"))
    _print_experts(counted(len(experts), "expert"), experts, columns)
    # A table of its own, so that both fit on a narrow terminal.
    priced: list[Column] = [
        ("$ per 1,000 queries", "mean_price", lambda v: "–" if v is None else amount(1000 * v)),
        ("seconds", "mean_latency", lambda value: number(value, 2)),
        ("cheapest that is right", "cheapest_and_right", percent),
    ]
    known = [entry for entry in priced if any(expert[entry[1]] is not None for expert in experts)]
    if known:
        _print_experts("what asking costs", experts, known)
    constant, oracle = report["best_constant"], report["oracle"]
    print_table(
        "what routing could gain",
        ["", "mean cost", quality],
        [
            [name, number(row["cost"]), number(row["accuracy"], 3)]
            for name, row in ((f"always {constant['expert']}", constant), ("oracle", oracle))
        ]
        + [["difference", number(report["headroom"]), ""]],
    )
    for sentence in (*_summary(report), *(entry["sentence"] for entry in report["findings"])):
        say(f"- {sentence}")


def _print_experts(
    title: str, experts: Sequence[Mapping[str, Any]], columns: Sequence[Column]
) -> None:
    print_table(
        title,
        ["expert", *(header for header, _, _ in columns)],
        [[expert["name"], *(cell(expert[key]) for _, key, cell in columns)] for expert in experts],
    )


def _summary(report: Mapping[str, Any]) -> list[str]:
    soft = " (a score of 0.5 or more)" if report["soft_scores"] else ""
    shares = report["imbalance"]
    return [
        f"All experts that were asked are right on {percent(report['all_right'])} of the queries{soft}, "
        f"none on {percent(report['all_wrong'])}; on the other {percent(report['some_right'])} the "
        f"choice of the expert matters.",
        f"The oracle sends {percent(shares['largest'])} to one expert and "
        f"{percent(shares['smallest'])} to the rarest (evenness {shares['entropy']:.2f}, where 1 is "
        f"even; ties go to the expert that comes first).",
    ]
