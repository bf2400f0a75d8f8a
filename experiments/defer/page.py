"""Fill the tables of docs/science/defer.md from results/defer.

    python -m experiments.defer.page            rewrite the page
    python -m experiments.defer.page --check    say whether it is up to date, and change nothing

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->``; what is written around them is kept.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "science" / "defer.md"
RESULTS = ROOT / "results" / "defer"
HEADER = (
    "method", "system accuracy", "minus classifier", "minus L_CE", "minus confidence", "coverage",
    "classifier on kept", "experts on deferred", "classifier alone", "ECE of experts",
)  # fmt: skip


def table_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """Cells of the table of a data set, one row per method; percentages, means over the seeds."""
    rows = []
    for method in document["methods"]:
        accuracy = f"{100 * method['system_accuracy']:.2f}"
        if method["deviation"] is not None:
            accuracy += f" ± {100 * method['deviation']:.2f}"
        rows.append(
            [
                method["method"],
                accuracy,
                _difference(method.get("minus_always_classifier")),
                _difference(method.get("minus_cross_entropy")),
                _difference(method.get("minus_confidence")),
                _mean(method["seeds"], "coverage", 1),
                _mean(method["seeds"], "classifier_accuracy", 1),
                _mean(method["seeds"], "expert_accuracy", 1),
                _mean(method["seeds"], "classifier_alone", 1),
                _mean(method["seeds"], "expert_calibration_error", 1),
            ]
        )
    return rows


def _difference(interval: Mapping[str, float] | None) -> str:
    """Estimate and interval, marked where it excludes 0."""
    if interval is None or interval["low"] == interval["high"] == 0:
        return ""
    estimate = 100 * interval["estimate"]
    low = 100 * interval["low"]
    high = 100 * interval["high"]
    text = f"{estimate:+.2f} [{low:+.2f}, {high:+.2f}]"
    if low > 0:
        return f"{text} ▲"
    if high < 0:
        return f"{text} ▼"
    return text


def _mean(seeds: Sequence[Mapping[str, Any]], name: str, digits: int) -> str:
    """Mean of the seeds in which the number exists, in %."""
    known = [numbers[name] for numbers in seeds if numbers.get(name) is not None]
    if not known:
        return ""
    return f"{100 * np.mean(known):.{digits}f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, numbers to the right."""
    lines = [f"| {' | '.join(header)} |", f"|---|{'--:|' * (len(header) - 1)}"]
    lines.extend(f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(lines)


def tables(results: Path) -> dict[str, str]:
    """All tables of the page by name."""
    tables_by_name = {}
    for file in sorted(results.glob("*.json")):
        document = json.loads(file.read_text())
        note = (
            f"{document['note']} {document['rows']:,} rows, {document['test_rows']:,} judged in each of "
            f"{len(document['settings']['seeds'])} seeds; {document['seconds']:.0f} s with "
            f"{document['jobs']} process(es), commit {str(document['commit'])[:8]}."
        )
        tables_by_name[file.stem] = f"{note}\n\n{markdown(HEADER, table_rows(document))}"
    records = results / "cifar10.jsonl"
    if records.is_file():
        tables_by_name |= _cifar10_tables(records)
    return tables_by_name


def _cifar10_tables(file: Path) -> dict[str, str]:
    """Tables of CIFAR-10 on the images held out."""
    # Imported here: it needs torch.
    from experiments.defer.cifar10 import differences, table

    records = [json.loads(line) for line in file.read_text().splitlines()]
    return {
        "cifar10": "\n".join(table(records)),
        "cifar10 differences": "\n".join(differences(records)),
    }


def filled(page: str, contents: Mapping[str, str]) -> str:
    """The page with its tables; a table without results stays as it is."""

    def replace(match: re.Match[str]) -> str:
        content = contents.get(match[1])
        if content is None:
            return match[0]
        return f"<!-- table {match[1]} -->\n\n{content}\n\n<!-- end -->"

    return re.sub(r"<!-- table (.+?) -->.*?<!-- end -->", replace, page, flags=re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    """Rewrite the page, or check it."""
    page = PAGE.read_text()
    new = filled(page, tables(RESULTS))
    if "--check" in arguments:
        if new != page:
            print(f"{PAGE.name} is not up to date: run python -m experiments.defer.page")
            return 1
        return 0
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
