"""Claim: a target gets what a table can give, and what `mild.tune` says about it holds on new queries.

``python -m benchmarks.halves FOLDER`` looks for eight public tables in the folder and its subfolders. Each
is halved many times, equal queries together. ``mild.tune`` sees one half, with a target of quality and
defaults, and the router that would be saved is judged on the other half: quality and dollars as shares of
those of the training half's best expert. What ``tune`` said is compared with what happened, and so is the
setting for a probability of 0.8. Two simple rules are judged on the same halves: the cheapest single expert
that meets the target in training, and, for tables with cascades, the answer on which the two cheapest
experts agree, and otherwise that of the best expert.

``--jobs N`` works on N halves at a time, one thread each. The figures are written to ``--out`` after every
half. ``python -m benchmarks.halves FILE [FILE ...]`` prints the summary of such files, together.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import mild
from benchmarks.measure import Report, environment
from mild.artifact import Router
from mild.core.arrays import FloatArray
from mild.core.costs import expert_ranks
from mild.data import Outcomes, read_outcomes
from mild.errors import InvalidInputError

KEPT = Path(__file__).parent.parent / "results" / "halves.json"
# No choice was made on these seeds: development used others.
FIRST_SEED = 7000
CAREFUL = 0.8
# The target is met in p - 0.10 to p + 0.15 of the halves.
BELOW = 0.10
ABOVE = 0.15
# Share of the halves in which an interval includes what happened: over all tables, and on each.
COVERED_POOLED = 0.9
COVERED_EACH = 0.8
# Mean width of an interval over that of the ideal one, which is 3.92 standard deviations wide.
WIDEST = 1.5
IDEAL_WIDTH = 3.92
# Shares are ratios of sums of decimals: less than this is rounding.
ROUNDING = 1e-9
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)


@dataclass(frozen=True)
class Bar:
    """Least mean share of the quality and largest mean share of the dollars."""

    kept: float
    dollars: float


@dataclass(frozen=True)
class Setup:
    """What is asked for on a table, and in how many halves."""

    keep_quality: float
    cascade: bool
    halves: int
    bar: Bar | None = None


TABLES = {
    "bfcl_answers": Setup(0.99, True, 40, Bar(0.988, 0.13)),
    "zeroeval_gsm8k_answers": Setup(0.99, True, 40, Bar(0.987, 0.13)),
    "zeroeval_crux_answers": Setup(0.97, True, 40, Bar(0.965, 0.60)),
    "zellinger_medmcqa": Setup(0.95, False, 20, Bar(0.945, 0.36)),
    "zellinger_mmlu": Setup(0.95, False, 20, Bar(0.945, 0.16)),
    "zellinger_triviaqa": Setup(0.95, False, 20),
    "swebench_verified": Setup(0.95, False, 20, Bar(0.94, 0.65)),
    "llmdrift_prime_answers": Setup(0.95, True, 20),
}
# Its bar is that it is not dearer than "the two cheapest agree, else the best".
PRIMES = "llmdrift_prime_answers"


@dataclass(frozen=True)
class JudgedHalf:
    """The judged half of a table, and the expert that was best on the training half."""

    table: Outcomes
    prices: FloatArray
    reference: int

    def shares(self, mean_score: float, mean_dollars: float) -> dict[str, float]:
        """Quality and dollars as shares of the reference's."""
        return {
            "kept": float(mean_score / self.table.scores[:, self.reference].mean()),
            "dollars": float(mean_dollars / self.prices[:, self.reference].mean()),
        }

    def of_router(self, router: Router) -> dict[str, Any]:
        """The shares of a router, and its setting; a cascade is run on the known answers.

        ``split`` keeps equal queries together, so that no row was trained on.
        """
        evaluation = mild.evaluate(router, self.table)
        (means,) = [row for row in evaluation.figures.baselines if row["key"] == "router"]
        shares = self.shares(means["accuracy"], means["dollars_per_1000"] / 1000)
        target = router.info.target
        assert target is not None
        setting = "trade-off"
        if target.expert is not None:
            setting = f"always {target.expert}"
        elif router.cascade is not None:
            setting = "cascade"
        return {**shares, "other": target.expert != target.best_expert, "setting": setting}

    def of_expert(self, expert: int) -> dict[str, float]:
        """The shares of always asking one expert."""
        return self.shares(self.table.scores[:, expert].mean(), self.prices[:, expert].mean())

    def of_agreement(self, first: int, second: int) -> dict[str, float]:
        """The shares of asking two experts, and the reference, too, where they do not agree."""
        answers = self.table.answers
        assert answers is not None
        codes = answers.codes
        agree = (codes[:, first] >= 0) & (codes[:, first] == codes[:, second])
        scores = np.where(agree, self.table.scores[:, first], self.table.scores[:, self.reference])
        asked_both = self.prices[:, first] + self.prices[:, second]
        dollars = asked_both + np.where(agree, 0.0, self.prices[:, self.reference])
        return self.shares(scores.mean(), dollars.mean())


