"""Claim: a target is met on new rows as often as `mild tune` says, and a guarantee is broken as rarely.

``python -m benchmarks.targets FOLDER [FOLDER ...]`` looks for four public tables in the folders. Point
targets: 40 times a table is halved, equal queries together; ``mild.tune`` sees one half, and every target
is judged by the router's choices on the other, beside the rule without a margin. A target of quality is
relative to the best expert as it was found in tuning. Only draws count in which the output states the
probability. The heads for error and price do not depend on what the search tries, so that it tries one
linear router. Guarantees: heads are fitted on half of a table, and a limit is certified on queries that are
drawn with replacement from the whole table, which is the population: a query that is drawn twice counts
twice, and its rows stay together. The limit is broken if the loss over the population is above it.
The figures are kept in ``results/targets.json`` (``--out``); without a folder they are printed again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

import mild
from benchmarks.measure import Report, environment
from mild.artifact import Router
from mild.artifact.targets import Target
from mild.data import OutcomeTable, read_outcomes
from mild.errors import InvalidInputError
from mild.routers import ConstantRouter
from mild.tuning.fitting import contents, fit_task, make_step
from mild.tuning.targets import HeldOut, certify_loss, fit_tradeoff, measure
from mild.tuning.tasks import CostTerms, make_task, search_folds

KEPT = Path(__file__).parent.parent / "results" / "targets.json"
TABLES = (
    "swebench_verified",
    "zellinger_mmlu",
    "zellinger_triviaqa",
    "zeroeval_gsm8k_answers",
)
DRAWS = 40
# Of 200 draws the share has a standard error of two points; the first 200 are shown, too.
CERTIFIED_DRAWS, FIRST = 1000, 200
# Calibration samples for each fit of the heads.
SAMPLES = 10
PROBABILITY, GUARANTEE = 0.8, 0.9
KEEP = (0.9, 0.95, 0.98, 1.0)
LOSSES = (0.02,)
SAVE = (0.2, 0.5, 0.7)
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
        *({"save_dollars": value} for value in SAVE),
        *({"max_dollars": value} for value in dollars),
        {"keep_quality": 0.9, "save_dollars": 0.3},
    ]


def point_draw(file: Path, draw: int) -> list[dict[str, Any]]:
    """Every target of one draw, with a margin and without one."""
    warnings.simplefilter("ignore")
    table = read_outcomes(file)
    train, test = table.split(0.5, random_state=draw)
    # The search decides nothing here.
    found = mild.tune(
        train,
        keep_quality=0.95,
        target_probability=PROBABILITY,
        families="linear",
        alphas=[0.01],
        margin_factors=[1.0],
        n_jobs=1,
    )
    solved, router = found.target, found.router
    assert solved is not None
    again = router.with_target(keep_quality=0.95, target_probability=PROBABILITY).info.target
    assert again is not None
    assert (again.t, again.expert) == (solved.t, solved.expert), "one rule in tuning and later"
    tradeoffs = {k: v for k, v in (router.info.tradeoffs or {}).items() if k != "errors"}
    bare = replace(router, info=replace(router.info, tradeoffs=tradeoffs))
    X = router.features(test.queries)
    return [
        {"target": wanted, "rule": rule, **judged(ruled, wanted, X, test)}
        for wanted in targets(table)
        for rule, ruled in (("margin", router), ("no margin", bare))
    ]


def judged(router: Router, wanted: dict[str, float], X: Any, test: OutcomeTable) -> dict[str, Any]:
    """What a router at a target does on the judged half."""
    target = Target(**wanted, target_probability=PROBABILITY)
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
    least, most = target.limits(float(other), float(price))
    return {
        "stated": info.likely is not False,
        "met": bool(quality >= least - 1e-9 and dollars <= most + 1e-9),
        "kept": float(quality / other),
        "saved": float(1 - dollars / price),
        "single": info.expert is not None,
    }


def certified_draws(file: Path, number: int, samples: int) -> list[dict[str, Any]]:
    """Guarantees of one fit of the heads: limits on several calibration samples."""
    warnings.simplefilter("ignore")
    table = read_outcomes(file)
    part, _ = table.split(0.5, random_state=number)
    task = make_task(part, CostTerms())
    fitted = fit_task(task, ConstantRouter(), make_step(part))
    heads = fit_tradeoff(task, fitted, search_folds(task, 5), n_jobs=1)
    X = fitted.step.vectorize(contents(table, fitted.step))
    estimates = heads.policy.expected_errors(X), heads.policy.expected_prices(X)
    groups = table.groups()
    everything = HeldOut(*estimates, table.scores, table.prices, groups)
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
        calibration = HeldOut(*(None if v is None else v[rows] for v in values), copies)  # type: ignore[arg-type]
        for limit in LIMITS:
            target = Target(max_quality_loss=limit, guarantee=GUARANTEE)
            solved = certify_loss(target, heads.held, calibration, names, seed=seed)
            best = names.index(solved.best_expert)
            loss, saved = 0.0, 0.0
            if solved.t is not None:
                population = measure(everything, [solved.t], best)
                loss = float(population.losses[:, 0].mean())
                saved = float(1 - population.curve.dollars[0] / population.curve.dollars[1 + best])
            broken = loss > limit
            one = {"limit": limit, "certified": solved.certified, "loss": loss, "saved": saved}
            found.append({**one, "broken": broken})
    return found


def points(name: str, draws: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Figures of every target of a table over the draws."""
    found = []
    for entries in zip(*draws, strict=True):
        wanted, rule = entries[0]["target"], entries[0]["rule"]
        stated = [entry for entry in entries if entry["stated"]]
        row: dict[str, Any] = {"table": name, "target": wanted, "rule": rule, "draws": len(draws)}
        row |= {"stated": len(stated)}
        if stated:
            columns = ("met", "saved", "kept", "single")
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
        columns = ("broken", "certified", "loss", "saved")
        row |= {key: float(np.mean([entry[key] for entry in own])) for key in columns}
        found.append(row | {"broken_first": float(np.mean([e["broken"] for e in own[:FIRST]]))})
    return found


