"""Claim: from text to decision in under half a millisecond, and 10,000 queries a second on two cores."""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

import mild
from benchmarks.measure import (
    Report,
    Timing,
    environment,
    interleave,
    median_ratio,
    ratio_spread,
    seconds,
)
from mild.artifact import Router
from mild.features import HashingFeatures
from mild.routers import LinearRouter

LENGTH = 600
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def queries(count: int, seed: int = 0) -> list[str]:
    """Texts of 600 characters: made-up words of Zipf's frequencies, digits, punctuation and lines."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(2, 28)
    letters = rng.choice(list(LETTERS), (30_000, 12), p=weights / weights.sum())
    sizes = np.clip(rng.poisson(4.5, 30_000), 1, 12)
    words = ["".join(row[:size]) for row, size in zip(letters, sizes, strict=True)]
    words[::97] = [str(number) for number in range(len(words[::97]))]
    ends = np.array([" ", " ", " ", " ", " ", " ", " ", ", ", ". ", "? ", "\n", " (", " = "])
    ranks = np.minimum(rng.zipf(1.15, (count, 160)) - 1, len(words) - 1)
    marks = rng.choice(ends, (count, 160))
    return [
        "".join(f"{words[rank]}{mark}" for rank, mark in zip(row, line, strict=True))[:LENGTH]
        for row, line in zip(ranks, marks, strict=True)
    ]


def trained(texts: list[str]) -> Router:
    """A router for four experts, saved with its features and loaded again."""
    features = HashingFeatures()
    X = features.fit_transform(texts)
    rng = np.random.default_rng(0)
    taste = rng.standard_normal((X.shape[1], 4)).astype(np.float32)
    costs = (X @ taste > 0).astype(float) + np.linspace(0.3, 0, 4)
    with tempfile.TemporaryDirectory() as folder:
        mild.save(LinearRouter(counts="best").fit(X, costs), Path(folder) / "r", text=features)
        return mild.load(Path(folder) / "r")


def one_by_one(router: Router, texts: list[str]) -> float:
    """Median seconds from one text to its decision."""
    taken = []
    for text in texts:
        start = time.perf_counter()
        router.decide_text(text)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def threads(count: int) -> None:
    """Cores that features may use from now on."""
    os.environ["OMP_NUM_THREADS"] = str(count)


def stream(texts: list[str], times: int) -> Iterator[str]:
    """The texts, again and again, one at a time."""
    return chain.from_iterable(repeat(texts, times))


def routing(router: Router, texts: list[str], times: int, cores: int) -> float:
    """Seconds to route a stream of texts."""
    threads(cores)
    return seconds(lambda: router.predict_texts(stream(texts, times)))


def run(repeats: int = 5, rows: int = 100_000) -> Report:
    """Measure and return the table."""
    texts = queries(10_000)
    router = trained(texts[:5_000])
    cores = min(2, len(os.sched_getaffinity(0)))
    words = HashingVectorizer()
    pairs = HashingVectorizer(ngram_range=(1, 2))
    few = texts[5_000:7_000]
    router.predict_texts(few)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    routing(router, texts, rows // len(texts), cores)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    times = interleave(
        {
            "one": lambda: one_by_one(router, few),
            "words": lambda: seconds(lambda: words.transform(few)) * rows / len(few),
            "pairs": lambda: seconds(lambda: pairs.transform(few)) * rows / len(few),
            "core": lambda: routing(router, few, 5, 1) * rows / (5 * len(few)),
            "cores": lambda: routing(router, texts, rows // len(texts), cores),
        },
        repeats,
    )
    report = Report("From text to decision")
    report.notes = [
        f"Queries of {LENGTH} characters; {router.n_features} hashing features and a linear policy of "
        f"four experts with distinct margins, saved and loaded again. The peer, scikit-learn's "
        f"HashingVectorizer, hashes and stops there. Median of {repeats} rounds (range). "
        f"{environment()}.",
    ]
    one = times["one"]
    report.add("one query, text to decision", str(one), "≤ 500 µs", one.median <= 500e-6)
    for name, label in (
        ("words", "HashingVectorizer, words, one core"),
        ("pairs", "HashingVectorizer, words and pairs, one core"),
        ("core", "text to decision, one core"),
    ):
        report.add(label, _rate(times[name], rows))
    rate = rows / times["cores"].median
    bar = "≥ 10,000/s" if cores == 2 else ""
    met = rate >= 10_000 if cores == 2 else None
    report.add(
        f"text to decision, {cores} core(s), {rows:,} queries",
        _rate(times["cores"], rows),
        bar,
        met,
    )
    report.contenders = {
        "text to decision": list(times["core"].seconds),
        "HashingVectorizer, words": list(times["words"].seconds),
        "HashingVectorizer, words and pairs": list(times["pairs"].seconds),
    }
    faster = median_ratio(times["pairs"], times["core"])
    spread = ratio_spread(times["pairs"], times["core"])
    report.add("one core against HashingVectorizer's words and pairs", spread, "≥ 1", faster >= 1)
    report.add(f"memory grown by {rows:,} queries", f"{grown:.0f} MB", "≤ 64 MB", grown <= 64)
    return report


def _rate(timing: Timing, rows: int) -> str:
    low, high = rows / max(timing.seconds), rows / min(timing.seconds)
    return f"{rows / timing.median:,.0f}/s ({low:,.0f} to {high:,.0f})"


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 5).markdown())
