"""Searches on the two kinds of tables, and what they found on the terminal."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mild.cli.console import note, number, print_table, progress_bar, say
from mild.cli.outcomes import Given, workers
from mild.core.arrays import FloatArray

__all__ = ["Search", "note_skipped", "print_tuned", "tune_matrices", "tune_outcomes"]

Progress: TypeAlias = Callable[[int, int, str], None] | None


@dataclass(frozen=True)
class Search:
    """What the search was told.

    Attributes
    ----------
    router : options of the linear router that it goes around
    options : options of ``RouterCV``
    families : names with commas, or None
    standardize : whether features are scaled; None for what their kind asks for
    """

    router: Mapping[str, Any]
    options: Mapping[str, Any]
    families: str | None
    standardize: bool | None

    def build(self, scaled: bool, progress: Progress, **changes: Any) -> Any:
        """An unfitted search, perhaps behind a scaler."""
        from mild.cli.routers import build_search

        options = {**self.options, "progress": progress, **changes}
        families = options.pop("families", self.families)
        return build_search(
            self.router, options, families, scaled if self.standardize is None else self.standardize
        )


def tune_outcomes(search: Search, given: Given, out: str, overwrite: bool) -> dict[str, Any]:
    """Search on a table of outcomes, as ``mild compare`` does it unless families were named."""
    from mild.evaluation.comparison.methods import TUNED
    from mild.evaluation.tasks import fit_task, make_task, save_task, search_folds

    task = make_task(given.read(), given.terms(), given.group)
    cv, seed = search.options["cv"], search.options["random_state"]
    folds = search_folds(task, cv, given.time, seed)
    families = search.families or TUNED
    with progress_bar("searching") as progress:
        step = given.step(task, progress)
        jobs = workers(search.options["n_jobs"], task.table.rows)
        model = search.build(
            step.kind == "vectors",
            progress,
            cv=folds,
            clusters=task.bundle,
            families=families,
            n_jobs=jobs,
        )
        fitted = fit_task(task, model, step)
    folder = save_task(fitted, task, out, overwrite)
    names, unit = task.table.expert_names, "query" if task.group is None else "group"
    return {
        "router": str(folder),
        "text": step.kind,
        "cost": {"words": task.words, **task.terms.as_dict()},
        **_found(fitted.model, names, search, unit, task.table.prices),
    }


def tune_matrices(
    search: Search,
    data: str,
    features: str | None,
    costs: str | None,
    out: str,
    overwrite: bool,
) -> dict[str, Any]:
    """Search on a table of features and costs."""
    from mild.artifact import save
    from mild.cli.description import feature_line
    from mild.data import read_matrices

    table = read_matrices(data, features, costs)
    with progress_bar("searching") as progress:
        model = search.build(True, progress)
        model.fit(table.X, table.costs)
    folder = save(
        model,
        out,
        expert_names=table.expert_names,
        feature_names=table.feature_names,
        data=(table.X, table.costs),
        overwrite=overwrite,
    )
    note(feature_line(table.feature_names, table.X.shape[1]), "features")
    if table.left_out:
        note(f"left out, not numbers: {', '.join(table.left_out)}.")
    return {
        "router": str(folder),
        "features": table.feature_names,
        "left_out": table.left_out,
        **_found(model, table.expert_names, search),
    }


def _found(
    model: Any,
    expert_names: Sequence[str],
    search: Search,
    unit: str = "row",
    prices: FloatArray | None = None,
) -> dict[str, Any]:
    """What the search settled on, among what, and its verdict."""
    from mild.cli.description import describe_tuning

    tuner = model[-1] if hasattr(model, "steps") else model
    found = tuner.verdict_
    name = expert_names[found.constant_expert]
    said = found.named(name, unit, None if prices is None else _dollars(tuner, prices))
    return {
        **describe_tuning(tuner),
        "verdict": {**said.as_dict(), "constant": name, "rows": found.n_rows},
        "routes_as_constant": bool(search.options["safe"]) and found.pays is not True,
    }


def _dollars(tuner: Any, prices: FloatArray) -> float | None:
    """Mean price of what the router would have asked minus the constant's, where both are known."""
    router, constant = tuner.held_out_, tuner.held_out_constants_
    every, judged = np.arange(len(prices)), (router >= 0) & (constant >= 0)
    difference = (prices[every, router] - prices[every, constant])[judged]
    known = difference[~np.isnan(difference)]
    return float(known.mean()) if known.size else None


def note_skipped(families: Sequence[str]) -> None:
    """Say which families were not tried, why, and how they would be."""
    names = ", ".join(families)
    if importlib.util.find_spec("torch") is None:
        note(f"left out, torch is not installed: {names}.")
    else:
        note(f"left out, it takes long on a table of this size: {names}; --families all tries it.")


def print_tuned(result: Mapping[str, Any], candidates: int, cv: int) -> None:
    """The best candidates, the verdict, and where the router is."""
    if "cost" in result:
        say(f"cost = {result['cost']['words']}; text features: {result['text']}")
    ranked = sorted(result["candidates"], key=lambda entry: entry["mean_cost"])
    columns = _columns(ranked, candidates)
    print_table(
        f"best {min(candidates, len(ranked))} of {len(ranked)} candidates, {cv} folds; * is taken",
        list(columns),
        list(zip(*columns.values(), strict=True)),
        unbroken=("family", "mean cost", "± se"),
        left=("parameters",),
    )
    verdict = result["verdict"]
    if verdict["left_out"] is not None:
        note(verdict["left_out"])
    say(verdict["sentence"])
    constant = verdict["constant"]
    kept = f"always {constant}" if result["routes_as_constant"] else result["best_family"]
    say(f"Saved to {result['router']} ({kept}).")


def _columns(ranked: Sequence[Mapping[str, Any]], most: int) -> dict[str, list[str]]:
    """Columns of the table of candidates, less those that would say nothing."""
    # The one that is taken is listed, however many are better by chance.
    listed = [entry for place, entry in enumerate(ranked) if place < most or entry["taken"]]
    columns = {
        "family": [entry["family"] for entry in listed],
        "mean cost": [
            f"{'* ' if entry['taken'] else ''}{number(entry['mean_cost'])}" for entry in listed
        ],
        "± se": [number(entry["standard_error"]) for entry in listed],
        "minus constant": [number(entry["difference"]) for entry in listed],
        "parameters": [
            ", ".join(f"{key} {_short(value)}" for key, value in entry["params"].items())
            for entry in listed
        ],
    }
    if len({entry["family"] for entry in ranked}) == 1:
        del columns["family"]
    return columns


def _short(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_short(entry) for entry in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
