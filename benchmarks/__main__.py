"""Run benchmarks, keep what they measured and write it into the page: ``python -m benchmarks [name ...]``.

What was measured is kept in ``results/benchmarks``; ``python -m benchmarks page`` writes the tables and
figures of docs/science/benchmarks.md from it and measures nothing. Those that need tables of outcomes,
``routing``, ``targets``, ``cascades``, ``halves`` and ``learning``, are started by themselves.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.measure import Report

NAMES = ("fit", "tuning", "decide", "startup", "text", "gateway")
ROOT = Path(__file__).parent.parent
KEPT = ROOT / "results" / "benchmarks"
PAGE = ROOT / "docs" / "science" / "benchmarks.md"
FIGURES = ROOT / "docs" / "figures" / "benchmarks"


def write_page() -> None:
    """Put what is kept between the marks of the page, and draw the figures."""
    text = PAGE.read_text(encoding="utf-8")
    for path in sorted(KEPT.glob("*.json")):
        report = Report(**json.loads(path.read_text(encoding="utf-8")))
        report.draw(FIGURES / f"{path.stem}.svg")
        picture = f"![{report.title}](../figures/benchmarks/{path.stem}.svg)\n"
        first, last = f"<!-- {path.stem} -->\n", f"<!-- end of {path.stem} -->"
        block = first + report.markdown() + "\n" + picture + last
        pattern = re.escape(first) + ".*?" + re.escape(last)
        text = re.sub(pattern, lambda _, block=block: block, text, flags=re.DOTALL)
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    asked = sys.argv[1:] or list(NAMES)
    KEPT.mkdir(parents=True, exist_ok=True)
    for name in asked if asked != ["page"] else ():
        report = importlib.import_module(f"benchmarks.{name}").run()
        print(report.markdown(), flush=True)
        (KEPT / f"{name}.json").write_text(
            json.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    write_page()


if __name__ == "__main__":
    main()
