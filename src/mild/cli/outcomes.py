"""What the verbs were told about a table of outcomes, and the table itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mild.cli.console import note
from mild.cli.data.options import beta_value
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.data import OutcomeTable
    from mild.evaluation.tasks import CostTerms, Task

__all__ = [
    "Given",
    "Group",
    "Jobs",
    "Model",
    "Source",
    "Text",
    "Time",
    "embedded_table",
    "note_folds",
    "workers",
]

# Text, not a path: a path does not tell nothing at all from the current folder.
Source = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE",
        help="Table of outcomes: .parquet, .csv, .jsonl or .ndjson. Default: the one that comes with mild.",
        show_default=False,
    ),
]
Text = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="NAME",
        help="How queries become features: hashing, static, encoder, or vectors for those in the table. "
        "Default: hashing.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Folder or name of the static embeddings or of the encoder."),
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column whose equal values stay together, such as a subject."
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column of times: fit on the past, judge by what came next."
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "--n-jobs",
        help="Parallel workers; -1 for all cores, which is the default for a large table of outcomes.",
    ),
]

# From so many rows on, parallel workers are worth their start.
MANY_ROWS = 2_000
# Options that say how a table of outcomes is read.
HOW_TO_READ = (
    "form", "query", "choices", "experts", "scores", "prices", "latencies", "vectors",
)  # fmt: skip
# Options that only say what a table of outcomes holds; another table has no use for them.
OUTCOME_OPTIONS = (
    "form", "query", "experts", "scores", "prices", "latencies", "vectors", "beta", "price_weight",
    "latency_weight", "text", "model", "group", "time",
)  # fmt: skip


@dataclass(frozen=True)
class Given:
    """Words on the command line about a table of outcomes; None where nothing was said."""

    file: str | None
    form: str | None = None
    query: str | None = None
    choices: bool = True
    experts: str | None = None
    scores: str | None = None
    prices: str | None = None
    latencies: str | None = None
    vectors: str | None = None
    beta: str | None = None
    price_weight: float | None = None
    latency_weight: float | None = None
    text: str | None = None
    model: str | None = None
    group: str | None = None
    time: str | None = None
    # What was read, so that it is read and talked about once.
    known: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def among(cls, said: Mapping[str, Any], file: str | None) -> Given:
        """What a verb was told about its table, among all that it was told.

        Examples
        --------
        >>> given = Given.among({"beta": "7B=1", "cv": 5, "out": "router"}, "log.csv")
        >>> given.file, given.beta, given.group
        ('log.csv', '7B=1', None)
        """
        names = {entry.name for entry in fields(cls)} - {"file", "known"}
        return cls(file, **{name: value for name, value in said.items() if name in names})

    def is_outcomes(self, features: str | None = None, costs: str | None = None) -> bool:
        """Whether the table is one of outcomes, or one of features and costs.

        Naming feature or cost columns means the latter; otherwise the columns of the file tell.
        """
        if self.file is None:
            return True
        from mild.data import is_outcome_table

        named = features is not None or costs is not None
        outcomes = not named and (self.scores is not None or is_outcome_table(self.file))
        if not outcomes and Path(self.file).is_file():
            self.refuse("--features or --costs is given" if named else f"{self.file} is none")
        return outcomes

    def refuse(self, why: str) -> None:
        """Refuse options that only a table of outcomes has a use for, if there are any."""
        for name in OUTCOME_OPTIONS:
            if getattr(self, name) is not None:
                raise OptionError(
                    f"--{name.replace('_', '-')} is for tables of outcomes, and {why}. See mild data "
                    f"--help for what a table of outcomes looks like."
                )

    def read(self, held_to: Sequence[str] | None = None) -> OutcomeTable:
        """The table, with a note on how it was read and on what is odd about it.

        ``held_to`` are the experts of a saved router: the table must know them all, and others are left
        out.
        """
        from mild.data import read_outcomes

        key = None if held_to is None else tuple(held_to)
        if key in self.known:
            table: OutcomeTable = self.known[key]
            return table
        if self.file is None:
            table = embedded_table()
        else:
            table = read_outcomes(self.file, **{name: getattr(self, name) for name in HOW_TO_READ})
        note(table.explanation)
        if held_to is not None:
            from mild.evaluation.tasks import with_experts

            others = [name for name in table.expert_names if name not in held_to]
            table = with_experts(table, held_to)
            if others:
                note(f"left out, the router does not know them: {', '.join(others)}.")
        for finding in table.findings:
            note(finding.sentence)
        self.known[key] = table
        return table

    def step(self, task: Task, progress: Callable[[int, int, str], None] | None = None) -> Any:
        """An unfitted feature step for the task."""
        from mild.evaluation.tasks import make_step

        return make_step(task, self.text, self.step_options(progress))

    def step_options(self, progress: Callable[[int, int, str], None] | None = None) -> Any:
        """Options of the feature step."""
        if self.model is not None and self.text not in ("static", "encoder"):
            raise OptionError("--model is for --text static or --text encoder.")
        options: dict[str, Any] = {} if self.model is None else {"source": self.model}
        if self.text == "encoder":
            options["progress"] = progress
        return options

    def terms(self) -> CostTerms:
        """What counts as a cost."""
        from mild.evaluation.tasks import CostTerms

        return CostTerms(beta_value(self.beta), self.price_weight, self.latency_weight)


def note_folds(wanted: int, possible: int, task: Task) -> None:
    """Say it where there are fewer folds than were asked for."""
    if 2 <= possible < wanted:
        if task.group is None:
            few = f"there are only {task.bundle.max() + 1} different queries"
        else:
            few = f"{task.group} has {len(set(task.table.column(task.group)) - {None})} values"
        note(f"{few}: {possible} folds in place of {wanted}.")


def workers(jobs: int | None, rows: int) -> int:
    """Parallel workers for a table of so many rows, unless it was said how many.

    Examples
    --------
    >>> workers(None, 150), workers(None, 20_000), workers(3, 150)
    (1, -1, 3)
    """
    if jobs is not None:
        return jobs
    return -1 if rows >= MANY_ROWS else 1


def embedded_table() -> OutcomeTable:
    """The table of outcomes that comes with mild, for verbs that were given none."""
    from mild.data import read_outcomes
    from mild.data.datasets import outcomes_file

    table = read_outcomes(outcomes_file())
    words = table.explanation.partition(": ")[2]
    return replace(table, explanation=f"the table that comes with mild: {words}")
