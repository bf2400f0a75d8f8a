"""Claim: what `mild.tune` and `with_target` say comes true on new rows.

``python -m benchmarks.promises`` tunes on synthetic tables (``benchmarks/worlds.py``) and judges on 2,500
further rows of the same world; with ``--folder FOLDER`` it halves eight public tables that it finds there
or below, tunes on one half and judges on the other, equal queries on one side, with cascades where there
are answers and without. ``--only NAME`` runs one world or table. Records are added to ``--out``, and what
is there already is not run again. ``python -m benchmarks.promises show FILE [FORMER]`` prints the figures,
those of a former file beside them, and the differences on the same tables with their 95 % intervals by a
paired bootstrap.

One ``tune`` is asked to keep .95 at probability .8, and ``with_target`` sets its router to keep .99 and
.95 (in the world of budgets, to two budgets) at .5, .8 and .95. Every choice is made by ``route`` or
``next`` and accounted for here. A target that ``with_target`` refuses counts as asking the named expert
about every query. Columns:

met: share of the tables where the target was met on the judged rows, with its 95 % interval (Wilson; halves
    of one table share rows, so that theirs is too narrow).
met_as_many: the same on as many of the judged rows as the table has: what a probability is promised for. In
    a world the judged rows are more, which takes away most of their own luck, so that ``met`` is further
    from one half.
kept, saved: share of the named expert's quality that is kept, and of its dollars that is saved.
kept_off, saved_off: mean absolute difference of what was said and what came true.
beyond_coin: dollars saved, as a share of the named expert's, beyond the cheapest random mix of two single
    experts of the same realised quality, chosen on the judged rows; where none reaches that quality, beyond
    the best of them. With a 95 % interval of a bootstrap over the tables.
beyond_lines, beyond_rules: the same beyond ``text_router_path`` and ``rules_path`` of
    ``benchmarks/forty_lines.py``.
used: dollars as a share of the budget. refused: share of refused targets.

Below each table stands how often the 95 % intervals of ``tune`` held what came true. They are predictions
for as many new rows as the table has, so in a world the first of the further rows judge.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

import mild
from benchmarks.forty_lines import (
    Rows,
    answer_codes,
    dollars_at,
    rules_path,
    single_path,
    text_router_path,
)
from benchmarks.measure import environment
from benchmarks.worlds import WORLDS
from mild.errors import InvalidInputError

TABLES = (
    "bfcl_answers",
    "zeroeval_gsm8k_answers",
    "zeroeval_crux_answers",
    "zeroeval_math_l5_answers",
    "swebench_verified",
    "zellinger_medmcqa",
    "zellinger_mmlu",
    "zellinger_triviaqa",
)
# Rows of a synthetic table; the worlds with a second size.
SMALL, LARGE, FURTHER = 300, 1500, 2500
LARGE_TOO = ("par_10_1", "par_10_9", "best")
KEEP = (0.99, 0.95)
PROBABILITIES = (0.5, 0.8, 0.95)
#: What is recorded of each target. Dollars are per 1,000 queries; what is saved beyond a peer is a share of
#: the named expert's dollars.
COLUMNS = (
    "limit", "probability", "refused", "met", "met_as_many", "kept_said", "kept", "saved_said", "saved",
    "dollars", "beyond_coin", "beyond_lines", "beyond_rules",
)  # fmt: skip
BEYOND = ("beyond_coin", "beyond_lines", "beyond_rules")
MET = ("met", "met_as_many")
SHOWN = (*MET, "kept", "kept_off", "saved", "saved_off", *BEYOND, "used", "refused")


# How the library of the day is called; all that changes with it stands here.


class Promise(NamedTuple):
    """What a router at a target says of itself, beside the named expert's own."""

    router: mild.Router
    kept: float
    saved: float


def tuned(frame: pd.DataFrame, query: str, cascade: bool) -> Any:
    """What ``tune`` finds when it is asked to keep .95 at probability .8."""
    table = mild.read_outcomes(frame, query=query)
    return mild.tune(
        table,
        keep_quality=0.95,
        target_probability=0.8,
        cascade=cascade,
        search=mild.RouterCV(n_jobs=1),
    )


