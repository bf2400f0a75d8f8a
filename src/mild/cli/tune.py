"""``mild tune``"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer import Option

from mild.cli import options as o
from mild.cli.console import (
    INTERRUPTED,
    emit,
    fixed,
    note,
    print_table,
    progress_bar,
    say,
    try_writing,
    with_options,
)
from mild.cli.outcomes import OutcomeSource, loss_line
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.tuning.tune import TuneResult


@dataclass(frozen=True)
class SearchOptions:
    """What the search tries, and how it chooses."""

    panel: ClassVar[str] = "Search"

    cascade: Annotated[bool | None, Option("--cascade")] = None
    max_calls: Annotated[int | None, Option()] = None
    alphas: Annotated[str | None, Option(help="Strengths to try: 0.001,0.01.")] = None
    margin_factors: Annotated[str | None, Option(help="Factors of single margins: 0.5,2.")] = None
    paper_grid: Annotated[
        bool, Option("--paper-grid", help="Try margins in steps of 1 within 5 of the theory.")
    ] = False
    confidence: o.Confidence = None
    one_standard_error: Annotated[bool | None, Option()] = None
    constant_if_better: Annotated[bool | None, Option()] = None
    candidates: Annotated[int, Option(help="Number of candidates to list.")] = 10

    def arguments(self) -> dict[str, Any]:
        """Arguments of ``mild.tune``."""
        if self.candidates < 1:
            rule = f"must be at least 1; got {self.candidates}."
            raise OptionError(parameter="candidates", rule=rule)
        grid = None
        if self.paper_grid:
            grid = "paper"
        return o.given(
            alphas=o.number_list("alphas", self.alphas),
            margin_factors=o.number_list("margin_factors", self.margin_factors),
            grid=grid,
            one_standard_error=self.one_standard_error,
            constant_if_better=self.constant_if_better,
            confidence=self.confidence,
            cascade=self.cascade,
            max_calls=self.max_calls,
        )


@dataclass(frozen=True)
class TargetOptions:
    """What the router should reach, in place of a weight of dollars."""

    panel: ClassVar[str] = "Targets"

    keep_quality: Annotated[float | None, Option()] = None
    max_quality_loss: Annotated[float | None, Option()] = None
    max_dollars: Annotated[float | None, Option()] = None
    target_probability: Annotated[float | None, Option()] = None
    guarantee: Annotated[float | None, Option()] = None
    calibration_share: Annotated[float | None, Option()] = None


@o.takes_options("mild.tuning.tune:tune", "mild.routers:RouterCV")
def tune(
    *,
    out: o.Out,
    data: o.Source = None,
    families: Annotated[str | None, Option()] = None,
    cost: o.CostOptions,
    text: o.TextOptions,
    group: o.Group = None,
    time: o.Time = None,
    cv: Annotated[int | None, Option()] = None,
    safe: Annotated[bool | None, Option("--safe")] = None,
    seed: o.Seed = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    target: TargetOptions,
    options: SearchOptions,
    router: o.LossOptions,
    jobs: o.Jobs = None,
    execution: o.EngineOptions,
    reading: o.AnswerTableOptions,
) -> None:
    """Search for the best router, and say whether routing pays.

    Strengths and margins of a linear router and other kinds of routers are compared by
    cross-validation. Equal queries, and rows of a --group, stay in one fold; with --time each fold is
    judged by routers fitted on the past. With --cascade, on a table with
    answers (answer__<model>), experts may be asked in steps until an answer is probably right. After
    Ctrl-C the best router so far is saved, and the exit code is 130.

    \b
    Example:
      mild tune outcomes.parquet --out router --price-weight 50
      mild tune outcomes.parquet --out router --group subject --safe
      mild tune outcomes.parquet --out router --keep-quality 0.95
      mild tune outcomes.parquet --out router --max-quality-loss 0.02 --guarantee 0.9
      mild tune outcomes.parquet --out router --keep-quality 0.99 --cascade
    """
    from mild.artifact.folder import check_target
    from mild.tuning.tune import tune as search

    execution.check()
    arguments = options.arguments() | o.given(**router.arguments(), **vars(target))
    arguments |= o.given(cv=cv, safe=safe, random_state=seed)
    features = text.features()
    source = OutcomeSource(data, reading, cost, group)
    check_target(out, overwrite)
    table = source.read()
    with execution.running(jobs), progress_bar("searching") as progress:
        found = search(
            table,
            text=features,
            time=time,
            families=families,
            n_jobs=execution.workers(jobs),
            progress=progress,
            **source.arguments,
            **arguments,
        )
    folder, failed = try_writing(lambda: found.router.save(out, overwrite=overwrite))
    result = {"router": None if folder is None else str(folder), **found.as_dict()}
    for sentence in found.notes:
        note(sentence)
    emit(result, as_json, lambda: _show(found, result["router"], options.candidates), failed)
    if found.interrupted:
        note(f"the search was stopped; the best router so far is in {folder}.", "interrupted")
        raise typer.Exit(INTERRUPTED)


def _show(found: TuneResult, folder: str | None, candidates: int) -> None:
    """Print the best candidates, the verdict, and where the router is."""
    if found.rows:
        say(loss_line(found.as_dict()))
    if found.rows:
        _show_candidates(found, candidates)
    if found.verdict.left_out is not None:
        note(found.verdict.left_out)
    # Without candidates the verdict is a note.
    for sentence in found.sentences[0 if found.rows else 1 :]:
        say(with_options(sentence))
    if folder is not None:
        say(f"Saved to {folder} ({found.decides_as}).")


def _show_candidates(found: TuneResult, candidates: int) -> None:
    ranked = found.ranked
    # The candidate that is taken is always listed.
    listed = [entry for place, entry in enumerate(ranked) if place < candidates or entry["taken"]]
    columns = {
        "family": [entry["family"] for entry in listed],
        "mean loss": [f"{'* ' * entry['taken']}{fixed(entry['mean_cost'])}" for entry in listed],
        "± se": [fixed(entry["standard_error"]) for entry in listed],
        "minus constant": [fixed(entry["difference"]) for entry in listed],
        "parameters": [
            ", ".join(f"{key} {_short(value)}" for key, value in entry["params"].items())
            for entry in listed
        ],
    }
    if len({entry["family"] for entry in ranked}) == 1:
        del columns["family"]
    best = min(candidates, len(ranked))
    has_cascade = found.cascade is not None and found.cascade.used
    others = ["the cascade"] if has_cascade else []
    others += ["the target"] if found.target is not None else []
    taken = f"would be taken without {' and '.join(others)}" if others else "is taken"
    title = f"best {best} of {len(ranked)} candidates, {found.n_folds} folds; * {taken}"
    print_table(title, columns, left=("parameters",))
    if found.why_taken is not None and found.target is None:
        say(found.why_taken)


def _short(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_short(entry) for entry in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
