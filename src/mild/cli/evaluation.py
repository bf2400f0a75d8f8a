"""What belongs to an evaluation besides its figures: a warning, and the document for a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mild.artifact import LoadedRouter
from mild.cli.console import note
from mild.tables import OutcomeTable
from mild.tasks import Seen, Task

__all__ = ["save_evaluation", "warn_of_seen"]


def warn_of_seen(router: LoadedRouter, table: OutcomeTable) -> dict[str, Any]:
    """Whether the router knows the table or some of its queries; a warning if so."""
    notes = router.metadata.get("notes") or {}
    trained = notes.get("table") or {}
    same = trained.get("fingerprint") == table.fingerprint()
    found: dict[str, Any] = {"same_data_as_fit": same, "seen_in_fit": None}
    seen = Seen.by(router)
    if seen is not None:
        overlap = seen.overlap(table)
        found["seen_in_fit"] = {"queries": overlap.seen, "checked": overlap.checked}
        if overlap.seen and not same:
            note(
                f"{overlap.seen:,} of {overlap.checked:,} queries were in the training data, too: the "
                f"figures are optimistic.",
                "warning",
            )
    if same:
        note("the router was fitted on this very table: the figures are optimistic.", "warning")
    return found


def save_evaluation(
    router: LoadedRouter, task: Task, X: Any, folder: Path, confidence: float, seed: int
) -> Path:
    """Write the document that ``mild report`` reads, into the router's folder."""
    from mild.report import build_document, write_document
    from mild.report.writing import EVALUATION_FILE

    document = build_document(
        router,
        task.table,
        task.costs,
        X,
        bundle=task.bundle,
        group=task.group,
        cost={"words": task.words, **task.terms.as_dict()},
        split="a table of its own",
        confidence=confidence,
        seed=seed,
    )
    return write_document(document, folder / EVALUATION_FILE)
