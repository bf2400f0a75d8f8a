"""``mild fit`` on shards: the words of the command line to a fit in passes."""

from __future__ import annotations

from typing import Any

from mild.cli.console import note, progress_bar
from mild.cli.outcomes import HOW_TO_READ, Given

__all__ = ["fit_streamed", "is_streamed"]


def is_streamed(data: str | None, stream: bool, engine: str) -> bool:
    """Whether rows are read in passes: asked for, on Ray, or from more than a plain file.

    Examples
    --------
    >>> is_streamed("log.parquet", False, "local"), is_streamed("logs/*.parquet", False, "local")
    (False, True)
    """
    from pathlib import Path

    if data is None:
        return False
    if stream or engine == "ray" or "://" in data:
        return True
    there = Path(data)
    return there.is_dir() or (any(mark in data for mark in "*?[") and not there.exists())


def fit_streamed(
    unfitted: Any,
    given: Given,
    standardize: bool | None,
    out: str,
    overwrite: bool,
    seed: int,
    engine: str,
    address: str | None,
    jobs: int | None,
    scratch: str | None,
) -> dict[str, Any]:
    """Fit, save and judge on a sample of the rows."""
    from mild.artifact import load
    from mild.artifact.writing import check_target
    from mild.cli.description import margins_of
    from mild.data.outcomes import ReadOptions
    from mild.distributed.ray_connection import check_ray
    from mild.distributed.shards.dataset import open_dataset
    from mild.distributed.shards.fitting import fit_shards, save_shards
    from mild.distributed.shards.solving import check_router
    from mild.distributed.shards.work_folder import described, work_folder
    from mild.distributed.shards.workers import local_workers, ray_workers
    from mild.evaluation.tasks import evaluate_choices

    check_router(unfitted)
    # Before anything is made, or what an earlier run left is touched.
    if engine == "ray":
        check_ray(address)
    dataset = open_dataset(
        given.file or "", ReadOptions(**{name: getattr(given, name) for name in HOW_TO_READ})
    )
    terms = given.terms()
    target = check_target(out, overwrite)
    facts = described(dataset, terms, unfitted, given.text, given.model, standardize)
    with work_folder(target, scratch, facts) as work, progress_bar("fitting") as progress:

        def hire(held: Any) -> Any:
            if engine == "ray":
                return ray_workers(held, terms, address, jobs)
            return local_workers(held, terms, work.features, jobs)

        try:
            fitted = fit_shards(
                dataset,
                terms,
                unfitted,
                hire,
                text=given.text,
                text_options=given.step_options(),
                standardize=standardize,
                folder=work.evaluations,
                progress=progress,
            )
        except KeyboardInterrupt:
            note(f"what was worked out is in {work.path}: the same command goes on from there.")
            raise
        folder = save_shards(fitted, out, overwrite)
    note(fitted.dataset.explanation(fitted.rows))
    left = [name for name in dataset.expert_names if name not in fitted.dataset.expert_names]
    if left:
        note(f"left out, never asked: {', '.join(left)}.")
    for finding in fitted.findings:
        note(finding.sentence)
    if fitted.settled is not None:
        note(fitted.settled)
    if fitted.remembered:
        were = "was" if fitted.remembered == 1 else "were"
        note(f"{fitted.remembered} of {fitted.evaluations} evaluations {were} there already.")
    saved = load(folder)
    report = evaluate_choices(fitted.task, saved.predict(fitted.features), seed=seed).as_dict()
    # Whether it pays is not for the training data to say.
    del report["verdict"]
    task = fitted.task
    return {
        "router": str(folder),
        "kind": saved.metadata["kind"],
        "estimator": saved.metadata["estimator"],
        "n_features": saved.n_features,
        "text": fitted.step.kind,
        "cost": {"words": task.words, **task.terms.as_dict()},
        "margins": margins_of(saved.policy),
        "rows": fitted.rows,
        "shards": len(dataset.files),
        "engine": engine,
        "evaluations": fitted.evaluations,
        "remembered": fitted.remembered,
        "training": {"rows": task.table.rows, "experts": task.table.expert_names, **report},
    }
