"""All families in fixed shares, without repetition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from mild.data.datasets.questions.arithmetic import arithmetic
from mild.data.datasets.questions.dates import dates
from mild.data.datasets.questions.facts import facts
from mild.data.datasets.questions.rows import Row
from mild.data.datasets.questions.strings import strings
from mild.data.datasets.questions.words import words
from mild.errors import InvalidInputError

__all__ = ["SHARES", "make_questions"]

SHARES: Mapping[str, float] = {
    "arithmetic": 0.21,
    "words": 0.17,
    "strings": 0.18,
    "dates": 0.14,
    "facts": 0.30,
}
FAMILIES: Mapping[str, Callable[[Random], Row]] = {
    "arithmetic": arithmetic,
    "words": words,
    "strings": strings,
    "dates": dates,
    "facts": facts,
}
# After so many repetitions in a row a family has nothing new to ask.
EXHAUSTED = 10_000


def make_questions(n_questions: int = 1500, seed: int = 0) -> list[Row]:
    """Questions with exact answers, in random order; the same for the same seed.

    Parameters
    ----------
    n_questions : how many; more than about 1,500 are not to be had without repetition
    seed : of all that is drawn

    Returns
    -------
    list of rows with query, answer, kind (numeric, exact, contains, choice), options (of a choice), source
    (family/task) and grade (1 to 5)

    Examples
    --------
    >>> row = make_questions(n_questions=40, seed=3)[0]
    >>> sorted(row)
    ['answer', 'grade', 'kind', 'options', 'query', 'source']
    """
    rng = Random(seed)
    rows: list[Row] = []
    taken: set[str] = set()
    wanted = _counts(n_questions)
    for family, count in wanted.items():
        repeated = 0
        while count:
            row = FAMILIES[family](rng)
            if row["query"] in taken:
                repeated += 1
                if repeated > EXHAUSTED:
                    raise InvalidInputError(
                        f"n_questions must leave something new to ask; {family} has no {wanted[family]}."
                    )
                continue
            taken.add(row["query"])
            rows.append(row)
            count, repeated = count - 1, 0
    rng.shuffle(rows)
    return rows


def _counts(n_questions: int) -> dict[str, int]:
    """Rows of every family, by its share; the last takes what rounding leaves."""
    counts = {family: int(n_questions * share) for family, share in SHARES.items()}
    counts["facts"] += n_questions - sum(counts.values())
    return counts
