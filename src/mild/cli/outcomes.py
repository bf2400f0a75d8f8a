"""The table that a command reads, as its options describe it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mild.cli.console import note
from mild.cli.options import CostOptions, ReadOptions

if TYPE_CHECKING:
    from mild.data import Outcomes


@dataclass(frozen=True)
class OutcomeSource:
    """A table and the options for reading it; ``file=None`` is the built-in table of outcomes."""

    file: str | None
    reading: ReadOptions = field(default_factory=ReadOptions)
    cost: CostOptions = field(default_factory=CostOptions)
    groups: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The options that are arguments of ``mild.tune``, ``evaluate`` and ``compare``."""
        return {**self.cost.arguments(), "groups": self.groups}

    def read(self, findings: bool = True) -> Outcomes:
        """Read the table, and print how it was read.

        Parameters
        ----------
        findings : bool, default=True
            Whether to print what is unusual about the table.

        Returns
        -------
        Outcomes
        """
        from mild.data import read_outcomes
        from mild.datasets import outcomes_file

        file = outcomes_file() if self.file is None else self.file
        table = read_outcomes(file, **asdict(self.reading))
        if self.file is None:
            note("no table is given: this is the one that comes with mild.")
        note(table.layout)
        if findings:
            note_findings(table)
        return table


def note_findings(table: Outcomes) -> None:
    """Print what is unusual about a table."""
    for finding in table.findings:
        note(finding.sentence)


def loss_line(result: Mapping[str, Any]) -> str:
    """The definition of the loss, and the kind of text features, if there are any."""
    line = f"loss = {result['cost']['words']}"
    if result.get("text") is not None:
        line += f"; text features: {result['text']}"
    return line
