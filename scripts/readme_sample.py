"""The output of ``mild demo`` in the README, generated: it cannot go stale.

    python scripts/readme_sample.py            compare the README with what the demo prints
    python scripts/readme_sample.py --write    write what the demo prints into the README

The exit code is 1 where they differ.

Words must be equal. Numbers may differ by 2 %, because solvers round differently on other processors.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
# The block of code after this line is the sample.
MARK = "<!-- The sample is written by scripts/readme_sample.py --write. -->\n"
WIDTH = 112
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
# Numbers that differ by less, in share or at all, are the same.
RELATIVE, ABSOLUTE = 0.02, 0.005


def make_sample() -> str:
    """What ``mild demo`` prints, without what differs from run to run, in lines of bounded width."""
    with tempfile.TemporaryDirectory() as folder:
        code = "from mild.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, "demo"],
            cwd=folder,
            env={**os.environ, "COLUMNS": str(WIDTH)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"mild demo failed: {done.stderr}")
        text = done.stdout.replace(os.path.realpath(folder) + os.sep, "")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"\n\d+ s\. (Everything is in )", r"\n\1", text)
    lines = []
    for line in text.strip().splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        lines += textwrap.wrap(
            line.rstrip(),
            WIDTH,
            subsequent_indent=indent + "  " * line.lstrip().startswith("$"),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines) + "\n"


def written(readme: str) -> tuple[int, int]:
    """Where the sample in a README begins and ends."""
    if MARK not in readme:
        raise SystemExit(f"the README must have the line {MARK.strip()!r} before the sample.")
    start = readme.index("```\n", readme.index(MARK)) + len("```\n")
    return start, readme.index("```", start)


def differences(old: str, new: str) -> list[str]:
    """Lines about words that differ, and numbers that differ by more than rounding."""
    before, after = (re.sub(r"[━┏┓┳╇┡┩┃│└┘┴─]", " ", text).split() for text in (old, new))
    if [NUMBER.sub("#", word) for word in before] != [NUMBER.sub("#", word) for word in after]:
        return ["the words are others"]
    pairs = zip(NUMBER.findall(" ".join(before)), NUMBER.findall(" ".join(after)), strict=True)
    values = [[float(text.replace(",", "")) for text in pair] for pair in pairs]
    return [
        f"{old} is {new} now"
        for old, new in values
        if abs(new - old) > max(ABSOLUTE, RELATIVE * abs(old))
    ]


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the sample into the README")
    write = parser.parse_args().write
    readme, sample = README.read_text(encoding="utf-8"), make_sample()
    start, end = written(readme)
    if write:
        README.write_text(readme[:start] + sample + readme[end:], encoding="utf-8")
        return 0
    found = differences(readme[start:end], sample)
    for line in found:
        print(f"{line}: run python scripts/readme_sample.py --write", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
