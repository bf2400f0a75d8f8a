"""Claim: a target is met on new rows as often as `mild tune` says, and a guarantee is broken as rarely.

``python -m benchmarks.targets FOLDER [FOLDER ...]`` looks for four public tables in the folders. Point
targets: 40 times a table is halved, equal queries together; ``mild.tune`` sees one half, and every target
is judged by the router's choices on the other: by default, where it is expected to be met, and with a
margin for a probability of 0.8. A target of quality is
relative to the best expert as it was found in tuning. Only draws count in which the output states the
probability. The heads for error and price do not depend on what the search tries, so that it tries one
linear router. Guarantees: heads are fitted on half of a table, and a limit is certified on queries that are
drawn with replacement from the whole table, which is the population: a query that is drawn twice counts
twice, and its rows stay together. The limit is broken if the loss over the population is above it.
With ``--cascade`` the same is measured on tables with answers, one of them made here: cascades are settings
beside trade-offs and single experts, and each target is also solved without them.
The figures are kept in ``results/targets.json``, those of cascades in ``results/target_cascades.json``
(``--out``); without a folder they are printed again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from joblib import Parallel, delayed
from mild.tuning.targets import (
    HeldOut,
    Solution,
    Tradeoff,
    certify_loss,
    fit_tradeoff,
    measure,
    solve,
    traded_prices,
)

import mild
from benchmarks.measure import Report, environment
from mild.artifact import Router
from mild.artifact.targets import TARGET_PROBABILITY, Target
from mild.data import OutcomeTable, read_outcomes
from mild.errors import InvalidInputError
from mild.routers import ConstantRouter
from mild.tuning.cascades import FittedCascades, fit_cascades
from mild.tuning.fitting import Fitted, contents, fit_task, make_step
from mild.tuning.tasks import CostTerms, make_task, search_folds

RESULTS = Path(__file__).parent.parent / "results"
KEPT, KEPT_CASCADES = RESULTS / "targets.json", RESULTS / "target_cascades.json"
TABLES = (
    "swebench_verified",
    "zellinger_mmlu",
    "zellinger_triviaqa",
    "zeroeval_gsm8k_answers",
)
ANSWER_TABLES = (
    "bfcl_answers",
    "zeroeval_crux_answers",
    "zeroeval_gsm8k_answers",
    "zeroeval_math_l5_answers",
    "synthetic",
)
MAX_CALLS = 4
DRAWS = 40
# Of 200 draws the share has a standard error of two points; the first 200 are shown, too.
CERTIFIED_DRAWS, FIRST = 1000, 200
# Calibration samples for each fit of the heads.
SAMPLES = 10
PROBABILITY, GUARANTEE = 0.8, 0.9
# How a target is to be met, and with which probability.
RULES = {"margin": PROBABILITY, "default": TARGET_PROBABILITY}
KEEP = (0.9, 0.95, 0.98, 1.0)
LOSSES = (0.02,)
# Limits of dollars, from the cheapest expert's (0) to the best expert's (1).
LEVELS = (0.1, 0.3, 0.6)
LIMITS = (0.02, 0.05)


def targets(table: OutcomeTable) -> list[dict[str, float]]:
    """The point targets of a table."""
    assert table.prices is not None
    price = 1000 * table.prices.mean(axis=0)
    low, best = price.min(), price[np.argmax(table.scores.mean(axis=0))]
    dollars = [float(f"{low + level * (best - low):.3g}") for level in LEVELS]
    return [
        *({"keep_quality": value} for value in KEEP),
        *({"max_quality_loss": value} for value in LOSSES),
        *({"max_dollars": value} for value in dollars),
        {"keep_quality": 0.9, "max_dollars": float(f"{0.7 * best:.3g}")},
    ]


def point_draw(file: Path, draw: int) -> list[dict[str, Any]]:
    """Every target of one draw, with a margin and by default."""
    warnings.simplefilter("ignore")
    table = read_outcomes(file)
    train, test = table.split(0.5, random_state=draw)
    # The search decides nothing here.
    found = mild.tune(
        train,
        keep_quality=0.95,
        target_probability=PROBABILITY,
        search=mild.RouterCV(families="linear", alphas=[0.01], margin_factors=[1.0], n_jobs=1),
    )
    solved, router = found.target, found.router
    assert solved is not None
    again = router.with_target(keep_quality=0.95, target_probability=PROBABILITY).info.target
    assert again is not None
    assert (again.t, again.expert) == (solved.t, solved.expert), "one rule in tuning and later"
    X = router.features(test.queries)
    entries = []
    for wanted in targets(table):
        for rule, probability in RULES.items():
            target = Target(**wanted, target_probability=probability)
            figures = judged(router, target, X, test)
            entries.append({"target": wanted, "rule": rule, **figures})
    return entries


def judged(router: Router, target: Target, X: Any, test: OutcomeTable) -> dict[str, Any]:
    """What a router at a target does on the judged half."""
    try:
        set_up = router.with_target(target)
    except InvalidInputError:  # refused, with the nearest setting
        return {"stated": False}
    info = set_up.info.target
    assert info is not None
    assert test.prices is not None
    chosen, rows = set_up.predict(X), np.arange(test.rows)
    quality, dollars = test.scores[rows, chosen].mean(), 1000 * test.prices[rows, chosen].mean()
    best = test.expert_names.index(info.best_expert)
    other, price = test.scores[:, best].mean(), 1000 * test.prices[:, best].mean()
    least, most = target.limits(float(other))
    return {
        "stated": info.likely is not False,
        "met": bool(quality >= least - 1e-9 and dollars <= most + 1e-9),
        "kept": float(quality / other),
        "saved": float(1 - dollars / price),
        "single": info.expert is not None,
    }


def read(file: Path) -> OutcomeTable:
    """A table of a file, or the synthetic one."""
    return synthetic() if file.stem == "synthetic" else read_outcomes(file)


def synthetic(rows: int = 2_000, seed: int = 0) -> OutcomeTable:
    """Five experts whose errors depend on a common difficulty, and who err alike in a tenth of the rows."""
    rng = np.random.default_rng(seed)
    hard, biased = rng.normal(size=rows), rng.random(rows) < 0.1
    # Answers of one length, so that only agreement tells.
    truth, usual = rng.permutation(900)[:2, None] + np.arange(rows) % 50 + 1000
    columns: dict[str, Any] = {"query": [f"question {i}" for i in range(rows)]}
    for k, (skill, price) in enumerate([(0.6, 1), (0.8, 2), (1.0, 4), (1.4, 15), (1.9, 60)]):
        right = skill + rng.normal(size=rows) > hard
        wrong = np.where(biased, usual, rng.integers(3000, 3050, rows))
        columns[f"correct__e{k}"] = right.astype(int)
        columns[f"cost__e{k}"] = price * 1e-4 * rng.uniform(0.5, 1.5, rows)
        columns[f"answer__e{k}"] = np.where(right, truth, wrong)
    return read_outcomes(pa.table(columns))


@dataclass(frozen=True)
class Part:
    """Heads for error and price, and cascades, of a part of a table."""

    heads: Tradeoff
    cascades: FittedCascades | None
    fitted: Fitted

    @classmethod
    def of(cls, part: OutcomeTable, cascade: bool) -> Part:
        task = make_task(part, CostTerms())
        fitted = fit_task(task, ConstantRouter(), make_step(part))
        folds = search_folds(task, 5)
        found = None
        if cascade:
            prices = traded_prices(task)
            found = fit_cascades(task, fitted.features, prices, folds, MAX_CALLS, 1)
        return cls(fit_tradeoff(task, fitted, folds, n_jobs=1), found, fitted)

    @property
    def held(self) -> HeldOut:
        """The rows of the part, each held out."""
        own = None if self.cascades is None else self.cascades.held
        return replace(self.heads.held, cascades=own)

    def on(self, table: OutcomeTable) -> HeldOut:
        """Other rows, with what the heads expect of them and what the cascades do."""
        X = self.fitted.step.vectorize(contents(table, self.fitted.step))
        task, heads = make_task(table, CostTerms()), self.heads.policy
        own = None if self.cascades is None else self.cascades.of(task, X)
        estimates = heads.expected_errors(X), heads.expected_prices(X)
        return HeldOut(*estimates, table.scores, table.prices, task.groups, cascades=own)


def figures(rows: HeldOut, solved: Solution, names: Sequence[str]) -> tuple[float, ...]:
    """Quality and dollars per 1,000 queries of a solution on rows, and of its reference."""
    best, every = names.index(solved.best_expert), np.arange(len(rows.quality))
    chosen = rows.chosen_by(solved, names)
    paid = rows.all_dollars
    assert paid is not None
    own = rows.all_quality[every, chosen].mean(), 1000 * paid[every, chosen].mean()
    return *own, rows.quality[:, best].mean(), 1000 * paid[:, best].mean()


def cascade_draw(file: Path, draw: int) -> list[dict[str, Any]]:
    """Every target of one draw, with cascades and without."""
    warnings.simplefilter("ignore")
    table = read(file)
    train, test = table.split(0.5, random_state=draw)
    part = Part.of(train, True)
    held, rows = part.held, part.on(test)
    found = []
    for wanted in targets(table):
        direct = replace(held, cascades=None)
        rules = [("margin", PROBABILITY, held), ("default", TARGET_PROBABILITY, held)]
        rules.append(("no cascade", PROBABILITY, direct))
        for rule, probability, own in rules:
            target = Target(**wanted, target_probability=probability)
            solved = solve(target, own, table.expert_names)
            quality, dollars, other, price = figures(rows, solved, table.expert_names)
            least, most = target.limits(other)
            one = {"target": wanted, "rule": rule, "stated": bool(solved.met and solved.likely)}
            one |= {"met": bool(quality >= least - 1e-9 and dollars <= most + 1e-9)}
            one |= {"kept": quality / other, "saved": 1 - dollars / price}
            found.append({**one, "single": solved.t is None, "cascade": solved.cascade})
    return found


def certified_draws(
    file: Path, number: int, samples: int, cascade: bool = False
) -> list[dict[str, Any]]:
    """Guarantees of one fit of the heads: limits on several calibration samples."""
    warnings.simplefilter("ignore")
    table = read(file)
    part = Part.of(table.split(0.5, random_state=number)[0], cascade)
    everything, groups = part.on(table), table.groups()
    order = np.argsort(groups, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(groups))[:-1])
    names, found = table.expert_names, []
    for sample in range(samples):
        seed = number * samples + sample
        rng = np.random.default_rng(seed)
        drawn = [members[group] for group in rng.integers(len(members), size=len(members) // 2)]
        rows = np.concatenate(drawn)
        copies = np.repeat(np.arange(len(drawn)), [len(one) for one in drawn])
        values = (everything.errors, everything.prices, everything.quality, table.prices)
        own = None if everything.cascades is None else everything.cascades.take(rows)
        calibration = HeldOut(
            *(None if v is None else v[rows] for v in values),  # type: ignore[arg-type]
            copies,
            cascades=own,
        )
        for limit in LIMITS:
            target = Target(max_quality_loss=limit, guarantee=GUARANTEE)
            solved = certify_loss(target, part.held, calibration, names, seed=seed)
            loss, saved = 0.0, 0.0
            if solved.t is not None:
                loss, saved = population_figures(everything, solved, names)
            one = {"limit": limit, "certified": solved.certified, "loss": loss, "saved": saved}
            found.append({**one, "broken": loss > limit, "cascade": solved.cascade})
    return found


def population_figures(
    everything: HeldOut, solved: Solution, names: Sequence[str]
) -> tuple[float, float]:
    """Quality loss and share of dollars saved over the groups of a population, each counted once."""
    best = names.index(solved.best_expert)
    population = measure(everything, [] if solved.cascade else [solved.t or 0.0], best)
    places = np.flatnonzero(population.curve.weights == solved.t)
    dollars = population.curve.dollars
    assert dollars is not None
    place = int(places[-1 if solved.cascade else 0])
    saved = 1 - dollars[place] / dollars[population.curve.best_index]
    return float(population.losses[:, place].mean()), float(saved)


def points(name: str, draws: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Figures of every target of a table over the draws."""
    found = []
    for entries in zip(*draws, strict=True):
        wanted, rule = entries[0]["target"], entries[0]["rule"]
        stated = [entry for entry in entries if entry["stated"]]
        row: dict[str, Any] = {"table": name, "target": wanted, "rule": rule, "draws": len(draws)}
        row |= {"stated": len(stated)}
        if stated:
            columns = [k for k in ("met", "saved", "kept", "single", "cascade") if k in stated[0]]
            row |= {key: float(np.mean([entry[key] for entry in stated])) for key in columns}
        if len(stated) > 1 and "keep_quality" in wanted:
            gaps = np.array([entry["kept"] for entry in stated]) - wanted["keep_quality"]
            row["gap"] = float(gaps.mean())
            row["gap_error"] = float(gaps.std(ddof=1) / math.sqrt(len(gaps)))
        found.append(row)
    return found


