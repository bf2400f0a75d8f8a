"""Record the numbers that later versions are held to: ``python -m tests.golden.record``.

It is for the version whose numbers are to be held, and not to make a failing test pass.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np

from . import fitted, judged, paper

FILE = Path(__file__).with_name("golden.json")
ENTRIES = {**judged.ENTRIES, **fitted.ENTRIES, **paper.ENTRIES}
# Significant digits of numbers by the rule that compares them.
DIGITS = {"means": 6, "intervals": 6, "values": 9}


def numbers_of(name):
    """The numbers of an entry as they are recorded: by rule and by label."""
    recorded = {}
    for rule, numbers in ENTRIES[name]().items():
        held_as = text_of if rule == "rows" else partial(plain, digits=DIGITS.get(rule))
        recorded[rule] = {label: held_as(part) for label, part in numbers.items()}
    return recorded


def text_of(rows):
    """One text for all rows: a digit for each expert, "-" for none; or steps with spaces between."""
    if isinstance(rows[0], str):
        return " ".join(rows)
    return "".join("-" if index < 0 else str(index) for index in rows)


def plain(numbers, digits):
    """Numbers without NumPy, rounded if there are ``digits``; None for NaN."""
    if isinstance(numbers, np.ndarray | np.generic):
        numbers = numbers.tolist()
    if isinstance(numbers, list | tuple):
        return [plain(part, digits) for part in numbers]
    if not isinstance(numbers, float) or digits is None:
        return numbers
    return None if np.isnan(numbers) else float(f"{numbers:.{digits}g}")


def main():
    lines = [f"{json.dumps(name)}: {json.dumps(numbers_of(name))}" for name in sorted(ENTRIES)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
