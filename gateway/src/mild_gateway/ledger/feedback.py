"""What is known about the quality of answers: scores of clients, of graders, and of imported files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import sqlalchemy as sa

from mild.errors import InvalidInputError
from mild_gateway.database.engine import Database, Location, upsert
from mild_gateway.database.tables import metadata
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


# There is one row for each request, expert and source.
_KEY_COLUMNS = ("request_id", "expert", "source")


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
    *[
        column_of(field.name, str(field.type), field.name in _KEY_COLUMNS)
        for field in fields(Feedback)
    ],
    sa.Index("feedback_by_time", "time"),
)


def check_feedback(row: Feedback) -> Feedback:
    """The row as it is written, its texts cut and storable; InvalidInputError if it breaks a rule."""
    if not 0 <= row.score <= 1:
        raise InvalidInputError(parameter="score", rule=f"must lie in [0, 1]; got {row.score}.")
    # The inverse of less may be infinite.
    if row.rate is not None and not 1e-9 <= row.rate <= 1:
        raise InvalidInputError(parameter="rate", rule=f"must lie in (0, 1]; got {row.rate}.")
    comment = row.comment
    if comment is not None:
        comment = as_text(comment)[:MAX_COMMENT]
    return replace(
        row, request_id=as_text(row.request_id), expert=as_text(row.expert), comment=comment
    )


def write_feedback(target: Database | sa.Connection, rows: Sequence[Feedback]) -> Counter[str]:
    """Write feedback, all or nothing; how many rows were "written".

    Left out and counted are rows whose request is "unknown" to the ledger, and those without an expert
    whose request is "unanswered". A row replaces an earlier one of the same request, expert and source.
    """
    if isinstance(target, Database):
        with target.transaction() as connection:
            return write_feedback(connection, rows)
    # The last of each key: a statement must not meet a row twice.
    last_rows = {}
    for row in rows:
        checked = check_feedback(row)
        last_rows[checked.request_id, checked.expert, checked.source] = checked
    counts = Counter(written=0, unknown=0, unanswered=0)
    new_rows = list(last_rows.values())
    for start in range(0, len(new_rows), _PORTION):
        counts.update(_write_portion(target, new_rows[start : start + _PORTION]))
    return counts


def _write_portion(connection: sa.Connection, rows: Sequence[Feedback]) -> Counter[str]:
    answered_by = _experts_that_answered(connection, [row.request_id for row in rows])
    counts = Counter(written=0, unknown=0, unanswered=0)
    # By key again: a row that names no expert may be about the same answer as one that does.
    new_rows = {}
    for row in rows:
        if row.request_id not in answered_by:
            counts["unknown"] += 1
            continue
        expert = row.expert or answered_by[row.request_id]
        if expert is None:
            counts["unanswered"] += 1
            continue
        new_rows[row.request_id, expert, row.source] = asdict(replace(row, expert=expert))
    upsert(
        connection,
        feedback,
        list(new_rows.values()),
        replace=("score", "rate", "time", "comment"),
    )
    counts["written"] += len(new_rows)
    return counts


def _experts_that_answered(
    connection: sa.Connection, request_ids: Sequence[str]
) -> dict[str, str | None]:
    """By request that the ledger has, the expert that answered; None if none did."""
    column = decisions.c
    query = sa.select(column.request_id, column.expert, column.status)
    query = query.where(column.request_id.in_(request_ids))
    experts = {}
    # PostgreSQL: nobody deletes these rows before the feedback is committed.
    for row in connection.execute(query.with_for_update(read=True, key_share=True)):
        experts[row.request_id] = row.expert if row.status < 400 else None
    return experts


def judged_requests(location: Location) -> dict[str, Feedback]:
    """By request, the feedback on the answer that was given; a random sample goes before other feedback."""
    row = feedback.c
    query = sa.select(feedback).join(decisions, decisions.c.request_id == row.request_id)
    # The last of a request is kept.
    query = query.where(decisions.c.expert == row.expert).order_by(
        row.rate.is_not(None), row.source != "client", row.time
    )
    with open_ledger(location) as database, database.transaction() as connection:
        return {found.request_id: Feedback(*found) for found in connection.execute(query)}


def feedback_by_expert(location: Location, since: float = -math.inf) -> dict[str, dict[str, Any]]:
    """By expert its ``answers`` since then, the ``rate`` of those that were judged, and their mean scores.

    ``samples`` are answers that were picked at random: each counts with the inverse of its rate, so that
    their mean stands for all answers. ``self_selected`` are the others. Each has the ``count``, the
    ``mean`` and Wilson's 95 % interval (``low``, ``high``), for any scores in [0, 1]; None without any.
    """
    row = decisions.c
    is_answered = row.expert.is_not(None) & (row.status < 400)
    counted = sa.select(row.expert, sa.func.count().label("answers"))
    counted = counted.where(row.time >= since, is_answered).group_by(row.expert)
    with open_ledger(location) as database, database.transaction() as connection:
        answers = {line.expert: line.answers for line in connection.execute(counted)}
        scores = {line.expert: line for line in connection.execute(_score_sums(since))}
    result = {}
    for expert in sorted({*answers, *scores}):
        n_answers = answers.get(expert, 0)
        line = scores.get(expert)
        if line is None:
            result[expert] = {
                "answers": n_answers,
                "rate": mean_and_interval(n_answers, n_answers, 0, n_answers),
                "samples": None,
                "self_selected": None,
            }
            continue
        result[expert] = {
            "answers": n_answers,
            "rate": mean_and_interval(n_answers, n_answers, line.judged, n_answers),
            "samples": mean_and_interval(
                line.samples_count, line.samples_weight, line.samples_score, line.samples_squares
            ),
            "self_selected": mean_and_interval(
                line.others_count, line.others_weight, line.others_score, line.others_squares
            ),
        }
    return result


def _score_sums(since: float) -> sa.Select[Any]:
    """By expert, how many of its answers were judged, and sums over the scores of both kinds."""
    row = decisions.c
    score = feedback.c
    is_own_answer = row.expert.is_not(None) & (row.status < 400) & (row.expert == score.expert)
    judged = sa.func.count(sa.distinct(sa.case((is_own_answer, row.request_id))))
    weight = 1 / sa.func.coalesce(score.rate, 1.0)
    columns: list[Any] = [score.expert, judged.label("judged")]
    for kind, is_kind in (
        ("samples", score.rate.is_not(None)),
        ("others", score.rate.is_(None)),
    ):
        for name, value in (
            ("count", 1.0),
            ("weight", weight),
            ("score", weight * score.score),
            ("squares", weight * weight),
        ):
            total = sa.func.sum(sa.case((is_kind, value), else_=0.0))
            columns.append(total.label(f"{kind}_{name}"))
    query = sa.select(*columns).join(decisions, row.request_id == score.request_id)
    # Not by the index of time: it is the feedback that is read through, and its rows looked up.
    return query.where(row.time + 0.0 >= since).group_by(score.expert)


def mean_and_interval(
    count: float, total: float, weighted: float, squares: float
) -> dict[str, Any] | None:
    """A weighted mean of values in [0, 1] with its interval."""
    if not count:
        return None
    mean = min(1.0, weighted / total)
    square = _Z**2 * squares / total**2
    middle = (mean + square / 2) / (1 + square)
    reach = math.sqrt(square * mean * (1 - mean) + square**2 / 4) / (1 + square)
    return {
        "count": int(count),
        "mean": mean,
        "low": max(0.0, middle - reach),
        "high": min(1.0, middle + reach),
    }
