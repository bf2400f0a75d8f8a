"""Questions with exact answers: graded arithmetic, word problems, string and date tasks, facts."""

from __future__ import annotations

from random import Random
from typing import TypedDict

from mild.data.datasets.questions.tasks import FAMILIES
from mild.errors import InvalidInputError

__all__ = ["SHARES", "make_questions"]

SHARES = {family: share for family, (share, _) in FAMILIES.items()}
# After so many repetitions in a row a family has nothing new to ask.
EXHAUSTED = 10_000


class Row(TypedDict):
    """``source``: family and task; ``grade``: 1 (easy) to 5; ``options``: of a choice, else None."""

    query: str
    answer: str
    kind: str
    options: list[str] | None
    source: str
    grade: int


def make_questions(n_questions: int = 1500, seed: int = 0) -> list[Row]:
    """Different questions with exact answers, in random order; the same for the same seed.

    Parameters
    ----------
    n_questions : how many; there are about 1,500 without repetition
    seed : seed of all random draws

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
    # The last family takes what rounding leaves.
    counts = {family: int(n_questions * share) for family, share in SHARES.items()}
    counts["facts"] += n_questions - sum(counts.values())
    rows: dict[str, Row] = {}
    for family, (_, draw) in FAMILIES.items():
        end, repeated = len(rows) + counts[family], 0
        while len(rows) < end:
            task, grade, query, answer, kind, options = draw(rng)
            repeated = repeated + 1 if query in rows else 0
            if repeated > EXHAUSTED:
                raise InvalidInputError(
                    f"n_questions must leave something new to ask; {family} has no {counts[family]}.",
                    parameter="n_questions",
                )
            row = Row(
                query=query,
                answer=str(answer),
                kind=kind,
                options=options,
                source=f"{family}/{task}",
                grade=grade,
            )
            rows.setdefault(query, row)
    shuffled = list(rows.values())
    rng.shuffle(shuffled)
    return shuffled