def named_expert(found: Any) -> str:
    """The expert that quality and dollars are measured against."""
    return str(found.verdict.target.reference)


def stated_intervals(found: Any) -> list[tuple[float, float]]:
    """The 95 % intervals of quality kept and dollars saved."""
    verdict = found.verdict.target
    return [
        (interval.low, interval.high) for interval in (verdict.quality_kept, verdict.dollars_saved)
    ]


def promised(found: Any, **target: float) -> Promise | None:
    """The router at a target; None where that is refused."""
    try:
        router = found.router.with_target(**target)
    except InvalidInputError:
        return None
    said, verdict = router.info.target, found.verdict.target
    saved = 1 - said.dollars_per_1000 / verdict.reference_dollars_per_1000
    return Promise(router, said.quality / verdict.reference_quality, saved)


def asks_several(router: mild.Router) -> bool:
    """Whether the router reads answers."""
    return router.cascade is not None


# What comes true.


class Judged(NamedTuple):
    """Rows that judge, with what was given to the experts."""

    rows: Rows
    experts: list[str]
    answers: Any  # (n, p) as they stand in the table, None where there are none


def judged_rows(frame: pd.DataFrame, query: str) -> Judged:
    """The arrays of a table."""
    experts = [name.removeprefix("correct__") for name in frame if name.startswith("correct__")]
    columns = {
        kind: frame[[f"{kind}__{expert}" for expert in experts]].to_numpy()
        for kind in ("correct", "cost", "answer")
        if f"{kind}__{experts[0]}" in frame
    }
    answers = columns.get("answer")
    rows = Rows(
        frame[query].to_numpy(),
        columns["correct"].astype(float),
        columns["cost"].astype(float),
        None if answers is None else answer_codes(answers),
    )
    return Judged(rows, experts, answers)


def realised(router: mild.Router, judged: Judged) -> tuple[Any, Any]:
    """Scores and dollars (n,) of a router's choices."""
    rows, experts, answers = judged
    number = {expert: index for index, expert in enumerate(experts)}
    each = np.arange(len(rows.texts))
    if not asks_several(router):
        chosen = np.array([number[name] for name in router.route(rows.texts.tolist())])
        return rows.scores[each, chosen], rows.dollars[each, chosen]
    scores, dollars = np.zeros(len(each)), np.zeros(len(each))
    for row, text in enumerate(rows.texts):
        given: dict[str, Any] = {}
        step = router.next(text, given)
        while step.accepted is None:
            for name in step.ask:
                given[name] = answers[row, number[name]]
                dollars[row] += rows.dollars[row, number[name]]
            step = router.next(text, given)
        scores[row] = rows.scores[row, number[step.accepted]]
    return scores, dollars


class Peers(NamedTuple):
    """Paths of settings, to be compared with at equal quality."""

    coin: Any
    lines: Any
    rules: Any  # None without cascades

    def saved_beyond(self, quality: float, dollars: float, unit: float) -> dict[str, float | None]:
        """What is saved beyond each of them, in units."""
        return {
            f"beyond_{name}": None if path is None else (dollars_at(path, quality) - dollars) / unit
            for name, path in self._asdict().items()
        }


def rounded(value: float | None) -> float | None:
    """Four digits behind the point are recorded."""
    return None if value is None else round(float(value), 4)


