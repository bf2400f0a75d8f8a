"""The table that a command reads, as its options describe it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mild.cli.console import note
from mild.cli.options import CostOptions, MatrixOptions, ReadOptions, TextOptions
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.data import Matrices, OutcomeTable
    from mild.tuning.tasks import Task

# Features that are named; of the others the number is given.
NAMED_FEATURES = 12


@dataclass(frozen=True)
class OutcomeSource:
    """A table of outcomes and the options about it; ``file`` None is the table that comes with mild."""

    file: str | None
    reading: ReadOptions = field(default_factory=ReadOptions)
    cost: CostOptions = field(default_factory=CostOptions)
    text: TextOptions = field(default_factory=TextOptions)
    group: str | None = None
    time: str | None = None
    topic: str | None = None
    balance: str | None = None

    def is_outcomes(self, columns: MatrixOptions) -> bool:
        """Whether the file is a table of outcomes, or one of features and costs.

        With --costs it is the latter; otherwise the columns of the file decide. A table with queries is
        never one of features and costs unless --costs says so: there, ``cost__<expert>`` are dollars.
        """
        if self.file is None:
            return True
        from mild.data import is_outcome_table

        outcomes = columns.costs is None and (
            self.reading.scores is not None or is_outcome_table(self.file)
        )
        if outcomes and columns.features is not None:
            raise OptionError(
                f"--features is for tables of features and costs, and {self.file} has queries or outcomes; "
                f"name its cost columns as well (--costs) to read it as one.",
                parameter="features",
            )
        if not outcomes and Path(self.file).is_file():
            self.refuse(
                "--features or --costs is given" if columns.given else f"{self.file} is none"
            )
        return outcomes

    def refuse(self, why: str) -> None:
        """Raise an error if an option was given that is only for tables of outcomes."""
        given = {**vars(self.reading), **vars(self.cost), **vars(self.text)}
        given |= {"group": self.group, "time": self.time, "topic": self.topic}
        given |= {"balance": self.balance}
        for name, value in given.items():
            # choices is a switch that is on by default; rows are selected in every table.
            if value is not None and name not in ("choices", "where"):
                raise OptionError(
                    f"--{name.replace('_', '-')} is for tables of outcomes, and {why}. See mild data "
                    f"--help for the format of a table of outcomes.",
                    parameter=name,
                )

    def read(self, experts: Sequence[str] | None = None) -> OutcomeTable:
        """Read the table; print how it was read and what is unusual about it.

        ``experts`` are those of a saved router: the table must have them all, and others are dropped. Of a
        table with a split column such a router is judged on the test rows; others are for training.
        """
        from mild.data import read_outcomes
        from mild.tuning.tasks import with_experts

        given = asdict(self.reading) | {"part": "train" if experts is None else "test"}
        if self.file is None:
            table = embedded_table(self.reading.where)
        else:
            table = read_outcomes(self.file, **given)
        note(table.explanation)
        if experts is not None:
            others = [name for name in table.expert_names if name not in experts]
            table = with_experts(table, experts)
            if others:
                note(f"left out, the router does not know them: {', '.join(others)}.")
        for finding in table.findings:
            note(finding.sentence)
        return table

    def matrices(
        self, features: str | Sequence[str] | None, costs: str | None, part: str = "train"
    ) -> Matrices:
        """Features and costs of the file; print which rows a split column chose."""
        from mild.data import read_matrices

        where = self.reading.where
        table = read_matrices(str(self.file), features, costs, where=where, part=part)
        if table.selection is not None:
            note(f"{table.selection}.")
        return table

    def task(self) -> Task:
        """The table with its costs and groups."""
        from mild.tuning.tasks import make_task

        return make_task(self.read(), self.cost.terms(), self.group, self.balance)

    def step(self, task: Task, progress: Callable[[int, int, str], None] | None = None) -> Any:
        """An unfitted feature step for the task."""
        from mild.tuning.tasks import make_step

        return make_step(task, self.text.text, self.text.arguments(progress))


def loss_line(result: Mapping[str, Any]) -> str:
    """What the loss is, what is averaged over, and the kind of text features."""
    balance = result.get("balance")
    means = "" if balance is None else f", mean over the values of {balance}"
    return f"loss = {result['cost']['words']}{means}; text features: {result['text']}"


def note_folds(wanted: int, possible: int, task: Task) -> None:
    """Print a note if there are fewer folds than asked for."""
    if 2 <= possible < wanted:
        if task.group is None:
            few = f"there are only {task.bundle.max() + 1} different queries"
        else:
            few = f"{task.group} has {len(set(task.table.column(task.group)) - {None})} values"
        note(f"{few}: {possible} folds instead of {wanted}.")


def note_matrices(table: Matrices) -> None:
    """Print which columns of a table of features and costs are used."""
    note(feature_line(table.feature_names, table.X.shape[1]), "features")
    if table.left_out:
        note(f"left out, no numbers or identifiers of rows: {', '.join(table.left_out)}.")


def feature_line(names: Sequence[str] | None, count: int) -> str:
    """Names of the features, the first of them.

    >>> feature_line(["age", "length"], 2), feature_line(None, 4)
    ('age, length', '4, unnamed')
    """
    if names is None:
        return f"{count}, unnamed"
    rest = len(names) - NAMED_FEATURES
    return ", ".join(names[:NAMED_FEATURES]) + (f" (+ {rest} more)" if rest > 0 else "")


def other_files(source: str) -> bool:
    """Whether a folder or a pattern holds tables, and none of them is a Parquet file."""
    from mild.data.tables import find_tables, table_suffix
    from mild.errors import DataFileError

    try:
        return all(table_suffix(file) != ".parquet" for file in find_tables(source))
    except DataFileError:
        return False


def embedded_table(where: Sequence[str] | None = None) -> OutcomeTable:
    """The table of outcomes that comes with mild."""
    from mild.data import read_outcomes
    from mild.data.datasets import outcomes_file

    table = read_outcomes(outcomes_file(), where=where)
    words = table.explanation.partition(": ")[2]
    return replace(table, explanation=f"the table that comes with mild: {words}")
