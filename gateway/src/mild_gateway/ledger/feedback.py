"""What is known about the quality of answers: scores of clients, of graders, and of imported files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import sqlalchemy as sa

from mild.errors import InvalidInputError
from mild_gateway.database.engine import Database, Location, metadata, upsert
from mild_gateway.ledger.reading import open_ledger
from mild_gateway.ledger.records import as_text, column_of, decisions

#: Who judged an answer: the client that got it, a grader of the gateway, or a file that was imported.
SOURCES = ("client", "grader", "import")
#: In the place of a table of feedback: that which the ledger has.
LEDGER = "ledger"
#: Characters of a comment that are kept.
MAX_COMMENT = 2000
# Rows in one statement.
_PORTION = 1000
# Two-sided 95 % quantile of the normal distribution.
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class Feedback:
    """The score of one answer."""

    request_id: str
    """Request whose answer was judged."""
    expert: str
    """Expert whose answer was judged; in `write_feedback`, an empty name stands for the expert
    that answered.
    """
    source: str
    """Who judged: `client`, `grader` (of the gateway) or `import` (a file)."""
    score: float
    """Score in [0, 1]."""
    rate: float | None = None
    """Probability in (0, 1] with which this answer was picked to be judged; null if the judge
    picked it.
    """
    time: float = 0.0
    """When it was judged, in seconds since 1970."""
    comment: str | None = None
    """What the client wrote, at most 2,000 characters."""


feedback = sa.Table(
    "feedback",
    metadata,
    # The first three are the key.
    *(column_of(one.name, str(one.type), k < 3) for k, one in enumerate(fields(Feedback))),
    sa.Index("feedback_by_time", "time"),
)


def check_feedback(row: Feedback) -> Feedback:
    """The row as it is written, its texts cut and storable; InvalidInputError if it breaks a rule."""
    if not 0 <= row.score <= 1:
        raise InvalidInputError(parameter="score", rule=f"must lie in [0, 1]; got {row.score}.")
    # The inverse of less may be infinite.
    if row.rate is not None and not 1e-9 <= row.rate <= 1:
        raise InvalidInputError(parameter="rate", rule=f"must lie in (0, 1]; got {row.rate}.")
    comment = row.comment and as_text(row.comment)[:MAX_COMMENT]
    name, expert = as_text(row.request_id), as_text(row.expert)
    return replace(row, request_id=name, expert=expert, comment=comment)


def write_feedback(place: Database | sa.Connection, rows: Sequence[Feedback]) -> Counter[str]:
    """Write feedback, all or nothing; how many rows were "written".

    Left out and counted are rows whose request is "unknown" to the ledger, and those without an expert
    whose request is "unanswered". A row replaces an earlier one of the same request, expert and source.
    """
    if isinstance(place, Database):
        with place.transaction() as connection:
            return write_feedback(connection, rows)
    counts = Counter(written=0, unknown=0, unanswered=0)
    # The last of each key: a statement must not meet a row twice.
    last = {(row.request_id, row.expert, row.source): row for row in map(check_feedback, rows)}
    column, checked = decisions.c, list(last.values())
    for start in range(0, len(checked), _PORTION):
        some = checked[start : start + _PORTION]
        query = sa.select(column.request_id, column.expert, column.status)
        query = query.where(column.request_id.in_([row.request_id for row in some]))
        # PostgreSQL: nobody deletes these rows before the feedback is committed.
        found = place.execute(query.with_for_update(read=True, key_share=True))
        known = {name: expert if status < 400 else None for name, expert, status in found}
        new = {}
        for row in some:
            expert = row.expert or known.get(row.request_id)
            if expert is None or row.request_id not in known:
                counts["unanswered" if row.request_id in known else "unknown"] += 1
            else:
                values = {one.name: getattr(row, one.name) for one in feedback.c}
                new[row.request_id, expert, row.source] = values | {"expert": expert}
        upsert(place, feedback, list(new.values()), replace=("score", "rate", "time", "comment"))
        counts["written"] += len(new)
    return counts


def has_feedback(database: Database) -> bool:
    """Whether the ledger has the table; one that nobody has opened to write since schema 0006 has none."""
    return database.schema >= "0006"


def judged_requests(place: Location) -> dict[str, Feedback]:
    """By request, the feedback on the answer that was given; a random sample goes before other feedback."""
    row = feedback.c
    query = sa.select(feedback).join(decisions, decisions.c.request_id == row.request_id)
    # The last of a request is kept.
    query = query.where(decisions.c.expert == row.expert).order_by(
        row.rate.is_not(None), row.source != "client", row.time
    )
    with open_ledger(place) as database, database.transaction() as connection:
        if not has_feedback(database):
            return {}
        return {found[0]: Feedback(*found) for found in connection.execute(query)}


def feedback_by_expert(place: Location, since: float = -math.inf) -> dict[str, dict[str, Any]]:
    """By expert its ``answers`` since then, the ``rate`` of those that were judged, and their mean scores.

    ``samples`` are answers that were picked at random: each counts with the inverse of its rate, so that
    their mean stands for all answers. ``self_selected`` are the others. Each has the ``count``, the
    ``mean`` and Wilson's 95 % interval (``low``, ``high``), for any scores in [0, 1]; None without any.
    """
    row, given = decisions.c, feedback.c
    answered = row.expert.is_not(None) & (row.status < 400)
    answers = sa.select(row.expert, sa.func.count()).where(row.time >= since, answered)
    own = sa.case((answered & (row.expert == given.expert), row.request_id))
    weight = 1 / sa.func.coalesce(given.rate, 1.0)
    sums = [
        sa.func.sum(sa.case((kind, value), else_=0.0))
        for kind in (given.rate.is_not(None), given.rate.is_(None))
        for value in (1.0, weight, weight * given.score, weight * weight)
    ]
    scores = sa.select(given.expert, sa.func.count(sa.distinct(own)), *sums)
    scores = scores.join(decisions, row.request_id == given.request_id)
    # Not by the index of time: it is the feedback that is read through, and its rows looked up.
    scores = scores.where(row.time + 0.0 >= since).group_by(given.expert)
    with open_ledger(place) as database, database.transaction() as connection:
        if not has_feedback(database):
            return {}
        counts = dict(map(tuple, connection.execute(answers.group_by(row.expert))))
        judged = {name: line for name, *line in connection.execute(scores)}
    result = {}
    for name in sorted({*counts, *judged}):
        n, (k, *parts) = counts.get(name, 0), judged.get(name, [0] * 9)
        result[name] = {
            "answers": n,
            "rate": _mean(n, n, k, n),
            "samples": _mean(*parts[:4]),
            "self_selected": _mean(*parts[4:]),
        }
    return result


def _mean(count: float, total: float, weighted: float, squares: float) -> dict[str, Any] | None:
    """A weighted mean of values in [0, 1] with its interval."""
    if not count:
        return None
    mean, square = min(1.0, weighted / total), _Z**2 * squares / total**2
    middle = (mean + square / 2) / (1 + square)
    reach = math.sqrt(square * mean * (1 - mean) + square**2 / 4) / (1 + square)
    low, high = max(0.0, middle - reach), min(1.0, middle + reach)
    return {"count": int(count), "mean": mean, "low": low, "high": high}
