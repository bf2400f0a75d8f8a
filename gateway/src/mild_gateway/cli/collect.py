"""``mild collect``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from mild.errors import OptionError
from mild_gateway.cli.console import (
    INTERRUPTED,
    AsJson,
    Overwrite,
    columns_of,
    emit,
    fixed,
    note,
    print_sentence,
    print_table,
    progress_bar,
    takes_options,
    without_none,
)


@takes_options("mild_gateway.collect:collect_outcomes", names={"experts": "names", "samples": ""})
def collect(
    *,
    questions: Annotated[
        Path,
        Argument(help="Questions with answers: .parquet, .csv or .jsonl.", metavar="QUESTIONS"),
    ],
    experts_file: Annotated[
        Path, Argument(help="TOML file that names the experts.", metavar="EXPERTS")
    ],
    out: Annotated[Path, Option("--out", "-o", help="Table to write: .parquet, .csv or .jsonl.")],
    experts: Annotated[str | None, Option()] = None,
    limit: Annotated[int | None, Option(min=1)] = None,
    samples: Annotated[
        list[str] | None,
        Option(
            help="How often to ask an expert each question: small=3 also gives the experts small#2 and "
            "small#3. May be repeated.",
            metavar="NAME=COUNT",
        ),
    ] = None,
    max_spend: Annotated[float | None, Option()] = None,
    ledger: Annotated[Path | None, Option()] = None,
    score: Annotated[str | None, Option()] = None,
    tolerance: Annotated[float | None, Option(min=0.0)] = None,
    scorer: Annotated[str | None, Option()] = None,
    scorer_timeout: Annotated[float | None, Option(min=0.1)] = None,
    query: Annotated[str | None, Option()] = None,
    answer: Annotated[str | None, Option()] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print what would be asked and the highest price, and stop.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Ask experts questions with known answers, and write a table of outcomes.

    QUESTIONS has a column query (or prompt, question), a column answer, and perhaps options as columns
    A, B, C, D or as a list. EXPERTS names OpenAI-compatible endpoints:

    \b
      [experts.small]
      base_url = "https://api.example.com/v1"
      model = "small-model"
      api_key_env = "EXAMPLE_KEY"
      price_in = 0.15      # dollars per million tokens
      price_out = 0.60

    Every answer is first written to a ledger: a run that was stopped resumes, and no answered question
    is asked again. Ctrl-C waits for the requests in flight and writes the table.

    \b
    Example:
      mild collect questions.jsonl experts.toml --out outcomes.parquet --max-spend 5
    """
    from mild_gateway.collect import collect_outcomes, plan_outcomes, read_questions

    asked = read_questions(questions, query, answer, score, scorer is not None).first(limit)
    note(asked.explanation)
    counts = _sample_counts(samples or [])
    if dry_run:
        plan = plan_outcomes(
            asked,
            experts_file,
            out,
            names=experts,
            samples=counts,
            ledger=ledger,
            scorer=scorer,
        )
        emit(plan, as_json, lambda: _show_plan(plan))
        return
    with progress_bar("asking") as progress:
        done = collect_outcomes(
            asked,
            experts_file,
            out,
            names=experts,
            samples=counts,
            max_spend=max_spend,
            ledger=ledger,
            scorer=scorer,
            overwrite=overwrite,
            progress=progress,
            on_stop=lambda flying: note(
                f"waiting for {flying} answers in flight; press Ctrl-C again to drop them.",
                "interrupted",
            ),
            **without_none(tolerance=tolerance, scorer_timeout=scorer_timeout),
        )
    result = done.as_dict()
    emit(result, as_json, lambda: _show_collected(result))
    for kind, sentence in done.notes:
        note(sentence, kind)
    if done.interrupted:
        raise typer.Exit(INTERRUPTED)


def _sample_counts(options: list[str]) -> dict[str, int]:
    """The numbers of samples by the names of the experts, from options such as ``small=3``."""
    counts = {}
    for option in options:
        name, equals, count = option.rpartition("=")
        if not equals or not count.isdecimal():
            rule = f"must be the name of an expert and a number, such as small=3; got {option!r}."
            raise OptionError(parameter="samples", rule=rule)
        counts[name] = int(count)
    return counts


def _show_collected(result: dict[str, Any]) -> None:
    rows = []
    for name, run in result["experts"].items():
        rows.append(
            {
                "expert": name,
                "asked": str(run["asked"]),
                "answered": str(run["answered"]),
                "failed": str(run["failed"]),
                "spend": _spend(run["spent"]),
                "accuracy": fixed(run["accuracy"], 3),
                "latency": f"{fixed(run['median_latency_ms'], 0)} ms",
            }
        )
    print_table(f"{result['questions']} questions", columns_of(rows))
    print_sentence(f"Spent {_spend(result['spent'])} in this run.")
    print_sentence(f"Written to {result['table']}; answers in {result['ledger']}.")


def _show_plan(plan: dict[str, Any]) -> None:
    rows = []
    for name, row in plan["experts"].items():
        rows.append(
            {
                "expert": name,
                "to ask": str(row["to_ask"]),
                "known": str(row["known"]),
                "at most": _spend(row["cost_at_most"]),
            }
        )
    print_table(f"{plan['questions']} questions", columns_of(rows))


def _spend(dollars: float | None) -> str:
    if dollars is None:
        return "–"
    return f"${dollars:.4f}"
