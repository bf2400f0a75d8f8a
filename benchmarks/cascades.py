"""Claim: a cascade that reads answers keeps the best expert's quality for a fraction of its dollars.

``python -m benchmarks.cascades --data FOLDER`` halves each of four public tables with answers 40 times,
equal queries together. On one half cascades are fitted, and the cheapest candidate is taken that keeps an
asked share of the best expert's quality there (or the best one at a share of its dollars). The other half
judges it: quality and dollars as shares of that expert's, dollars as a ratio of sums. The same rule picks
from single experts and from a router without answers (heads for error and price on the same text
features, at many price weights). Differences of curves have two intervals: over queries, each with its mean
over the draws that judged it, and over draws, corrected for the rows that halves share, which is wider.
``--jobs N`` works on N draws at a time. The figures are kept in
``results/cascades.json`` (``--out``); without ``--data`` they are printed again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import KFold

from benchmarks.measure import Report, environment
from mild.core.answers import Answers, detect_kind
from mild.core.arrays import FloatArray, IntArray
from mild.metrics.intervals import resampled_intervals
from mild.routers import CascadeRouter
from mild.routers.cost_models import fit_heads, same_features

KEPT = Path(__file__).parent.parent / "results" / "cascades.json"
# Table, and how its answers are compared; None for detected.
TABLES = {
    "bfcl": None,
    "zeroeval_gsm8k": None,
    "zeroeval_crux": "code",
    "zeroeval_math_l5": None,
}
DRAWS, FIRST_SEED = 40, 100
ASKED = (
    0.95,
    0.96,
    0.965,
    0.967,
    0.97,
    0.975,
    0.98,
    0.985,
    0.99,
    0.995,
    1.0,
    1.005,
    1.01,
    1.015,
)
BUDGETS = (0.05, 0.1, 0.2, 0.3, 0.45)
# Method: experts that are asked at most.
METHODS = {"counts, 3 calls": 3, "counts, 4 calls": 4}
PLAIN, DEFAULT = "counts, 3 calls", "counts, 4 calls"
SINGLE, ROUTER = "single expert", "router without answers"
# Table, method, asked share, least share of quality, most of dollars; None: those of the single expert.
# Calls and asked shares were chosen on seeds 0 to 39; the draws that judge have other seeds.
BARS = (
    ("bfcl", DEFAULT, 1.0, 0.99, 0.2),
    ("bfcl", DEFAULT, 1.01, 1.0, 0.45),
    ("zeroeval_gsm8k", DEFAULT, 0.99, 0.99, 0.12),
    ("zeroeval_crux", PLAIN, 0.97, 0.965, 0.48),
    ("zeroeval_math_l5", DEFAULT, 0.99, None, None),
)
CURVES = ("bfcl", "zeroeval_gsm8k", "zeroeval_crux")
NEXT_MS = 0.3


class Table(NamedTuple):
    """Queries with the answers of experts, their scores and their prices."""

    queries: list[str]
    texts: list[list[Any]]  # of the answers
    answers: Answers
    scores: FloatArray
    prices: FloatArray


class Choice(NamedTuple):
    """What can be taken: its quality and price in training, and what it does on the judged rows."""

    quality: float
    price: float
    judged: Callable[[], tuple[FloatArray, FloatArray]]  # scores and dollars of the rows


@lru_cache(1)
def read(folder: Path, name: str) -> Table:
    frame = pd.read_parquet(folder / f"{name}_answers.parquet")
    experts = [column.removeprefix("answer__") for column in frame if column[:8] == "answer__"]
    experts = [expert for expert in experts if f"cost__{expert}" in frame]
    texts = frame[[f"answer__{expert}" for expert in experts]].astype(object)
    rows = texts.where(texts.notna(), None).to_numpy().tolist()
    kind = TABLES[name] or detect_kind([one for row in rows for one in row])
    scores, prices = (
        frame[[f"{what}__{expert}" for expert in experts]].to_numpy(float)
        for what in ("correct", "cost")
    )
    queries = frame["query"].astype(str).tolist()
    return Table(queries, rows, Answers.of(rows, kind), scores, prices)


def halves(queries: Sequence[str], seed: int) -> tuple[IntArray, IntArray]:
    """Rows to fit on and to judge; equal queries are on one side."""
    group = pd.factorize(np.array(queries, object))[0]
    order = np.random.default_rng(seed).permutation(group.max() + 1)
    first = order[group] < len(order) / 2
    return np.flatnonzero(first), np.flatnonzero(~first)


def text_features(queries: Sequence[str], train: IntArray) -> FloatArray:
    """Words and pairs of words, projected on 64 directions of the training half."""
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    own = words.fit_transform([queries[i] for i in train])
    svd = TruncatedSVD(min(64, own.shape[1] - 1), random_state=0).fit(own)
    X = svd.transform(words.transform(queries))
    X = np.column_stack([X, np.log1p([len(query) for query in queries])])
    scaled: FloatArray = (X - X[train].mean(axis=0)) / (X[train].std(axis=0) + 1e-9)
    return scaled


def draw(folder: Path, name: str, seed: int) -> list[dict[str, Any]]:
    """Every method at every asked share and budget, on one pair of halves."""
    warnings.simplefilter("ignore")
    table = read(folder, name)
    train, test = halves(table.queries, seed)
    X = text_features(table.queries, train)
    best = int(np.argmax(np.nanmean(table.scores[train], axis=0)))
    weight = 1 / float(table.prices[train, best].mean())
    choices = {
        SINGLE: singles(table, train, test),
        ROUTER: singles(table, train, test) + routers(table, X, train, test, weight),
    }
    rows = []
    reference = table.scores[test, best].mean(), table.prices[test, best].sum()
    for method, calls in METHODS.items():
        router = CascadeRouter(0.1 * weight, calls)
        costs, prices = 1 - table.scores[train], table.prices[train]
        router.fit(X[train], costs, answers=table.answers.take(train), prices=prices)
        choices[method] = cascades(router, table, X, test)
        if method == PLAIN:
            rows.append({"rule": "time", "next_ms": next_ms(router, table, X, test)})
    quality, price = choices[SINGLE][best][:2]
    judged: dict[tuple[str, str, float], FloatArray] = {}
    for method, found in choices.items():
        picks = [("asked", share, cheapest(found, share * quality)) for share in ASKED]
        picks += [("budget", share, strongest(found, share * price)) for share in BUDGETS]
        for rule, share, pick in picks:
            chosen = pick or choices[SINGLE][best]
            scores, dollars = chosen.judged()
            judged[method, rule, share] = scores / reference[0]
            kept, paid = scores.mean() / reference[0], dollars.sum() / reference[1]
            row = {"method": method, "rule": rule, "share": share, "none": pick is None}
            rows.append({**row, "kept": float(kept), "dollars": float(paid)})
    gains = [
        judged[DEFAULT, "budget", share] - judged[ROUTER, "budget", share] for share in BUDGETS
    ]
    labels = pd.factorize(np.array(table.queries, object))[0][test].tolist()
    rows.append({"rule": "gain", "queries": labels, "gains": np.transpose(gains).tolist()})
    return [{"table": name, "draw": seed, **row} for row in rows]


def cheapest(found: Sequence[Choice], least: float) -> Choice | None:
    """The cheapest in training with this quality there; None if there is none."""
    good = [one for one in found if one.quality >= least - 1e-9]
    return min(good, key=lambda one: one.price) if good else None


def strongest(found: Sequence[Choice], most: float) -> Choice:
    """The best in training at this price there, or the cheapest of all."""
    cheap = [one for one in found if one.price <= most * (1 + 1e-9)]
    if not cheap:
        return min(found, key=lambda one: one.price)
    return max(cheap, key=lambda one: one.quality)


def singles(table: Table, train: IntArray, test: IntArray) -> list[Choice]:
    quality, price = table.scores[train].mean(axis=0), table.prices[train].mean(axis=0)

    def of(expert: int) -> Choice:
        judged = table.scores[test, expert], table.prices[test, expert]
        return Choice(float(quality[expert]), float(price[expert]), lambda: judged)

    return [of(expert) for expert in range(len(quality))]


def routers(
    table: Table, X: FloatArray, train: IntArray, test: IntArray, weight: float
) -> list[Choice]:
    """Routers by heads for error and price, at price weights; held-out choices say what they keep."""
    folds = list(KFold(5, shuffle=True, random_state=0).split(train))
    scores, prices = table.scores[train], table.prices[train]
    heads = fit_heads(X[train], 1 - scores, prices, same_features(X[train], folds))
    errors, paid = (
        getattr(heads.router, f"expected_{what}")(X[test]) for what in ("errors", "prices")
    )

    def of(t: float) -> Choice:
        held = np.argmin(heads.errors + t * heads.prices, axis=1)
        own, new = np.arange(len(train)), np.argmin(errors + t * paid, axis=1)
        judged = table.scores[test, new], table.prices[test, new]
        return Choice(
            float(scores[own, held].mean()), float(prices[own, held].mean()), lambda: judged
        )

    return [of(t * weight) for t in (0.0, *np.geomspace(1e-3, 1e2, 60))]


def cascades(router: CascadeRouter, table: Table, X: FloatArray, test: IntArray) -> list[Choice]:
    def of(candidate: Any) -> Choice:
        def judged() -> tuple[FloatArray, FloatArray]:
            run = router.policy_of(candidate).run(X[test], table.answers.take(test))
            return run.answer_scores(table.scores[test]), run.total_prices(table.prices[test])

        return Choice(1 - candidate.cost, candidate.paid, judged)

    return [of(candidate) for candidate in router.candidates_]


def next_ms(router: CascadeRouter, table: Table, X: FloatArray, test: IntArray) -> float:
    """Median milliseconds of one decision after the first step of three experts' cascade."""
    long = [one for one in router.candidates_ if len(one.steps) > 1 and len(one.steps[0]) > 1]
    if not long:
        return float("nan")
    policy, taken = router.policy_of(long[-1]), []
    for i in test[:300]:
        said = {expert: table.texts[i][expert] for expert in policy.steps[0]}
        start = time.perf_counter()
        policy.next(X[i], said)
        taken.append(time.perf_counter() - start)
    return 1000 * float(np.median(taken))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the draws, and intervals of differences."""
    frame = pd.DataFrame(rows)
    picks = frame[frame.rule.isin(["asked", "budget"])]
    keys = ["table", "method", "rule", "share"]
    means = picks.groupby(keys)[["kept", "dollars", "none"]].mean().reset_index()
    errors = picks.groupby(keys)[["kept", "dollars"]].std().reset_index()
    means["kept_sd"], means["dollars_sd"] = errors["kept"], errors["dollars"]
    curves = []
    for name in frame.table.unique():
        own = picks[(picks.table == name) & (picks.rule == "budget")]
        kept = own.pivot_table(index="draw", columns=["method", "share"], values="kept")
        gain = (kept[DEFAULT] - kept[ROUTER]).to_numpy()
        queries = by_query(frame[(frame.table == name) & (frame.rule == "gain")])
        shares = (*BUDGETS, "mean")
        over_draws = [*gain.T, gain.mean(axis=1)]
        over_queries = [*queries.T, queries.mean(axis=1)]
        for share, draws, values in zip(shares, over_draws, over_queries, strict=True):
            error = float(values.std(ddof=1) / np.sqrt(len(values)))
            curves.append(
                {"table": name, "share": share, **interval(draws)}
                | {"query_mean": float(values.mean()), "query_error": error}
            )
    next_ms = frame.next_ms.dropna()
    return {
        "picks": means.to_dict("records"),
        "curves": curves,
        "next_ms": float(next_ms.median()),
    }


def by_query(draws: pd.DataFrame) -> FloatArray:
    """Gain (n_queries, n_budgets) of each query, its mean over the draws that judged it."""
    sums: dict[int, FloatArray] = {}
    counts: dict[int, int] = {}
    for queries, gains in zip(draws["queries"], draws["gains"], strict=True):
        for query, gain in zip(queries, gains, strict=True):
            sums[query] = sums.get(query, 0.0) + np.array(gain)
            counts[query] = counts.get(query, 0) + 1
    return np.array([total / counts[query] for query, total in sums.items()])


def interval(values: FloatArray) -> dict[str, float]:
    """Mean over draws with its interval, corrected for halves that share rows."""
    found = resampled_intervals(values[:, None], 1.0)
    return {
        "mean": float(values.mean()),
        "low": float(found.low[0]),
        "high": float(found.high[0]),
    }


def report(result: dict[str, Any]) -> Report:
    """The bars and the curve."""
    found = Report("Cascades that read answers", [result["environment"], result["settings"]])
    picks = {
        (row["table"], row["method"], row["share"]): row
        for row in result["picks"]
        if row["rule"] == "asked"
    }
    for table, method, asked, least, most in BARS:
        if (table, method, asked) not in picks:
            continue
        row, single = picks[table, method, asked], picks[table, SINGLE, asked]
        figure = f"{row['kept']:.3f} of the quality at {row['dollars']:.3f} of the dollars"
        if least is None:
            figure += f" (single expert {single['kept']:.3f} at {single['dollars']:.3f})"
            met, bar = row["dollars"] <= single["dollars"], "not dearer than the single expert"
        else:
            met = row["kept"] >= least and row["dollars"] <= most
            bar = f"≥ {least:g} at ≤ {most:g}"
        found.add(f"{table}, {method}, asked {asked:g}", figure, bar, met)
    for row in result["curves"]:
        share = row["share"] if row["share"] == "mean" else f"{row['share']:g} of the dollars"
        reach = 1.96 * row["query_error"]
        figure = f"{row['query_mean']:+.4f} ± {reach:.4f} over queries; "
        figure += f"{row['mean']:+.4f} ({row['low']:+.4f} to {row['high']:+.4f}) over draws"
        judged = row["share"] == "mean" and row["table"] in CURVES
        found.add(
            f"{row['table']}, {DEFAULT} minus {ROUTER}, {share}",
            figure,
            "> 0 over queries" if judged else "",
            row["query_mean"] > reach if judged else None,
        )
    for (table, method, asked), row in picks.items():
        figure = f"{row['kept']:.3f} at {row['dollars']:.3f}"
        found.add(f"{table}, {method}, asked {asked:g}", figure)
    met = result["next_ms"] <= NEXT_MS
    found.add("one decision", f"{result['next_ms']:.3f} ms", f"≤ {NEXT_MS:g} ms", met)
    return found


def run(file: Path = KEPT) -> Report:
    """What is kept."""
    if not file.exists():
        raise SystemExit(f"{file} does not exist; run python -m benchmarks.cascades --data FOLDER")
    return report(json.loads(file.read_text(encoding="utf-8")))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--data", type=Path, help="folder with the tables *_answers.parquet")
    asked.add_argument("--tables", default=",".join(TABLES), help="names with commas")
    asked.add_argument("--draws", type=int, default=DRAWS, help="halves of each table")
    asked.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the draws")
    asked.add_argument("--jobs", type=int, default=1, help="draws at a time")
    asked.add_argument("--out", type=Path, default=KEPT, help="file for the figures")
    given = asked.parse_args()
    if given.data is None:
        print(run(given.out).markdown())
        return
    names = given.tables.split(",")
    if unknown := [name for name in names if name not in TABLES]:
        asked.error(f"unknown tables: {', '.join(unknown)}; known are {', '.join(TABLES)}")
    start = time.perf_counter()
    first, last = given.first_seed, given.first_seed + given.draws - 1
    jobs = [(given.data, name, seed) for name, seed in product(names, range(first, last + 1))]
    with ProcessPoolExecutor(given.jobs) as pool:
        parts = list(pool.map(draw, *zip(*jobs, strict=True)))
    result = summary([row for part in parts for row in part])
    commit = os.environ.get("MILD_COMMIT", "")
    settings = f"{', '.join(names)}; {given.draws} draws of half and half, seeds {first} to "
    settings += f"{last}; experts and thresholds chosen on the training half; "
    settings += f"{given.jobs} jobs, {time.perf_counter() - start:.0f} s. {commit}"
    result |= {"environment": environment(), "settings": settings}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(report(result).markdown())


if __name__ == "__main__":
    main()
