"""``mild add-expert``"""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, print_sentence
from mild.cli.outcomes import OutcomeSource


@o.takes_options("mild.tuning.add_expert:add_expert")
def add_expert(
    *,
    folder: o.RouterArgument,
    name: Annotated[str, Argument(metavar="NAME", help="The new expert, as the table names it.")],
    data: Annotated[str, Argument(metavar="TABLE", help="Graded answers of the new expert.")],
    known: Annotated[str | None, Option(metavar="PATH")] = None,
    price: Annotated[float | None, Option()] = None,
    beta: Annotated[float | None, Option()] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Write nothing.")] = False,
    as_json: o.AsJson = False,
    reading: o.ReadOptions,
) -> None:
    """Add an expert to a saved router from 30 to 300 graded answers, without refitting it.

    The new router is the next version in DIR. It serves from now on (mild versions DIR --rollback N goes
    back) unless its labels show no gain; a running gateway takes it over by itself. To remove an expert,
    no labels are needed (Router.without).

    \b
    Example:
      mild add-expert router new-model graded.parquet --known log.parquet
    """
    from mild.artifact import load
    from mild.artifact.versions import write_version
    from mild.tuning.add_expert import add_expert as add

    router = load(folder)
    table = OutcomeSource(data, reading).read(findings=False)
    addition = add(router, table, name, known=known, price=price, **o.without_none(beta=beta))
    facts = addition.as_dict()
    version = None
    if not dry_run:
        version = write_version(
            folder,
            addition.router,
            why=f"{name} was added from {addition.n_labels:,} labels",
            serve=addition.shows_gain,
            reason="add-expert",
            expected=router.info.fingerprint,
            facts=facts,
        )

    def show() -> None:
        for sentence in addition.sentences:
            print_sentence(sentence)
        if version is None:
            return
        if addition.shows_gain:
            print_sentence(f"Version {version} of {folder} serves from now on.")
        else:
            print_sentence(
                f"Version {version} of {folder} is written, but does not serve, because the labels show no "
                f"gain; mild versions {folder} --rollback {version} lets it serve."
            )

    emit({**facts, "version": version}, as_json, show)