@lru_cache(1)
def read_table(file: Path) -> Outcomes:
    return read_outcomes(file)


def known_prices(table: Outcomes) -> FloatArray:
    """Dollars (n_rows, n_experts) of a table that has them."""
    assert table.prices is not None
    return table.prices


def measure_half(file: Path, seed: int) -> dict[str, Any]:
    """One half of a table: what was said, what happened, and what the simple rules did."""
    warnings.simplefilter("ignore")
    setup = TABLES[file.stem]
    train, test = read_table(file).split(0.5, random_state=seed)
    mean_scores = train.scores.mean(axis=0)
    mean_prices = known_prices(train).mean(axis=0)
    reference = int(np.argmin(expert_ranks(mean_scores, mean_prices)))
    judged = JudgedHalf(test, known_prices(test), reference)
    row: dict[str, Any] = {
        "table": file.stem,
        "seed": seed,
        "keep_quality": setup.keep_quality,
        "train_rows": len(train),
        "judged_rows": len(test),
        "reference": train.experts[reference],
    }
    start = time.perf_counter()
    cpu_start = time.process_time()
    found = mild.tune(train, keep_quality=setup.keep_quality, cascade=setup.cascade)
    row["seconds"] = time.perf_counter() - start
    # One process with one thread: this does not depend on what else the machine does.
    row["cpu_seconds"] = time.process_time() - cpu_start
    row |= judged.of_router(found.router)
    row |= what_was_said(found)
    row |= with_prefix("careful", careful_figures(found, train, setup, judged))
    single = cheapest_single(mean_scores, mean_prices, setup.keep_quality)
    row |= with_prefix("single", judged.of_expert(single))
    if setup.cascade:
        first, second = np.argsort(mean_prices, kind="stable")[:2]
        row |= with_prefix("agreement", judged.of_agreement(int(first), int(second)))
    return row


def what_was_said(found: Any) -> dict[str, Any]:
    """Quality kept and dollars saved as ``tune`` states them, with their intervals."""
    stated = found.verdict.target
    figures: dict[str, Any] = {
        "said_reference": stated.reference,
        "sentence": found.verdict.sentence,
    }
    for name in ("quality_kept", "dollars_saved"):
        interval = getattr(stated, name)
        figures[name] = interval.estimate
        figures[f"{name}_low"] = interval.low
        figures[f"{name}_high"] = interval.high
    if hasattr(found, "certainty"):
        figures["certainty"] = frame_rows(found.certainty)
    return figures


