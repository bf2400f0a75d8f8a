"""The numbers of mild 0.10, to which every later version is held.

What is held is what 1.0 keeps, with fixed settings and without a search. ``golden.json`` has the numbers,
``tables.py`` the three small tables, and ``paper.py``, ``fitted.py`` and ``judged.py`` compute on them.

Where names change, ``adapter.py`` changes and nothing else here. Where a number changes on purpose, the
note about that change explains the difference and shows that it is not worse on rows that were held out;
only then is the entry recorded anew.
"""

import json

import numpy as np
import pytest

from golden import record

HELD = json.loads(record.FILE.read_text(encoding="utf-8"))
TORCH = ("nn", "torch")


def same_rows(held, made):
    """Choices, and the steps of cascades, are equal on 99 % of the rows."""
    held, made = (rows.split() if " " in rows else list(rows) for rows in (held, made))
    return len(held) == len(made) and np.mean(np.array(held) == np.array(made)) >= 0.99


def near(held, made):
    """Mean and expected costs, qualities, shares and dollars differ by 0.002 at most."""
    return same_shape(held, made) and np.allclose(made, held, rtol=0, atol=0.002)


def near_limits(held, made):
    """The limits of intervals, which are drawn, differ by a tenth of the width at most."""
    allowed = np.maximum(0.1 * np.diff(held), 1e-9)
    return same_shape(held, made) and bool((np.abs(np.subtract(made, held)) <= allowed).all())


def exact(held, made):
    """Pure mathematics differs by a millionth at most; None stands for NaN."""
    held, made = (np.array(numbers, dtype=float) for numbers in (held, made))
    return same_shape(held, made) and np.allclose(made, held, rtol=1e-6, atol=1e-9, equal_nan=True)


def equal(held, made):
    return made == held


def same_shape(held, made):
    return np.shape(held) == np.shape(made)


RULES = {
    "rows": same_rows,
    "means": near,
    "intervals": near_limits,
    "values": exact,
    "facts": equal,
}


@pytest.mark.parametrize("name", [*HELD])
def test_numbers_are_those_of_0_10(name):
    if name.startswith(TORCH):
        pytest.importorskip("torch")
    held, made = HELD[name], record.numbers_of(name)
    assert labels(made) == labels(held)
    different = [
        f"{rule}, {label}: {made[rule][label]} in place of {held[rule][label]}"
        for rule, label in labels(held)
        if not RULES[rule](held[rule][label], made[rule][label])
    ]
    assert not different, "\n".join([f"{name!r} is not as it was:", *different])


def labels(entry):
    return [(rule, label) for rule, numbers in entry.items() for label in numbers]


def test_every_entry_is_held():
    assert HELD.keys() == record.ENTRIES.keys()


def test_golden_numbers_stay_small():
    adapter = record.FILE.with_name("adapter.py").read_text(encoding="utf-8")
    assert record.FILE.stat().st_size < 300_000
    assert len(adapter.splitlines()) <= 100