def judge(
    train: pd.DataFrame, new: pd.DataFrame, query: str, cascade: bool, budgets: Sequence[float] = ()
) -> dict[str, Any]:
    """Everything that is recorded of one table."""
    warnings.simplefilter("ignore")
    start = time.process_time()
    found = tuned(train, query, cascade)
    cpu = time.process_time() - start
    known, judged = judged_rows(train, query).rows, judged_rows(new, query)
    rows = judged.rows
    start = time.process_time()
    lines = text_router_path(known, rows)
    lines_cpu = time.process_time() - start
    peers = Peers(single_path(rows), lines, rules_path(known, rows) if cascade else None)
    named = judged.experts.index(named_expert(found))
    own_quality, own_dollars = rows.scores[:, named], rows.dollars[:, named]
    as_many = slice(len(train))
    seen: dict[Any, Any] = {}
    targets = []
    for limit in budgets or KEEP:
        for probability in PROBABILITIES:
            wanted = {"max_dollars" if budgets else "keep_quality": limit}
            promise = promised(found, **wanted, target_probability=probability)
            scores, dollars = own_quality, own_dollars
            if promise is not None:
                key = (promise.kept, promise.saved)
                if key not in seen:
                    seen[key] = realised(promise.router, judged)
                scores, dollars = seen[key]
            kept, paid = scores.mean() / own_quality.mean(), 1000 * dollars.mean()
            is_met = paid <= limit + 1e-9 if budgets else kept >= limit - 1e-9
            kept_then = scores[as_many].mean() / own_quality[as_many].mean()
            paid_then = 1000 * dollars[as_many].mean()
            entry = {
                "limit": limit,
                "probability": probability,
                "refused": promise is None,
                "met": is_met,
                "met_as_many": paid_then <= limit + 1e-9 if budgets else kept_then >= limit - 1e-9,
                "kept_said": promise and promise.kept,
                "kept": kept,
                "saved_said": promise and promise.saved,
                "saved": 1 - dollars.mean() / own_dollars.mean(),
                "dollars": paid,
                **peers.saved_beyond(scores.mean(), dollars.mean(), own_dollars.mean()),
            }
            targets.append([rounded(entry[name]) for name in COLUMNS])
    scores, dollars = realised(found.router, judged)
    truths = (
        scores[as_many].mean() / own_quality[as_many].mean(),
        1 - dollars[as_many].mean() / own_dollars[as_many].mean(),
    )
    intervals = stated_intervals(found)
    return {
        "cpu": round(cpu, 3),
        "lines_cpu": round(lines_cpu, 3),
        "covered": [
            int(low <= truth <= high) for (low, high), truth in zip(intervals, truths, strict=True)
        ],
        "targets": targets,
    }


# Tables.


class Task(NamedTuple):
    """One table to tune on."""

    table: str
    rows: int  # of a synthetic table; 0 for a public one
    cascade: bool
    seed: int


def synthetic_tasks(n_tables: int) -> Iterator[Task]:
    """Tables of every world."""
    for name, world in WORLDS.items():
        for size in (SMALL, LARGE) if name in LARGE_TOO else (SMALL,):
            for seed in range(n_tables):
                yield Task(name, size, world.has_answers, seed)


def public_tasks(folder: Path, names: Sequence[str], n_halves: int) -> Iterator[Task]:
    """Halves of public tables."""
    for name in names:
        has_answers = any(column.startswith("answer__") for column in read_public(folder, name))
        for cascade in (False, True)[: 1 + has_answers]:
            for seed in range(n_halves):
                yield Task(name, 0, cascade, seed)


def read_public(folder: Path, name: str) -> pd.DataFrame:
    """A public table, without the column by which mild 0.10 would leave rows out."""
    paths = sorted(folder.rglob(f"{name}.parquet"))
    if not paths:
        raise SystemExit(f"{folder} must hold {name}.parquet, there or below; it does not.")
    return pd.read_parquet(paths[0]).drop(columns="split", errors="ignore")