def frame_rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of a frame of pandas, polars or pyarrow, JSON-ready."""
    if not isinstance(frame, pd.DataFrame):
        frame = frame.to_pandas()
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records"))
    return rows


def careful_figures(
    found: Any, train: Outcomes, setup: Setup, judged: JudgedHalf
) -> dict[str, Any]:
    """The judged setting for a probability of 0.8, from the same search where that is possible."""
    wanted: dict[str, Any] = {
        "keep_quality": setup.keep_quality,
        "target_probability": CAREFUL,
    }
    start = time.perf_counter()
    if hasattr(found, "certainty"):
        try:
            router = found.router.with_target(**wanted)
        except InvalidInputError as error:
            return {"refused": str(error)}
    else:
        router = mild.tune(train, **wanted, cascade=setup.cascade).router
    seconds = time.perf_counter() - start
    return {**judged.of_router(router), "seconds": seconds}


def cheapest_single(mean_scores: FloatArray, mean_prices: FloatArray, keep_quality: float) -> int:
    """The cheapest expert with this share of the best expert's mean score."""
    meets = mean_scores >= keep_quality * mean_scores.max() - ROUNDING
    return int(np.argmin(np.where(meets, mean_prices, np.inf)))


def with_prefix(prefix: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}_{name}": value for name, value in figures.items()}


def try_half(file: Path, seed: int) -> dict[str, Any]:
    """One half; an error is recorded, so that the other halves are still measured."""
    try:
        return measure_half(file, seed)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return {"table": file.stem, "seed": seed, "error": message}


