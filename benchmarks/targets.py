"""Claim: a target is met on new rows as often as `mild tune` says, and a guarantee is broken as rarely.

``python -m benchmarks.targets FOLDER [FOLDER ...]`` looks for four public tables in the folders. Point
targets: 40 times a table is halved, equal queries together; ``mild.tune`` sees one half, ``with_target``
sets the router to every target, and its choices are judged on the other half: by default, where a target is
expected to be met, and with a margin for a probability of 0.8. A target of quality is relative to the best
expert as it was found in tuning. Only draws count in which the output states the probability.
Guarantees: settings are fitted on half of a table, and a limit is certified on queries that are drawn with
replacement from the whole table, which is the population: a query that is drawn twice counts twice, and its
rows stay together. The limit is broken if the loss over the population is above it.
With ``--cascade`` the same is measured on tables with answers, one of them made here: cascades are settings
beside trade-offs and single experts, and each target is also met by a router that was tuned without them.
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

import mild
from benchmarks.measure import Report, environment
from mild.artifact import Router
from mild.artifact.targets import Target
from mild.core.arrays import FloatArray, IntArray
from mild.data import Outcomes, read_outcomes
from mild.data.cascades import cascade_scores
from mild.data.cost_terms import CostTerms
from mild.defaults import TARGET_PROBABILITY
from mild.errors import InvalidInputError
from mild.evaluation.cascades import known_answers
from mild.metrics.operating_points import OperatingPoint
from mild.policies import TradeoffPolicy
from mild.tuning.fitting import feature_inputs, make_text_features, router_features, table_features
from mild.tuning.guarantees import CalibrationRows, CertifiedPoint, HoldLimit
from mild.tuning.held_out import HeldOut, cross_fit
from mild.tuning.rows import tuning_rows
from mild.tuning.settings import (
    Cascades,
    SettingKind,
    TradeOffs,
    fit_price_heads,
    group_means,
)
from mild.tuning.target_tuning import tuned_policy
from mild.tuning.tasks import make_task, search_folds

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
N_FOLDS = 5
KEEP = (0.9, 0.95, 0.98, 1.0)
LOSSES = (0.02,)
# Limits of dollars, from the cheapest expert's (0) to the best expert's (1).
LEVELS = (0.1, 0.3, 0.6)
LIMITS = (0.02, 0.05)


def targets(table: Outcomes) -> list[dict[str, float]]:
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


def point_draw(file: Path, draw: int, cascade: bool = False) -> list[dict[str, Any]]:
    """Every target of one draw: with a margin, by default, and where cascades are tried without them."""
    warnings.simplefilter("ignore")
    table = read(file)
    train, test = table.split(0.5, random_state=draw)
    router = tuned_router(train, cascade)
    rules = [("margin", PROBABILITY, router), ("default", TARGET_PROBABILITY, router)]
    if cascade:
        rules.append(("no cascade", PROBABILITY, tuned_router(train, False)))
    entries = []
    for wanted in targets(table):
        for rule, probability, rule_router in rules:
            target = Target(**wanted, target_probability=probability)
            entries.append({"target": wanted, "rule": rule, **judged(rule_router, target, test)})
    return entries


def tuned_router(train: Outcomes, cascade: bool) -> Router:
    """The router of ``mild.tune``; the same target later gives the same setting."""
    found = mild.tune(
        train,
        keep_quality=0.95,
        target_probability=PROBABILITY,
        cascade=cascade,
        search=mild.RouterCV(n_jobs=1),
    )
    assert found.target is not None
    if found.target.met:
        again = found.router.with_target(keep_quality=0.95, target_probability=PROBABILITY)
        assert again.info.target is not None
        assert again.info.target.setting == found.target.setting, "one rule in tuning and later"
    return found.router


def judged(router: Router, target: Target, test: Outcomes) -> dict[str, Any]:
    """What a router at a target does on the judged half."""
    try:
        set_up = router.with_target(target)
    except InvalidInputError:  # refused, with the nearest setting
        return {"stated": False}
    info = set_up.info.target
    assert info is not None
    assert test.prices is not None
    scores, prices = outcomes_of(set_up, test)
    quality = float(scores.mean())
    dollars = 1000 * float(prices.mean())
    best = test.experts.index(info.best_expert)
    best_quality = float(test.scores[:, best].mean())
    best_dollars = 1000 * float(test.prices[:, best].mean())
    least, most = target.limits(best_quality)
    return {
        "stated": info.likely is not False,
        "met": bool(quality >= least - 1e-9 and dollars <= most + 1e-9),
        "kept": quality / best_quality,
        "saved": 1 - dollars / best_dollars,
        "single": info.expert is not None,
        "cascade": set_up.cascade is not None,
    }


def outcomes_of(router: Router, table: Outcomes) -> tuple[FloatArray, FloatArray]:
    """Scores and dollars (n_rows,) of a router on a table; a cascade is run on the known answers."""
    assert table.prices is not None
    X = router_features(table, router)
    if router.cascade is not None:
        run = router.cascade.run(X, known_answers(table, router.cascade))
        return cascade_scores(table.scores, run), run.total_prices(table.prices)
    chosen = router.predict(X)
    rows = np.arange(len(table))
    return table.scores[rows, chosen], table.prices[rows, chosen]


def read(file: Path) -> Outcomes:
    """A table of a file, or the synthetic one."""
    return synthetic() if file.stem == "synthetic" else read_outcomes(file)


def synthetic(rows: int = 2_000, seed: int = 0) -> Outcomes:
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


@dataclass(frozen=True, eq=False)
class FittedPart:
    """Settings that were fitted on a part of a table, and the whole table as a population."""

    held_out: HeldOut
    tuned: TradeoffPolicy
    population: CalibrationRows

    @classmethod
    def of(cls, table: Outcomes, part: Outcomes, cascade: bool) -> FittedPart:
        task = make_task(part, CostTerms(), needs_prices=True)
        step = make_text_features(part)
        step.fit(feature_inputs(part, step))
        folds = search_folds(task, N_FOLDS)
        rows = tuning_rows(task, table_features(part, step), step, folds, n_jobs=1)
        heads = fit_price_heads(rows)
        kinds: list[SettingKind] = [TradeOffs(heads)]
        if cascade:
            kinds.append(Cascades(MAX_CALLS))
        held_out = cross_fit(kinds, rows, can_mix=True)
        tuned = tuned_policy(rows, heads, held_out)
        whole = make_task(table, CostTerms(), needs_prices=True)
        return cls(held_out, tuned, CalibrationRows(whole, table_features(table, step)))

    def certify(self, rows: IntArray, groups: IntArray, limit: float, seed: int) -> CertifiedPoint:
        """A limit, certified on rows of the population; those of one group stay together."""
        task = make_task(self.population.task.table[rows], CostTerms(), needs_prices=True)
        calibration = CalibrationRows(replace(task, groups=groups), self.population.X[rows])
        target = Target(max_quality_loss=limit, guarantee=GUARANTEE)
        return HoldLimit(target, calibration, self.tuned, seed).certified(self.held_out)

    def population_figures(self, point: OperatingPoint) -> tuple[float, float]:
        """Loss of quality and share of the dollars saved over the population, each group counted once."""
        best = self.held_out.frontier.reference.first
        settings = [point.first, point.second, best]
        outcomes = self.population.outcomes(self.tuned, settings)
        quality, dollars = group_means(outcomes, self.population.task.groups)
        loss = quality[2] - (1 - point.share) * quality[0] - point.share * quality[1]
        paid = (1 - point.share) * dollars[0] + point.share * dollars[1]
        return float(loss), float(1 - paid / dollars[2])


def certified_draws(
    file: Path, number: int, samples: int, cascade: bool = False
) -> list[dict[str, Any]]:
    """Guarantees of one fit of the settings: limits on several calibration samples."""
    warnings.simplefilter("ignore")
    table = read(file)
    part = FittedPart.of(table, table.split(0.5, random_state=number)[0], cascade)
    groups = part.population.task.groups
    order = np.argsort(groups, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(groups))[:-1])
    entries = []
    for sample in range(samples):
        seed = number * samples + sample
        rng = np.random.default_rng(seed)
        drawn = [members[group] for group in rng.integers(len(members), size=len(members) // 2)]
        rows = np.concatenate(drawn)
        copies = np.repeat(np.arange(len(drawn)), [len(group) for group in drawn])
        for limit in LIMITS:
            certified = part.certify(rows, copies, limit, seed)
            loss, saved = part.population_figures(certified.point)
            entries.append(
                {
                    "limit": limit,
                    "certified": certified.is_certified,
                    "loss": loss,
                    "saved": saved,
                    "broken": loss > limit,
                    "cascade": certified.point.uses_cascade,
                }
            )
    return entries


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
    tasks = [delayed(point_draw)(file, draw, cascade) for file in files for draw in range(draws)]
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
        if row.get("cascade"):
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
