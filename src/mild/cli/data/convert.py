"""``mild data convert``"""

from __future__ import annotations

from typing import Annotated

import typer

from mild.cli.console import emit, note, say
from mild.cli.data import options as o
from mild.cli.options import AsJson, Overwrite

__all__ = ["convert"]


def convert(
    file: o.Table,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="File to write: .parquet, .csv or .jsonl.")
    ],
    form: o.Form = None,
    query: o.Query = None,
    choices: o.Choices = True,
    experts: o.Experts = None,
    scores: o.Scores = None,
    prices: o.Prices = None,
    latencies: o.Latencies = None,
    vectors: o.Vectors = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a table of outcomes in the wide shape, whatever shape it has.

    The query becomes column prompt, vectors embedding; then come the other columns, correct__<model> (or
    score__<model> where scores lie between 0 and 1), cost__<model> in dollars and latency_ms__<model>.

    \b
    Example:
      mild data convert routerbench.parquet wide.parquet
      mild data convert answers.jsonl wide.csv --experts "gpt-4,mixtral"
    """
    from mild.data import check_output, read_outcomes, write_outcomes

    check_output(out, overwrite)
    table = read_outcomes(
        file,
        form=form,
        query=query,
        experts=experts,
        scores=scores,
        prices=prices,
        latencies=latencies,
        vectors=vectors,
        choices=choices,
    )
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