def as_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The halves without an error as a frame, with what follows from their figures."""
    frame = pd.DataFrame([row for row in rows if "error" not in row])
    if frame.empty:
        raise SystemExit("no half was measured without an error; the errors are in the file.")
    for column in ("careful_kept", "careful_dollars", "agreement_kept", "agreement_dollars"):
        if column not in frame:
            frame[column] = math.nan
    if "careful_other" not in frame:
        frame["careful_other"] = False
    frame["careful_other"] = frame["careful_other"].eq(True)
    frame["said_dollars"] = 1 - frame["dollars_saved"]
    frame["saved"] = 1 - frame["dollars"]
    frame["met"] = frame["kept"] >= frame["keep_quality"] - ROUNDING
    frame["careful_met"] = frame["careful_kept"] >= frame["keep_quality"] - ROUNDING
    return frame


def interval_figures(frame: pd.DataFrame, stated: str, realised: str) -> dict[str, float]:
    """How often an interval includes what happened, and its mean width over that of the ideal one."""
    low = frame[f"{stated}_low"]
    high = frame[f"{stated}_high"]
    covered = (frame[realised] >= low - ROUNDING) & (frame[realised] <= high + ROUNDING)
    error_sd = (frame[realised] - frame[stated]).std()
    width = math.nan
    if error_sd > ROUNDING:
        width = float((high - low).mean() / (IDEAL_WIDTH * error_sd))
    return {f"{stated}_covered": float(covered.mean()), f"{stated}_width": width}


def summary(frame: pd.DataFrame) -> dict[str, float]:
    """Means over halves; the target counts where a setting other than the best expert was taken."""
    means = (
        "kept",
        "dollars",
        "quality_kept",
        "said_dollars",
        "other",
        "careful_kept",
        "careful_dollars",
        "careful_other",
        "single_kept",
        "single_dollars",
        "agreement_kept",
        "agreement_dollars",
        "seconds",
        "cpu_seconds",
    )
    figures: dict[str, float] = {"halves": len(frame)}
    for column in means:
        figures[column] = float(frame[column].mean())
    for column in ("kept", "dollars"):
        figures[f"{column}_sd"] = float(frame[column].std())
    figures["met"] = float(frame.loc[frame["other"], "met"].mean())
    figures["n_other"] = int(frame["other"].sum())
    figures["careful_met"] = float(frame.loc[frame["careful_other"], "careful_met"].mean())
    figures["n_careful_other"] = int(frame["careful_other"].sum())
    figures |= interval_figures(frame, "quality_kept", "kept")
    figures |= interval_figures(frame, "dollars_saved", "saved")
    return figures


def add_table(report: Report, name: str, figures: Mapping[str, float]) -> None:
    """The figures of one table beside its bars."""
    setup = TABLES[name]
    title = f"{name}, {setup.keep_quality:g}"
    if setup.cascade:
        title += " with cascade"
    words = ""
    met = None
    if setup.bar is not None:
        words = f"≥ {setup.bar.kept:g} at ≤ {setup.bar.dollars:g}"
        met = figures["kept"] >= setup.bar.kept and figures["dollars"] <= setup.bar.dollars
    elif name == PRIMES:
        words = f"≤ {figures['agreement_dollars']:.3f} of the dollars"
        met = figures["dollars"] <= figures["agreement_dollars"] + ROUNDING
    report.add(
        f"{title}: kept, {figures['halves']} halves", pair(figures, "kept", "dollars"), words, met
    )
    report.add(f"{title}: said", pair(figures, "quality_kept", "said_dollars"))
    report.add(f"{title}: kept for {CAREFUL:g}", pair(figures, "careful_kept", "careful_dollars"))
    report.add(f"{title}: cheapest single expert", pair(figures, "single_kept", "single_dollars"))
    if setup.cascade:
        shares = pair(figures, "agreement_kept", "agreement_dollars")
        report.add(f"{title}: the two cheapest agree, else the best", shares)
    add_calibration(report, title, figures, pooled=False)


def add_calibration(
    report: Report, title: str, figures: Mapping[str, float], *, pooled: bool
) -> None:
    """How often the target is met and the intervals hold, and the time; bars as they apply."""
    add_met(report, title, 0.5, figures["met"], figures["n_other"], pooled)
    add_met(report, title, CAREFUL, figures["careful_met"], figures["n_careful_other"], pooled)
    least = COVERED_EACH
    if pooled:
        least = COVERED_POOLED
    for stated, words in (("dollars_saved", "saving"), ("quality_kept", "quality")):
        covered = figures[f"{stated}_covered"]
        what = f"{title}: {words} inside its interval"
        report.add(what, f"{covered:.0%}", f"≥ {least:.0%}", covered >= least - ROUNDING)
        width = figures[f"{stated}_width"]
        what = f"{title}: width of that interval over {IDEAL_WIDTH:g} standard deviations"
        if pooled:
            report.add(what, f"{width:.2f}", f"≤ {WIDEST:g}", width <= WIDEST)
        else:
            report.add(what, f"{width:.2f}")
    seconds = f"{figures['seconds']:.1f}, of a processor {figures['cpu_seconds']:.1f}"
    report.add(f"{title}: seconds of tune", seconds)


def add_met(
    report: Report, title: str, probability: float, met: float, n_halves: float, pooled: bool
) -> None:
    """In which share of the halves the target is met at a probability."""
    what = f"{title}: target met at {probability:g}"
    if n_halves == 0:
        report.add(what, "the best expert was taken in every half")
        return
    measured = f"{met:.0%} of {n_halves} halves with a setting other than the best expert"
    if not pooled:
        report.add(what, measured)
        return
    low = probability - BELOW
    high = probability + ABOVE
    inside = low - ROUNDING <= met <= high + ROUNDING
    report.add(what, measured, f"{low:.0%} to {high:.0%}", inside)


def pair(figures: Mapping[str, float], kept: str, dollars: str) -> str:
    return f"{figures[kept]:.3f} of the quality at {figures[dollars]:.3f} of the dollars"


def make_report(result: Mapping[str, Any]) -> Report:
    """Every table, and all of them together, beside the bars."""
    frame = as_table(result["rows"])
    report = Report("Targets through tune, on the other half", list(result["notes"]))
    failed = [row for row in result["rows"] if "error" in row]
    if failed:
        first = failed[0]
        note = f"{len(failed)} halves ended with an error, the first of them "
        note += f"{first['table']}, seed {first['seed']}: {first['error']}"
        report.notes.append(note)
    for name in TABLES:
        rows = frame[frame["table"] == name]
        if len(rows):
            add_table(report, name, summary(rows))
    add_calibration(report, "all tables", summary(frame), pooled=True)
    return report


def make_result(rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> dict[str, Any]:
    """What is written: every half, and the summaries."""
    result: dict[str, Any] = {"notes": list(notes), "rows": list(rows)}
    if any("error" not in row for row in rows):
        frame = as_table(rows)
        result["tables"] = {name: summary(part) for name, part in frame.groupby("table")}
        result["pooled"] = summary(frame)
    return result


def write_result(result: Mapping[str, Any], out: Path) -> None:
    """Write the file in one step, so that a run that is stopped leaves a whole one."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    part.replace(out)


