"""What belongs to an evaluation besides its figures: its task, a warning, the document for a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mild.artifact import LoadedRouter
from mild.cli.console import note
from mild.cli.outcomes import Given
from mild.data import OutcomeTable
from mild.evaluation.tasks import Task, TrainingQueryIndex, make_task, terms_of

__all__ = ["read_task", "save_evaluation", "warn_of_seen"]


def read_task(
    router: LoadedRouter, given: Given, rows: Callable[[OutcomeTable], Any] | None = None
) -> tuple[LoadedRouter, Task]:
    """What to judge a router by, and the router as it then decides.

    Costs count as they did when it was fitted, unless they are said anew; a priced router then decides by
    the new prices. ``rows`` picks some of the table's rows.
    """
    from mild.artifact.prices import is_priced, new_prices

    fitted, asked = terms_of(router), given.terms()
    table = given.read(router.expert_names)
    if rows is not None:
        table = table.take(rows(table))
    task = make_task(table, asked if asked.stated or fitted is None else fitted, given.group)
    if asked.stated and is_priced(router):
        return new_prices(router, asked.beta, asked.price_weight).on(router), task
    if asked.stated and fitted is not None and task.terms != fitted:
        words = router.metadata["notes"]["cost"]["words"]
        note(f"the router was fitted under another cost: {words}.")
    return router, task


def warn_of_seen(router: LoadedRouter, table: OutcomeTable) -> dict[str, Any]:
    """Whether the router knows the table or some of its queries; a warning if so."""
    notes = router.metadata.get("notes") or {}
    trained = notes.get("table") or {}
    same = trained.get("fingerprint") == table.fingerprint()
    found: dict[str, Any] = {"same_data_as_fit": same, "seen_in_fit": None}
    seen = TrainingQueryIndex.by(router)
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
    from mild.evaluation.report import build_document, write_document
    from mild.evaluation.report.writing import EVALUATION_FILE

    document = build_document(
        router,
        task.table,
        task.costs,
        X,
        bundle=task.bundle,
        group=task.group,
        cost={"words": task.words, **task.terms.as_dict()},
        split="a table of its own",
        title=f"Router report: {folder.resolve().name}",
        confidence=confidence,
        seed=seed,
    )
    return write_document(document, folder / EVALUATION_FILE)