def guarantees(name: str, draws: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Figures of every limit of a table over the draws."""
    found = []
    for limit in LIMITS:
        own = [entry for entry in draws if entry["limit"] == limit]
        row: dict[str, Any] = {"table": name, "limit": limit, "draws": len(own)}
        columns = ("broken", "certified", "loss", "saved", "cascade")
        row |= {key: float(np.mean([entry[key] for entry in own])) for key in columns}
        found.append(row | {"broken_first": float(np.mean([e["broken"] for e in own[:FIRST]]))})
    return found


def run_all(
    files: Sequence[Path], draws: int, certified: int, jobs: int, cascade: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """All tables, the tasks of all of them side by side."""
    fits = math.ceil(certified / SAMPLES)
    point = cascade_draw if cascade else point_draw
    tasks = [delayed(point)(file, draw) for file in files for draw in range(draws)]
    tasks += [
        delayed(certified_draws)(file, number, SAMPLES, cascade)
        for file in files
        for number in range(fits)
    ]
    done = Parallel(n_jobs=jobs, batch_size=1)(tasks)
    result: dict[str, list[dict[str, Any]]] = {"points": [], "guarantees": []}
    for place, file in enumerate(files):
        own = done[place * draws : (place + 1) * draws]
        result["points"] += points(file.stem, own)
        start = len(files) * draws + place * fits
        parts = [entry for part in done[start : start + fits] for entry in part]
        result["guarantees"] += guarantees(file.stem, parts)
    return result


def report(result: dict[str, Any]) -> Report:
    """The figures beside the bars."""
    found = Report("Targets on new rows")
    found.notes = [result["environment"], f"{result['seconds']:.0f} s."]
    others: dict[str, list[dict[str, Any]]] = {}
    for row in result["points"]:
        if row["rule"] != "margin":
            others.setdefault(f"{row['table']}, {Target(**row['target']).words}", []).append(row)
    for row in result["points"]:
        if row["rule"] != "margin":
            continue
        what = f"{row['table']}, {Target(**row['target']).words}"
        if not row["stated"]:
            found.add(what, f"stated in none of {row['draws']} draws")
            continue
        figure = f"met in {row['met']:.1%} of {row['stated']} draws, {row['saved']:.1%} saved"
        for other in others[what]:
            if other["stated"]:
                figure += f" ({other['rule']}: {other['met']:.1%}, {other['saved']:.1%})"
        if "cascade" in row:
            figure += f", a cascade in {row['cascade']:.1%}"
        share = result["probability"]
        # In a few draws the share says little.
        bar = None if row["stated"] < row["draws"] / 4 else row["met"] >= share
        found.add(what, figure, f"≥ {share:.0%}", bar)
        if "gap" in row:
            figure = f"{row['gap']:+.4f}, standard error {row['gap_error']:.4f}"
            for other in others[what]:
                if "gap" in other:
                    figure += f" ({other['rule']}: {other['gap']:+.4f})"
            kept = row["gap"] >= -row["gap_error"] * (1 + 1e-9)
            found.add(f"{what}: quality kept minus target", figure, "≥ -1 standard error", kept)
    for row in result["guarantees"]:
        what = f"{row['table']}, max_quality_loss {row['limit']:g} --guarantee {GUARANTEE:g}"
        figure = f"broken in {row['broken']:.1%} of {row['draws']} draws "
        figure += f"({row['broken_first']:.1%} of the first {min(FIRST, row['draws'])}), "
        figure += f"certified in {row['certified']:.1%}, {row['saved']:.1%} saved"
        figure += f", a cascade in {row['cascade']:.1%}" if row.get("cascade") else ""
        most = 1 - GUARANTEE
        found.add(what, figure, f"≤ {most:.0%}", row["broken"] <= most + 1e-9)
    return found


def run(file: Path = KEPT) -> Report:
    """What is kept."""
    if not file.exists():
        raise SystemExit(f"{file} does not exist; run python -m benchmarks.targets FOLDER")
    return report(json.loads(file.read_text(encoding="utf-8")))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("folders", nargs="*", type=Path, help="where the tables are")
    asked.add_argument("--tables", help="names with commas")
    asked.add_argument("--cascade", action="store_true", help="with cascades, on answers")
    asked.add_argument("--draws", type=int, default=DRAWS, help="halves of each table")
    asked.add_argument("--certified-draws", type=int, default=CERTIFIED_DRAWS)
    asked.add_argument("--jobs", type=int, default=-1, help="draws at a time")
    asked.add_argument("--out", type=Path, help="file for the figures")
    given = asked.parse_args()
    out = given.out or (KEPT_CASCADES if given.cascade else KEPT)
    if not given.folders:
        print(run(out).markdown())
        return
    tables = ANSWER_TABLES if given.cascade else TABLES
    names = given.tables.split(",") if given.tables else tables
    places = [folder / f"{name}.parquet" for name in names for folder in given.folders]
    files = [file for file in places if file.exists()]
    files += [Path("synthetic")] if "synthetic" in names else []
    missing = set(names) - {file.stem for file in files}
    if missing:
        asked.error(f"no such table in the folders: {', '.join(sorted(missing))}")
    start = time.perf_counter()
    certified, jobs = given.certified_draws, given.jobs
    result: dict[str, Any] = dict(run_all(files, given.draws, certified, jobs, given.cascade))
    result |= {"probability": PROBABILITY, "environment": environment()}
    result["seconds"] = time.perf_counter() - start
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(report(result).markdown())


if __name__ == "__main__":
    main()
