"""Claim: ``mild learn`` reads a ledger of 1,000,000 rows in under 5 minutes and 2 GiB on two cores.

``python -m benchmarks.learning ledger`` writes a ledger in a temporary folder, with texts, exploration and
feedback of a grader and of clients, and runs ``mild learn --dry-run`` on it in a process of its own;
``--only read`` measures the reading side without the fit. ``--judged 1`` grades every answer,
``--features`` stores features in place of texts.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mild
from benchmarks.measure import Report
from mild.artifact import Router, features_tag
from mild_gateway.database.engine import open_database
from mild_gateway.demo import demo_router
from mild_gateway.ledger.feedback import feedback
from mild_gateway.ledger.records import Record, as_row, decisions
from mild_gateway.selection.stored_features import pack_features

MINUTES, GIB = 5.0, 2.0
EXPLORE = 0.2
BLOCK = 10_000
VOCABULARY = 20_000
READ = (
    "import sys, mild; from mild_gateway.learning.rows import read_logged; "
    "print(read_logged(sys.argv[2], mild.load(sys.argv[1])))"
)
LEARN = "import sys; from mild.cli.app import build_app; build_app()(sys.argv[1:])"


def write_ledger(
    path: Path, router: Router, rows: int, judged: float, client: float, features: bool
) -> None:
    """A ledger of so many rows; ``judged`` of them by a grader, ``client`` by clients."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{k}" for k in range(VOCABULARY)])
    names, n = router.experts, router.n_experts
    assert router.text is not None
    tag, start = features_tag(router.text), time.time() - rows
    database = open_database(path)
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        drawn = rng.zipf(1.3, (count, 40)) % VOCABULARY
        texts = [" ".join(words[line]) for line in drawn]
        packed = [pack_features(x, tag) for x in router.features(texts)] if features else None
        best = router.predict_texts(texts)
        explored = rng.random(count) < EXPLORE
        chosen = np.where(explored, rng.integers(n, size=count), best)
        propensity = EXPLORE / n + (1 - EXPLORE) * (chosen == best)
        prices, right = rng.gamma(2, 0.0005, count), rng.random(count) < 0.4 + 0.2 * chosen
        graded, told = rng.random(count) < judged, rng.random(count) < client
        records: list[dict[str, Any]] = []
        scores: list[dict[str, Any]] = []
        for k in range(count):
            name, request = names[chosen[k]], f"r{first + k:023d}"
            entry = Record(
                request, start + first + k, "bench", "mild", expert=name, chosen=name,
                probabilities=[1 / n] * n, propensity=float(propensity[k]), price=float(prices[k]),
                tokens_in=50, tokens_out=100, latency_ms=800.0, router=router.info.fingerprint or "",
                text=None if packed else texts[k], preferred=names[best[k]],
                features=packed[k] if packed else None,
            )  # fmt: skip
            records.append(as_row(entry))
            usual = {"request_id": request, "expert": name, "score": float(right[k])}
            usual |= {"time": start + first + k + 5.0, "comment": None}
            scores += [{**usual, "source": "grader", "rate": judged}] if graded[k] else []
            scores += [{**usual, "source": "client", "rate": None}] if told[k] else []
        with database.transaction() as connection:
            connection.execute(decisions.insert(), records)
            if scores:
                connection.execute(feedback.insert(), scores)
    database.close()


def measured(code: str, *arguments: str) -> tuple[float, float, int, str]:
    """Seconds, peak memory in GiB, exit code and output of a process of its own."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    taken = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return taken, peak, done.returncode, (done.stdout or done.stderr).strip()


def main(arguments: Sequence[str]) -> int:
    """Print the table; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.learning ledger", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--judged", type=float, default=0.1, help="share that a grader judges")
    parser.add_argument("--client", type=float, default=0.05, help="share that clients judge")
    parser.add_argument("--features", action="store_true", help="features in place of texts")
    parser.add_argument("--only", choices=["read", "learn"], default="learn")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as parent:
        folder = str(demo_router().save(Path(parent, "router")))
        router = mild.load(folder)
        ledger = Path(parent, "ledger.sqlite")
        write_ledger(ledger, router, options.rows, options.judged, options.client, options.features)
        size = ledger.stat().st_size / 1e9
        if options.only == "read":
            found = measured(READ, folder, str(ledger))
        else:
            given = [folder, "--ledger", str(ledger), "--dry-run", "--json"]
            found = measured(LEARN, "learn", *given)
    taken, peak, code, said = found
    good = code in ((0,) if options.only == "read" else (0, 3, 4))
    report = Report(
        f"mild learn: a ledger of {options.rows:,} rows",
        [
            f"{size:.2f} GB, {options.judged:.0%} graded, {options.client:.0%} judged by clients; "
            f"{options.only}.",
            f"exit code {code}: {said[-600:]}",
        ],
    )
    report.add("minutes", f"{taken / 60:.2f}", f"< {MINUTES:g}", good and taken / 60 < MINUTES)
    report.add("GiB at the peak", f"{peak:.2f}", f"< {GIB:g}", good and peak < GIB)
    print(report.markdown())
    return 0 if good and taken / 60 < MINUTES and peak < GIB else 1
