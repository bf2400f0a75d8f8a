"""The table that a command reads, as its options describe it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mild.cli.console import note
from mild.cli.options import CostOptions, ReadOptions

if TYPE_CHECKING:
    from mild.data import OutcomeTable


@dataclass(frozen=True)
class OutcomeSource:
    """A table and the options about it; ``file`` None is the table of outcomes that comes with mild."""

    file: str | None
    reading: ReadOptions = field(default_factory=ReadOptions)
    cost: CostOptions = field(default_factory=CostOptions)
    group: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The options that are arguments of ``mild.tune``, ``evaluate`` and ``compare``."""
        return {**self.cost.arguments(), "groups": self.group}

    def read(
        self,
        part: str = "train",
        findings: bool = True,
        features: Sequence[str] | None = None,
    ) -> OutcomeTable:
        """Read the table; print how it was read and, with ``findings``, what is unusual about it.

        Of a table with a split column, the rows of ``part`` are taken. ``features`` are the columns that a
        saved router was fitted on, if it was fitted on numbers.
        """
        from mild.data import read_outcomes
        from mild.data.datasets import load_outcomes

        if self.file is None:
            table = load_outcomes(self.reading.where)
        else:
            reading = asdict(self.reading)
            table = read_outcomes(self.file, **reading, part=part, features=features)
        note(table.explanation)
        if findings:
            note_findings(table)
        return table


def note_findings(table: OutcomeTable) -> None:
    """Print what is unusual about a table."""
    for finding in table.findings:
        note(finding.sentence)


def loss_line(result: Mapping[str, Any]) -> str:
    """What the loss is, and the kind of text features."""
    text = "" if result.get("text") is None else f"; text features: {result['text']}"
    return f"loss = {result['cost']['words']}{text}"
