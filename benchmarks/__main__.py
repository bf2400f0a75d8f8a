"""Run every benchmark, print the tables and keep them: ``python -m benchmarks [name ...]``.

Those that need tables of your own, ``routing`` and ``targets``, print what they keep; ``python -m
benchmarks.targets FOLDER`` measures.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

NAMES = ("fit", "tuning", "decide", "startup", "text", "gateway")
HEADER = """# Benchmarks

Every figure is a ratio to a peer measured in the same run; single seconds depend on the machine and its
load, ratios much less. `make bench` measures them again and writes this page.

"""


def main() -> None:
    asked = sys.argv[1:] or list(NAMES)
    parts = []
    for name in asked:
        text = importlib.import_module(f"benchmarks.{name}").run().markdown()
        print(text, flush=True)
        parts.append(text)
    if asked == list(NAMES):
        page = Path(__file__).parent.parent / "docs" / "benchmarks.md"
        draft = page.with_suffix(".tmp")
        draft.write_text(HEADER + "\n".join(parts), encoding="utf-8")
        draft.replace(page)


if __name__ == "__main__":
    main()