def find_table(folder: Path, name: str) -> Path:
    """The file of a table, in the folder or in a folder in it."""
    file_name = f"{name}.parquet"
    for file in [folder / file_name, *sorted(folder.glob(f"*/{file_name}"))]:
        if file.exists():
            return file
    raise SystemExit(f"there is no {file_name} in {folder} or in a folder in it")


def measured_on() -> str:
    """The machine, the versions and the commit; the commit is not known where there is no git."""
    try:
        return environment()
    except FileNotFoundError:
        return f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}"


def measure_all(
    tasks: Sequence[tuple[Path, int]], jobs: int, notes: Sequence[str], out: Path
) -> dict[str, Any]:
    """All halves, several at a time; the file is written after each."""
    # Workers import NumPy afresh, so that they take these settings.
    os.environ |= dict.fromkeys(ONE_THREAD, "1")
    context = multiprocessing.get_context("spawn")
    rows: list[dict[str, Any]] = []
    result = make_result(rows, notes)
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        pending = [pool.submit(try_half, file, seed) for file, seed in tasks]
        for done in as_completed(pending):
            row = done.result()
            rows.append(row)
            rows.sort(key=lambda row: (row["table"], row["seed"]))
            result = make_result(rows, notes)
            write_result(result, out)
            print(progress_line(row, len(rows), len(tasks)), flush=True)
    return result


def progress_line(row: Mapping[str, Any], n_done: int, n_all: int) -> str:
    """What one half gave, for the terminal."""
    start = f"{n_done}/{n_all} {row['table']}, seed {row['seed']}: "
    if "error" in row:
        return start + row["error"]
    return start + f"{pair(row, 'kept', 'dollars')}, {row['setting']}, {row['seconds']:.1f} s"


def read_results(files: Sequence[Path]) -> dict[str, Any]:
    """The halves of several files together; of equal ones the last file's counts."""
    rows: dict[tuple[str, int], Any] = {}
    notes: list[str] = []
    for file in files:
        result = json.loads(file.read_text(encoding="utf-8"))
        notes += result["notes"]
        for row in result["rows"]:
            rows[row["table"], row["seed"]] = row
    return make_result(list(rows.values()), notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "paths", nargs="+", type=Path, help="folder with the tables, or files of figures to show"
    )
    parser.add_argument("--tables", default=",".join(TABLES), help="names with commas")
    parser.add_argument("--halves", type=int, help="of each table; by default 40 or 20")
    parser.add_argument("--seeds", type=int, default=FIRST_SEED, metavar="FIRST", help="first seed")
    parser.add_argument("--jobs", type=int, default=1, help="halves at a time")
    parser.add_argument("--out", type=Path, default=KEPT, help="file for the figures")
    given = parser.parse_args()
    if all(path.is_file() for path in given.paths):
        print(make_report(read_results(given.paths)).markdown())
        return
    if len(given.paths) > 1 or not given.paths[0].is_dir():
        parser.error("give one folder with the tables, or files of figures")
    names = given.tables.split(",")
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        parser.error(f"unknown tables: {', '.join(unknown)}; known are {', '.join(TABLES)}")
    tasks = []
    for name in names:
        file = find_table(given.paths[0], name)
        n_halves = given.halves or TABLES[name].halves
        tasks.extend((file, seed) for seed in range(given.seeds, given.seeds + n_halves))
    settings = f"{len(tasks)} halves, seeds from {given.seeds}, {given.jobs} at a time. "
    notes = [measured_on(), settings + os.environ.get("MILD_COMMIT", "")]
    result = measure_all(tasks, given.jobs, notes, given.out)
    print(make_report(result).markdown())


if __name__ == "__main__":
    main()
