"""The table that a command reads, as its options describe it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mild.cli.console import note
from mild.cli.options import CostOptions, MatrixOptions, ReadOptions, TextOptions
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.data import Matrices, OutcomeTable


@dataclass(frozen=True)
class OutcomeSource:
    """A table and the options about it; ``file`` None is the table of outcomes that comes with mild."""

    file: str | None
    reading: ReadOptions = field(default_factory=ReadOptions)
    columns: MatrixOptions = field(default_factory=MatrixOptions)
    cost: CostOptions = field(default_factory=CostOptions)
    text: TextOptions = field(default_factory=TextOptions)
    group: str | None = None
    time: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The options that are arguments of ``mild.tune``, ``evaluate`` and ``compare``."""
        return {**self.cost.arguments(), "groups": self.group}

    def is_outcomes(self) -> bool:
        """Whether the file is a table of outcomes, or one of features and costs.

        With --costs it is the latter; otherwise the columns of the file decide. A table with queries is
        never one of features and costs unless --costs says so: there, ``cost__<expert>`` are dollars.
        """
        if self.file is None:
            return True
        from mild.data import is_outcome_table

        columns = self.columns
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
                "--features or --costs is given" if columns.given else f"{self.file} is not one"
            )
        return outcomes

    def refuse(self, why: str) -> None:
        """Raise an error if an option was given that is only for tables of outcomes."""
        given = {**vars(self.reading), **vars(self.cost), **vars(self.text)}
        given |= {"group": self.group, "time": self.time}
        for name, value in given.items():
            # choices is a switch that is on by default; rows are selected in every table.
            if value is not None and name not in ("choices", "where"):
                raise OptionError(
                    f"--{name.replace('_', '-')} is for tables of outcomes, and {why}. See mild data "
                    f"--help for the format of a table of outcomes.",
                    parameter=name,
                )

    def read(self, part: str = "train", findings: bool = True) -> OutcomeTable:
        """Read the table; print how it was read and, with ``findings``, what is unusual about it.

        Of a table with a split column, the rows of ``part`` are taken.
        """
        from mild.data import read_outcomes
        from mild.data.datasets import load_outcomes

        if self.file is None:
            table = load_outcomes(self.reading.where)
        else:
            table = read_outcomes(self.file, **asdict(self.reading), part=part)
        note(table.explanation)
        if findings:
            note_findings(table)
        return table

    def matrices(
        self, features: str | Sequence[str] | None = None, part: str = "train"
    ) -> Matrices:
        """Features and costs of the file; print which rows a split column chose.

        ``features`` are the columns of a saved router, if the options name none.
        """
        from mild.data import read_matrices

        names = features if self.columns.features is None else self.columns.features
        where = self.reading.where
        table = read_matrices(str(self.file), names, self.columns.costs, where=where, part=part)
        if table.selection is not None:
            note(f"{table.selection}.")
        return table

    def data(self) -> OutcomeTable | Matrices:
        """The table of outcomes, or of features and costs, to learn from."""
        return self.read() if self.is_outcomes() else self.matrices()


def note_findings(table: OutcomeTable) -> None:
    """Print what is unusual about a table."""
    for finding in table.findings:
        note(finding.sentence)


def loss_line(result: Mapping[str, Any]) -> str:
    """What the loss is, and the kind of text features."""
    text = "" if result.get("text") is None else f"; text features: {result['text']}"
    return f"loss = {result['cost']['words']}{text}"


def note_matrices(table: Matrices) -> None:
    """Print which columns of a table of features and costs are used."""
    from mild.artifact.facts import feature_line

    note(feature_line(table.feature_names, table.X.shape[1]), "features")
    if table.left_out:
        note(f"columns left out (text, or identifiers of rows): {', '.join(table.left_out)}.")
