"""A router that was fitted on a dataset of many files, to a folder like any other router."""

from __future__ import annotations

from pathlib import Path

from mild.artifact import save
from mild.artifact.sources import source_of
from mild.distributed.shards.fitting import ShardedFit
from mild.evaluation.tasks.task import task_notes
from mild.metrics import expert_shares

__all__ = ["save_shards"]


def save_shards(fitted: ShardedFit, out: str, overwrite: bool = False) -> Path:
    """Write the router with its features, its costs in words, its usual shares and marks of its queries.

    The shares are those of the sample. The fingerprints are of the parts in their order: the same dataset
    has the same one with either engine, and another one than the same rows in one file.
    """
    dataset, task = fitted.dataset, fitted.task
    names = dataset.expert_names
    chosen = source_of(fitted.model).policy.predict(fitted.features)
    shares = dict(zip(names, expert_shares(chosen, len(names)).tolist(), strict=True))
    table = {
        "fingerprint": fitted.fingerprint,
        "rows": fitted.rows,
        "form": dataset.shape.layout.form,
        "explanation": dataset.explanation(fitted.rows),
        "shards": len(dataset.files),
    }
    notes = {
        **task_notes(task),
        "table": table,
        "marks_complete": fitted.seen.complete,
        "shares": {"rows": len(chosen), "experts": shares},
    }
    return save(
        fitted.model,
        out,
        expert_names=names,
        text=fitted.step,
        data={"fingerprint": fitted.fingerprint, "rows": fitted.rows},
        notes=notes,
        marks=fitted.seen.marks,
        overwrite=overwrite,
    )