def run_all(
    files: Sequence[Path], draws: int, certified: int, jobs: int
) -> dict[str, list[dict[str, Any]]]:
    """All tables, the tasks of all of them side by side."""
    fits = math.ceil(certified / SAMPLES)
    tasks = [delayed(point_draw)(file, draw) for file in files for draw in range(draws)]
    tasks += [
        delayed(certified_draws)(file, number, SAMPLES) for file in files for number in range(fits)
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
    without = [row for row in result["points"] if row["rule"] == "no margin"]
    margin = [row for row in result["points"] if row["rule"] == "margin"]
    for row, old in zip(margin, without, strict=True):
        words = Target(**row["target"]).words
        what = f"{row['table']}, {words}"
        if not row["stated"]:
            found.add(what, f"stated in none of {row['draws']} draws")
            continue
        figure = f"met in {row['met']:.1%} of {row['stated']} draws, {row['saved']:.1%} saved"
        figure += f" (without a margin {old['met']:.1%}, {old['saved']:.1%})"
        share = result["probability"]
        # In a few draws the share says little.
        bar = None if row["stated"] < row["draws"] / 4 else row["met"] >= share
        found.add(what, figure, f"≥ {share:.0%}", bar)
        if "gap" in row:
            figure = f"{row['gap']:+.4f}, standard error {row['gap_error']:.4f}"
            figure += f" (without a margin {old['gap']:+.4f})"
            kept = row["gap"] >= -row["gap_error"] * (1 + 1e-9)
            found.add(f"{what}: quality kept minus target", figure, "≥ -1 standard error", kept)
    for row in result["guarantees"]:
        what = f"{row['table']}, max_quality_loss {row['limit']:g} --guarantee {GUARANTEE:g}"
        figure = f"broken in {row['broken']:.1%} of {row['draws']} draws "
        figure += f"({row['broken_first']:.1%} of the first {min(FIRST, row['draws'])}), "
        figure += f"certified in {row['certified']:.1%}, {row['saved']:.1%} saved"
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
    asked.add_argument("--tables", default=",".join(TABLES), help="names with commas")
    asked.add_argument("--draws", type=int, default=DRAWS, help="halves of each table")
    asked.add_argument("--certified-draws", type=int, default=CERTIFIED_DRAWS)
    asked.add_argument("--jobs", type=int, default=-1, help="draws at a time")
    asked.add_argument("--out", type=Path, default=KEPT, help="file for the figures")
    given = asked.parse_args()
    if not given.folders:
        print(run(given.out).markdown())
        return
    names = given.tables.split(",")
    places = [folder / f"{name}.parquet" for name in names for folder in given.folders]
    files = [file for file in places if file.exists()]
    missing = set(names) - {file.stem for file in files}
    if missing:
        asked.error(f"no such table in the folders: {', '.join(sorted(missing))}")
    start = time.perf_counter()
    result: dict[str, Any] = dict(run_all(files, given.draws, given.certified_draws, given.jobs))
    result |= {"probability": PROBABILITY, "environment": environment()}
    result["seconds"] = time.perf_counter() - start
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(report(result).markdown())


if __name__ == "__main__":
    main()
