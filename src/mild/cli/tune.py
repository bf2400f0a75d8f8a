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
    MISSED,
    columns_of,
    emit,
    fixed,
    note,
    print_sentence,
    print_table,
    progress_bar,
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
# A router and what it is compared with, as a table calls them.
BASELINES = {
    "router": "router",
    "named": "best expert",
    "single": "cheapest expert that holds the target",
    "coin": "coin",
}


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
            help="Kinds of routers: linear, ridge, knn, neural, stack, several with commas, or "
            "all. Default: all but neural. With a target no families are searched, and this has no effect.",
        ),
    ] = None
    n_jobs: Annotated[
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
            names = [name.strip() for name in self.families.split(",")]
            families = list(filter(None, names))
        search = mild.RouterCV(families=families, n_jobs=self.n_jobs)
        return {"search": search, **o.without_none(cascade=self.calls())}

    def calls(self) -> bool | int | None:
        """The value of ``--cascade``: a number of calls, True without a number, None without the option."""
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
    groups: o.Groups = None,
    time: o.Time = None,
    random_state: o.RandomState = None,
    overwrite: o.Overwrite = False,
    save_anyway: Annotated[
        bool, Option("--save-anyway", help="Save the router even if the target is missed.")
    ] = False,
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
    cross-validation. Equal queries, and rows of a --groups, stay in one fold; with --time each fold is
    judged by routers fitted on the past. With --cascade, on a table with answers (answer__<model>),
    experts may be asked in steps until an answer is probably right. If the target is missed, the exit code
    is 3, and nothing is saved unless --save-anyway. In Python, mild.tune takes the other settings of a
    search, such as the number of folds: search=RouterCV(cv=10).

    \b
    Example:
      mild tune outcomes.parquet --out router --price-weight 50
      mild tune outcomes.parquet --out router --groups subject --details
      mild tune outcomes.parquet --out router --keep-quality 0.95
      mild tune outcomes.parquet --out router --max-quality-loss 0.02 --guarantee 0.9
      mild tune outcomes.parquet --out router --keep-quality 0.99 --cascade
    """
    from mild.artifact.folder import check_target
    from mild.tuning.tune import tune as search

    arguments = options.arguments() | o.without_none(**vars(target), random_state=random_state)
    source = OutcomeSource(data, reading, cost, groups)
    check_target(out, overwrite)
    table = source.read()
    with progress_bar("searching") as progress:
        tuned = search(
            table,
            text=text,
            time=time,
            progress=progress,
            **source.arguments,
            **arguments,
        )
    folder = None
    failed = None
    if tuned.met or save_anyway:
        folder, failed = try_writing(lambda: tuned.router.save(out, overwrite=overwrite))
    result: dict[str, Any] = {"router": None, **tuned.as_dict()}
    if folder is not None:
        result["router"] = str(folder)
    for sentence in tuned.notes:
        note(sentence)
    emit(result, as_json, lambda: _show(tuned, result["router"], details), failed)
    if not tuned.met:
        if not save_anyway:
            note(
                "nothing is saved, because no setting meets the target as surely as was asked for; "
                "--save-anyway saves this router."
            )
        raise typer.Exit(MISSED)


def _show(tuned: TuneResult, folder: str | None, details: bool) -> None:
    """Print the verdict, where the router is and what to do next; with ``details`` the best candidates."""
    sentences = tuned.sentences
    if not tuned.rows:
        # Without candidates the verdict is a note.
        sentences = sentences[1:]
    elif details:
        _show_tried(tuned)
    if tuned.verdict.left_out is not None:
        note(tuned.verdict.left_out)
    for sentence in sentences:
        print_sentence(with_options(sentence))
    if tuned.baselines:
        _show_baselines(tuned.baselines)
    if tuned.shares:
        _show_shares(tuned.shares)
    if tuned.certainty_rows:
        _show_certainty(tuned.certainty_rows)
    if folder is not None:
        print_sentence(f"Saved to {folder} ({tuned.decides_as}).")
        print_sentence(f"Next, on a table of new queries: mild evaluate {quote(folder)} TABLE")


def _show_tried(tuned: TuneResult) -> None:
    """Print what the search tried: settings for a target, or candidates."""
    if tuned.target is None:
        print_sentence(loss_line(tuned.as_dict()))
        _show_candidates(tuned)
    else:
        _show_settings(tuned)


def _show_baselines(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the figures of the router, and below them what it is compared with."""
    cells = []
    for row in rows:
        cells.append({"": BASELINES[row["choice"]], "setting": row["setting"], **_figures(row)})
    print_table("The router and its alternatives", columns_of(cells), left=("setting",))


def _show_shares(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print how often each expert is asked, and what that costs."""
    cells = []
    for row in rows:
        cells.append(
            {
                "expert": row["expert"],
                "asked about": _percent(row["queries"]),
                "$ per 1,000": amount(row["dollars_per_1000"]),
            }
        )
    print_table("Who is asked", columns_of(cells), left=("expert",))


def _show_certainty(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what more certainty of meeting the target costs."""
    from mild.report import certainty_sentence, certainty_setting

    sentence = certainty_sentence(rows)
    if sentence is not None:
        print_sentence(sentence)
        return
    cells = []
    for row in rows:
        cells.append(
            {
                "certainty": row["certainty"],
                **_figures(row),
                "setting": certainty_setting(row),
            }
        )
    title = "What certainty costs, on as many new queries"
    print_table(title, columns_of(cells), left=("setting",))


def _show_settings(tuned: TuneResult) -> None:
    """Print the settings that were compared, the cheapest first."""
    cells = []
    for row in tuned.ranked:
        mark = "*" if row["taken"] else ""
        cells.append({"taken": mark, **_figures(row), "setting": row["setting"]})
    title = f"{len(cells)} settings, {tuned.n_folds} folds"
    print_table(title, columns_of(cells), left=("setting",))


def _figures(row: Mapping[str, Any]) -> dict[str, str]:
    """Quality and dollars of an operating point, as cells by their headers."""
    return {
        "quality kept": _percent(row["quality_kept"]),
        "dollars saved": _percent(row["dollars_saved"]),
        "$ per 1,000": amount(row["dollars_per_1000"]),
    }


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{100 * share:.1f} %"


def _show_candidates(tuned: TuneResult) -> None:
    """Print the best candidates, and the one that is taken wherever it is."""
    ranked = tuned.ranked
    has_families = len({candidate["family"] for candidate in ranked}) > 1
    cells = []
    for rank, candidate in enumerate(ranked):
        if rank >= LISTED and not candidate["taken"]:
            continue
        row = {}
        if has_families:
            row["family"] = candidate["family"]
        row["mean loss"] = _mean_loss(candidate)
        row["± se"] = fixed(candidate["standard_error"])
        row["minus constant"] = fixed(candidate["difference"])
        row["parameters"] = _parameters(candidate["params"])
        cells.append(row)
    meaning = "is taken"
    if tuned.uses_cascade:
        meaning = "would be taken without the cascade"
    n_best = min(LISTED, len(ranked))
    title = f"best {n_best} of {len(ranked)} candidates, {tuned.n_folds} folds; * {meaning}"
    print_table(title, columns_of(cells), left=("parameters",))
    if tuned.why_taken is not None:
        print_sentence(tuned.why_taken)


def _mean_loss(candidate: Mapping[str, Any]) -> str:
    """The mean loss, with a star if the candidate is taken."""
    mean_loss = fixed(candidate["mean_cost"])
    if candidate["taken"]:
        return f"* {mean_loss}"
    return mean_loss


def _parameters(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in params.items())


def _short(value: object) -> str:
    """A value of a parameter in few characters."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(_short, value))
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)
