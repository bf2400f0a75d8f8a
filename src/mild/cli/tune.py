"""``mild tune``"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer import Option

from mild.cli import options as o
from mild.cli.console import (
    ANY_NUMBER,
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
from mild.money import amount

if TYPE_CHECKING:
    from mild.tuning.tune import TuneResult


# Candidates that --details lists, besides the one that is taken.
LISTED = 10


@dataclass(frozen=True)
class TargetOptions:
    """What the router should reach, in place of a weight of dollars."""

    panel: ClassVar[str] = "Targets"

    keep_quality: Annotated[float | None, Option()] = None
    max_quality_loss: Annotated[float | None, Option()] = None
    max_dollars: Annotated[float | None, Option()] = None
    target_probability: Annotated[float | None, Option()] = None
    guarantee: Annotated[float | None, Option()] = None


@dataclass(frozen=True)
class SearchOptions:
    """What the search tries."""

    panel: ClassVar[str] = "Search"

    cascade: Annotated[
        str | None,
        Option(
            metavar="[CALLS]",
            help="Also try cascades, which ask several experts and read their answers (columns "
            "answer__<expert>), at most CALLS about one query. Default of CALLS: 4.",
        ),
    ] = None
    families: Annotated[
        str | None,
        Option(
            metavar="NAMES",
            help="Kinds of routers: linear, regression, knn, clusters, mlp, stack, several with commas, or "
            "all. Default: all but mlp. With a target no families are searched, and this has no effect.",
        ),
    ] = None
    jobs: Annotated[
        int | None,
        Option(
            help="Parallel workers, -1 for all cores. Default: all cores if the table has 800 rows or more."
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Arguments of ``mild.tune``."""
        import mild

        families: Any = self.families
        if self.families is not None and self.families not in ("all", "auto"):
            families = [name.strip() for name in self.families.split(",") if name.strip()]
        search = mild.RouterCV(families=families, n_jobs=self.jobs)
        return {"search": search, **o.given(cascade=self.calls())}

    def calls(self) -> bool | int | None:
        """What ``--cascade`` says: a number of calls, True without a number, None without the option."""
        if self.cascade is None:
            return None
        if self.cascade == ANY_NUMBER:
            return True
        if not self.cascade.isdecimal() or int(self.cascade) < 2:
            rule = f"must be the most calls about one query, at least 2; got {self.cascade!r}."
            raise OptionError(parameter="cascade", rule=rule)
        return int(self.cascade)


@o.takes_options("mild.tuning.tune:tune", "mild.tuning.fit:fit")
def tune(
    *,
    out: o.Out,
    data: o.Source = None,
    cost: o.CostOptions,
    text: o.TextFeatureName = None,
    group: o.Group = None,
    time: o.Time = None,
    seed: o.Seed = None,
    overwrite: o.Overwrite = False,
    details: Annotated[
        bool, Option("--details", help="Also print the loss and the best candidates.")
    ] = False,
    as_json: o.AsJson = False,
    target: TargetOptions,
    options: SearchOptions,
    reading: o.AnswerTableOptions,
) -> None:
    """Search for the best router, and say whether routing pays.

    Strengths and margins of a linear router and other kinds of routers are compared by
    cross-validation. Equal queries, and rows of a --group, stay in one fold; with --time each fold is
    judged by routers fitted on the past. With --cascade, on a table with
    answers (answer__<model>), experts may be asked in steps until an answer is probably right. After
    Ctrl-C the best router so far is saved, and the exit code is 130. In Python, mild.tune takes the other
    settings of a search, such as the number of folds: search=RouterCV(cv=10).

    \b
    Example:
      mild tune outcomes.parquet --out router --price-weight 50
      mild tune outcomes.parquet --out router --group subject --details
      mild tune outcomes.parquet --out router --keep-quality 0.95
      mild tune outcomes.parquet --out router --max-quality-loss 0.02 --guarantee 0.9
      mild tune outcomes.parquet --out router --keep-quality 0.99 --cascade
    """
    from mild.artifact.folder import check_target
    from mild.tuning.tune import tune as search

    arguments = options.arguments() | o.given(**vars(target), random_state=seed)
    source = OutcomeSource(data, reading, cost, group)
    check_target(out, overwrite)
    table = source.read()
    with progress_bar("searching") as progress:
        found = search(
            table,
            text=text,
            time=time,
            progress=progress,
            **source.arguments,
            **arguments,
        )
    folder, failed = try_writing(lambda: found.router.save(out, overwrite=overwrite))
    result = {"router": None if folder is None else str(folder), **found.as_dict()}
    for sentence in found.notes:
        note(sentence)
    emit(result, as_json, lambda: _show(found, result["router"], details), failed)
    if found.interrupted:
        note(f"the search was stopped; the best router so far is in {folder}.", "interrupted")
        raise typer.Exit(INTERRUPTED)


