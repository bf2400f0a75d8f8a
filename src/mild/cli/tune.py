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
    note,
    print_sentence,
    print_table,
    progress_bar,
    try_writing,
)
from mild.cli.outcomes import OutcomeSource
from mild.errors import OptionError, count_noun
from mild.money import amount

if TYPE_CHECKING:
    from mild.data import Outcomes
    from mild.evaluation.evaluate import Evaluation
    from mild.tuning.tune import TuneResult


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
    holdout: Annotated[
        float | None,
        Option(
            metavar="SHARE",
            help="Keep this share of the rows back, tune on the others, and judge the router by the rows "
            "that were kept back. Equal queries, and rows of a --groups, are on one side; with --time the "
            "latest rows are kept back.",
        ),
    ] = None,
    as_json: o.AsJson = False,
    target: TargetOptions,
    options: SearchOptions,
    reading: o.AnswerTableOptions,
) -> None:
    """Search for the best router, and say whether routing pays.

    Strengths and margins of a linear router and other kinds of routers are compared by
    cross-validation. Equal queries, and rows of a --groups, stay in one fold; with --time each fold is
    judged by routers fitted on the past. With --holdout, the router is also judged by rows that the search
    has not seen. With --cascade, on a table with answers (answer__<model>),
    experts may be asked in steps until an answer is probably right. If the target is missed, the exit code
    is 3, and nothing is saved unless --save-anyway. In Python, mild.tune takes the other settings of a
    search, such as the number of folds: search=RouterCV(cv=10).

    \b
    Example:
      mild tune outcomes.parquet --out router --price-weight 50
      mild tune outcomes.parquet --out router --groups subject
      mild tune outcomes.parquet --out router --keep-quality 0.95 --holdout 0.3
      mild tune outcomes.parquet --out router --max-quality-loss 0.02 --guarantee 0.9
      mild tune outcomes.parquet --out router --keep-quality 0.99 --cascade
    """
    from mild.artifact.folder import check_target
    from mild.evaluation.evaluate import evaluate
    from mild.tuning.tune import tune as search

    arguments = options.arguments() | o.without_none(**vars(target), random_state=random_state)
    source = OutcomeSource(data, reading, cost, groups)
    check_target(out, overwrite)
    table = source.read()
    kept_back = None
    if holdout is not None:
        table, kept_back = _keep_back(table, holdout, groups, time, random_state)
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
    judged = None
    if kept_back is not None:
        settings = o.without_none(random_state=random_state)
        judged = evaluate(tuned.router, kept_back, groups=groups, **settings)
    result = {
        "router": None if folder is None else str(folder),
        **tuned.as_dict(),
        "holdout": None if judged is None else judged.as_dict(),
    }
    for sentence in tuned.notes:
        note(sentence)
    emit(result, as_json, lambda: _show(tuned, judged, result["router"]), failed)
    if not tuned.met:
        if not save_anyway:
            note(
                "nothing is saved, because no setting meets the target as surely as was asked for; "
                "--save-anyway saves this router."
            )
        raise typer.Exit(MISSED)


def _keep_back(
    table: Outcomes, share: float, groups: str | None, time: str | None, random_state: int | None
) -> tuple[Outcomes, Outcomes]:
    """Divide a table into the rows to tune on and those to judge by."""
    if not 0 < share < 1:
        rule = f"must be a share of the rows, between 0 and 1; got {share:g}."
        raise OptionError(parameter="holdout", rule=rule)
    settings = o.without_none(random_state=random_state)
    rest, kept_back = table.split(share, groups=groups, time=time, **settings)
    n_dropped = len(table) - len(rest) - len(kept_back)
    if n_dropped:
        rows = count_noun(n_dropped, "later row is", "later rows are")
        note(f"{rows} left out, because the query or the group is also among earlier rows.")
    return rest, kept_back


def _show(tuned: TuneResult, judged: Evaluation | None, folder: str | None) -> None:
    """Print the verdict, also on rows that were kept back, where the router is, and what to do next."""
    # Without candidates the verdict is a note.
    sentences = tuned.sentences if tuned.rows else tuned.sentences[1:]
    if tuned.verdict.left_out is not None:
        note(tuned.verdict.left_out)
    for sentence in sentences:
        print_sentence(sentence)
    if tuned.baselines:
        _show_baselines(tuned.baselines)
    if tuned.shares:
        _show_shares(tuned.shares)
    if tuned.certainty_rows:
        _show_certainty(tuned.certainty_rows)
    if judged is not None:
        n_rows = count_noun(judged.figures.summary["n_known"], "row")
        print_sentence(f"On {n_rows} kept back:")
        for sentence in judged.sentences:
            print_sentence(sentence)
    if folder is not None:
        print_sentence(f"Saved to {folder} ({tuned.decides_as}).")
        print_sentence(f"Next, on a table of new queries: mild evaluate {quote(folder)} TABLE")


def _show_baselines(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the figures of the router, and below them what it is compared with."""
    cells = [
        {"": BASELINES[row["choice"]], "setting": row["setting"], **_figures(row)} for row in rows
    ]
    print_table("The router and its alternatives", columns_of(cells), left=("setting",))


def _show_shares(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print how often each expert is asked, and what that costs."""
    cells = [
        {
            "expert": row["expert"],
            "asked about": _percent(row["queries"]),
            "$ per 1,000": amount(row["dollars_per_1000"]),
        }
        for row in rows
    ]
    print_table("Who is asked", columns_of(cells), left=("expert",))


def _show_certainty(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what more certainty of meeting the target costs."""
    from mild.report import certainty_sentence, certainty_setting

    sentence = certainty_sentence(rows)
    if sentence is not None:
        print_sentence(sentence)
        return
    cells = [
        {
            "certainty": row["certainty"],
            **_figures(row),
            "setting": certainty_setting(row),
        }
        for row in rows
    ]
    title = "What certainty costs, on as many new queries"
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
