"""``mild feedback``"""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from mild_gateway.cli.console import (
    AsJson,
    CommandGroup,
    emit,
    print_sentence,
    takes_options,
    without_none,
)

LEDGER = Option(
    metavar="LEDGER", help="SQLite file, postgresql:// URL, or the mild.toml that names it."
)


def feedback() -> None:
    """Judge answers of the gateway: import graded batches."""


@takes_options("mild_gateway.learning.importing:import_feedback")
def import_table(
    *,
    table: Annotated[
        str,
        Argument(
            metavar="FILE",
            help="Columns request_id and error, score or correct, in [0, 1]; perhaps expert.",
        ),
    ],
    ledger: Annotated[str, LEDGER] = "mild.toml",
    rate: Annotated[float | None, Option(metavar="R")] = None,
    id_column: Annotated[str | None, Option(metavar="COLUMN")] = None,
    as_json: AsJson = False,
) -> None:
    """Write scores of answers to the ledger, all or nothing.

    Without a column expert, the score is that of the expert that answered. Requests that the ledger does
    not have are counted and left out. A score replaces an earlier imported one.

    \b
    Example:
      mild feedback import graded.parquet --ledger ledger.sqlite --rate 0.05
    """
    from mild_gateway.learning.importing import import_feedback

    imported = import_feedback(ledger, table, rate=rate, **without_none(id_column=id_column))
    emit(imported.as_dict(), as_json, lambda: print_sentence(imported.sentence))


#: What the entry point names.
COMMANDS = CommandGroup(feedback, {"import": import_table})
