"""``mild describe`` and ``mild convert``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from mild.cli import options as o
from mild.cli.console import (
    columns_of,
    dollars,
    emit,
    fixed,
    note,
    percent,
    print_sentence,
    print_table,
    seconds,
)
from mild.errors import count_noun

if TYPE_CHECKING:
    from mild.data.describing import Description

Table = Annotated[
    str,
    Argument(
        help="Table of outcomes: .parquet, .csv, .tsv, .json, .jsonl, .feather, .xlsx, also .gz; "
        "several files, a folder, a pattern; - for stdin.",
        metavar="FILE",
    ),
]


@o.takes_options()
def describe(
    *, file: Table, cost: o.CostOptions, as_json: o.AsJson = False, reading: o.AnswerTableOptions
) -> None:
    """Describe a table of outcomes, and what routing could gain.

    For each expert: accuracy, price, latency, and how often it is the cheapest or the only right one.
    For the table: the best constant, the oracle, their difference, and unusual data.

    \b
    Example:
      mild describe log.parquet --experts 0.5B,1.5B,7B --beta 7B=1.0,1.5B=0.6,0.5B=0.1
    """
    from mild.data import read_outcomes

    table = read_outcomes(file, **asdict(reading))
    description = table.describe(**cost.arguments())
    emit({"file": file, **description.as_dict()}, as_json, lambda: _show(file, description))


@o.takes_options()
def convert(
    *,
    file: Table,
    out: Annotated[str, Argument(metavar="OUT", help="File to write: .parquet, .csv or .jsonl.")],
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    reading: o.ConvertOptions,
) -> None:
    """Write a table of outcomes in the wide format, which all commands read.

    The query becomes column prompt, vectors become embedding; the other columns follow, then those of
    the experts. The options say how a table is
    read whose format is not detected.

    \b
    Tables are .parquet, .csv, .tsv, .json, .jsonl, .ndjson, .feather or .xlsx files, also .gz, in
    one of these formats; several files, a folder or a pattern are one table:
      wide         correct__<model> (0, 1) or score__<model> ([0, 1]), cost__<model> in dollars,
                   latency_ms__<model>, answer__<model> (what it said), logprob__<model> (mean
                   log-probability of its tokens)
      endings      <model>_correct or <model>_score, <model>_cost, <model>_latency_ms
      long         a row per query and model: query, model, score, perhaps cost, latency, response
      records      responses: [{model, score, cost}], or models: {<model>: {score, cost}}
      nested       scores: {<model>: score} (RouterDC), or lists llm_name_list and perf_list
      routerbench  <model> holds the score, <model>|total_cost the dollars
      routellm     a prompt, and a true-or-false column per model
      llmrouter    a row per query and model: query, model_name, performance, perhaps cost
      ledger       what mild ledger export writes
      plain        columns that you name with --scores, --prices and --latencies
    Scores are numbers, true and false, or words: yes and no, right and wrong, pass and fail.

    \b
    Token counts become dollars with prices per token:
      tokens_in__<model>, tokens_out__<model>, or columns named by --tokens, with
      its --prices FILE (.json, .toml, .csv: input and output in dollars per million tokens, or
      input_cost_per_token and output_cost_per_token) or with LiteLLM's table where litellm is
      installed

    \b
    Example:
      mild convert answers.jsonl wide.csv --experts "gpt-4,mixtral"
      mild convert log.csv wide.parquet --query task --scores "acc_*" --prices "usd_*"
    """
    from mild.data import check_output, read_outcomes, write_outcomes

    check_output(out, overwrite)
    table = read_outcomes(file, **o.without_none(**asdict(reading)))
    written = write_outcomes(table, out, overwrite)
    report = {
        "file": file,
        "out": str(written),
        "rows": len(table),
        "experts": table.experts,
        "form": table.form,
        "layout": table.layout,
        "findings": [finding.as_dict() for finding in table.findings],
        "fingerprint": table.fingerprint(),
    }
    for finding in table.findings:
        note(finding.sentence)

    def show() -> None:
        print_sentence(f"{file}: {table.layout}")
        print_sentence(f"Written to {written}.")

    emit(report, as_json, show)


def _show(file: str, description: Description) -> None:
    report = description.as_dict()
    quality = description.quality
    print_sentence(f"{file}: {report['layout']}")
    print_sentence(f"loss = {report['cost']['words']}")
    _show_experts(report, quality)
    # A table of its own, so that both fit on a narrow terminal.
    _show_prices(report["experts"])
    _show_possible_gain(report, quality)
    if description.pairs:
        _show_agreeing_pairs(description.pairs, quality)
    for sentence in description.sentences:
        print_sentence(f"- {sentence}")


def _show_experts(report: Mapping[str, Any], quality: str) -> None:
    """Print how good every expert is."""
    experts = report["experts"]
    n_rows = report["rows"]
    has_unasked_rows = any(expert["asked"] < n_rows for expert in experts)
    rows = []
    for expert in experts:
        row = {"expert": expert["name"]}
        if has_unasked_rows:
            row["asked"] = f"{expert['asked']:,}"
        row[quality] = fixed(expert["accuracy"], 3)
        row["mean loss"] = fixed(expert["mean_cost"])
        row["oracle's share"] = percent(expert["oracle_share"])
        row["only right"] = percent(expert["only_right"])
        rows.append(row)
    print_table(count_noun(len(experts), "expert"), columns_of(rows))


def _show_prices(experts: Sequence[Mapping[str, Any]]) -> None:
    """Print price and latency of every expert, as far as any expert has them."""
    columns = {"expert": [expert["name"] for expert in experts]}

    def add_column(header: str, key: str, write: Callable[[Any], str]) -> None:
        values = [expert[key] for expert in experts]
        if any(value is not None for value in values):
            columns[header] = [write(value) for value in values]

    add_column("$ per 1,000 queries", "mean_price", _dollars_per_1000)
    add_column("seconds", "mean_latency", seconds)
    add_column("cheapest that is right", "cheapest_and_right", percent)
    if len(columns) > 1:
        print_table("what asking costs", columns)


def _dollars_per_1000(price: float | None) -> str:
    """Dollars for 1,000 queries, by the price of one."""
    if price is None:
        return dollars(None)
    return dollars(1000 * price)


def _show_possible_gain(report: Mapping[str, Any], quality: str) -> None:
    """Print the best constant, the oracle, and their difference."""
    constant = report["best_constant"]
    oracle = report["oracle"]
    columns = {
        "": [f"always {constant['expert']}", "oracle", "difference"],
        "mean loss": [fixed(constant["cost"]), fixed(oracle["cost"]), fixed(report["headroom"])],
        quality: [fixed(constant["accuracy"], 3), fixed(oracle["accuracy"], 3), ""],
    }
    print_table("what routing could gain", columns)


def _show_agreeing_pairs(pairs: Sequence[Mapping[str, Any]], quality: str) -> None:
    """Print how often two experts agree, and how good their answers are then."""
    rows = [
        {
            "experts": " + ".join(pair["experts"]),
            "agree": percent(pair["agree"]),
            f"{quality} then": fixed(pair["accuracy_agree"], 3),
            "otherwise": fixed(pair["accuracy_disagree"], 3),
        }
        for pair in pairs
    ]
    print_table("pairs of experts that agree", columns_of(rows))
