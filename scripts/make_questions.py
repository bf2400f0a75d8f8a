"""Write our own questions: `python scripts/make_questions.py questions.jsonl [--count 1500] [--seed 0]`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mild.data.datasets.questions import make_questions


def main() -> None:
    """Write one JSON object per line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = make_questions(options.count, options.seed)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    options.file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