def run(task: Task, folder: Path | None) -> dict[str, Any]:
    """Tune and judge once."""
    warm_up()
    if task.table in WORLDS:
        world = WORLDS[task.table]
        seed = [zlib.crc32(task.table.encode()), task.rows, task.seed]
        train = world.draw(task.rows, np.random.default_rng(seed))
        new = world.draw(FURTHER, np.random.default_rng([*seed, 1]))
        figures = judge(train, new, "query", task.cascade, world.budgets)
    else:
        table = read_public(folder, task.table)
        query = "query" if "query" in table else "prompt"
        groups = np.unique(table[query], return_inverse=True)[1]
        order = np.random.default_rng(task.seed).permutation(groups.max() + 1)
        is_first = np.isin(groups, order[: len(order) // 2])
        figures = judge(table[is_first], table[~is_first], query, task.cascade)
    return task._asdict() | figures


@cache
def warm_up() -> None:
    """Import what ``tune`` and the forty lines import, so that it is not in their CPU time."""
    tables = [WORLDS["answers"].draw(200, np.random.default_rng(seed)) for seed in (0, 1)]
    judge(*tables, "query", cascade=True)


def write(path: Path, document: dict[str, Any]) -> None:
    """The records, a line each, whole or not at all."""
    head = {key: value for key, value in document.items() if key != "records"}
    lines = [json.dumps(record, separators=(",", ":")) for record in document["records"]]
    text = json.dumps(head)[:-1] + ', "records": [\n' + ",\n".join(lines) + "\n]}\n"
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def collect(tasks: list[Task], folder: Path | None, out: Path, jobs: int) -> None:
    """Run what is not recorded yet; records are written every 20 seconds."""
    document = {
        "mild": mild.__version__,
        "environment": environment(),
        "columns": list(COLUMNS),
        "records": [],
    }
    if out.exists():
        recorded = json.loads(out.read_text(encoding="utf-8"))
        for key in ("mild", "environment", "columns"):
            if recorded[key] != document[key]:
                raise SystemExit(
                    f"{out} must hold records of {document[key]}; got {recorded[key]}. Name another --out."
                )
        document = recorded
    done = {Task(*(record[field] for field in Task._fields)) for record in document["records"]}
    left = [task for task in tasks if task not in done]
    written = time.monotonic()
    running = Parallel(n_jobs=jobs, return_as="generator_unordered", inner_max_num_threads=1)
    for number, record in enumerate(running(delayed(run)(task, folder) for task in left), 1):
        document["records"].append(record)
        if time.monotonic() - written > 20 or number == len(left):
            document["records"].sort(key=lambda entry: [entry[field] for field in Task._fields])
            write(out, document)
            written = time.monotonic()
            print(f"{number} of {len(left)}", flush=True)


# Figures.


def wilson(share: float, n: int) -> tuple[float, float]:
    """95 % interval of a share."""
    z = 1.96
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return middle - half, middle + half


class Part(NamedTuple):
    """Tables whose figures stand together."""

    table: str
    rows: int
    cascade: bool


def parts(document: dict[str, Any]) -> dict[Part, list[dict[str, Any]]]:
    """Records by part, in the order of worlds and tables."""
    found: dict[Part, list[dict[str, Any]]] = {}
    order = [*WORLDS, *TABLES]
    for record in sorted(document["records"], key=lambda r: (order.index(r["table"]), r["rows"])):
        part = Part(*(record[field] for field in Part._fields))
        found.setdefault(part, []).append(record)
    return found


def target_columns(document: dict[str, Any], part: Part) -> pd.DataFrame:
    """The targets of one part: a row for each table and target."""
    frames = []
    for record in parts(document)[part]:
        targets = pd.DataFrame(record["targets"], columns=document["columns"], dtype=float)
        frames.append(targets.assign(seed=record["seed"]))
    found = pd.concat(frames)
    if "met_as_many" not in found:
        # Of mild 0.10 it was not recorded.
        found["met_as_many"] = np.nan
    found["kept_off"] = (found["kept_said"] - found["kept"]).abs()
    found["saved_off"] = (found["saved_said"] - found["saved"]).abs()
    is_budget = bool(part.table in WORLDS and WORLDS[part.table].budgets)
    found["used"] = found["dollars"] / found["limit"] if is_budget else np.nan
    return found


def bootstrap(values: pd.Series) -> tuple[float, float]:
    """95 % interval of a mean over tables."""
    rng = np.random.default_rng(0)
    draws = rng.integers(len(values), size=(4000, len(values)))
    low, high = np.percentile(values.to_numpy()[draws].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def figures(document: dict[str, Any], part: Part) -> pd.DataFrame:
    """Means over the tables: a row for each target, with the ends of intervals."""
    rows = []
    targets = target_columns(document, part)
    for (limit, probability), tables in targets.groupby(["limit", "probability"]):
        row = {"limit": limit, "probability": probability}
        row |= {column: tables[column].mean() for column in SHOWN}
        for column in MET:
            row[f"{column}_low"], row[f"{column}_high"] = wilson(row[column], len(tables))
        for column in BEYOND:
            row[f"{column}_low"], row[f"{column}_high"] = bootstrap(tables[column])
        rows.append(row)
    return pd.DataFrame(rows)


def differences(document: dict[str, Any], former: dict[str, Any], part: Part) -> pd.DataFrame:
    """Figures minus those of a former file on the same tables, with 95 % intervals."""
    keys = ["seed", "limit", "probability"]
    now, before = target_columns(document, part), target_columns(former, part)
    both = now.merge(before, on=keys, suffixes=("", "_former"))
    rows = []
    for (limit, probability), tables in both.groupby(["limit", "probability"]):
        row: dict[str, Any] = {"limit": limit, "probability": probability}
        for column in SHOWN:
            change = tables[column] - tables[f"{column}_former"]
            if change.notna().all():
                row[column] = with_interval(change.mean(), *bootstrap(change))
        rows.append(row)
    return pd.DataFrame(rows)


def with_interval(mean: float, low: float, high: float) -> str:
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def print_part(document: dict[str, Any], part: Part) -> None:
    """The figures of one part as a table, and a sentence on intervals and time."""
    records = parts(document)[part]
    found = figures(document, part)
    shown = found[["limit", "probability", *SHOWN]].copy()
    for column in MET:
        if found[column].notna().all():
            ends = found[[column, f"{column}_low", f"{column}_high"]]
            shown[column] = [
                f"{share:.3f} ({low:.2f} to {high:.2f})"
                for share, low, high in ends.itertuples(index=False)
            ]
    for column in BEYOND:
        if found[column].notna().all():
            ends = found[[column, f"{column}_low", f"{column}_high"]]
            shown[column] = [with_interval(*row) for row in ends.itertuples(index=False)]
    print(shown.dropna(axis=1, how="all").to_markdown(index=False, floatfmt=".3f"))
    covered = np.mean([record["covered"] for record in records], axis=0)
    cpu = [np.median([record[key] for record in records]) for key in ("cpu", "lines_cpu")]
    print(
        f"\n95 % intervals cover quality kept in {covered[0]:.1%}, dollars saved in {covered[1]:.1%}. "
        f"CPU seconds, median: tune {cpu[0]:.2f}, forty lines {cpu[1]:.2f}.\n"
    )


def show(document: dict[str, Any], former: dict[str, Any] | None) -> None:
    """Print the figures, beside those of a former file."""
    print(f"mild {document['mild']}; {document['environment']}\n")
    known_before = parts(former) if former else {}
    for part, records in parts(document).items():
        title = WORLDS[part.table].title if part.table in WORLDS else part.table
        rows = f", {part.rows} rows" if part.rows else ""
        print(f"## {title}{rows}{', cascades' if part.cascade else ''}: {len(records)} tables\n")
        print_part(document, part)
        if former and part in known_before:
            print(f"mild {former['mild']}; {former['environment']}\n")
            print_part(former, part)
            print("Difference, with its 95 % interval:\n")
            print(differences(document, former, part).to_markdown(index=False), "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command")
    shown = commands.add_parser("show", help="print the figures of a file")
    shown.add_argument("file", type=Path)
    shown.add_argument("former", type=Path, nargs="?")
    parser.add_argument("--tables", type=int, default=60, help="of each world")
    parser.add_argument("--halves", type=int, default=10, help="of each public table")
    parser.add_argument("--folder", type=Path, help="where the public tables are")
    parser.add_argument("--only", choices=[*WORLDS, *TABLES], help="one world or table")
    parser.add_argument("--jobs", type=int, default=-1, help="tables at a time")
    parser.add_argument("--out", type=Path, default=Path("promises.json"), help="records")
    asked = parser.parse_args()
    if asked.command == "show":
        files = [asked.file, asked.former] if asked.former else [asked.file]
        document, *former = (json.loads(file.read_text(encoding="utf-8")) for file in files)
        show(document, *former or [None])
        return
    if asked.only in TABLES and asked.folder is None:
        parser.error(f"--only {asked.only} needs --folder, where the public tables are")
    tasks = [task for task in synthetic_tasks(asked.tables) if asked.only in (None, task.table)]
    if asked.folder is not None:
        names = [name for name in TABLES if asked.only in (None, name)]
        tasks += public_tasks(asked.folder, names, asked.halves)
    collect(tasks, asked.folder, asked.out, asked.jobs)
    show(json.loads(asked.out.read_text(encoding="utf-8")), None)


if __name__ == "__main__":
    # Workers find the functions of a module, not those of a script.
    from benchmarks import promises

    promises.main()
