"""What a collection found."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mild.errors import count_noun
from mild_gateway.collect.grading import Grades
from mild_gateway.collect.ledger import Ledger
from mild_gateway.collect.runs import ExpertRun
from mild_gateway.learning.tables import Outcomes, as_frame, read_outcomes


@dataclass(frozen=True, repr=False)
class Collected:
    """What ``collect_outcomes`` found: the table of outcomes, and figures per expert."""

    path: Path | None  # file of the table; None if none was written
    ledger: Path  # file of the answers
    columns: dict[str, Any]  # of the table, as Arrow arrays
    # Per expert what was asked, answered, failed, spent and right, and the sums.
    summary: dict[str, Any]
    interrupted: bool  # whether Ctrl-C ended it early
    like: Any = None  # the frame of the questions, if they were one

    @cached_property
    def table(self) -> Outcomes:
        """The outcomes, ready for ``mild.tune``."""
        return read_outcomes(self._arrow())

    @property
    def questions(self) -> int:
        """Number of questions."""
        return len(self.columns["query"])

    @property
    def spent(self) -> float:
        """Dollars that this call has spent."""
        return float(self.summary["spent"])

    @property
    def cached(self) -> int:
        """Answers that were in the ledger already, and cost nothing now."""
        return sum(run["from_ledger"] for run in self.summary["experts"].values())

    @property
    def notes(self) -> list[tuple[str, str]]:
        """What went wrong: pairs of a kind, "note" or "warning", and a sentence."""
        notes = []
        n_lost = self.summary["lost_in_flight"]
        if n_lost:
            requests = count_noun(n_lost, "request was", "requests were")
            consequence = "they count as paid and are asked again"
            text = f"{requests} in flight when an earlier run ended; {consequence}."
            notes.append(("note", text))
        for name, run in self.summary["experts"].items():
            if run["stopped"]:
                notes.append(("warning", f"{name} was stopped: {run['stopped']}."))
            for reason, count in run["reasons"].items():
                notes.append(("note", f"{name}: {reason} ({count}x)"))
            if run["maybe_lost"]:
                dollars = f"${run['maybe_lost']:.4f}"
                notes.append(("note", f"{name}: lost replies may have cost up to {dollars} more."))
        for reason, count in self.summary["unscored"].items():
            notes.append(("warning", f"not scored: {reason} ({count}x)"))
        return notes

    def as_dict(self) -> dict[str, Any]:
        """What ``mild collect --json`` prints."""
        table = None
        if self.path is not None:
            table = str(self.path)
        return {
            "table": table,
            "ledger": str(self.ledger),
            "questions": self.questions,
            **self.summary,
            "interrupted": self.interrupted,
        }

    def to_frame(self) -> Any:
        """The table as a frame of the library that the questions came in; else as a pyarrow table."""
        table = self._arrow()
        if self.like is None:
            return table
        return as_frame(table.to_pydict(), self.like)

    def __repr__(self) -> str:
        counts = []
        for name, run in self.summary["experts"].items():
            counts.append(f"{name} {run['answered']:,}")
        words = (
            f"{self.questions:,} questions, answered: {', '.join(counts)}; spent ${self.spent:.4f}"
        )
        if self.interrupted:
            words += ", interrupted"
        return f"<Collected: {words}>"

    def _arrow(self) -> Any:
        import pyarrow as pa

        return pa.table(self.columns)


def summarize(runs: Sequence[ExpertRun], grades: Grades, ledger: Ledger) -> dict[str, Any]:
    """Per expert what was asked, answered, failed, spent and right, and the sums."""
    experts = {}
    for run, scores in zip(runs, grades.scores, strict=True):
        experts[run.name] = _expert_summary(run, scores)
    return {
        "experts": experts,
        "spent": sum(run.spent for run in runs),
        "spent_by_ledger": ledger.spent(),
        "lost_in_flight": ledger.lost,
        "unscored": dict(grades.unscored.most_common(5)),
    }


def _expert_summary(run: ExpertRun, scores: Sequence[float | None]) -> dict[str, Any]:
    answers = [run.answers[key] for key in run.keys if key in run.answers]
    known_scores = [score for score in scores if score is not None]
    spent = None
    if run.expert.price.known:
        spent = run.spent
    accuracy = None
    if known_scores:
        accuracy = statistics.fmean(known_scores)
    median_latency_ms = None
    if answers:
        median_latency_ms = statistics.median(answer.latency_ms for answer in answers)
    return {
        "asked": run.asked,
        "requests": run.attempts,
        "from_ledger": run.from_ledger,
        "answered": len(answers),
        "failed": run.failed,
        "unasked": len(run.keys) - len(answers),
        "cut_at_max_tokens": sum(answer.finish == "length" for answer in answers),
        "spent": spent,
        "maybe_lost": run.lost,
        "accuracy": accuracy,
        "median_latency_ms": median_latency_ms,
        "stopped": run.stopped,
        "reasons": dict(run.reasons.most_common(5)),
    }
