"""``mild data``"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, fixed, note, percent, print_table, say, with_options
from mild.errors import counted
from mild.money import amount

if TYPE_CHECKING:
    from mild.data.describing import Description

Table = Annotated[
    str,
    Argument(
        help="Table of outcomes: .parquet, .csv, .tsv, .json, .jsonl, .feather, .xlsx, also .gz, or .npz; "
        "several files, a folder, a pattern; - for stdin.",
        metavar="FILE",
    ),
]


def data() -> None:
    """Describe, convert and split tables of outcomes: queries, experts, who was right, prices.

    \b
    mild data describe log.parquet            contents, and what routing could gain
    mild data convert log.jsonl wide.parquet  the same table in the wide format
    mild data split log.parquet               a file to train on and one to test on

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
      plain        columns that you name with --scores, --prices and --latencies of mild data convert
      numbers      numeric columns, the features, and the whole cost of each expert in
                   cost__<model>, without queries and scores; also .npz with arrays X and costs
    Scores are numbers, true and false, or words: yes and no, right and wrong, pass and fail.

    \b
    Token counts become dollars with prices per token:
      tokens_in__<model>, tokens_out__<model>, or columns named by --tokens of mild data convert, with
      its --prices FILE (.json, .toml, .csv: input and output in dollars per million tokens, or
      input_cost_per_token and output_cost_per_token) or with LiteLLM's table where litellm is
      installed
    """


@o.takes_options()
def describe(
    *, file: Table, cost: o.CostOptions, as_json: o.AsJson = False, reading: o.AnswerTableOptions
) -> None:
    """Describe a table of outcomes, and what routing could gain.

    For each expert: accuracy, price, latency, and how often it is the cheapest or the only right one.
    For the table: the best constant, the oracle, their difference, and unusual data.

    \b
    Example:
      mild data describe log.parquet --experts 0.5B,1.5B,7B --beta 7B=1.0,1.5B=0.6,0.5B=0.1
    """
    from mild.data import read_outcomes

    found = read_outcomes(file, **asdict(reading)).describe(**cost.arguments())
    emit({"file": file, **found.as_dict()}, as_json, lambda: _show(file, found))


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
    the experts as in mild data --help. A table of numbers keeps its features and cost__<expert>. The
    options say how a table is read whose format is not detected.

    \b
    Example:
      mild data convert answers.jsonl wide.csv --experts "gpt-4,mixtral"
      mild data convert log.csv wide.parquet --query task --scores "acc_*" --prices "usd_*"
    """
    from mild.data import check_output, read_outcomes, write_outcomes

    check_output(out, overwrite)
    table = read_outcomes(file, **o.given(**asdict(reading)))
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
        say(f"{file}: {with_options(table.explanation)}")
        say(f"Written to {written}.")

    emit(report, as_json, show)


@o.takes_options(
    "mild.data.writing:split_file",
    "mild.data:OutcomeTable.split",
    o.READ_OUTCOMES,
    names={"test": "test_size"},
)
def split(
    *,
    file: Annotated[
        str,
        Argument(help="One file: .parquet, .csv, .tsv, .json, .jsonl, also .gz.", metavar="FILE"),
    ],
    test: Annotated[float | None, Option()] = None,
    group: o.Group = None,
    time: o.Time = None,
    seed: o.Seed = None,
    out: Annotated[
        str | None,
        Option("--out", "-o", metavar="PATH"),
    ] = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    query: o.Query = None,
) -> None:
    """Divide a table into a file to train on and one to test on.

    log.csv becomes log.train.csv and log.test.csv, with the same columns. Equal queries, and rows of a
    --group, are on one side. With --time the latest rows are the test; those of them whose query or group
    is in the past are in neither file.

    \b
    Example:
      mild data split log.parquet --test 0.3 --group subject
      mild tune log.train.parquet --out router
      mild evaluate log.test.parquet --router router
    """
    from mild.data import split_file

    chosen = o.filled(split_file, test_size=test, random_state=seed)
    found = split_file(
        file, groups=group, time=time, out=out, overwrite=overwrite, query=query, **chosen
    )

    def show() -> None:
        for sentence in found.sentences:
            say(sentence)

    report = {"file": file, **found.as_dict(), "test_size": chosen["test_size"]}
    report |= {"group": group, "time": time, "seed": chosen["random_state"]}
    emit(report, as_json, show)


def _show(file: str, found: Description) -> None:
    report, quality = found.as_dict(), found.quality
    say(f"{file}: {with_options(report['explanation'])}")
    say(f"loss = {report['cost']['words']}")
    experts = report["experts"]
    columns = {"expert": [expert["name"] for expert in experts]}
    if any(expert["asked"] < report["rows"] for expert in experts):
        columns["asked"] = [f"{expert['asked']:,}" for expert in experts]
    has_scores = report["all_right"] is not None
    if has_scores:
        columns[quality] = [fixed(expert["accuracy"], 3) for expert in experts]
    columns["mean loss"] = [fixed(expert["mean_cost"]) for expert in experts]
    columns["oracle's share"] = [percent(expert["oracle_share"]) for expert in experts]
    if has_scores:
        columns["only right"] = [percent(expert["only_right"]) for expert in experts]
    print_table(counted(len(experts), "expert"), columns)
    # A table of its own, so that both fit on a narrow terminal.
    cells: dict[str, tuple[str, Callable[[Any], str]]] = {
        "$ per 1,000 queries": ("mean_price", lambda v: "–" if v is None else amount(1000 * v)),
        "seconds": ("mean_latency", lambda value: fixed(value, 2)),
        "cheapest that is right": ("cheapest_and_right", percent),
    }
    priced = {
        header: [cell(expert[key]) for expert in experts]
        for header, (key, cell) in cells.items()
        if any(expert[key] is not None for expert in experts)
    }
    if priced:
        print_table("what asking costs", {"expert": columns["expert"], **priced})
    constant, oracle = report["best_constant"], report["oracle"]
    gains = {
        "": [f"always {constant['expert']}", "oracle", "difference"],
        "mean loss": [fixed(v) for v in (constant["cost"], oracle["cost"], report["headroom"])],
    }
    if has_scores:
        gains[quality] = [fixed(constant["accuracy"], 3), fixed(oracle["accuracy"], 3), ""]
    print_table("what routing could gain", gains)
    if pairs := found.pairs:
        print_table(
            "pairs of experts that agree",
            {
                "experts": [" + ".join(pair["experts"]) for pair in pairs],
                "agree": [percent(pair["agree"]) for pair in pairs],
                f"{quality} then": [fixed(pair["accuracy_agree"], 3) for pair in pairs],
                "otherwise": [fixed(pair["accuracy_disagree"], 3) for pair in pairs],
            },
        )
    for sentence in found.sentences:
        say(f"- {with_options(sentence)}")