def _show(found: TuneResult, folder: str | None, details: bool) -> None:
    """Print the verdict, where the router is and what to do next; with ``details`` the best candidates."""
    sentences = found.sentences
    if not found.rows:
        # Without candidates the verdict is a note.
        sentences = sentences[1:]
    elif details:
        if found.target is None:
            say(loss_line(found.as_dict()))
            _show_candidates(found)
        else:
            _show_settings(found)
    if found.verdict.left_out is not None:
        note(found.verdict.left_out)
    for sentence in sentences:
        say(with_options(sentence))
    if found.certainty_rows:
        _show_certainty(found)
    if folder is not None:
        say(f"Saved to {folder} ({found.decides_as}).")
        say(f"Next, on a table of new queries: mild evaluate TABLE --router {quote(folder)}")


def _show_certainty(found: TuneResult) -> None:
    """Print what more certainty of meeting the target costs."""
    from mild.report import certainty_sentence, certainty_setting

    rows = found.certainty_rows
    sentence = certainty_sentence(rows)
    if sentence is not None:
        say(sentence)
        return
    columns = {"certainty": [row["certainty"] for row in rows]}
    columns |= _figure_columns(rows)
    columns["setting"] = [certainty_setting(row) for row in rows]
    print_table("What certainty costs, on as many new queries", columns, left=("setting",))


def _show_settings(found: TuneResult) -> None:
    """Print the settings that were compared, the cheapest first."""
    ranked = found.ranked
    columns = {"taken": ["*" if row["taken"] else "" for row in ranked]}
    columns |= _figure_columns(ranked)
    print_table(f"{len(ranked)} settings, {found.n_folds} folds", columns, left=("setting",))


def _figure_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Quality, dollars and setting of some operating points, as cells."""
    return {
        "quality kept": [_percent(row["quality_kept"]) for row in rows],
        "dollars saved": [_percent(row["dollars_saved"]) for row in rows],
        "$ per 1,000": [amount(row["dollars_per_1000"]) for row in rows],
        "setting": [row["setting"] for row in rows],
    }


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{100 * share:.1f} %"


def _show_candidates(found: TuneResult) -> None:
    """Print the best candidates, and the one that is taken wherever it is."""
    ranked = found.ranked
    listed = []
    for place, entry in enumerate(ranked):
        if place < LISTED or entry["taken"]:
            listed.append(entry)
    columns: dict[str, list[str]] = {}
    if len({entry["family"] for entry in ranked}) > 1:
        columns["family"] = [entry["family"] for entry in listed]
    columns["mean loss"] = [_mean_loss(entry) for entry in listed]
    columns["± se"] = [fixed(entry["standard_error"]) for entry in listed]
    columns["minus constant"] = [fixed(entry["difference"]) for entry in listed]
    columns["parameters"] = [_parameters(entry["params"]) for entry in listed]
    best = min(LISTED, len(ranked))
    taken = "is taken"
    if found.uses_cascade:
        taken = "would be taken without the cascade"
    title = f"best {best} of {len(ranked)} candidates, {found.n_folds} folds; * {taken}"
    print_table(title, columns, left=("parameters",))
    if found.why_taken is not None:
        say(found.why_taken)


def _mean_loss(candidate: Mapping[str, Any]) -> str:
    mean_loss = fixed(candidate["mean_cost"])
    if candidate["taken"]:
        return f"* {mean_loss}"
    return mean_loss


def _parameters(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in params.items())


def _short(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_short(entry) for entry in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
